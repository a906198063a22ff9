package index_test

import (
	"strings"
	"testing"
	"time"

	"tidegate/cdc/event"
	"tidegate/index"
)

// TestRule6Watermark: W is the newest tick whose E is within D, H and lost; E
// is owned and executed (rules §6.2, §6.3).
func TestRule6Watermark(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.newTick()
	w.state("a", "a:1-10")
	one := w.now
	w.wantMark(one)
	w.newTick()
	w.state("a", "a:1-11", func(s *event.ServerState) { s.Owned = set(t, "a:12") })
	two := w.now
	w.wantMark(one)
	w.write(tx("a:11", 1))
	w.wantMark(one) // what the primary owns may be visible
	w.write(&event.Hole{GTIDs: set(t, "a:12")})
	w.wantMark(two)
	// Of two probes under one tick the first is the smaller bound.
	w.newTick()
	w.state("a", "a:1-12")
	w.state("a", "a:1-13")
	w.wantMark(w.now)
	e, at := w.snap().CountedE()
	w.wantSet("newest E", e, "a:1-13")
	if at != w.now {
		t.Errorf("newest E is of %d, want %d", at, w.now)
	}
}

func (w *world) wantMark(at int64) {
	w.tb.Helper()
	if got := w.snap().WatermarkAt(); got != at {
		w.tb.Errorf("watermark is of %d s, want %d s", got/second, at/second)
	}
}

// TestRule6NotCounted lists the states of a primary whose E does not count.
func TestRule6NotCounted(t *testing.T) {
	tests := []struct {
		name   string
		before func(w *world)
		change func(*event.ServerState)
		why    string
	}{
		{"another epoch", nil, func(s *event.ServerState) { s.Epoch = 2 }, "not announced"},
		{"another UUID", nil, func(s *event.ServerState) { s.UUID = uuidC }, "not announced"},
		{"not writable", nil, func(s *event.ServerState) { s.Writable = false }, "writable"},
		{"not drained", nil, func(s *event.ServerState) { s.Drained = false }, "drained"},
		{"gtid_mode relaxed", nil, func(s *event.ServerState) { s.GTIDMode = "ON_PERMISSIVE" }, "ON_PERMISSIVE"},
		{"not alive", nil, func(s *event.ServerState) { s.Alive = false }, "not alive"},
		{"a tick of another router", nil, func(s *event.ServerState) { s.Ticks = s.Ticks[:1] }, "no tick"},
		{"a tick that was never sent", nil, func(s *event.ServerState) { s.Ticks[1].Tick = 99 }, "no tick"},
		{"less than the probe before", nil, func(s *event.ServerState) { s.Executed = set(t, "a:1-9") }, "lacks"},
		{"another primary", func(w *world) {
			w.state("b", "a:1-10", func(s *event.ServerState) { s.Role = event.RolePrimary })
		}, func(s *event.ServerState) {}, "server b"},
		{"an anonymous transaction", func(w *world) {
			w.write(&event.Hole{Anonymous: true})
		}, func(s *event.ServerState) {}, "anonymous"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := started(t, index.Options{}, "a:1-10")
			w.newTick()
			w.state("a", "a:1-10")
			at := w.now
			w.wantMark(at)
			w.newTick()
			if tt.before != nil {
				tt.before(w)
			}
			w.state("a", "a:1-10", tt.change)
			w.wantMark(at)
			n := w.ix.Counters()
			if got := w.snap().WatermarkRefused(); got != n.ProbeRefused {
				t.Errorf("the snapshot says %q, the counters %q", got, n.ProbeRefused)
			}
			if n.ProbesCounted != 1 || !strings.Contains(n.ProbeRefused, tt.why) {
				t.Errorf("%d probes counted, the last refused because %q; want 1, %q", n.ProbesCounted, n.ProbeRefused, tt.why)
			}
		})
	}
}

// TestRule6PreviousExecuted: an E must contain the executed part of the counted
// one before, lost aside; not what that one owned.
func TestRule6PreviousExecuted(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.newTick()
	w.state("a", "a:1-10", func(s *event.ServerState) { s.Owned = set(t, "a:11") })
	w.newTick()
	w.state("a", "a:1-10") // it rolled back
	w.wantMark(w.now)
	w.write(tx("a:11", 1))
	w.newTick()
	w.state("a", "a:1-11")
	w.wantMark(w.now)
	lost := w.announcement("b", "a:1-10")
	lost.Lost, lost.NewlyLost = set(t, "a:11"), set(t, "a:11")
	w.write(lost)
	w.newTick()
	w.state("b", "a:1-10", func(s *event.ServerState) { s.Role, s.Writable = event.RolePrimary, true })
	w.state("a", "a:1-11", func(s *event.ServerState) { s.Alive = false })
	w.newTick()
	w.state("b", "a:1-10", func(s *event.ServerState) { s.Role, s.Writable = event.RolePrimary, true })
	w.wantMark(w.now)
}

// TestRule6Anonymous: the watermark stops at an anonymous transaction and goes
// on with the next announcement.
func TestRule6Anonymous(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.newTick()
	w.state("a", "a:1-11") // not yet within D
	w.wantMark(0)
	w.write(&event.Hole{Anonymous: true}, tx("a:11", 1))
	w.wantMark(0)
	w.write(w.announcement("a", "a:1-11"))
	w.wantMark(0)
	w.newTick()
	w.state("a", "a:1-11")
	w.wantMark(w.now)
}

// TestRule6ModeAway: what was written while gtid_mode was not ON is in no E. When
// the mode is back, the watermark still waits for the next announcement, and then
// goes on.
func TestRule6ModeAway(t *testing.T) {
	for _, mode := range []string{"ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"} {
		w := started(t, index.Options{}, "a:1-10")
		w.newTick()
		w.state("a", "a:1-10")
		// Neither a state without a mode nor one of another run tells anything.
		w.newTick()
		w.state("a", "a:1-10", func(s *event.ServerState) { s.Alive, s.GTIDMode = false, "" })
		w.state("b", "a:1-10", func(s *event.ServerState) { s.GTIDMode = mode })
		w.state("a", "a:1-10")
		w.wantMark(w.now)
		before := w.now
		w.newTick()
		w.state("a", "a:1-10", func(s *event.ServerState) { s.GTIDMode = mode })
		w.newTick()
		w.state("a", "a:1-10")
		w.wantMark(before)
		w.write(tx("a:11", 1))
		w.newTick()
		w.state("a", "a:1-11")
		w.wantMark(before)
		w.write(w.announcement("a", "a:1-11"))
		w.newTick()
		w.state("a", "a:1-11")
		w.wantMark(w.now)
	}
}

// TestRule6Freshness: staleness of a server is never too young, however far it
// is behind and however many probes there were.
func TestRule6Freshness(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	const n = 3000
	at := make([]int64, n) // when the tick was sent whose E was a:1-(10+i)
	for i := range n {
		w.newTick()
		name := tx("a:11", 1)
		name.GTID.Seq = int64(11 + i)
		w.write(name)
		at[i] = w.now
		w.stateN("a", 11+i)
		if i%100 == 0 {
			w.stateN("b", 11+i/2)
		}
		if i == n-1 {
			w.stateN("b", 11+i/2)
		}
		got := w.snap().FreshAt(w.at("b"))
		behind := i / 100 * 100 / 2 // newest E that b has confirmed
		if i == n-1 {
			behind = i / 2
		}
		if got > at[behind] {
			t.Fatalf("probe %d: b is fresh as of %d s, and true is %d s", i, got/second, at[behind]/second)
		}
		// Not much older than true: within a quarter of its distance.
		if lag := w.now - at[behind]; at[behind]-got > lag/4+2*second {
			t.Fatalf("probe %d: b is fresh as of %d s, true is %d s, now is %d s", i, got/second, at[behind]/second, w.now/second)
		}
	}
	w.stateN("b", 11+n-1)
	if got := w.snap().FreshAt(w.at("b")); got != at[n-1] {
		t.Errorf("b caught up and is fresh as of %d, want %d", got, at[n-1])
	}
	w.state("b", "a:1-5", func(s *event.ServerState) { s.Epoch = 2 })
	if got := w.snap().FreshAt(w.at("b")); got != 0 {
		t.Errorf("b was rebuilt at an old position and is fresh as of %d, want never", got)
	}
}

func (w *world) stateN(server string, last int) {
	w.tb.Helper()
	w.state(server, "a:1", func(s *event.ServerState) {
		s.Executed = s.Executed.AddInterval(g("a:1").Source(), interval(1, last))
	})
}

// TestRule6Lease: a lease counts from the moment when the newest tick of this
// router that the state names was sent; losing the connection ends it at once.
func TestRule6Lease(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	lease := func() int64 { return w.snap().LeaseAt(w.at("b")) }
	w.state("b", "a:1-10")
	if got := lease(); got != 0 {
		t.Errorf("no tick was sent and the lease is from %d", got)
	}
	w.newTick()
	sent := w.now
	w.now += second
	w.state("b", "a:1-10")
	if got := lease(); got != sent {
		t.Errorf("lease is from %d, want %d", got, sent)
	}
	w.state("b", "a:1-10", func(s *event.ServerState) { s.Ticks = s.Ticks[:1] })
	if got := lease(); got != 0 {
		t.Errorf("only another router's tick is named and the lease is from %d", got)
	}
	w.state("b", "a:1-10")
	w.state("b", "a:1-10", func(s *event.ServerState) { s.Alive = false })
	if got := lease(); got != 0 {
		t.Errorf("the connection is lost and the lease is from %d", got)
	}
	// A tick that is too old to be remembered is none.
	w.state("b", "a:1-10")
	old := w.states["b"].Ticks
	for range 5000 {
		w.newTick()
	}
	w.state("b", "a:1-10", func(s *event.ServerState) { s.Ticks = old })
	if got := lease(); got != 0 {
		t.Errorf("lease of a forgotten tick is from %d", got)
	}
}

// TestPrimary: the announced primary, live and alone, or why not (rules §7).
func TestPrimary(t *testing.T) {
	w := newWorld(t, index.Options{Lease: 3 * time.Second})
	w.wantPrimary("catching_up", "announced")
	w.start("a:1-10")
	w.wantPrimary("no_primary", "not heard of")
	w.newTick()
	w.state("a", "a:1-10")
	w.wantPrimary("", "")
	w.state("a", "a:1-10", func(s *event.ServerState) { s.Epoch = 2 })
	w.wantPrimary("catching_up", "epoch 2")
	again := w.announcement("a", "a:1-10")
	again.Epoch = 2
	w.write(again)
	w.wantPrimary("", "")
	epoch2 := func(s *event.ServerState) { s.Epoch = 2 }
	w.state("b", "a:1-10", func(s *event.ServerState) { s.Role = event.RolePrimary })
	w.wantPrimary("no_primary", "both a and b")
	w.state("a", "a:1-10", epoch2, func(s *event.ServerState) { s.Alive, s.Down = false, "gone" })
	w.wantPrimary("catching_up", "b is a primary")
	w.state("b", "a:1-10")
	w.wantPrimary("no_primary", "gone")
	w.state("a", "a:1-10", epoch2, func(s *event.ServerState) { s.Role = event.RoleReplica })
	w.wantPrimary("no_primary", "no primary any more")

	// Another primary that can't be reached any more is no rival.
	w.state("a", "a:1-10", epoch2)
	w.state("b", "a:1-10", func(s *event.ServerState) { s.Role = event.RolePrimary })
	w.wantPrimary("no_primary", "both")
	for range 4 {
		w.newTick()
	}
	w.wantPrimary("", "")
}

// TestBlind: since when the router is cut off.
func TestBlind(t *testing.T) {
	w := newWorld(t, index.Options{})
	if got := w.snap().BlindSince(); got != w.now {
		t.Errorf("before the first connection: blind since %d, want %d", got, w.now)
	}
	w.start("a:1-10")
	if got := w.snap().BlindSince(); got != 0 {
		t.Errorf("connected and blind since %d", got)
	}
	w.now += second
	since := w.now
	w.ix.CaughtUp(2, false)
	w.now += second
	w.ix.CaughtUp(2, false)
	if got := w.snap().BlindSince(); got != since {
		t.Errorf("blind since %d, want %d", got, since)
	}
	w.ix.CaughtUp(2, true)
	if got := w.snap().BlindSince(); got != 0 {
		t.Errorf("connected again and blind since %d", got)
	}
}
