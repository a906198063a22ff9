package index_test

import (
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/index"
)

func interval(first, last int) gtid.Interval {
	return gtid.Interval{First: int64(first), Last: int64(last)}
}

func primary(s *event.ServerState) { s.Role, s.Writable = event.RolePrimary, true }

// TestRule10Lost: lost GTIDs leave D and H, the records that they wrote move to
// the version of the failover, and who holds one is not eligible (rules §10).
func TestRule10Lost(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	v11 := w.write(tx("a:11", 1))
	w.write(tx("a:12", 2), tx("a:13", 1))
	w.newTick()
	w.state("a", "a:1-13")
	w.state("b", "a:1-12")
	w.state("c", "a:1-13")
	f := w.announcement("b", "a:1-9,a:11-12")
	f.Lost, f.NewlyLost = set(t, "a:10,a:13"), set(t, "a:10,a:13")
	w.timeline, w.ord = 2, 100
	v := w.write(f)
	s := w.snap()
	w.wantSet("D", s.Delivered(), "a:1-9,a:11-12")
	w.wantSet("H", s.Horizon(), "a:1-9")
	w.wantSet("lost", s.Lost(), "a:10,a:13")
	if got := s.LastFailover(); got != v {
		t.Errorf("last failover is %d, want %d", got, v)
	}
	if got := w.newest(row(1)); got != v {
		t.Errorf("a record at a lost version is %d, want the failover's %d", got, v)
	}
	if got := w.newest(row(2)); got != v11+1 {
		t.Errorf("a record at a version that was kept is %d, want %d", got, v11+1)
	}
	w.wantIneligible("a", "excluded", "lost")
	w.wantIneligible("b", "excluded", "lost") // it still shows a:10
	w.state("b", "a:1-9,a:11-12", primary, func(s *event.ServerState) { s.LossSeen = v })
	w.wantIneligible("b", "", "")
	w.state("c", "a:1-9,a:11-12")
	w.wantIneligible("c", "catching_up", "compared")
	w.state("c", "a:1-9,a:11-12", func(s *event.ServerState) { s.LossSeen = v })
	w.wantIneligible("c", "", "")
	if got := s.Prefix(w.at("b")); got != v {
		t.Errorf("lost ones aside, b has everything: prefix %d, want %d", got, v)
	}

	// Given again by the stream: not lost any more.
	w.write(tx("a:13", 7))
	w.wantSet("lost", w.snap().Lost(), "a:10")
	w.wantSet("D", w.snap().Delivered(), "a:1-9,a:11-13")
}

// lostByCrash is a world whose primary came back without a:11, and its announcement.
func lostByCrash(t *testing.T) (*world, *event.Announcement) {
	t.Helper()
	w := started(t, index.Options{}, "a:1-10")
	w.write(tx("a:11", 1))
	lost := w.announcement("a", "a:1-10")
	lost.Epoch = 2
	lost.Lost, lost.NewlyLost = set(t, "a:11"), set(t, "a:11")
	w.write(lost)
	return w, lost
}

// TestRule10ShownAgain: a counted E that shows a lost GTID ends the loss: else
// a write under the GTID given anew would count as seen before it is delivered.
func TestRule10ShownAgain(t *testing.T) {
	w, lost := lostByCrash(t)
	w.newTick()
	epoch2 := func(s *event.ServerState) { s.Epoch = 2 }
	w.state("a", "a:1-10", epoch2)
	w.wantMark(w.now)
	mark := w.now
	w.newTick()
	w.state("a", "a:1-11", epoch2) // given anew, not in the stream yet
	w.wantSet("lost", w.snap().Lost(), "")
	w.wantMark(mark)
	// The same run is announced again, by a writer that has not seen it yet.
	again := *lost
	again.NewlyLost = gtid.Set{}
	w.write(&again)
	w.wantSet("lost", w.snap().Lost(), "")
	w.wantMark(mark)
	w.write(tx("a:11", 2))
	w.wantMark(w.now)
}

// TestRule10GivenBack: a lost GTID that a transaction owned, and gave back when it
// rolled back, is lost as before: nobody will ever show it.
func TestRule10GivenBack(t *testing.T) {
	w, _ := lostByCrash(t)
	for _, owned := range []string{"a:11", "", "a:11", ""} {
		w.newTick()
		w.state("a", "a:1-10", func(s *event.ServerState) { s.Epoch, s.Owned = 2, set(t, owned) })
		want := "a:11"
		if owned != "" {
			want = ""
		}
		w.wantSet("lost", w.snap().Lost(), want)
	}
	w.wantMark(w.now)
}

// TestRule10Reuse: an identity that is lost while its GTID is given anew leaves
// D until the new transaction is delivered.
func TestRule10Reuse(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.write(tx("a:11", 1))
	w.newTick()
	w.state("c", "a:1-11")
	a := w.announcement("a", "a:1-11")
	a.Epoch, a.NewlyLost = 2, set(t, "a:11")
	v := w.write(a)
	w.wantSet("D", w.snap().Delivered(), "a:1-10")
	w.wantSet("lost", w.snap().Lost(), "")
	w.wantSet("C(c)", w.snap().Confirmed(w.at("c")), "a:1-10")
	if got := w.newest(row(1)); got != v {
		t.Errorf("row 1 has version %d, want %d", got, v)
	}
	w.write(tx("a:11", 2))
	w.wantIneligible("c", "catching_up", "compared")
}

// TestRule10Explained: what only a former primary had explains nothing.
func TestRule10Explained(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.newTick()
	w.state("a", "a:1-10", func(s *event.ServerState) { s.Owned = set(t, "a:11") })
	w.state("c", "a:1-11")
	w.wantIneligible("c", "", "")
	w.write(w.announcement("b", "a:1-10"))
	w.state("a", "a:1-10", func(s *event.ServerState) { s.Alive = false })
	w.state("b", "a:1-10", primary)
	w.state("c", "a:1-11") // its tailer has read the announcement
	w.wantPrimary("", "")
	w.wantIneligible("c", "excluded", "accounts for")
}

// TestAnnouncedAgain: a new announcement of the same run changes no failover
// and forgets nothing.
func TestAnnouncedAgain(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	failover := w.snap().LastFailover()
	w.newTick()
	w.state("a", "a:1-10")
	again := w.announcement("a", "a:1-10")
	again.Groups = []event.GroupColumn{{Schema: "app", Table: "posts", Column: "author_id", Before: set(t, "a:1-10")}}
	w.write(again)
	w.wantMark(w.now)
	if got := w.snap().LastFailover(); got != failover {
		t.Errorf("last failover is %d, want %d", got, failover)
	}
	if _, ok := w.snap().GroupHorizon(author.AllRows); !ok {
		t.Error("the new group column is not known")
	}
	w.write(w.announcement("a", "a:1-10"))
	if _, ok := w.snap().GroupHorizon(author.AllRows); ok {
		t.Error("the group column is not announced any more and still known")
	}
}
