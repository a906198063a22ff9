package daemon_test

import (
	"fmt"
	"testing"

	"tidegate/testenv"
)

// TestXA: what one session prepared another one commits, with a restart of the
// program in between. Until the commit everybody shows the old row, and may be
// read for it; from then on only who has applied the commit, though the commit's
// own transaction names no row. The keys of the PREPARE alone are affected. What
// was rolled back is no write.
func TestXA(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.c.Primary(), w.c.Replicas()[0], w.c.Replicas()[1]
	p := w.start(everything, settings{})
	p.ready()
	// Row 1 is written for certain before, so that an old record covers it too.
	w.must(a.Exec(w.ctx, "UPDATE app.posts SET v=7 WHERE id=1"))
	w.rowEverywhere(p, 7)

	w.must(a.Exec(w.ctx, "XA START 'one'; UPDATE app.posts SET v=77 WHERE id=1; XA END 'one'; XA PREPARE 'one'"))
	w.must(a.Exec(w.ctx, "XA START 'two'; UPDATE app.posts SET v=88 WHERE id=3; XA END 'two'; XA PREPARE 'two'"))
	// A prepared transaction can be committed by others once its session is gone.
	a.DB().SetMaxIdleConns(0)
	a.DB().SetMaxIdleConns(4)
	w.must(w.c.WaitInSync(w.ctx))
	w.rowEverywhere(p, 7)
	p.end()
	p = w.start(everything, settings{})
	p.ready()
	w.rowEverywhere(p, 7)

	w.must(b.StopSQLThread(w.ctx))
	w.must(a.Exec(w.ctx, "XA COMMIT 'one'"))
	floor := w.executed(a)
	const read = "SELECT v FROM app.posts WHERE id=1"
	for _, k := range []string{"app.posts/1", "app.posts@author_id/1", "app.posts/*"} {
		w.refused(askRouter(p.Router), b.Name(), k, "key_behind", "")
		for _, s := range []*testenv.Server{a, c} {
			w.shows(p, s, question{server: s.Name(), key: k, floor: floor}, read, "77")
		}
	}
	for _, k := range []string{"app.posts/2", "app.posts/3", "app.posts@author_id/0"} {
		w.yes(p, b.Name(), k) // neither of them is the commit's
	}
	if got, err := b.QueryString(w.ctx, read); err != nil || got != "7" {
		t.Errorf("the stopped replica shows %q, %v: nothing to see here", got, err)
	}

	w.must(a.Exec(w.ctx, "XA ROLLBACK 'two'"))
	w.caughtUp(c, a)
	w.yes(p, b.Name(), "app.posts/3")
	w.must(b.StartSQLThread(w.ctx))
	w.rowEverywhere(p, 77)
	w.caughtUp(b, a)
	for _, s := range w.c.Servers() {
		w.shows(p, s, question{server: s.Name(), key: "app.posts/3", floor: w.executed(a)}, "SELECT v FROM app.posts WHERE id=3", "0")
	}
	// One-phase, in one session.
	w.must(a.Exec(w.ctx, "XA START 'three'; UPDATE app.posts SET v=99 WHERE id=1; XA END 'three'; XA COMMIT 'three' ONE PHASE"))
	w.rowEverywhere(p, 99)
}

// rowEverywhere waits for every server's yes for row 1, at the floor of what the
// primary has executed, and wants the version there.
func (w *world) rowEverywhere(p *program, v int) {
	w.t.Helper()
	floor := w.executed(w.c.Primary())
	for _, s := range w.c.Servers() {
		w.shows(p, s, question{server: s.Name(), key: "app.posts/1", floor: floor}, "SELECT v FROM app.posts WHERE id=1", fmt.Sprint(v))
	}
}
