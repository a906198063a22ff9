package index

import (
	"testing"

	"tidegate/cdc/event"
)

// TestArrivals: a version's time is never later than it came, is of the right
// size, and is unknown before the first; what snapshots hold does not change.
func TestArrivals(t *testing.T) {
	var a arrivals
	const first, step = 1000, 2 * arrivalGap
	var held []arrival
	var copied []arrival
	came := func(v event.Version) int64 { return 1 + int64(v-first)*step }
	for v := event.Version(first); v < first+5000; v++ {
		a.note(v, came(v))
		a.note(v+1, came(v)+1) // within the gap: not kept
		if v == first+maxArrivals/2 {
			held, copied = a.list, append([]arrival(nil), a.list...)
		}
		if len(a.list) > maxArrivals {
			t.Fatalf("%d are kept", len(a.list))
		}
		now := came(v)
		for _, back := range []event.Version{0, 1, 10, 100, 1000} {
			x := v - back
			if x < first {
				continue
			}
			got := when(a.list, x)
			age, truth := now-got, now-came(x)
			if got == 0 || age < truth || age > truth+truth/8+step {
				t.Fatalf("version %d, %d steps old at %d: got age %d, want %d or a little more", x, back, v, age, truth)
			}
		}
	}
	for i := range held {
		if held[i] != copied[i] {
			t.Fatalf("what a snapshot holds changed at %d", i)
		}
	}
	if at := when(a.list, first-1); at != 0 {
		t.Errorf("a version from before came at %d", at)
	}
	if at := when(nil, 7); at != 0 {
		t.Errorf("nothing is known, and a version came at %d", at)
	}
	if n := testing.AllocsPerRun(100, func() { when(a.list, first+7) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
