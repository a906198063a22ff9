package cdc_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"tidegate/cdc"
)

// TestLeaseTakeover: a standby takes a key over within 3 s of its holder's death,
// not while the holder renews it, and at its next look after a good-bye. The
// bubble's clock passes only when everybody waits.
func TestLeaseTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s cdc.MemoryStore
		take := func(name string) <-chan func(context.Context) error {
			out := make(chan func(context.Context) error, 1)
			go func() {
				keep, err := cdc.MemoryConn(name, &s).TakeWatch(t.Context(), "a")
				if err != nil {
					t.Error(err)
				}
				out <- keep
			}()
			return out
		}
		live := func(keep func(context.Context) error) (goodbye func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- keep(ctx) }()
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		<-take("dead at once") // nobody renews it
		dead := time.Now()
		second := <-take("second")
		if took := time.Since(dead); took < cdc.LeaderTakeover || took > 3*time.Second {
			t.Errorf("takeover took %v, want %v to 3 s", took, cdc.LeaderTakeover)
		}
		goodbye := live(second)
		third := take("third")
		select {
		case <-third:
			t.Fatal("two holders at once")
		case <-time.After(time.Minute):
		}
		bye := time.Now()
		goodbye()
		live(<-third)()
		if took := time.Since(bye); took > cdc.LeasePoll {
			t.Errorf("after a good-bye the takeover took %v, want one look of %v", took, cdc.LeasePoll)
		}
	})
}
