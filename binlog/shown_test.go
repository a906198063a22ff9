package binlog

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

func table(n byte) key.Digest { return key.Digest{n} }

// fakeStream is a scripted event.Identities for the tracker.
type fakeStream struct {
	known map[gtid.GTID]event.Known
	lost  map[event.Identity]bool
}

func (f *fakeStream) stream() stream {
	return stream{
		known: func(g gtid.GTID) event.Known { return f.known[g] },
		lost:  func(id event.Identity) (bool, event.Reading) { return f.lost[id], event.Reading{} },
	}
}

func tables(ns ...byte) []key.Digest {
	var out []key.Digest
	for _, n := range ns {
		out = append(out, table(n))
	}
	return out
}

func TestCompare(t *testing.T) {
	g := gtid.GTID{UUID: gtid.UUID{1}, Seq: 7}
	const commit = 1000
	for _, tt := range []struct {
		name                        string
		flags                       event.Flags
		tables                      []key.Digest
		commit                      int64
		known                       event.Known
		primary, filtered, everLost bool
		want                        string // decided/shown, taints
	}{
		{name: "not yet in the stream", tables: tables(1), known: event.Known{State: event.NotYet}, want: "waits"},
		{name: "lost and not given again", tables: tables(1), known: event.Known{State: event.IsLost}, want: "waits"},
		{name: "same transaction", tables: tables(1, 2), known: event.Known{State: event.Identified, Tables: tables(2, 1)}, want: "shown"},
		{name: "another identity", tables: tables(1), commit: 1001, known: event.Known{State: event.Identified, Tables: tables(1)}, want: "not shown, all"},
		{name: "another identity on the primary is a reuse", tables: tables(1), commit: 1001, known: event.Known{State: event.Identified}, primary: true, want: "not shown"},
		{name: "a table is missing", tables: tables(1), known: event.Known{State: event.Identified, Tables: tables(1, 2)}, want: "shown, table 2"},
		{name: "empty here", flags: event.Empty, known: event.Known{State: event.Identified, Tables: tables(1, 2)}, want: "shown, table 1, table 2"},
		{name: "more tables here (cascades are logged)", tables: tables(1, 2), known: event.Known{State: event.Identified, Tables: tables(1)}, want: "shown"},
		{name: "more tables here, and the primary logs cascades", tables: tables(1, 2), known: event.Known{State: event.Identified, Flags: event.CascadesLogged, Tables: tables(1)}, want: "shown, table 2"},
		{name: "another table, and the primary logs cascades", tables: tables(2), known: event.Known{State: event.Identified, Flags: event.CascadesLogged, Tables: tables(1)}, want: "shown, table 1, table 2"},
		{name: "the same tables, and the primary logs cascades", tables: tables(2, 1), known: event.Known{State: event.Identified, Flags: event.CascadesLogged, Tables: tables(1, 2)}, want: "shown"},
		{name: "more tables here, a statement there", tables: tables(1, 2), known: event.Known{State: event.Identified, Flags: event.CascadesLogged | event.Statement, Tables: tables(1)}, want: "shown"},
		{name: "more tables here, logged here alone", flags: event.CascadesLogged, tables: tables(1, 2), known: event.Known{State: event.Identified, Tables: tables(1)}, want: "shown"},
		{name: "statement there", tables: tables(1), known: event.Known{State: event.Identified, Flags: event.Statement, Tables: tables(2)}, want: "shown"},
		{name: "statement here", flags: event.Statement, known: event.Known{State: event.Identified, Tables: tables(2)}, want: "shown"},
		{name: "statement there, empty here", flags: event.Empty, known: event.Known{State: event.Identified, Flags: event.Statement}, want: "not shown, all"},
		{name: "statement there that changed nothing, empty here", flags: event.Empty, known: event.Known{State: event.Identified, Flags: event.Statement | event.Unchanged}, want: "shown"},
		{name: "the same, and a statement here", flags: event.Statement, known: event.Known{State: event.Identified, Flags: event.Statement | event.Unchanged}, want: "shown"},
		{name: "the same under a filter", flags: event.Empty, known: event.Known{State: event.Identified, Flags: event.Statement}, filtered: true, want: "shown"},
		{name: "empty on both", flags: event.Empty, known: event.Known{State: event.Identified, Flags: event.Empty}, want: "shown"},
		{name: "DDL there, empty here", flags: event.Empty, known: event.Known{State: event.Identified, Flags: event.DDL}, want: "not shown, all"},
		{name: "no identity, not empty", tables: tables(1), known: event.Known{State: event.NoIdentity}, want: "shown"},
		{name: "no identity, not empty, lost once", everLost: true, tables: tables(1), known: event.Known{State: event.NoIdentity}, want: "not shown, unnamed"},
		{name: "no identity, empty, lost once", everLost: true, flags: event.Empty, known: event.Known{State: event.NoIdentity}, want: "not shown, unnamed"},
		{name: "known empty, empty, lost once", everLost: true, flags: event.Empty, known: event.Known{State: event.EmptyOnPrimary}, want: "shown"},
		{name: "known empty, not empty, lost once", everLost: true, tables: tables(3), known: event.Known{State: event.EmptyOnPrimary}, want: "not shown, unnamed"},
		{name: "same transaction, lost once", everLost: true, tables: tables(1), known: event.Known{State: event.Identified, Tables: tables(1)}, want: "shown"},
		{name: "header, same identity, lost once", everLost: true, tables: tables(1), known: event.Known{State: event.HeaderOnly}, want: "shown"},
		{name: "header says empty, not empty", tables: tables(3), known: event.Known{State: event.HeaderOnly, Flags: event.Empty}, want: "shown, table 3"},
		{name: "no identity, empty", flags: event.Empty, known: event.Known{State: event.NoIdentity}, want: "not shown"},
		{name: "known empty, empty", flags: event.Empty, known: event.Known{State: event.EmptyOnPrimary}, want: "shown"},
		{name: "known empty, not empty on the primary is a reuse", tables: tables(3), known: event.Known{State: event.EmptyOnPrimary}, primary: true, want: "not shown"},
		{name: "known empty, not empty", tables: tables(3), known: event.Known{State: event.EmptyOnPrimary}, want: "shown, table 3"},
		{name: "header, same identity", tables: tables(1), known: event.Known{State: event.HeaderOnly}, want: "shown"},
		{name: "header, same identity, empty here", flags: event.Empty, known: event.Known{State: event.HeaderOnly}, want: "not shown"},
		{name: "header, same identity, empty on both", flags: event.Empty, known: event.Known{State: event.HeaderOnly, Flags: event.Empty}, want: "shown"},
		{name: "header, another identity", tables: tables(1), commit: 999, known: event.Known{State: event.HeaderOnly}, want: "not shown, all"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.commit == 0 {
				tt.commit = commit
			}
			tt.known.OriginalCommit = commit
			s := &sighting{id: event.Identity{GTID: g, OriginalCommit: tt.commit}, flags: tt.flags, tables: tt.tables}
			if got := printVerdict(compare(s, tt.known, tt.primary, tt.filtered, tt.everLost)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func printVerdict(v verdict) string {
	if !v.decided {
		return "waits"
	}
	out := "not shown"
	if v.shown {
		out = "shown"
	}
	if v.unnamed {
		out += ", unnamed"
	}
	return out + printTaints(v.taints)
}

func printTaints(taints []event.Taint) string {
	var b strings.Builder
	for _, x := range taints {
		if x.All {
			b.WriteString(", all")
		} else {
			fmt.Fprintf(&b, ", table %d", x.Table[0])
		}
	}
	return b.String()
}

// begin begins a data set all of which the stream vouches for.
func begin(tr *tracker, executed, everLost gtid.Set) {
	tr.begin(executed, everLost)
	tr.vouched(executed)
}

// sight feeds one transaction to a tracker.
func sight(t *testing.T, tr *tracker, f *fakeStream, g string, commit int64, ts ...byte) {
	t.Helper()
	s := &sighting{id: event.Identity{GTID: mustGTID(t, g), OriginalCommit: commit}, tables: tables(ts...)}
	if len(ts) == 0 {
		s.flags = event.Empty
	}
	tr.sight(s, gtid.Set{}, f.stream())
}

func (f *fakeStream) say(t *testing.T, g string, k event.Known) {
	t.Helper()
	if f.known == nil {
		f.known = map[gtid.GTID]event.Known{}
	}
	f.known[mustGTID(t, g)] = k
}

func wantUnproven(t *testing.T, tr *tracker, executed, want string) {
	t.Helper()
	if got := tr.unproven(mustSet(t, executed)); !got.Equal(mustSet(t, want)) {
		t.Errorf("unproven of %s is %s, want %s", executed, got.OneLine(), want)
	}
}

func TestTrackerExecutedIsNotData(t *testing.T) {
	// rules §2.2: injected, purged in, skipped: executed without being shown.
	tr, f := newTracker(FollowBinlog), &fakeStream{}
	begin(tr, mustSet(t, uuidA+":1-10"), gtid.Set{})
	wantUnproven(t, tr, uuidA+":1-10", "")
	f.say(t, uuidA+":11", event.Known{State: event.Identified, OriginalCommit: 5, Tables: tables(1)})
	f.say(t, uuidA+":12", event.Known{State: event.Identified, OriginalCommit: 6, Tables: tables(1)})
	sight(t, tr, f, uuidA+":11", 5, 1)
	sight(t, tr, f, uuidA+":12", 77) // injected here as an empty one
	wantUnproven(t, tr, uuidA+":1-13", uuidA+":12-13")
	if got := printTaints(tr.taints); got != ", all" {
		t.Errorf("taints%s, want all: another identity", got)
	}
	if got := tr.hinted(mustSet(t, uuidA+":1-11")); !got.Equal(mustSet(t, uuidA+":12")) {
		t.Errorf("hinted %s", got.OneLine())
	}
}

func TestTrackerWaitsForTheStream(t *testing.T) {
	tr, f := newTracker(FollowBinlog), &fakeStream{}
	begin(tr, gtid.Set{}, gtid.Set{})
	for n := 1; n <= 5; n++ {
		sight(t, tr, f, fmt.Sprintf("%s:%d", uuidA, n), int64(n), 1)
	}
	wantUnproven(t, tr, uuidA+":1-5", uuidA+":1-5")
	for _, n := range []int{1, 2, 4} {
		f.say(t, fmt.Sprintf("%s:%d", uuidA, n), event.Known{State: event.Identified, OriginalCommit: int64(n), Tables: tables(1)})
	}
	// With one miss allowed, 4 stays behind 3.
	if got := tr.settleSome(f.stream(), 1); len(got) != 2 {
		t.Errorf("decided %v, want 1 and 2", got)
	}
	wantUnproven(t, tr, uuidA+":1-5", uuidA+":3-5")
	if got := tr.settleSome(f.stream(), 2); len(got) != 1 || got[0].Seq != 4 {
		t.Errorf("decided %v, want 4", got)
	}
	if tr.waiting != 2 || len(tr.pending) != 2 || len(tr.order) != 2 || tr.order[0].Seq != 3 || tr.order[1].Seq != 5 {
		t.Errorf("waiting %d, pending %d, order %v", tr.waiting, len(tr.pending), tr.order)
	}
	f.say(t, uuidA+":3", event.Known{State: event.NoIdentity})
	f.say(t, uuidA+":5", event.Known{State: event.NoIdentity})
	tr.settleSome(f.stream(), 0)
	wantUnproven(t, tr, uuidA+":1-5", "")
	if tr.waiting != 0 || len(tr.pending) != 0 {
		t.Errorf("waiting %d, pending %d", tr.waiting, len(tr.pending))
	}
}

func TestTrackerResumeKeepsTaintsAndShown(t *testing.T) {
	st := &event.ServerState{
		Base: mustSet(t, uuidA+":1-5"), Executed: mustSet(t, uuidA+":1-9"), Unproven: mustSet(t, uuidA+":8-9"),
		Taints: []event.Taint{{Table: table(4), GTID: mustGTID(t, uuidA+":6"), Reason: "r"}},
		Errant: mustSet(t, uuidB+":1"),
	}
	tr := newTracker(FollowBinlog)
	tr.resume(st, gtid.Set{})
	wantUnproven(t, tr, uuidA+":1-12", uuidA+":8-12")
	if len(tr.taints) != 1 || !tr.errant.Equal(st.Errant) {
		t.Errorf("taints %v, errant %s", tr.taints, tr.errant.OneLine())
	}
	// What its binlog does not carry any more joins base.
	gone := tr.joinPurged(mustSet(t, uuidA+":1-10"), mustSet(t, uuidA+":1-12"))
	if !gone.Equal(mustSet(t, uuidA+":8-10")) {
		t.Errorf("joined %s", gone.OneLine())
	}
	wantUnproven(t, tr, uuidA+":1-12", uuidA+":11-12")
	if !tr.base.Equal(mustSet(t, uuidA+":1-5:8-10")) {
		t.Errorf("base %s", tr.base.OneLine())
	}
}

// What was compared and is not the stream's transaction does not become it by being
// purged, also when the tailer restarts in between: the replica skipped 11, and the
// row of the primary's 11 is missing there.
func TestTrackerRefusedThenPurged(t *testing.T) {
	for name, k := range map[string]event.Known{
		"no identity": {State: event.NoIdentity}, "header alone": {State: event.HeaderOnly, OriginalCommit: 11},
	} {
		t.Run(name, func(t *testing.T) {
			tr, f := newTracker(FollowBinlog), &fakeStream{}
			begin(tr, mustSet(t, uuidA+":1-10"), gtid.Set{})
			f.say(t, uuidA+":11", k)
			f.say(t, uuidA+":12", event.Known{State: event.Identified, OriginalCommit: 12, Tables: tables(1)})
			sight(t, tr, f, uuidA+":11", 11)
			sight(t, tr, f, uuidA+":12", 12, 1)
			executed := mustSet(t, uuidA+":1-13")
			st := &event.ServerState{Base: tr.published(), Executed: executed, Unproven: tr.unproven(executed)}
			next := newTracker(FollowBinlog)
			next.resume(st, gtid.Set{})
			for _, tr := range []*tracker{tr, next} {
				// 13 was not compared: what is purged before that joins base (rules §2.2).
				if gone := tr.joinPurged(executed, executed); !gone.Equal(mustSet(t, uuidA+":13")) {
					t.Errorf("joined %s", gone.OneLine())
				}
				wantUnproven(t, tr, uuidA+":1-13", uuidA+":11")
			}
			// Its binlog is there again, and so is the identity.
			f.say(t, uuidA+":11", event.Known{State: event.Identified, OriginalCommit: 11, Flags: event.Empty})
			sight(t, next, f, uuidA+":11", 11)
			wantUnproven(t, next, uuidA+":1-13", "")
			if !next.refused.IsEmpty() {
				t.Errorf("%s is shown and refused", next.refused.OneLine())
			}
		})
	}
}

func TestTrackerLosses(t *testing.T) {
	// rules §1: a reused GTID is never in base, and is shown again only under
	// its new identity.
	tr, f := newTracker(FollowBinlog), &fakeStream{}
	begin(tr, mustSet(t, uuidA+":1-10"), mustSet(t, uuidA+":4"))
	wantUnproven(t, tr, uuidA+":1-10", uuidA+":4")
	f.say(t, uuidA+":11", event.Known{State: event.Identified, OriginalCommit: 1, Tables: tables(1)})
	sight(t, tr, f, uuidA+":11", 1, 1)
	wantUnproven(t, tr, uuidA+":1-11", uuidA+":4")
	lost := mustSet(t, uuidA+":4:9-12")
	if !tr.turned(&event.Turn{Lost: lost, EverLost: lost}) {
		t.Error("the binlog must be read again for 9-11")
	}
	if tr.turned(&event.Turn{EverLost: lost}) {
		t.Error("once is enough")
	}
	wantUnproven(t, tr, uuidA+":1-12", uuidA+":4:9-12")
	// It may hold what was lost: nobody may read there until it was compared.
	if got, want := tr.doubtful(mustSet(t, uuidA+":1-10"), mustSet(t, uuidA+":11"), mustSet(t, uuidA+":1-12")), mustSet(t, uuidA+":4:9-12"); !got.Equal(want) {
		t.Errorf("doubtful %s, want %s", got.OneLine(), want.OneLine())
	}
	if gone := tr.joinPurged(mustSet(t, uuidA+":1-12"), mustSet(t, uuidA+":1-12")); !gone.IsEmpty() {
		t.Errorf("%s joined base though it was lost once", gone.OneLine())
	}
	// The stream gives 11 again; the server still holds the old one.
	f.say(t, uuidA+":11", event.Known{State: event.Identified, OriginalCommit: 2, Tables: tables(1)})
	sight(t, tr, f, uuidA+":11", 1, 1)
	wantUnproven(t, tr, uuidA+":1-12", uuidA+":4:9-12")
	if got, want := tr.doubtful(mustSet(t, uuidA+":1-12"), gtid.Set{}, gtid.Set{}), mustSet(t, uuidA+":4:9-10:12"); !got.Equal(want) {
		t.Errorf("doubtful %s, want %s: 11 is known to be another", got.OneLine(), want.OneLine())
	}
	if got := printTaints(tr.taints); got != ", all" {
		t.Errorf("taints%s", got)
	}
}

// TestTrackerSeenIsReadAgain: what the binlog has shown, and was not found to be
// the stream's, may be what the stream brings after a loss.
func TestTrackerSeenIsReadAgain(t *testing.T) {
	tr, f := newTracker(FollowBinlog), &fakeStream{}
	begin(tr, mustSet(t, uuidA+":1-10"), gtid.Set{})
	f.say(t, uuidA+":11", event.Known{State: event.NoIdentity})
	sight(t, tr, f, uuidA+":11", 5) // decided, and not shown: empty, of no identity
	wantUnproven(t, tr, uuidA+":1-11", uuidA+":11")
	lost := mustSet(t, uuidA+":11")
	if !tr.turned(&event.Turn{Lost: lost, EverLost: lost}) {
		t.Error("the binlog must be read again for 11")
	}
	f.say(t, uuidA+":11", event.Known{State: event.Identified, OriginalCommit: 5, Flags: event.Empty})
	sight(t, tr, f, uuidA+":11", 5)
	wantUnproven(t, tr, uuidA+":1-11", "")
	// Lost once more, and given again: the one that was shown is not it.
	if !tr.turned(&event.Turn{Lost: lost, EverLost: lost}) {
		t.Error("the binlog must be read again for 11")
	}
	wantUnproven(t, tr, uuidA+":1-11", uuidA+":11")
	// A loss elsewhere later takes nothing back.
	f.say(t, uuidA+":11", event.Known{State: event.Identified, OriginalCommit: 6, Flags: event.Empty})
	sight(t, tr, f, uuidA+":11", 6)
	if tr.turned(&event.Turn{Lost: mustSet(t, uuidB+":1"), EverLost: mustSet(t, uuidA+":11,"+uuidB+":1")}) {
		t.Error("read again for a loss elsewhere")
	}
	wantUnproven(t, tr, uuidA+":1-11", "")
}

// TestTrackerEarly: a server that has the new transaction before the stream knows
// that the old one is lost is not the one that is wrong; one that has another
// under a second GTID stays tainted by that.
func TestTrackerEarly(t *testing.T) {
	tr, f := newTracker(FollowBinlog), &fakeStream{}
	begin(tr, mustSet(t, uuidA+":1-10"), gtid.Set{})
	for n := int64(11); n <= 12; n++ {
		g := fmt.Sprintf("%s:%d", uuidA, n)
		f.say(t, g, event.Known{State: event.Identified, OriginalCommit: n, Tables: tables(1)})
		sight(t, tr, f, g, 100+n, 1)
	}
	lost := mustSet(t, uuidA+":11")
	if !tr.turned(&event.Turn{Lost: lost, EverLost: lost}) {
		t.Error("the binlog must be read again for 11")
	}
	if len(tr.taints) != 1 || tr.taints[0].GTID.Seq != 12 {
		t.Errorf("taints %v, want 12's alone", tr.taints)
	}
	f.say(t, uuidA+":11", event.Known{State: event.Identified, OriginalCommit: 111, Tables: tables(1)})
	sight(t, tr, f, uuidA+":11", 111, 1)
	wantUnproven(t, tr, uuidA+":1-12", uuidA+":12")
}

// TestTrackerBroughtBack: a transaction was lost, its GTID was given to another
// of any kind, and a failover takes that one and brings the first back: a server
// that had it all the time is in order again.
func TestTrackerBroughtBack(t *testing.T) {
	g := uuidA + ":11"
	old := event.Identity{GTID: mustGTID(t, g), OriginalCommit: 1}
	lost := mustSet(t, g)
	for name, other := range map[string]event.Known{
		"hole":           {State: event.NoIdentity},
		"empty":          {State: event.EmptyOnPrimary},
		"header alone":   {State: event.HeaderOnly, OriginalCommit: 2},
		"empty, header":  {State: event.HeaderOnly, OriginalCommit: 1, Flags: event.Empty},
		"another":        {State: event.Identified, OriginalCommit: 2, Tables: tables(1)},
		"another, empty": {State: event.Identified, OriginalCommit: 2, Flags: event.Empty},
	} {
		t.Run(name, func(t *testing.T) {
			tr, f := newTracker(FollowBinlog), &fakeStream{}
			begin(tr, mustSet(t, uuidA+":1-10"), gtid.Set{})
			f.say(t, g, event.Known{State: event.Identified, OriginalCommit: 1, Tables: tables(1)})
			sight(t, tr, f, g, 1, 1)
			wantUnproven(t, tr, uuidA+":1-11", "")
			// Another GTID of the same kind, whose taint has to stay.
			f.say(t, uuidA+":12", other)
			f.lost = map[event.Identity]bool{{GTID: mustGTID(t, uuidA+":12"), OriginalCommit: 1}: true}

			if !tr.turned(&event.Turn{Lost: lost, EverLost: lost}) {
				t.Error("the binlog must be read again for 11")
			}
			f.say(t, g, other)
			f.lost[old] = true
			sight(t, tr, f, g, 1, 1)
			sight(t, tr, f, uuidA+":12", 1, 1)
			if got := printTaints(tr.taints); got == "" {
				t.Fatal("not tainted by what the primary lost")
			}
			if !tr.turned(&event.Turn{Lost: lost, EverLost: lost}) {
				t.Error("the binlog must be read again for 11")
			}
			delete(f.lost, old)
			f.say(t, g, event.Known{State: event.Identified, OriginalCommit: 1, Tables: tables(1)})
			sight(t, tr, f, g, 1, 1)
			if !tr.shown.Set().Contains(old.GTID) {
				t.Error("11 is not shown")
			}
			var left []int64
			for _, x := range tr.taints {
				left = append(left, x.GTID.Seq)
			}
			if !slices.Equal(left, []int64{12}) {
				t.Errorf("tainted by %v, want 12 alone", left)
			}
		})
	}
}

// TestTrackerStepBack: a stream that was read anew vouches for what its
// checkpoint calls delivered; the rest has to be compared with what comes.
func TestTrackerStepBack(t *testing.T) {
	tr, f := newTracker(FollowBinlog), &fakeStream{}
	begin(tr, mustSet(t, uuidA+":1-10"), gtid.Set{})
	first := &event.Turn{Starts: 1, Vouched: mustSet(t, uuidA+":1-10")}
	if tr.turned(first) {
		t.Error("nothing was compared yet, and it is read again")
	}
	for n := int64(11); n <= 14; n++ {
		g := fmt.Sprintf("%s:%d", uuidA, n)
		f.say(t, g, event.Known{State: event.Identified, OriginalCommit: n, Tables: tables(1)})
		sight(t, tr, f, g, n, 1)
	}
	if tr.turned(first) {
		t.Error("read again without news")
	}
	wantUnproven(t, tr, uuidA+":1-14", "")
	if !tr.turned(&event.Turn{Starts: 2, Vouched: mustSet(t, uuidA+":1-12")}) {
		t.Error("the binlog must be read again for 13 and 14")
	}
	wantUnproven(t, tr, uuidA+":1-14", uuidA+":13-14")
	tr.restart()
	f.say(t, uuidA+":14", event.Known{State: event.Identified, OriginalCommit: 99, Tables: tables(1)}) // given again meanwhile
	sight(t, tr, f, uuidA+":13", 13, 1)
	sight(t, tr, f, uuidA+":14", 14, 1)
	wantUnproven(t, tr, uuidA+":1-14", uuidA+":14")
	if got := printTaints(tr.taints); got != ", all" {
		t.Errorf("taints%s, want all: another transaction under 14", got)
	}
}

// TestTrackerUnnamed: of what was lost once, and that neither the stream nor the
// server's binlog names any more, nobody knows which transaction it is.
func TestTrackerUnnamed(t *testing.T) {
	tr, f := newTracker(FollowBinlog), &fakeStream{}
	begin(tr, mustSet(t, uuidA+":1-10"), mustSet(t, uuidA+":9-12"))
	executed := mustSet(t, uuidA+":1-12")
	f.say(t, uuidA+":11", event.Known{State: event.NoIdentity})
	sight(t, tr, f, uuidA+":11", 5, 1)
	tr.purge(mustSet(t, uuidA+":1-9"))
	if gone := tr.joinPurged(mustSet(t, uuidA+":1-9"), executed); !gone.IsEmpty() {
		t.Errorf("%s joined base though it was lost once", gone.OneLine())
	}
	if got := tr.mute(executed); !got.Equal(mustSet(t, uuidA+":9:11")) {
		t.Errorf("mute %s, want 9, purged, and 11; 10 and 12 may still come", got.OneLine())
	}
	tr.acceptances([]Acceptance{{DataSet: 1, GTIDs: mustSet(t, uuidA+":9")}}, 1, neverLost)
	if got := tr.mute(executed); !got.Equal(mustSet(t, uuidA+":11")) {
		t.Errorf("mute %s after 9 was accepted", got.OneLine())
	}
	tr.primary = true
	if got := tr.mute(executed); !got.IsEmpty() {
		t.Errorf("mute %s on the primary, which has what there is", got.OneLine())
	}
}

func TestTrackerHoldsLostIdentity(t *testing.T) {
	tr := newTracker(FollowBinlog)
	begin(tr, gtid.Set{}, gtid.Set{})
	g := mustGTID(t, uuidA+":3")
	f := &fakeStream{lost: map[event.Identity]bool{{GTID: g, OriginalCommit: 8}: true}}
	f.say(t, uuidA+":3", event.Known{State: event.NoIdentity})
	sight(t, tr, f, uuidA+":3", 8, 1)
	wantUnproven(t, tr, uuidA+":3", uuidA+":3")
	if got := printTaints(tr.taints); got != ", all" {
		t.Errorf("taints%s, want all", got)
	}
}

func TestTrackerErrant(t *testing.T) {
	tr, f := newTracker(FollowBinlog), &fakeStream{}
	begin(tr, mustSet(t, uuidA+":1-10"), gtid.Set{})
	sight(t, tr, f, uuidB+":1", 1, 5) // a local write
	sight(t, tr, f, uuidB+":2", 2)    // FLUSH under super_read_only
	executed := mustSet(t, uuidA+":1-10,"+uuidB+":1-3")
	if got := tr.suspects(executed); !got.Equal(mustSet(t, uuidB+":1-3")) {
		t.Fatalf("suspects %s", got.OneLine())
	}
	for n, want := range map[string]bool{"1": true, "2": true, "3": false} {
		if got := tr.markErrant(mustGTID(t, uuidB+":"+n), false); got != want {
			t.Errorf("marked %s: %v, want %v", n, got, want)
		}
	}
	if got := printTaints(tr.taints); got != ", table 5" {
		t.Errorf("taints%s, want table 5 alone: an empty one is only reported", got)
	}
	if !tr.errant.Equal(mustSet(t, uuidB+":1-2")) || tr.waiting != 0 {
		t.Errorf("errant %s, waiting %d", tr.errant.OneLine(), tr.waiting)
	}
	// One that the binlog does not show, once the tail has passed.
	if !tr.markErrant(mustGTID(t, uuidB+":3"), true) || !tr.taints[len(tr.taints)-1].All {
		t.Errorf("taints %v, want all for an unseen errant", tr.taints)
	}
	// The server is promoted and its stream brings the transaction: not errant.
	f.say(t, uuidB+":1", event.Known{State: event.Identified, OriginalCommit: 1, Tables: tables(5)})
	tr.settleSome(f.stream(), 0)
	if got := printTaints(tr.taints); got != ", all" || !tr.errant.Equal(mustSet(t, uuidB+":2-3")) {
		t.Errorf("taints%s, errant %s", got, tr.errant.OneLine())
	}
}

func TestTrackerAcceptances(t *testing.T) {
	tr, f := newTracker(FollowBinlog), &fakeStream{}
	begin(tr, mustSet(t, uuidA+":1-10"), gtid.Set{})
	f.say(t, uuidA+":11", event.Known{State: event.Identified, OriginalCommit: 1, Tables: tables(1, 2)})
	sight(t, tr, f, uuidA+":11", 1, 3)
	sight(t, tr, f, uuidB+":1", 9, 7)
	tr.markErrant(mustGTID(t, uuidB+":1"), true)
	if got := printTaints(tr.taints); got != ", table 1, table 2, table 7" {
		t.Fatalf("taints%s", got)
	}
	executed := mustSet(t, uuidA+":1-11,"+uuidB+":1")
	tr.acceptances([]Acceptance{{DataSet: 2, Table: table(1), Executed: executed}}, 1, neverLost)
	if len(tr.taints) != 3 {
		t.Error("an acceptance of another data set was applied")
	}
	tr.acceptances([]Acceptance{{DataSet: 1, Table: table(1), Executed: mustSet(t, uuidA+":1-10")}}, 1, neverLost)
	if len(tr.taints) != 3 {
		t.Error("an acceptance covered a transaction that came after it")
	}
	tr.acceptances([]Acceptance{
		{DataSet: 1, Table: table(1), Executed: executed},
		{DataSet: 1, GTIDs: mustSet(t, uuidB+":1,"+uuidA+":12")},
	}, 1, neverLost)
	if got := printTaints(tr.taints); got != ", table 2" || !tr.errant.IsEmpty() {
		t.Errorf("taints%s, errant %s", got, tr.errant.OneLine())
	}
	wantUnproven(t, tr, uuidA+":1-13,"+uuidB+":1", uuidA+":13")
	tr.taint(event.Taint{All: true, GTID: mustGTID(t, uuidA+":11")})
	tr.taint(event.Taint{Table: table(9)}) // a filter's: no transaction made it
	for _, tt := range []struct {
		a    Acceptance
		want string
	}{
		{Acceptance{Table: table(9)}, ", table 2, all"},
		{Acceptance{Table: table(2), Executed: mustSet(t, uuidA+":1-10")}, ", table 2, all"},
		{Acceptance{Everything: true, Executed: mustSet(t, uuidA+":1-10")}, ", table 2, all"},
		{Acceptance{Everything: true, Executed: executed}, ", table 2"},
		{Acceptance{Executed: executed}, ", table 2"},
	} {
		tt.a.DataSet = 1
		tr.acceptances([]Acceptance{tt.a}, 1, neverLost)
		if got := printTaints(tr.taints); got != tt.want {
			t.Errorf("after %+v taints%s, want%s", tt.a, got, tt.want)
		}
	}
}

func neverLost(event.Version) gtid.Set { return gtid.Set{} }

// TestTrackerAcceptedThenLost: the operator vouches for the transactions that the
// stream has when he looks. One that is lost later has another one under its GTID
// then, which the server may not have.
func TestTrackerAcceptedThenLost(t *testing.T) {
	for _, tt := range []struct {
		name string
		a    Acceptance
	}{
		{"GTIDs", Acceptance{DataSet: 1, GTIDs: mustSet(t, uuidA+":8-9"), LossSeen: 5}},
		{"Copy", Acceptance{DataSet: 1, Copy: true, Executed: mustSet(t, uuidA+":1-9"), LossSeen: 5}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := newTracker(FollowBinlog)
			begin(tr, mustSet(t, uuidA+":1-10"), mustSet(t, uuidA+":8-10"))
			tr.purge(mustSet(t, uuidA+":1-10"))
			executed := mustSet(t, uuidA+":1-10")
			wantUnproven(t, tr, uuidA+":1-10", uuidA+":8-10")
			list := []Acceptance{tt.a}
			tr.acceptances(list, 1, neverLost)
			wantUnproven(t, tr, uuidA+":1-10", uuidA+":10")
			lost := func(since event.Version) gtid.Set {
				if since >= 6 {
					return gtid.Set{}
				}
				return mustSet(t, uuidA+":9")
			}
			tr.acceptances(list, 1, lost)
			wantUnproven(t, tr, uuidA+":1-10", uuidA+":9-10")
			if got := tr.mute(executed); !got.Equal(mustSet(t, uuidA+":9-10")) {
				t.Errorf("mute %s", got.OneLine())
			}
			list = append(list, tt.a)
			list[1].LossSeen = 6 // the operator looked once more
			tr.acceptances(list, 1, lost)
			wantUnproven(t, tr, uuidA+":1-10", uuidA+":10")
		})
	}
}

// TestTrackerTaintOfWhatWasGivenAgain: an acceptance from before a GTID was lost
// and given again says nothing of the server that still has the lost transaction.
func TestTrackerTaintOfWhatWasGivenAgain(t *testing.T) {
	for _, a := range []Acceptance{
		{Everything: true, Executed: mustSet(t, uuidA+":1-11")},
		{GTIDs: mustSet(t, uuidA+":11")},
		{Table: table(1), Executed: mustSet(t, uuidA+":1-11")},
	} {
		a.DataSet, a.LossSeen = 1, 5
		tr := newTracker(FollowBinlog)
		begin(tr, mustSet(t, uuidA+":1-11"), gtid.Set{})
		tr.taint(event.Taint{All: true, GTID: mustGTID(t, uuidA+":11"), Reason: identityReason})
		tr.taint(event.Taint{Table: table(1), GTID: mustGTID(t, uuidA+":11")})
		lost := func(since event.Version) gtid.Set {
			if since >= 6 {
				return gtid.Set{}
			}
			return mustSet(t, uuidA+":11")
		}
		tr.acceptances([]Acceptance{a}, 1, lost)
		if len(tr.taints) != 2 {
			t.Errorf("%+v: taints%s are left, want both", a, printTaints(tr.taints))
		}
		a.LossSeen = 6
		tr.acceptances([]Acceptance{a}, 1, lost)
		if len(tr.taints) == 2 {
			t.Errorf("%+v, given after it: nothing is accepted", a)
		}
	}
}

func TestTrackerTaintsAreBounded(t *testing.T) {
	tr := newTracker(FollowBinlog)
	published := tr.taints
	for i := range maxTaints + 10 {
		tr.taint(event.Taint{Table: key.Digest{byte(i), byte(i >> 8)}})
		tr.taint(event.Taint{Table: key.Digest{byte(i), byte(i >> 8)}})
		if i == 0 {
			published = tr.taints
		}
	}
	if len(published) != 1 {
		t.Error("a published slice grew")
	}
	if len(tr.taints) != maxTaints+1 || !tr.taints[maxTaints].All {
		t.Errorf("%d taints", len(tr.taints))
	}
}

func TestTrackerFollowExecuted(t *testing.T) {
	tr := newTracker(FollowExecuted)
	begin(tr, mustSet(t, uuidA+":1-5"), gtid.Set{})
	wantUnproven(t, tr, uuidA+":1-50", "") // shown is executed, holes included
}

// TestTrackerFirstSight: what a server had at first sight, and neither the stream
// nor the primary has, is the primary's to give to another transaction.
func TestTrackerFirstSight(t *testing.T) {
	executed := mustSet(t, uuidA+":1-10")
	first := func(purged string) *tracker {
		tr := newTracker(FollowBinlog)
		tr.begin(executed, gtid.Set{})
		tr.first.purged = mustSet(t, purged)
		wantUnproven(t, tr, uuidA+":1-10", uuidA+":1-10")
		if got := tr.confirmed(executed); !got.Equal(executed) {
			t.Errorf("the binlog is read from %s on: all of it, for a stream that has not begun", got.OneLine())
		}
		return tr
	}
	vouch := &event.Turn{Starts: 1, Vouched: mustSet(t, uuidA+":1-8")}
	t.Run("Readable", func(t *testing.T) {
		tr, f := first(""), &fakeStream{}
		if !tr.turned(vouch) {
			t.Error("the binlog must be read for 9 and 10")
		}
		wantUnproven(t, tr, uuidA+":1-10", uuidA+":9-10")
		if got := tr.confirmed(executed); !got.Equal(mustSet(t, uuidA+":1-8")) {
			t.Errorf("the binlog is read from %s on", got.OneLine())
		}
		sight(t, tr, f, uuidA+":9", 9, 1)
		sight(t, tr, f, uuidA+":10", 10, 1)
		tr.vet(mustSet(t, uuidA+":1-9"), false)
		if gone := tr.joinPurged(executed, executed); !gone.Equal(mustSet(t, uuidA+":9")) {
			t.Errorf("%s joined base; the primary had 9 alone", gone.OneLine())
		}
		if tr.vet(executed, false); tr.first.waits() || !tr.joinPurged(executed, executed).IsEmpty() {
			t.Error("10 joined base by a later answer: the primary has given it since")
		}
		f.say(t, uuidA+":10", event.Known{State: event.Identified, OriginalCommit: 77, Tables: tables(1)})
		tr.settleSome(f.stream(), 0)
		wantUnproven(t, tr, uuidA+":1-10", uuidA+":10")
		if got := printTaints(tr.taints); got != ", all" {
			t.Errorf("taints%s, want all: another transaction", got)
		}
	})
	t.Run("PurgedBeforeThePrimaryIsAsked", func(t *testing.T) {
		tr := first("")
		tr.turned(vouch)
		if gone := tr.joinPurged(executed, executed); !gone.IsEmpty() {
			t.Errorf("%s joined base, and the primary was not asked", gone.OneLine())
		}
		wantUnproven(t, tr, uuidA+":1-10", uuidA+":9-10")
		tr.vet(mustSet(t, uuidA+":1-9"), false)
		wantUnproven(t, tr, uuidA+":1-10", uuidA+":10")
		if tr.vet(executed, false); !tr.joinPurged(executed, executed).IsEmpty() {
			t.Error("10 joined base by a later answer: the primary has given it since")
		}
		wantUnproven(t, tr, uuidA+":1-10", uuidA+":10")
	})
	t.Run("TheVerySame", func(t *testing.T) {
		tr, f := first(""), &fakeStream{}
		tr.turned(vouch)
		sight(t, tr, f, uuidA+":10", 10, 1)
		tr.markErrant(mustGTID(t, uuidA+":10"), false)
		f.say(t, uuidA+":10", event.Known{State: event.Identified, OriginalCommit: 10, Tables: tables(1)})
		tr.settleSome(f.stream(), 0)
		wantUnproven(t, tr, uuidA+":1-10", uuidA+":9")
		if len(tr.taints) != 0 || !tr.errant.IsEmpty() {
			t.Errorf("taints%s, errant %s", printTaints(tr.taints), tr.errant.OneLine())
		}
	})
	t.Run("Clone", func(t *testing.T) {
		tr := first(uuidA + ":1-10")
		if tr.turned(vouch) {
			t.Error("the binlog has nothing to read")
		}
		if got := tr.suspects(executed); !got.IsEmpty() {
			t.Errorf("suspects %s: the primary was not asked", got.OneLine())
		}
		if gone := tr.joinPurged(executed, executed); !gone.IsEmpty() {
			t.Errorf("%s joined base unvetted", gone.OneLine())
		}
		// A restart vets it again.
		st := &event.ServerState{Executed: executed, Unproven: tr.unproven(executed), Base: tr.published()}
		tr = newTracker(FollowBinlog)
		tr.resume(st, gtid.Set{})
		tr.first.purged = executed
		wantUnproven(t, tr, uuidA+":1-10", uuidA+":9-10")
		tr.turned(&event.Turn{Starts: 1, Vouched: mustSet(t, uuidA+":1-7")})
		// A next primary has written itself what the old one lacks.
		if errant := tr.vet(mustSet(t, uuidA+":1-9"), true); !errant.IsEmpty() || !tr.first.waits() {
			t.Errorf("errant %s while the server may be the next primary", errant.OneLine())
		}
		if errant := tr.vet(mustSet(t, uuidA+":1-9"), false); !errant.Equal(mustSet(t, uuidA+":10")) {
			t.Errorf("errant %s, want 10", errant.OneLine())
		}
		wantUnproven(t, tr, uuidA+":1-10", uuidA+":10")
		if tr.vet(executed, false); !tr.joinPurged(executed, executed).IsEmpty() || tr.base.Contains(mustGTID(t, uuidA+":10")) {
			t.Error("10 slipped into base")
		}
		if got := printTaints(tr.taints); got != ", all" {
			t.Errorf("taints%s, want all", got)
		}
		tr.acceptances([]Acceptance{{DataSet: 1, GTIDs: mustSet(t, uuidA+":10")}}, 1, neverLost)
		wantUnproven(t, tr, uuidA+":1-10", "")
	})
	t.Run("Lost", func(t *testing.T) {
		tr := first(uuidA + ":1-10")
		if !tr.turned(&event.Turn{Starts: 1, Vouched: executed, EverLost: mustSet(t, uuidA+":4")}) {
			t.Error("the binlog must be read again for 4")
		}
		wantUnproven(t, tr, uuidA+":1-10", uuidA+":4")
	})
}
