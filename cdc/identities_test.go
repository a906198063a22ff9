package cdc_test

import (
	"fmt"
	"testing"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cdc/event"
)

// state of replica b that has proven some and owes the proof of others.
func replica(dataSet uint64, base, executed, unproven gtid.Set) *event.ServerState {
	return &event.ServerState{Server: "b", UUID: uuidB, Epoch: 5, DataSet: dataSet, Alive: true, Base: base, Executed: executed, Unproven: unproven}
}

func wantKnown(t *testing.T, ids event.Identities, g gtid.GTID, want event.Knowledge) event.Known {
	t.Helper()
	var got event.Known
	eventually(t, func() string {
		if got = ids.Lookup(g); got.State != want {
			return fmt.Sprintf("%v is %d, want %d", g, got.State, want)
		}
		return ""
	})
	return got
}

func position(ids event.Identities) (event.History, event.Version) {
	turn := ids.Since(0)
	return turn.History, turn.Announced
}

func TestIdentities(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(5)))
	empty := tx(6)
	empty.Flags, empty.Tables, empty.Scopes = event.Empty, nil, nil
	w.append(t, empty, tx(7))
	hole := &event.Hole{GTIDs: gtid.Of(ga(8), ga(9), ga(10)), Headers: []event.HoleHeader{
		{Identity: event.Identity{GTID: ga(9), OriginalCommit: 9}},
		{Identity: event.Identity{GTID: ga(10), OriginalCommit: 10}, Empty: true},
	}}
	if err := w.Hole(t.Context(), hole); err != nil {
		t.Fatal(err)
	}
	w.numbered(t, 11, 12)
	w.stored(t, 4)

	ids := cdc.NewIdentities(c, cdc.IdentitiesOptions{Server: "b"})
	if got := ids.Lookup(ga(7)); got.State != event.NotYet {
		t.Errorf("before Run: %+v", got)
	}
	changed := ids.Changed()
	start(t, ids.Run)
	ids.Observe(replica(1, upTo(5), upTo(5), gtid.Set{}))
	<-changed
	k := wantKnown(t, ids, ga(12), event.Identified)
	if k.OriginalCommit != commitOf(12) || len(k.Tables) != 1 {
		t.Errorf("identified as %+v", k)
	}
	wantKnown(t, ids, ga(3), event.NoIdentity)
	wantKnown(t, ids, ga(13), event.NotYet)
	wantKnown(t, ids, ga(8), event.NoIdentity)
	if k := wantKnown(t, ids, ga(6), event.Identified); k.Flags != event.Empty {
		t.Errorf("6 has flags %x", k.Flags)
	}
	if k := wantKnown(t, ids, ga(9), event.HeaderOnly); k.OriginalCommit != 9 || k.Flags != 0 {
		t.Errorf("9 is %+v", k)
	}
	if k := wantKnown(t, ids, ga(10), event.HeaderOnly); k.Flags != event.Empty {
		t.Errorf("10 is %+v", k)
	}
	at := ids.Lookup(ga(12)).At
	ids.Forget(ga(12), event.Reading{Starts: at.Starts, Announced: at.Announced + 1}) // the turn to it may have 12 compared again
	wantKnown(t, ids, ga(12), event.Identified)
	ids.Forget(ga(12), at)
	wantKnown(t, ids, ga(12), event.NotYet)

	// What a data set had at first sight may have to be compared until it is vetted.
	for want, unproven := range map[event.Knowledge]gtid.Set{event.NotYet: {}, event.Identified: upTo(7)} {
		first := cdc.NewIdentities(c, cdc.IdentitiesOptions{Server: "c"})
		start(t, first.Run)
		first.Observe(replica(1, upTo(7), upTo(7), unproven))
		wantKnown(t, first, ga(12), event.Identified)
		wantKnown(t, first, ga(7), want)
	}
	h, first := position(ids)
	if h != 1 || first == 0 {
		t.Errorf("history %d, announced at %d", h, first)
	}
	w.end(t)

	// A failover that loses 12; 11 goes on.
	f := cdc.PrimaryFacts{Server: "c", UUID: gtid.UUID{3}, Epoch: 9, Executed: upTo(11), GTIDMode: "ON", Drained: true}
	w = write(t, c, cdc.WriterOptions{}, f)
	wantKnown(t, ids, ga(12), event.IsLost)
	if !isLost(ids, tx(12)) || isLost(ids, tx(11)) {
		t.Error("12 is lost as this identity, and 11 is not")
	}
	h, second := position(ids)
	if h != 1 || second <= first {
		t.Errorf("history %d, announced at %d, before at %d", h, second, first)
	}
	if turn := ids.Since(first); !turn.Lost.Equal(gtid.Of(ga(12))) || turn.Starts != 1 || !turn.Vouched.Equal(upTo(5)) {
		t.Errorf("since the first announcement: %+v", turn)
	}
	if turn := ids.Since(second); !turn.Lost.IsEmpty() || !turn.EverLost.Equal(gtid.Of(ga(12))) {
		t.Errorf("since the second announcement: %+v", turn)
	}
	// Its GTID comes again with another transaction.
	w.append(t, txOf(ga(12), commitOf(12)+5))
	if k := wantKnown(t, ids, ga(12), event.Identified); k.OriginalCommit != commitOf(12)+5 {
		t.Errorf("12 is %+v", k)
	}
	if !isLost(ids, tx(12)) || !ids.Since(0).EverLost.Equal(gtid.Of(ga(12))) {
		t.Errorf("the old 12 is not lost any more; ever lost: %v", ids.Since(0).EverLost)
	}
	if err := w.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.end(t)

	// A replica that has passed everything begins at the newest checkpoint, one
	// that has not at the newest that it has passed.
	late := cdc.NewIdentities(c, cdc.IdentitiesOptions{Server: "b"})
	late.Observe(compared(replica(1, upTo(5), upTo(12), gtid.Set{}), second))
	start(t, late.Run)
	wantKnown(t, late, ga(7), event.NoIdentity)
	wantKnown(t, late, ga(6), event.EmptyOnPrimary)
	behind := cdc.NewIdentities(c, cdc.IdentitiesOptions{Server: "b"})
	behind.Observe(compared(replica(1, upTo(5), upTo(12), gtid.Of(ga(7))), second))
	start(t, behind.Run)
	wantKnown(t, behind, ga(7), event.Identified)
	// One that has not seen the newest announcement may have proven all of it
	// against a stream that stepped back: it compares again what came since, and
	// is told what was lost.
	older := cdc.NewIdentities(c, cdc.IdentitiesOptions{Server: "b"})
	older.Observe(compared(replica(1, upTo(5), upTo(12), gtid.Set{}), first))
	start(t, older.Run)
	wantKnown(t, older, ga(7), event.Identified)
	if k := wantKnown(t, older, ga(12), event.Identified); k.OriginalCommit != commitOf(12)+5 {
		t.Errorf("12 is %+v", k)
	}
	if turn := older.Since(first); !turn.Lost.Equal(gtid.Of(ga(12))) || !turn.Vouched.Equal(upTo(5)) {
		t.Errorf("since the first announcement: %+v", turn)
	}
}

// compared is the state of a replica whose tailer has read up to an announcement
// of history 1.
func compared(s *event.ServerState, announced event.Version) *event.ServerState {
	s.History, s.LossSeen = 1, announced
	return s
}

// TestIdentitiesWindow: a full window waits, and goes on when the replica has
// compared or proven.
// TestIdentitiesGivenAgain: a replica that has proven a transaction which is
// then lost has to compare what comes under its GTID later (rules §10), and a
// GTID that was lost once is never taken into a base, whatever is read anew.
func TestIdentitiesGivenAgain(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(5)))
	w.numbered(t, 6, 8)
	w.stored(t, 3)
	ids := cdc.NewIdentities(c, cdc.IdentitiesOptions{Server: "b"})
	start(t, ids.Run)
	ids.Observe(replica(1, upTo(5), upTo(8), gtid.Set{}))
	eventually(t, func() string {
		if h, _ := position(ids); h != 1 {
			return "no checkpoint read"
		}
		return ""
	})
	w.end(t)
	f := cdc.PrimaryFacts{Server: "c", UUID: gtid.UUID{3}, Epoch: 9, Executed: upTo(7), GTIDMode: "ON", Drained: true}
	w = write(t, c, cdc.WriterOptions{}, f)
	wantKnown(t, ids, ga(8), event.IsLost)
	w.append(t, txOf(ga(8), commitOf(8)+5))
	if k := wantKnown(t, ids, ga(8), event.Identified); k.OriginalCommit != commitOf(8)+5 {
		t.Errorf("8 is %+v", k)
	}
	// Another data set: the stream is read again, from a checkpoint or not.
	ids.Observe(replica(2, upTo(7), upTo(7), gtid.Set{}))
	for range 100 {
		if !ids.Since(0).EverLost.Contains(ga(8)) {
			t.Fatal("8 was lost once, and is not among those while the stream is read again")
		}
	}
	wantKnown(t, ids, ga(8), event.Identified)
	w.end(t)
}

func TestIdentitiesWindow(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{BatchBytes: 1000}, facts(upTo(0)))
	w.numbered(t, 1, 100)
	w.stored(t, 100)
	ids := cdc.NewIdentities(c, cdc.IdentitiesOptions{Server: "b", Entries: 10})
	ids.Observe(replica(1, gtid.Set{}, gtid.Set{}, gtid.Set{}))
	run := start(t, ids.Run)
	wantKnown(t, ids, ga(10), event.Identified)
	for n := int64(1); n <= 50; n++ {
		wantKnown(t, ids, ga(n), event.Identified)
		if ids.Len() > 10 {
			t.Fatalf("%d entries in a window of 10", ids.Len())
		}
		ids.Forget(ga(n), ids.Lookup(ga(n)).At)
	}
	wantKnown(t, ids, ga(59), event.Identified)
	wantKnown(t, ids, ga(61), event.NotYet)
	<-time.After(time.Second) // a window is gone through once a second
	ids.Observe(replica(1, upTo(90), upTo(90), gtid.Set{}))
	wantKnown(t, ids, ga(100), event.Identified)
	// Rebuilt from an older backup: what it has proven does not count any more.
	ids.Observe(replica(2, upTo(70), upTo(70), gtid.Set{}))
	wantKnown(t, ids, ga(80), event.Identified)
	if err := run.stop(); err != nil {
		t.Error(err)
	}
	w.end(t)
}

func isLost(ids *cdc.Identities, t *event.Transaction) bool {
	lost, _ := ids.LostIdentity(t.Identity())
	return lost
}
