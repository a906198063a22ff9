package index_test

import (
	"testing"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/index"
)

// TestRule2Confirmed: C(X) is what X executed and showed, cut to what the
// stream has given; of the announced primary it is executed (rules §2.2).
func TestRule2Confirmed(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.write(tx("a:11", 1), tx("a:12", 2))
	w.newTick()
	w.state("a", "a:1-14")
	w.state("b", "a:1-13")
	w.state("c", "a:1-12", func(s *event.ServerState) { s.Unproven = set(t, "a:3,a:12") })
	w.wantSet("C(a)", w.snap().Confirmed(w.at("a")), "a:1-14")
	w.wantSet("C(b)", w.snap().Confirmed(w.at("b")), "a:1-12")
	w.wantSet("C(c)", w.snap().Confirmed(w.at("c")), "a:1-2,a:4-11")

	w.write(tx("a:13", 3))
	w.wantSet("C(b) once the stream has it", w.snap().Confirmed(w.at("b")), "a:1-13")

	// A run of the primary that is not announced is confirmed like any server.
	w.state("a", "a:1-14", func(s *event.ServerState) { s.Epoch = 2 })
	w.wantSet("C(a) of another epoch", w.snap().Confirmed(w.at("a")), "a:1-13")
	w.write(&event.Hole{GTIDs: set(t, "a:14")})
	w.wantSet("C(a) with a hole", w.snap().Confirmed(w.at("a")), "a:1-14")
}

// TestRule1Epochs: lower epochs are ignored.
func TestRule1Epochs(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.newTick()
	w.state("b", "a:1-10", func(s *event.ServerState) { s.Epoch = 5 })
	w.state("b", "a:1-4", func(s *event.ServerState) { s.Epoch = 4 })
	w.wantSet("C(b)", w.snap().Confirmed(w.at("b")), "a:1-10")
	w.state("b", "a:1-4", func(s *event.ServerState) { s.Epoch = 6 })
	w.wantSet("C(b) of the next epoch", w.snap().Confirmed(w.at("b")), "a:1-4")
	if s := w.snap().Server(w.at("b")); s.Epoch != 6 {
		t.Errorf("epoch of b is %d, want 6", s.Epoch)
	}
	if s := w.snap().Server(w.at("c")); s != nil {
		t.Errorf("c was never heard of, and is %v", s)
	}
}

// TestRule2Ineligible lists what excludes a server apart from lease and role.
func TestRule2Ineligible(t *testing.T) {
	table := key.Digest{5}
	tests := []struct {
		name           string
		change         func(*event.ServerState)
		reason, detail string
	}{
		{"healthy", func(s *event.ServerState) {}, "", ""},
		{"taint of a table", func(s *event.ServerState) { s.Taints = []event.Taint{{Table: table}} }, "", ""},
		{"taint as a whole (2.2)", func(s *event.ServerState) {
			s.Taints = []event.Taint{{All: true, GTID: g("a:3"), Reason: "another identity"}}
		}, "excluded", "another identity"},
		{"reason of the tailer (2.4)", func(s *event.ServerState) { s.Excluded = []string{"two channels"} }, "excluded", "two channels"},
		{"relaxed durability (2.5)", func(s *event.ServerState) { s.Excluded = []string{"epoch_changed: unclean restart"} }, "epoch_changed", "unclean"},
		{"another history", func(s *event.ServerState) { s.History = 7 }, "catching_up", "history 7"},
		{"another history, nothing compared", func(s *event.ServerState) { s.History, s.Follow = 0, "executed" }, "", ""},
		{"errant (2.3)", func(s *event.ServerState) { s.Executed = s.Executed.Union(set(t, "b:1")) }, "excluded", uuidB.String()},
		{"errant, accounted for by its tailer", func(s *event.ServerState) {
			s.Executed = s.Executed.Union(set(t, "b:1"))
			s.Errant = set(t, "b:1")
		}, "", ""},
		{"ahead of the stream, known of the primary", func(s *event.ServerState) { s.Executed = set(t, "a:1-12") }, "", ""},
		{"ahead of all that is known", func(s *event.ServerState) { s.Executed = set(t, "a:1-13") }, "excluded", "accounts for"},
		{"owned, not yet judged", func(s *event.ServerState) { s.Owned = set(t, "b:1") }, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := started(t, index.Options{}, "a:1-10")
			w.newTick()
			w.state("a", "a:1-11", func(s *event.ServerState) { s.Owned = set(t, "a:12") })
			w.state("b", "a:1-10", tt.change)
			w.wantIneligible("b", tt.reason, tt.detail)
		})
	}
}

// TestRule2TableExcluded: tainted and filtered tables are excluded (2.4).
func TestRule2TableExcluded(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.newTick()
	w.state("b", "a:1-10", func(s *event.ServerState) {
		s.Taints = []event.Taint{{Table: key.Digest{1}}, {All: true}}
		s.FilteredTables = []key.Digest{{2}}
	})
	b := w.at("b")
	for d, want := range map[key.Digest]bool{{1}: true, {2}: true, {3}: false, {}: false} {
		if got := w.snap().TableExcluded(b, d); got != want {
			t.Errorf("table %x excluded: %v, want %v", d[:1], got, want)
		}
	}
	w.state("b", "a:1-10")
	if w.snap().TableExcluded(b, key.Digest{1}) {
		t.Error("the taint is gone from the state and still excludes")
	}
}

// TestRule2Errant: what a server executed and nobody accounts for excludes it
// until it is explained (2.3).
func TestRule2Errant(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.newTick()
	w.state("a", "a:1-10")
	w.state("b", "a:1-12")
	w.wantIneligible("b", "excluded", "accounts for")
	w.write(tx("a:11", 1))
	w.wantIneligible("b", "excluded", "accounts for")
	w.state("a", "a:1-12")
	w.wantIneligible("b", "", "")

	// Owned GTIDs are errant only when a probe begun later lacks them.
	w.newTick()
	w.state("b", "a:1-12", func(s *event.ServerState) { s.Owned = set(t, "a:13,b:1") })
	w.wantIneligible("b", "", "")
	w.state("a", "a:1-12")
	w.wantIneligible("b", "", "")
	w.newTick()
	w.state("a", "a:1-13")
	w.wantIneligible("b", "excluded", uuidB.String()+":1")
	w.state("b", "a:1-12", func(s *event.ServerState) { s.Owned = set(t, "a:13,b:1") })
	w.wantIneligible("b", "excluded", uuidB.String()+":1")
	w.state("b", "a:1-13")
	w.wantIneligible("b", "", "")

	// A member of a group may be ahead of its primary: excluded for as long.
	grouped := func(s *event.ServerState) { s.Grouped, s.Owned = true, set(t, "a:14") }
	w.state("b", "a:1-13", grouped)
	w.newTick()
	w.state("a", "a:1-13")
	w.wantIneligible("b", "excluded", uuidA.String()+":14")
	w.newTick()
	w.state("a", "a:1-14")
	w.wantIneligible("b", "", "")
}

// TestRule2Foreign: what a server had when the primary had not is not the
// transaction that the primary gives under that GTID later; the comparison by the
// server's own tailer clears it.
func TestRule2Foreign(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	unproven := func(s *event.ServerState) { s.Unproven = set(t, "a:11") }
	w.newTick()
	w.state("a", "a:1-10")
	w.state("b", "a:1-11", unproven) // lost by a crash of the primary
	w.state("c", "a:1-11", unproven)
	w.wantIneligible("b", "excluded", "accounts for")
	w.newTick()
	w.state("a", "a:1-10")
	w.newTick()
	w.state("a", "a:1-10", func(s *event.ServerState) { s.Owned = set(t, "a:11") }) // given again
	w.wantIneligible("b", "excluded", "accounts for")
	w.write(tx("a:11", 1))
	w.state("a", "a:1-11")
	w.wantIneligible("b", "excluded", "accounts for")
	w.state("b", "a:1-11", unproven)
	w.wantIneligible("b", "excluded", "accounts for")
	w.state("b", "a:1-11") // rebuilt, and compared
	w.wantIneligible("b", "", "")
	// Another primary that has the GTID has the new one, or the stream brings it:
	// until c's tailer has compared, nothing tells which one c has.
	v := w.write(w.announcement("b", "a:1-11"))
	seen := func(s *event.ServerState) { s.LossSeen = v }
	w.state("c", "a:1-11", unproven, seen)
	w.wantIneligible("c", "excluded", "accounts for")
	w.state("c", "a:1-11", seen)
	w.wantIneligible("c", "", "")
}

// TestRule2ForeignEach: each GTID is held against a server by itself, and whether
// it was executed there or owned alone.
func TestRule2ForeignEach(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	unproven := func(s *event.ServerState) { s.Unproven = set(t, "a:11,c:1") }
	w.newTick()
	w.state("a", "a:1-10")
	w.state("b", "a:1-10", func(s *event.ServerState) { s.Owned = set(t, "a:11") }) // it applies what a has lost
	w.state("c", "a:1-10,c:1", unproven)
	w.newTick()
	w.state("c", "a:1-11,c:1", unproven) // a:11 comes later than what is errant
	w.newTick()
	w.state("a", "a:1-10")
	// b's applier stops, and may go on at any time.
	w.state("b", "a:1-10", func(s *event.ServerState) { s.Received = set(t, "a:1-11") })
	w.wantIneligible("b", "excluded", "a000000-0000-0000-0000-000000000000:11")
	w.newTick()
	w.state("a", "a:1-10", func(s *event.ServerState) { s.Owned = set(t, "a:11") }) // given again
	for _, s := range []string{"b", "c"} {
		w.state(s, "a:1-11,c:1", unproven, func(s *event.ServerState) { s.Errant = set(t, "c:1") })
		w.wantIneligible(s, "excluded", "a000000-0000-0000-0000-000000000000:11")
	}
	w.write(tx("a:11", 1))
	w.state("a", "a:1-11")
	for _, s := range []string{"b", "c"} {
		w.state(s, "a:1-11,c:1", unproven, func(s *event.ServerState) { s.Errant = set(t, "c:1") })
		w.wantIneligible(s, "excluded", "accounts for")
		w.state(s, "a:1-11")
		w.wantIneligible(s, "", "")
	}
	// Rolled back: it is neither executed nor owned any more.
	w.state("b", "a:1-11", func(s *event.ServerState) { s.Owned = set(t, "a:12") })
	w.newTick()
	w.state("a", "a:1-11")
	w.wantIneligible("b", "excluded", "accounts for")
	w.state("b", "a:1-11")
	w.wantIneligible("b", "", "")
}

// TestRule2ForeignUnseen: what a server holds in its relay log alone is held against
// it also after a state that has not seen the server, and no longer than it has it.
func TestRule2ForeignUnseen(t *testing.T) {
	for name, unseen := range map[string]func(*event.ServerState){
		"down":            func(s *event.ServerState) { s.Alive = false },
		"of unknown role": func(s *event.ServerState) { s.Role = event.RoleUnknown },
	} {
		t.Run(name, func(t *testing.T) {
			w := started(t, index.Options{}, "a:1-10")
			received := func(s *event.ServerState) { s.Received = set(t, "a:1-11") }
			w.newTick()
			w.state("a", "a:1-10")
			w.state("b", "a:1-10", func(s *event.ServerState) { s.Owned = set(t, "a:11") })
			w.newTick()
			w.state("a", "a:1-10") // it has lost a:11
			w.state("b", "a:1-10", received)
			w.state("b", "a:1-10", unseen)
			w.state("b", "a:1-10", received)
			w.wantIneligible("b", "excluded", "accounts for")
			w.state("b", "a:1-10", unseen)
			w.state("b", "a:1-10") // its relay log is gone
			w.wantIneligible("b", "", "")
		})
	}
}

// TestRule2RolledBack: what the primary owned and gave back accounts for nothing any
// more, at once; and when it gives it again, for nothing either.
func TestRule2RolledBack(t *testing.T) {
	owns := func(s *event.ServerState) { s.Owned = set(t, "a:11") }
	w := started(t, index.Options{}, "a:1-10")
	unproven := func(s *event.ServerState) { s.Unproven = set(t, "a:11") }
	w.newTick()
	w.state("a", "a:1-10", owns) // gives again what b has, and nobody knows yet
	w.state("b", "a:1-11", unproven)
	w.state("c", "a:1-10", owns)
	w.newTick()
	w.state("a", "a:1-10")
	for _, s := range []string{"b", "c"} {
		w.wantIneligible(s, "excluded", "accounts for")
	}
	w.newTick()
	w.state("a", "a:1-10", owns)
	for _, s := range []string{"b", "c"} {
		w.wantIneligible(s, "excluded", "accounts for")
	}
	w.write(tx("a:11", 1))
	w.state("a", "a:1-11")
	for _, s := range []string{"b", "c"} {
		w.state(s, "a:1-11", unproven)
		w.wantIneligible(s, "excluded", "accounts for")
		w.state(s, "a:1-11")
		w.wantIneligible(s, "", "")
	}
}

// TestRule7FailoverLeft: what the announced primary has from other servers tells of a
// reign in between that was not announced; its own transactions tell of none.
func TestRule7FailoverLeft(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	left := func(want string) {
		t.Helper()
		if got := w.ix.Snapshot().FailoverLeft(); !got.Equal(set(t, want)) {
			t.Errorf("left %s, want %s", got.OneLine(), want)
		}
	}
	w.newTick()
	w.state("a", "a:1-10")
	w.write(w.announcement("a", "a:1-10"))
	left("a:1-10")
	w.newTick()
	w.state("a", "a:1-15")
	left("a:1-10")
	// a was a replica of b, and the router has not heard of it.
	w.newTick()
	w.state("a", "a:1-15,b:1")
	left("a:1-15,b:1")
	w.newTick()
	w.state("a", "a:1-20,b:1")
	left("a:1-15,b:1")
	w.write(w.announcement("a", "a:1-10")) // once more, by facts of before
	left("a:1-15,b:1")
	w.write(w.announcement("b", "a:1-20,b:1-2"))
	left("a:1-20,b:1-2")
}

// TestRule7ReignLostWhole: of a reign that was not announced nothing may be left. The
// announced run was no writable primary in between, and what it has then is left.
func TestRule7ReignLostWhole(t *testing.T) {
	for name, away := range map[string]func(*event.ServerState){
		"replica":   func(s *event.ServerState) { s.Role, s.Writable = event.RoleReplica, false },
		"read only": func(s *event.ServerState) { s.Writable = false },
	} {
		w := started(t, index.Options{}, "a:1-50")
		left := func(want string) {
			t.Helper()
			w.wantSet(name+": left", w.snap().FailoverLeft(), want)
		}
		w.newTick()
		w.state("a", "a:1-60")
		w.state("a", "a:1-60", func(s *event.ServerState) { s.Alive, s.Role, s.Writable = false, event.RoleUnknown, false })
		w.newTick()
		w.state("a", "a:1-60")
		left("a:1-50")
		w.state("a", "a:1-60", away)
		left("a:1-50") // nothing counts, until it is back
		w.newTick()
		w.state("a", "a:1-61")
		left("a:1-61")
		w.newTick()
		w.state("a", "a:1-62")
		left("a:1-61")
	}
}

// TestRule2ForeignAtOnce: one later probe is enough, whatever accounts for the GTID
// next: the stream, a new announcement of the same run, or a new history.
func TestRule2ForeignAtOnce(t *testing.T) {
	for name, account := range map[string]func(w *world) func(*event.ServerState){
		"the stream": func(w *world) func(*event.ServerState) {
			w.write(tx("a:11", 1))
			return func(*event.ServerState) {}
		},
		"announced again": func(w *world) func(*event.ServerState) {
			v := w.write(w.announcement("a", "a:1-11"))
			return func(s *event.ServerState) { s.LossSeen = v }
		},
		"a new history": func(w *world) func(*event.ServerState) {
			w.seq++
			w.ord++
			cp := &event.Checkpoint{History: 2, Delivered: set(t, "a:1-11")}
			if err := w.ix.Start(cp, w.seq, event.Header{Timeline: w.timeline, Count: w.seq}, event.MakeVersion(w.timeline, w.ord)); err != nil {
				t.Fatal(err)
			}
			a := w.announcement("a", "a:1-11")
			a.History = 2
			v := w.write(a)
			w.ix.CaughtUp(w.seq, true)
			return func(s *event.ServerState) { s.History, s.LossSeen = 2, v }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := started(t, index.Options{}, "a:1-10")
			unproven := func(s *event.ServerState) { s.Unproven = set(t, "a:11") }
			w.newTick()
			w.state("a", "a:1-10")
			w.state("b", "a:1-11", unproven)
			w.newTick()
			w.state("a", "a:1-10")
			known := account(w)
			w.newTick()
			w.state("a", "a:1-11", known)
			w.state("b", "a:1-11", unproven, known)
			w.wantIneligible("b", "excluded", "accounts for")
		})
	}
}

// TestDuplicateUUID: two live servers with one UUID are both refused.
func TestDuplicateUUID(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.newTick()
	w.state("b", "a:1-10")
	w.state("c", "a:1-10", func(s *event.ServerState) { s.UUID = uuidB })
	w.wantIneligible("b", "excluded", "server c")
	w.wantIneligible("c", "excluded", "server b")
	w.state("c", "a:1-10", func(s *event.ServerState) { s.UUID, s.Alive = uuidB, false })
	w.wantIneligible("b", "", "")
	w.wantIneligible("c", "", "")

	// One that is not heard of any more is no twin.
	w.state("c", "a:1-10", func(s *event.ServerState) { s.UUID = uuidB })
	w.wantIneligible("b", "excluded", "server c")
	for range 5 {
		w.newTick()
		w.state("b", "a:1-10")
	}
	w.wantIneligible("b", "", "")
}

// TestRule2ErrantWithoutPrimary: while there is no primary only what a probe
// has shown to be errant excludes a server: its replicas may have applied what
// the stream lost with it.
func TestRule2ErrantWithoutPrimary(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	down := func(s *event.ServerState) { s.Alive = false }
	w.newTick()
	w.state("a", "a:1-10")
	w.state("b", "a:1-11")
	w.state("c", "a:1-10,c:1")
	w.wantIneligible("b", "excluded", "accounts for")
	w.newTick()
	w.state("a", "a:1-11") // begun later than the states of b and c
	w.state("b", "a:1-12")
	w.state("c", "a:1-12,c:1")
	w.wantIneligible("b", "excluded", "accounts for")
	w.state("a", "a:1-11", down)
	w.wantIneligible("b", "", "")
	w.wantIneligible("c", "excluded", uuidC.String()+":1")
	w.state("a", "a:1-11")
	w.wantIneligible("b", "excluded", "accounts for")
	w.wantPrimary("", "")
}
