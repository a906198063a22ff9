package daemon_test

import (
	"testing"

	"tidegate/testenv/testenvtest"
)

// TestBinlogsPurgedWhileAway: what the program can not read any more is a hole;
// answers return once servers are proven to have it.
func TestBinlogsPurgedWhileAway(t *testing.T) {
	w, p, l := newRunning(t)
	l.use(nil)
	p.end()
	w.grows(l, 100)
	behind := w.c.Replicas()[1]
	l.writeTo(nil)
	w.must(w.c.WaitInSync(w.ctx))
	w.must(w.c.Primary().PurgeBinlogs(w.ctx))
	l.writeTo(w.c.Primary())
	w.grows(l, 20)
	w.must(behind.StopSQLThread(w.ctx))
	w.grows(l, 20)

	p = w.start(everything, settings{})
	p.ready()
	l.use(askRouter(p.Router))
	w.answers(l, w.c.Primary().Name(), w.c.Replicas()[0].Name())
	w.must(behind.StartSQLThread(w.ctx))
	w.everybody(l)
	if h := p.Router.Index().Snapshot().Horizon(); h.IsEmpty() {
		t.Error("the horizon is empty")
	}
}

// TestGroupColumnAdded: a group column that is configured later is below the
// horizon on a server until that has passed what was written before.
func TestGroupColumnAdded(t *testing.T) {
	w := newWorld(t)
	p := w.start(everything, settings{keys: "app.other: [x]"})
	p.ready()
	r := w.c.Replicas()[0]
	w.must(r.StopSQLThread(w.ctx))
	w.must(w.c.Primary().Exec(w.ctx, "UPDATE app.posts SET body='x' WHERE id=1"))
	all := w.executed(w.c.Primary())
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		d := p.Router.Index().Snapshot().Delivered()
		return d.ContainsSet(all), "the stream lacks " + all.Subtract(d).OneLine()
	})
	p.end() // the write is in the stream, without its group key

	p = w.start(everything, settings{})
	p.ready()
	const group = "app.posts@author_id/1"
	w.refused(askRouter(p.Router), r.Name(), group, "below_horizon", "")
	l := p.load()
	w.answers(l, w.c.Primary().Name(), w.c.Replicas()[1].Name())
	w.must(r.StartSQLThread(w.ctx))
	w.everybody(l)
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		a, err := askRouter(p.Router)(w.ctx, question{server: r.Name(), key: group})
		w.must(err)
		return a.yes, a.String()
	})
}
