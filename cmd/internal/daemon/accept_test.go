package daemon_test

import (
	"errors"
	"strings"
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/router/serve"
)

// TestAcceptErrant: transactions that only a replica has are accepted by the
// operator, whether they were there when the replica was first seen or came
// later, and stay accepted when the tailers restart.
func TestAcceptErrant(t *testing.T) {
	w := newWorld(t)
	r := w.c.Replicas()[0]
	before, both := gtid.GTID{UUID: gtid.UUID{15: 1}, Seq: 1}, w.executed(r)
	w.must(r.InjectEmpty(w.ctx, before.String()))
	p := w.start(everything, settings{})
	p.ready()
	l := p.load()
	l.writeTo(w.c.Primary())
	w.refused(askRouter(p.Router), r.Name(), "app.posts/1", "excluded", before.String())
	accept := func(set gtid.Set) {
		t.Helper()
		w.must(p.Accept(w.ctx, serve.Acceptance{Server: r.Name(), GTIDs: set, Author: "test", Reason: "empty"}))
	}
	// What the stream has too needs nobody's word, nor what has it already.
	useless := func(set gtid.Set, why string) {
		t.Helper()
		err := p.Accept(w.ctx, serve.Acceptance{Server: r.Name(), GTIDs: set, Author: "test", Reason: "empty"})
		if !errors.Is(err, serve.ErrNotAcceptable) || !strings.Contains(err.Error(), why) {
			t.Errorf("accept %s: %v; want a refusal: %s", set.Brief(4), err, why)
		}
	}
	accept(gtid.Of(before))
	useless(gtid.Of(before), "was accepted before")
	w.everybody(l)
	useless(both, "proven to show what the stream has")

	w.must(r.Exec(w.ctx, "SET GLOBAL super_read_only = OFF; INSERT INTO app.posts (id, author_id, v) VALUES (1000000, 1, 0); SET GLOBAL super_read_only = ON"))
	w.refused(askRouter(p.Router), r.Name(), "app.posts/1", "excluded", "tainted")
	own := gtid.Set{}
	for source, iv := range w.executed(r).Subtract(w.executed(w.c.Primary())).All() {
		if g := (gtid.GTID{UUID: source.UUID, Seq: iv.Last}); g != before {
			own = own.Add(g)
		}
	}
	w.must(r.Exec(w.ctx, "SET GLOBAL super_read_only = OFF; SET sql_log_bin = 0; DELETE FROM app.posts WHERE id = 1000000; SET sql_log_bin = 1; SET GLOBAL super_read_only = ON"))
	accept(own)
	w.everybody(l)
	w.finish(l)
	p.end()

	p = w.start(everything, settings{})
	p.ready()
	w.everybody(p.load())
}
