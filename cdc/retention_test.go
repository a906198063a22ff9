package cdc_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"tidegate/cdc"
	"tidegate/cdc/key"
)

// TestCheckpointsBeforeAThirdOfMaxBytes: rules §5.3. However far apart count and
// age leave them, a checkpoint comes before a third of what the stream holds was
// written; and so, whatever the stream has discarded, a reader finds one.
func TestCheckpointsBeforeAThirdOfMaxBytes(t *testing.T) {
	const maxBytes = 16 << 20
	for _, c := range []struct {
		name   string
		scopes int   // of each transaction
		n      int64 // transactions, enough for several thirds
	}{{"large", 1000, 2100}, {"small", 1, 45_000}} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t, t.TempDir())
			o.WritesMaxBytes = maxBytes
			conn := open(t, o)
			// Small ones go one a message: there what NATS adds weighs the most.
			wo := cdc.WriterOptions{CheckpointEvery: 1 << 40, CheckpointAge: 1000 * time.Hour}
			if c.scopes == 1 {
				wo.BatchBytes = 1
			}
			w := write(t, conn, wo, facts(upTo(0)))
			stream, err := conn.JetStream().Stream(t.Context(), conn.WritesStream())
			if err != nil {
				t.Fatal(err)
			}
			// What the stream holds when each checkpoint was written, and what it
			// discarded by then, is what its messages take.
			var written, last, widest, seen uint64
			size := func() uint64 {
				info, err := stream.Info(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				s := info.State
				if s.Msgs == 0 {
					return 0
				}
				return s.Bytes / s.Msgs * s.LastSeq
			}
			const step = 100
			for n := int64(1); n <= c.n; n++ {
				x := tx(n)
				for i := 1; i < c.scopes; i++ {
					x.Scopes = append(x.Scopes, key.Digest{3, byte(i), byte(i >> 8), byte(n), byte(n >> 8)})
				}
				w.append(t, x)
				if n%step != 0 {
					continue
				}
				w.stored(t, uint64(n))
				written = size()
				if made := w.Counters().Checkpoints; made != seen {
					seen, last = made, written
				}
				widest = max(widest, written-last)
			}
			t.Logf("%d bytes in %d messages, of which %d are payload; %d checkpoints", written, w.Counters().Messages, w.Counters().Bytes, seen)
			if written < 2*maxBytes/3 {
				t.Fatal("too little was written to tell")
			}
			// The message that passes the third, what is in flight, and the mean's error.
			const slack = 1 << 20
			if widest > maxBytes/3+slack {
				t.Errorf("%d bytes of the stream lie behind a checkpoint before the next comes, want about %d at most", widest, maxBytes/3)
			}
			info, err := stream.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if info.State.FirstSeq == 1 && written > maxBytes {
				t.Errorf("the stream holds all of %d bytes, and has discarded nothing", info.State.Bytes)
			}
			r := newRecorder()
			follow(t, conn, r)
			r.wantStarted(t)
			r.wantAll(t, w)
		})
	}
}

// TestCheckpointsBeforeAThirdOfMaxAge: rules §5.3, also of a stream that nobody
// writes to, whose only checkpoint would expire.
func TestCheckpointsBeforeAThirdOfMaxAge(t *testing.T) {
	for _, c := range []struct {
		age   time.Duration
		write bool
		want  uint64
	}{
		{age: 7*time.Hour + 50*time.Minute, write: true, want: 0},
		{age: 8 * time.Hour, write: true, want: 1},
		{age: 8 * time.Hour, want: 1},
	} {
		t.Run(fmt.Sprintf("%s written=%v", c.age, c.write), func(t *testing.T) {
			o := options(t, t.TempDir())
			o.WritesMaxAge = 24 * time.Hour
			conn := open(t, o)
			w, _, err := cdc.OpenWriter(t.Context(), conn, cdc.WriterOptions{CheckpointEvery: 1 << 40, CheckpointAge: 1000 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if _, err := w.Begin(t.Context(), facts(upTo(0))); err != nil {
				t.Fatal(err)
			}
			begun := w.Counters().Checkpoints
			w.BackdateCheckpoint(c.age)
			run := start(t, w.Run)
			wr := &writing{Writer: w, run: run}
			if c.write {
				wr.numbered(t, 1, 10)
				wr.stored(t, 10)
			}
			if c.want > 0 {
				eventually(t, func() string {
					if w.Counters().Checkpoints == begun {
						return "no checkpoint by a third of max_age"
					}
					return ""
				})
			}
			if n := w.Counters().Checkpoints - begun; n != c.want {
				t.Errorf("%d checkpoints, want %d", n, c.want)
			}
			wr.end(t)
		})
	}
}

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
