package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"tidegate/cdc/event"
	"tidegate/testenv"
)

// TestFollowExecuted: a replica without a binlog, of which only the executed set
// is known. It answers yes once that proves the write, and no while its applier
// waits for a lock, is stopped, or is late; every yes is held against the row.
func TestFollowExecuted(t *testing.T) {
	w := newWorldOn(t, testenv.Options{Servers: 2, PerServer: map[string]testenv.ServerOptions{"b": {NoBinlog: true}}})
	a, b := w.c.Server("a"), w.c.Server("b")
	p, _ := w.startText(strings.Replace(w.configText(settings{}), "{name: b,", "{name: b, follow: executed,", 1))
	p.ready()
	w.yes(p, b.Name(), "app.posts/1") // it is heard of
	w.role(p, b, event.RoleReplica)
	if st := p.state(b); st.Follow != "executed" {
		t.Fatalf("it is followed by %q", st.Follow)
	}
	l := p.load()
	w.everybody(l)
	l.writeTo(nil)
	w.must(w.c.WaitInSync(w.ctx))

	v := int64(1_000_000) // beyond every version of the load
	w.must(a.Exec(w.ctx, "UPDATE app.posts SET v=? WHERE id=1", v))
	w.caughtUp(b, a)
	for _, late := range []struct {
		name  string
		begin func() (end func())
	}{
		{"a lock", func() func() {
			release, err := b.HoldRow(w.ctx, "app.posts", "id=?", 1)
			w.must(err)
			return release
		}},
		{"a stopped applier", func() func() {
			w.must(b.StopSQLThread(w.ctx))
			return func() { w.must(b.StartSQLThread(w.ctx)) }
		}},
		{"a stopped receiver", func() func() {
			w.must(b.StopIOThread(w.ctx))
			return func() { w.must(b.StartIOThread(w.ctx)) }
		}},
	} {
		v++
		end := late.begin()
		w.must(a.Exec(w.ctx, "UPDATE app.posts SET v=? WHERE id=1", v))
		floor := w.executed(a)
		for _, k := range []string{"app.posts/1", "app.posts@author_id/1", "app.posts/*"} {
			w.refused(askRouter(p.Router), b.Name(), k, "key_behind", "")
		}
		// What was not written since is still proven, under that floor too.
		w.yes(p, b.Name(), "app.posts/2")
		w.proven(p, b, question{key: "app.posts/2", floor: floor}, v-1)
		end()
		w.proven(p, b, question{key: "app.posts/1"}, v)
		w.proven(p, b, question{key: "app.posts@author_id/1", floor: floor}, v)
	}

	// Killed and back, it is proven anew, and the load's answers are true.
	w.must(b.Kill())
	w.refused(askRouter(p.Router), b.Name(), "app.posts/1", "lease_expired", "")
	w.must(b.Start(w.ctx))
	w.proven(p, b, question{key: "app.posts/1"}, v)
}

// proven waits for the server's yes and then wants the version of row 1 there.
func (w *world) proven(p *program, s *testenv.Server, q question, v int64) {
	w.t.Helper()
	q.server = s.Name()
	w.shows(p, s, q, "SELECT v FROM app.posts WHERE id=1", fmt.Sprint(v))
}
