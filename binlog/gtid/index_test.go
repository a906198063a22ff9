package gtid

import (
	"encoding/binary"
	"slices"
	"testing"
)

// TestIndexCollisions fills an index with UUIDs chosen to share one slot of
// its hash table, some of them with tags: more than the table probes.
func TestIndexCollisions(t *testing.T) {
	// The inverse of an odd number modulo 2 to the 64th, by Newton's method.
	inverse := uint64(1)
	for range 6 {
		inverse *= 2 - spread*inverse
	}
	const n = 4 * maxProbes
	source := func(i int, tag string) Source {
		var src Source
		binary.BigEndian.PutUint64(src.UUID[:], uint64(i)*inverse)
		src.Tag = tag
		return src
	}
	var all []Source
	for i := range n {
		for _, tag := range []string{"", "a", "b"}[:1+i%3] {
			all = append(all, source(i, tag))
		}
	}
	slices.SortFunc(all, Source.Compare)
	x := newIndex(all)
	slots := map[uint64]bool{}
	for _, key := range x.high {
		slots[key*spread>>x.shift] = true
	}
	if len(slots) != 1 {
		t.Fatalf("the UUIDs hash to %d slots, want one", len(slots))
	}
	for i, src := range all {
		if k, ok := x.lookup(&src); !ok || k != i {
			t.Errorf("lookup of source %d: %d, %v", i, k, ok)
		}
		for from := 0; from <= i; from++ {
			if k, ok := x.find(&src, from); !ok || k != i {
				t.Errorf("find of source %d from %d: %d, %v", i, from, k, ok)
			}
		}
	}
	for i := range 2 * n {
		src := source(i, "absent")
		if k, ok := x.lookup(&src); ok {
			t.Errorf("lookup of an absent source: %d", k)
		}
		want, _ := slices.BinarySearchFunc(all, src, Source.Compare)
		if k, ok := x.find(&src, 0); ok || k != want {
			t.Errorf("find of an absent source: %d, %v, want %d", k, ok, want)
		}
	}
}
