package cdc_test

import (
	"testing"

	"tidegate/cdc"
)

func TestWriteAndFollow(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	r := newRecorder()
	_, run := follow(t, c, r)
	w := write(t, c, cdc.WriterOptions{Name: "one"}, facts(upTo(10)))
	if !w.tail.Empty || !w.from.Equal(upTo(10)) {
		t.Errorf("tail empty %v, dump from %v, want an empty tail and %v", w.tail.Empty, w.from, upTo(10))
	}
	w.numbered(t, 11, 2000)
	r.wantNumbered(t, 11, 2000)
	r.wantCaughtUp(t)
	w.end(t)
	if err := run.stop(); err != nil {
		t.Error(err)
	}
	if len(r.starts) != 1 || !r.starts[0].Delivered.Equal(upTo(10)) || r.starts[0].History != 1 {
		t.Errorf("started at %+v, want one checkpoint with %v", r.starts, upTo(10))
	}
}

func BenchmarkThroughput(b *testing.B) {
	o := options(b, b.TempDir())
	o.Log = discard()
	c := open(b, o)
	r := &counting{recorder: newRecorder()}
	f := cdc.NewFollower(c, cdc.FollowerOptions{Sink: r})
	start(b, f.Run)
	w := write(b, c, cdc.WriterOptions{}, facts(upTo(0)))
	n := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		if err := w.Append(b.Context(), tx(n)); err != nil {
			b.Fatal(err)
		}
	}
	eventually(b, func() string {
		if got := f.Counters().Transactions; got < uint64(n) {
			return "behind"
		}
		return ""
	})
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "txn/s")
	b.ReportMetric(float64(n)/float64(w.Counters().Messages), "txn/message")
}
