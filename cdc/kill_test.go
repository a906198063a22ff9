package cdc_test

import (
	"fmt"
	"testing"
	"time"

	"tidegate/cdc"
	"tidegate/cdc/event"
	"tidegate/testenv"
)

// TestNATSKilledUnderLoad: a NATS server of its own is killed -9 again and again
// while transactions come; all of them are in the stream once, in order, as a
// reader sees that starts afterwards.
func TestNATSKilledUnderLoad(t *testing.T) {
	n, err := testenv.StartNATS(t.Context(), testenv.NATSOptions{MaxFileStore: 64 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close NATS: %v", err)
		}
	})
	o := external(t, n.URL())
	o.ReconnectMaxWait = 200 * time.Millisecond
	c := open(t, o)
	live := newRecorder()
	follow(t, c, live)
	w := write(t, c, cdc.WriterOptions{BatchBytes: 2000, QueueBytes: 20000}, facts(upTo(0)))
	live.wantStarted(t)
	enough := w.onAndOn(t)
	for range 3 {
		before := w.Counters().Transactions
		eventually(t, func() string {
			if got := w.Counters().Transactions; got < before+1000 {
				return fmt.Sprintf("no progress beyond %d", got)
			}
			return ""
		})
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	last := enough()
	live.wantNumbered(t, 1, last)
	late := newRecorder()
	f := cdc.NewFollower(c, cdc.FollowerOptions{Sink: late, StartAt: func(*event.Checkpoint) bool { return false }})
	start(t, f.Run)
	late.wantNumbered(t, 1, last)
	if w.Counters().Resyncs == 0 {
		t.Error("nothing was interrupted")
	}
	w.end(t)
}
