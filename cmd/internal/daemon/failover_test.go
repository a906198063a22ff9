package daemon_test

import (
	"fmt"
	"testing"

	"tidegate/cdc/key"
	"tidegate/router"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestFailoverWithoutLoss: a planned change of the primary, then one whose
// primary was killed when the others had all of it.
func TestFailoverWithoutLoss(t *testing.T) {
	w, p, l := newRunning(t)

	next := w.c.Replicas()[0]
	l.writeTo(nil)
	w.must(w.c.PromoteWith(w.ctx, next, testenv.PromoteOptions{Planned: true}))
	l.writeTo(next)
	w.everybody(l)

	old := w.c.Primary()
	l.writeTo(nil)
	w.must(w.c.WaitInSync(w.ctx))
	w.must(old.Kill())
	next = w.c.Replicas()[0]
	w.must(w.c.PromoteWith(w.ctx, next, testenv.PromoteOptions{}))
	l.writeTo(next)
	for _, s := range w.c.Servers() {
		if s != old {
			w.answers(l, s.Name())
		}
	}
	if lost := p.Router.Index().Snapshot().Lost(); !lost.IsEmpty() {
		t.Errorf("nothing was lost, and it says %s", lost.OneLine())
	}
	w.must(old.Start(w.ctx)) // read-only
	w.must(old.RepointTo(w.ctx, next, ""))
	w.everybody(l)
}

// TestFailoverWithLoss: the primary dies with writes that no replica has. They
// are named as lost, a floor that holds them is answered with that, and who
// still has them is refused until it is rebuilt.
func TestFailoverWithLoss(t *testing.T) {
	w, p, l := newRunning(t)

	old, next, other := w.c.Primary(), w.c.Replicas()[0], w.c.Replicas()[1]
	w.must(other.StopIOThread(w.ctx))
	w.must(next.StopIOThread(w.ctx))
	w.grows(l, 20)
	l.writeTo(nil)
	all := w.executed(old)
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		d := p.Router.Index().Snapshot().Delivered()
		return d.ContainsSet(all), "the stream lacks " + all.Subtract(d).OneLine()
	})
	w.must(old.Kill())
	status, err := next.ReplicaStatus(w.ctx)
	w.must(err)
	if received := status["Retrieved_Gtid_Set"]; received != "" {
		w.must(next.WaitForGTIDs(w.ctx, received)) // what was received counts
	}
	gone := all.Subtract(w.executed(next))
	if n := l.forget(w.executed(next)); n < 10 {
		t.Fatalf("only %d writes are lost", n)
	}
	w.must(w.c.PromoteWith(w.ctx, next, testenv.PromoteOptions{}))
	l.writeTo(next)
	w.answers(l, next.Name(), other.Name())

	snap := p.Router.Index().Snapshot()
	if !snap.Lost().ContainsSet(gone) {
		t.Errorf("lost are %s, and it names %s", gone.OneLine(), snap.Lost().OneLine())
	}
	k, err := key.Parse("app.posts/1")
	w.must(err)
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		// Route, which waits for a probe begun after the request: only that tells
		// a lost GTID from one that was given again since.
		var ans router.Answer
		w.must(p.Router.Route(w.ctx, &router.Request{Keys: []key.Key{k}, Floor: all, HasFloor: true}, &ans))
		return ans.Yes && ans.FloorLost, fmt.Sprintf("%v %s %s, floor lost: %v", ans.Yes, ans.Reason, ans.Detail, ans.FloorLost)
	})

	w.must(old.Start(w.ctx)) // with what was lost
	w.refused(askRouter(p.Router), old.Name(), "app.posts/1", "excluded", "lost")
	w.must(old.WipeAndRebuildFrom(w.ctx, next, false))
	w.everybody(l)
}
