package index_test

import (
	"fmt"
	"testing"

	"tidegate/cdc/event"
	"tidegate/index"
)

// TestReignWhileAway: a primary that nobody announced may have reigned and gone while
// the router was not there to see it. Who names its newest write under it alone is
// asked for all that the announced one has, like where the router saw it (rules §10).
func TestReignWhileAway(t *testing.T) {
	readOnly := func(s *event.ServerState) { s.Writable, s.Role = false, event.RoleReplica }
	for name, back := range map[string]func(*world, *index.Memory) *world{
		"seen": func(w *world, _ *index.Memory) *world {
			w.state("a", "a:1-60", readOnly)
			return w
		},
		"cut off for longer than the lease": func(w *world, _ *index.Memory) *world {
			w.now += int64(index.DefaultLease) + second
			return w
		},
		"restarted": func(w *world, st *index.Memory) *world {
			if err := w.ix.Flush(); err != nil {
				t.Fatal(err)
			}
			announced := w.announced
			w = reopened(t, w, st.Clone(), index.Options{})
			w.announced = announced
			return w
		},
		"begun at a checkpoint": func(w *world, _ *index.Memory) *world {
			w.seq++
			w.ord++
			cp := &event.Checkpoint{History: 1, Delivered: set(t, "a:1-60"), Announced: *w.announcement("a", "a:1-50"), LossAt: w.announced}
			if err := w.ix.Start(cp, w.seq, event.Header{Timeline: 1, Count: w.seq}, event.MakeVersion(1, w.ord)); err != nil {
				t.Fatal(err)
			}
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := index.NewMemory()
			w := started(t, index.Options{Store: st}, "a:1-50")
			for i := 51; i <= 60; i++ {
				w.write(tx(fmt.Sprintf("a:%d", i), i))
			}
			w.newTick()
			w.state("a", "a:1-60")
			w = back(w, st)
			w.ix.CaughtUp(w.seq, true)
			w.newTick()
			w.state("a", "a:1-60")
			if _, at := w.snap().CountedE(); at == 0 {
				t.Fatal("no E counts: a floor is not cut")
			}
			if left := w.snap().FailoverLeft(); !left.ContainsSet(set(t, "a:1-60")) {
				t.Errorf("a floor that was cut asks for %s alone, and a replica may lack the rest of a:1-60", left.OneLine())
			}
		})
	}
}

// TestModeOfBeforeTheAnnouncement: STATE and WRITES have no order between them. A
// state that showed gtid_mode away from ON is why the writer announced anew, and may
// come after that.
func TestModeOfBeforeTheAnnouncement(t *testing.T) {
	for _, late := range []bool{true, false} {
		w := started(t, index.Options{}, "a:1-10")
		w.newTick()
		w.state("a", "a:1-10")
		v := w.write(w.announcement("a", "a:1-10"))
		if late {
			v--
		}
		w.state("a", "a:1-10", func(s *event.ServerState) { s.GTIDMode, s.LossSeen = "ON_PERMISSIVE", v })
		w.newTick()
		w.state("a", "a:1-10")
		if got := w.snap().WatermarkAt() == w.now; got != late {
			t.Errorf("a relaxed mode of before the announcement (%v): W is up to date: %v; %s", late, got, w.snap().WatermarkRefused())
		}
	}
}

// TestProbesOfAnEarlierRun: what only an earlier primary had, and nobody knows to be
// lost, the stream never comes to; W does not wait for it.
func TestProbesOfAnEarlierRun(t *testing.T) {
	for _, before := range []int{0, 50} {
		w := started(t, index.Options{}, "a:1-10")
		for range before {
			w.newTick()
			w.state("a", "a:1-10")
		}
		w.newTick()
		w.state("a", "a:1-11")
		w.state("a", "a:1-11", func(s *event.ServerState) { s.Epoch, s.Role, s.Writable = 2, event.RoleReplica, false })
		w.write(w.announcement("b", "a:1-10")) // the last state of the run that was announced is gone
		for i := 1; i <= 500; i++ {
			w.newTick()
			w.state("b", fmt.Sprintf("a:1-10,b:1-%d", i), func(s *event.ServerState) { s.Role, s.Writable = event.RolePrimary, true })
			if i <= 2 {
				continue
			}
			w.write(tx(fmt.Sprintf("b:%d", i-2), 1)) // the stream is always two ticks behind
			if at := w.snap().WatermarkAt(); at < w.now-3*second {
				t.Fatalf("after %d probes before: W is %d s old at tick %d", before, (w.now-at)/second, i)
			}
		}
	}
}
