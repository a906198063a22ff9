package index_test

import (
	"testing"

	"tidegate/cdc/event"
	"tidegate/index"
)

// TestRule11Reuse: when GTIDs were given again, a history begins with everything
// that the primary has executed as its horizon. The announcement behind it names
// the reused ones as newly lost, and they stay in H all the same: nothing brings
// them again, and without them no E would ever be within D and H (found by
// router/rulestest).
func TestRule11Reuse(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.write(tx("a:11", 1), tx("a:12", 2))
	w.newTick()
	w.state("a", "a:1-12")
	// sync_binlog=0: a:11 and a:12 are lost, a:11 is given again.
	cp := &event.Checkpoint{History: 2, Delivered: set(t, "a:1-11")}
	w.write(cp, &event.Announcement{
		Server: "a", ServerUUID: uuidA, Epoch: 2, History: 2, Executed: set(t, "a:1-11"),
		Lost: set(t, "a:12"), NewlyLost: set(t, "a:11-12"),
	})
	w.wantSet("H", w.snap().Horizon(), "a:1-11")
	w.wantSet("D", w.snap().Delivered(), "a:1-11")
	w.wantSet("lost", w.snap().Lost(), "a:12")
	tick := w.newTick()
	w.state("a", "a:1-11", func(s *event.ServerState) { s.Epoch, s.History = 2, 2 })
	if at := w.snap().WatermarkAt(); at != w.now {
		t.Errorf("watermark at %d, want tick %d sent at %d", at, tick, w.now)
	}
}

// TestRule10AnnouncedTwice: a primary that is announced again before any of its
// probes counted has shown nothing yet; what its predecessor's probe had is lost
// all the same (found by router/rulestest).
func TestRule10AnnouncedTwice(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.write(tx("a:11", 1))
	w.newTick()
	w.state("a", "a:1-11")
	lossy := func() *event.Announcement {
		a := w.announcement("b", "a:1-10")
		a.Lost = set(t, "a:11")
		return a
	}
	a := lossy()
	a.NewlyLost = set(t, "a:11")
	w.write(a)
	w.write(lossy())
	w.wantSet("lost", w.snap().Lost(), "a:11")
}

// TestRule5AnnouncedSinceStepBack: what a replica's tailer compared before it has
// read the newest announcement may be of a stream that stepped back, whose GTIDs
// were given again since: losses or none, it is not counted (cdc/decisions/reuse.md).
func TestRule5AnnouncedSinceStepBack(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	before := w.announced
	w.newTick()
	w.state("a", "a:1-10")
	w.state("b", "a:1-11") // it has the 11 of before
	w.timeline, w.ord = 2, 100
	v := w.write(w.announcement("a", "a:1-10"))
	w.write(tx("a:11", 1))
	w.newTick()
	w.state("a", "a:1-11")
	w.state("b", "a:1-11", func(s *event.ServerState) { s.LossSeen = before })
	w.wantIneligible("b", "catching_up", "compared")
	w.state("b", "a:1-11", func(s *event.ServerState) { s.LossSeen, s.Unproven = v, set(t, "a:11") })
	w.wantIneligible("b", "", "")
}

// TestReplicaWhoseTailerHasJustBegun is a no of its own reason, unless something
// excludes it for good.
func TestReplicaWhoseTailerHasJustBegun(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.newTick()
	w.state("a", "a:1-10")
	begun := "catching_up: its tailer has not read the stream yet"
	w.state("b", "a:1-10", func(s *event.ServerState) { s.Excluded = []string{begun} })
	w.wantIneligible("b", "catching_up", "not read the stream")
	w.state("b", "a:1-10", func(s *event.ServerState) { s.Excluded = []string{"two channels", begun} })
	w.wantIneligible("b", "excluded", "two channels")
}
