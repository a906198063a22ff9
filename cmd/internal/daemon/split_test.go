package daemon_test

import (
	"fmt"
	"testing"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestTailerPerServer: each server's tailer is a process of its own, as
// OPERATING.md has it. The writer is the primary's one: it changes with the
// primary, also when the old primary's host is gone with its tailer.
func TestTailerPerServer(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, testenv.Options{})
	n := testenvtest.NATS(t, testenv.NATSOptions{})
	tails := map[*testenv.Server]*testenv.Process{}
	for _, s := range w.c.Servers() {
		tails[s] = w.child("tail", settings{nats: n.URL(), dir: t.TempDir()}, envChildOnly+"="+s.Name())
	}
	p := w.start(serveOnly, settings{nats: n.URL()})
	p.ready()
	l := p.load()
	w.everybody(l)
	a, b, c := w.c.Primary(), w.c.Replicas()[0], w.c.Replicas()[1]

	withoutTail := func(dead *testenv.Server, others ...*testenv.Server) {
		t.Helper()
		w.must(tails[dead].Kill())
		w.refused(askRouter(p.Router), dead.Name(), "app.posts/1", "lease_expired", "")
		w.grows(l, 20)
		w.answers(l, others[0].Name(), others[1].Name())
		w.must(tails[dead].Start(w.ctx))
		w.everybody(l)
	}

	// A replica's tailer: only that replica is refused.
	withoutTail(c, a, b)

	// A planned change: the other tailer writes, and needs the first one no more.
	l.writeTo(nil)
	w.must(w.c.PromoteWith(w.ctx, b, testenv.PromoteOptions{Planned: true}))
	l.writeTo(b)
	w.everybody(l)
	w.primaryIs(p, b)
	withoutTail(a, b, c)

	// A host dies with server and tailer, which writes then.
	l.writeTo(nil)
	w.must(w.c.WaitInSync(w.ctx))
	w.must(b.Kill())
	w.must(tails[b].Kill())
	w.must(w.c.PromoteWith(w.ctx, c, testenv.PromoteOptions{}))
	l.writeTo(c)
	w.grows(l, 20)
	w.delivered(p, w.executed(c))
	w.answers(l, a.Name(), c.Name())
	w.primaryIs(p, c)
	if lost := p.Router.Index().Snapshot().Lost(); !lost.IsEmpty() {
		t.Errorf("nothing was lost, and it says %s", lost.OneLine())
	}
	w.must(b.Start(w.ctx)) // read-only
	w.must(b.RepointTo(w.ctx, c, ""))
	w.must(tails[b].Start(w.ctx))
	w.everybody(l)
}

// primaryIs waits until the router knows s as the primary: while a lease of its
// is over it knows none.
func (w *world) primaryIs(p *program, s *testenv.Server) {
	w.t.Helper()
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		got := p.Router.Router().Report().Primary
		return got == s.Name(), fmt.Sprintf("the primary is %q, want %s", got, s.Name())
	})
}
