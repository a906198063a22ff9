package daemon_test

import (
	"fmt"
	"testing"

	"tidegate/testenv/testenvtest"
)

// TestFromCommitToAnswer: a write on the primary turns a stopped replica's
// answer into a no, and a replica's that shows it stays or becomes a yes.
func TestFromCommitToAnswer(t *testing.T) {
	w := newWorld(t)
	p := w.start(everything, settings{http: "127.0.0.1:0"})
	p.ready()
	put := askRouter(p.Router)
	ask := func(server string) answer {
		a, err := put(w.ctx, question{server: server, key: "app.posts/1"})
		w.must(err)
		return a
	}
	for _, s := range names(w.c.Servers()) {
		testenvtest.WaitUntil(t, settle, func() (bool, string) {
			ans := ask(s)
			return ans.yes, fmt.Sprintf("%s: %s", s, ans)
		})
	}
	b, c := w.c.Replicas()[0], w.c.Replicas()[1]
	if err := b.StopSQLThread(w.ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.c.Primary().Exec(w.ctx, "UPDATE app.posts SET v=1 WHERE id=1"); err != nil {
		t.Fatal(err)
	}
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		ans := ask(b.Name())
		return !ans.yes && ans.reason == "key_behind", fmt.Sprintf("b: %s", ans)
	})
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		ans := ask(c.Name())
		return ans.yes, fmt.Sprintf("c: %s", ans)
	})
	if err := b.StartSQLThread(w.ctx); err != nil {
		t.Fatal(err)
	}
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		ans := ask(b.Name())
		return ans.yes, fmt.Sprintf("b: %s", ans)
	})
}
