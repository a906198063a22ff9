package budget_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"tidegate/router/budget"
)

const millis = int64(1_000_000)

func TestTakeKeepsTheRate(t *testing.T) {
	for _, c := range []struct {
		perSecond        int
		step             int64 // nanoseconds between two attempts
		minimum, maximum int   // in ten seconds
	}{
		{100, millis, 1000, 1011},
		{100, 20 * millis, 500, 500}, // asked less often than allowed
		{1, millis, 10, 11},
		{0, millis, 0, 0},
		{-5, millis, 0, 0},
		{1_000_000, millis, 10_000, 10_000},
	} {
		b := budget.New(c.perSecond)
		got := 0
		for now := int64(0); now < 10_000*millis; now += c.step {
			would := b.Would(now)
			took := b.Take(now)
			if would != took {
				t.Fatalf("rate %d at %d: Would %v, Take %v", c.perSecond, now, would, took)
			}
			if took {
				got++
			}
		}
		if got < c.minimum || got > c.maximum {
			t.Errorf("rate %d: %d reads in 10 s, want %d to %d", c.perSecond, got, c.minimum, c.maximum)
		}
	}
}

func TestWaitIsEnough(t *testing.T) {
	b := budget.New(10)
	if !b.Take(0) || b.Take(0) {
		t.Fatal("want one read at once and no second")
	}
	w := b.Wait(0)
	if w != 100*millis {
		t.Errorf("wait %d ns, want 100 ms", w)
	}
	if b.Take(w-1) || !b.Take(w) {
		t.Error("the wait is not exact")
	}
	if w := budget.New(0).Wait(0); w != 1000*millis {
		t.Errorf("wait %d ns of a budget that allows nothing, want 1 s", w)
	}
}

func TestTakeFromManyAtOnce(t *testing.T) {
	b := budget.New(1000)
	var took atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if b.Take(5) {
					took.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := took.Load(); n != 100 {
		t.Errorf("%d reads at one moment, want the burst of 100", n)
	}
}

func TestZeroValueAllowsNothing(t *testing.T) {
	var b budget.Budget
	if b.Take(1) || b.Would(1) {
		t.Error("the zero value allows a read")
	}
}
