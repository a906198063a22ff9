package binlog

import (
	"testing"
	"time"
)

func TestDelayHistogram(t *testing.T) {
	var h delayHistogram
	for _, d := range []time.Duration{-time.Second, 0, time.Microsecond, 3 * time.Microsecond, 1000 * time.Microsecond, 24 * time.Hour} {
		h.add(d)
	}
	want := map[int]uint64{0: 2, 1: 1, 2: 1, 10: 1, 31: 1}
	for i := range h.buckets {
		if got := h.buckets[i].Load(); got != want[i] && i != 31 {
			t.Errorf("bucket %d: got %d, want %d", i, got, want[i])
		}
	}
	var n uint64
	for i := range h.buckets {
		n += h.buckets[i].Load()
	}
	if n != 6 {
		t.Errorf("got %d delays, want 6", n)
	}
}
