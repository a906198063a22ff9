package daemon_test

import (
	"fmt"
	"testing"

	"tidegate/router/serve"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestNamesFold: on servers that compare names without case, whoever names a
// table in capitals means the same one: a caller, the configuration, the
// operator who accepts, and the canary that checks a caller's key.
func TestNamesFold(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{Servers: 2, InitArgs: []string{"--lower-case-table-names=1"}})
	w := newWorldFor(t, c)
	w.makeTable()
	p := w.start(everything, settings{keys: "App.POSTS: [Author_ID]", canary: "{one_in: 1, per_s: 100}"})
	p.ready()
	l := p.load()
	w.everybody(l)
	r, ask := c.Replicas()[0], askRouter(p.Router)

	// What nobody writes any more is applied; the canary reads the row.
	l.writeTo(nil)
	w.must(c.WaitInSync(w.ctx))
	checked := p.CanaryCounters().Checked
	for _, k := range []string{"APP.Posts/1", "App.posts@AUTHOR_ID/1", "APP.POSTS/*"} {
		testenvtest.WaitUntil(t, settle, func() (bool, string) {
			got, err := ask(w.ctx, question{server: r.Name(), key: k})
			return err == nil && got.yes, fmt.Sprintf("%s: %s, %v", k, got, err)
		})
	}
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		if _, err := ask(w.ctx, question{server: r.Name(), key: "APP.Posts/2"}); err != nil {
			return false, err.Error()
		}
		n := p.CanaryCounters()
		return n.Checked > checked, fmt.Sprintf("%+v", n)
	})
	if n := p.CanaryCounters(); n.WrongYes != 0 {
		t.Errorf("%d answers are called wrong", n.WrongYes)
	}

	// A taint by a local write, and its acceptance by another spelling.
	w.must(r.Exec(w.ctx, "SET GLOBAL super_read_only = OFF; INSERT INTO APP.Posts (id, author_id, v) VALUES (1000000, 1, 0); SET GLOBAL super_read_only = ON"))
	w.refused(ask, r.Name(), "APP.Posts/1", "excluded", "tainted")
	// The name of a tainted table comes with the next look at the server's tables.
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		err := p.Accept(w.ctx, serve.Acceptance{Server: r.Name(), Table: "APP.Posts", Author: "test", Reason: "nobody reads that row"})
		return err == nil, fmt.Sprint(err)
	})
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		got, err := ask(w.ctx, question{server: r.Name(), key: "APP.Posts/2"})
		return err == nil && got.yes, fmt.Sprintf("%s, %v", got, err)
	})
}
