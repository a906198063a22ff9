package daemon_test

import (
	"fmt"
	"testing"

	"tidegate/cmd/internal/daemon"
	"tidegate/router/serve"
	"tidegate/testenv"
)

// TestWriteWithoutGTID: what the primary writes without a GTID no replica gets by
// auto position, and no set tells. Replicas that have executed all that it has
// show the old row: none answers until it was rebuilt and an operator vouches for
// it, however often tailers and servers are restarted meanwhile.
func TestWriteWithoutGTID(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprintf("tailer away %v", away), func(t *testing.T) { testWriteWithoutGTID(t, away) })
	}
}

func testWriteWithoutGTID(t *testing.T, away bool) {
	w := newWorld(t)
	a, replicas := w.c.Primary(), w.c.Replicas()
	defer func() { w.must(a.PurgeBinlogs(w.ctx)) }()
	start := func() *program {
		p := w.start(everything, settings{})
		p.ready()
		return p
	}
	p := start()
	w.must(a.Exec(w.ctx, "UPDATE app.posts SET v = 1 WHERE id = 6"))
	w.allYes(p, replicas...)
	if away {
		p.end()
	}
	w.modes(a, "ON_PERMISSIVE", "OFF_PERMISSIVE")
	w.must(a.Exec(w.ctx, "UPDATE app.posts SET v = 2 WHERE id = 6"))
	w.modes(a, "ON_PERMISSIVE", "ON")
	if away {
		p = start()
	} else {
		for _, s := range replicas { // a yes from before it was read is of an older watermark
			w.refused(askRouter(p.Router), s.Name(), "app.posts/6", "excluded", "given again")
		}
	}
	none := func(p *program) {
		t.Helper()
		for _, s := range replicas {
			w.yesWithout(p, s, a)
			w.refused(askRouter(p.Router), s.Name(), "app.posts/6", "excluded", "given again")
		}
	}
	none(p)
	for range 2 { // at once: nothing was written since
		p.end()
		p = start()
		none(p)
	}
	p.end()
	w.must(a.Restart(w.ctx))
	p = start()
	none(p)
	w.must(a.Exec(w.ctx, "UPDATE app.posts SET v = 3 WHERE id = 5"))
	none(p)

	for _, s := range replicas {
		w.must(s.WipeAndRebuildFrom(w.ctx, a, false))
		w.refused(askRouter(p.Router), s.Name(), "app.posts/6", "excluded", "given again")
		w.must(daemon.Accept(w.ctx, p.Conn, serve.Acceptance{Server: s.Name(), Copy: true, Author: "test", Reason: "copied from the primary"}))
	}
	for range 2 { // accepted is accepted: no other history begins
		w.allYes(p, w.c.Servers()...)
		p.end()
		p = start()
	}
	w.allYes(p, w.c.Servers()...)
	for _, s := range replicas {
		if got := fmt.Sprint(w.rows(s, "SELECT v FROM app.posts WHERE id = 6")); got != "[2]" {
			t.Errorf("%s has %s", s.Name(), got)
		}
	}
}

// modes sets gtid_mode step by step.
func (w *world) modes(s *testenv.Server, list ...string) {
	w.t.Helper()
	for _, mode := range list {
		w.must(s.Exec(w.ctx, "SET GLOBAL gtid_mode="+mode))
	}
}
