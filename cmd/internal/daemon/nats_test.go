package daemon_test

import (
	"fmt"
	"testing"
	"time"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestNATSAwayAtTheStart: the program waits for its NATS server.
func TestNATSAwayAtTheStart(t *testing.T) {
	w := newWorld(t)
	n := testenvtest.NATS(t, testenv.NATSOptions{})
	w.must(n.Kill())
	opened := make(chan *program, 1)
	failed := make(chan error, 1)
	go func() {
		p, err := w.open(everything, settings{nats: n.URL()})
		if err != nil {
			failed <- err
			return
		}
		opened <- p
	}()
	if !stays(opened, failed, time.Second) {
		t.Fatal("opened without a NATS server")
	}
	w.must(n.Start(w.ctx))
	select {
	case p := <-opened:
		p.run()
		p.ready()
		w.everybody(p.load())
	case err := <-failed:
		t.Fatal(err)
	case <-w.ctx.Done():
		t.Fatal("not opened")
	}
}

// stays tells that nothing came for as long.
func stays(opened <-chan *program, failed <-chan error, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-opened:
		return false
	case <-failed:
		return false
	case <-timer.C:
		return true
	}
}

// TestNATSAwayUnderLoad: while NATS is away nothing is promised at level key,
// and afterwards answers return by themselves with all that was written
// meanwhile.
func TestNATSAwayUnderLoad(t *testing.T) {
	w := newWorld(t)
	n := testenvtest.NATS(t, testenv.NATSOptions{})
	p := w.start(everything, settings{nats: n.URL()})
	p.ready()
	l := p.load()
	w.everybody(l)
	w.must(n.Kill())
	for _, s := range w.c.Servers() {
		w.refused(askRouter(p.Router), s.Name(), "app.posts/1", "blind", "")
	}
	w.grows(l, 300)
	w.must(n.Start(w.ctx))
	w.everybody(l)
}

// TestTailAndServeApart: tailing and answering as processes of their own.
func TestTailAndServeApart(t *testing.T) {
	w := newWorld(t)
	n := testenvtest.NATS(t, testenv.NATSOptions{})
	w.child("tail", settings{nats: n.URL(), dir: t.TempDir()})
	addr := w.port()
	w.child("serve", settings{nats: n.URL(), dir: t.TempDir(), http: addr})
	l := w.load(askHTTP(addr))
	w.everybody(l)
	w.must(w.c.Replicas()[0].StopSQLThread(w.ctx))
	w.grows(l, 50)
	w.refused(askHTTP(addr), w.c.Replicas()[0].Name(), "app.posts/1", "key_behind", "")
	w.must(w.c.Replicas()[0].StartSQLThread(w.ctx))
	w.everybody(l)
}

// TestTailKilledInATransaction: the tailer is killed while a transaction with
// very many keys is on its way to the stream. The next one begins it again, and
// nobody says yes for a part of it.
func TestTailKilledInATransaction(t *testing.T) {
	w := newWorld(t)
	n := testenvtest.NATS(t, testenv.NATSOptions{})
	tail := w.child("tail", settings{nats: n.URL(), dir: t.TempDir(), more: "tail: {key_cap: 1000000}\n"})
	p := w.start(serveOnly, settings{nats: n.URL()})
	p.ready()
	l := p.load()
	w.everybody(l)
	const rows = 100_000
	primary, r := w.c.Primary(), w.c.Replicas()[0]
	w.must(primary.Exec(w.ctx, `DROP TABLE IF EXISTS app.big; CREATE TABLE app.big (id INT PRIMARY KEY, author_id INT NOT NULL, KEY (author_id))`))
	w.must(primary.Exec(w.ctx, fmt.Sprintf(`SET SESSION cte_max_recursion_depth=1000000;
		INSERT INTO app.big WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d) SELECT i, i FROM n`, rows)))
	w.must(tail.Kill())
	all := w.executed(primary)
	if d := p.Router.Index().Snapshot().Delivered(); d.ContainsSet(all) {
		t.Log("the transaction was through before the tailer died")
	}
	w.grows(l, 50)
	w.must(tail.Start(w.ctx))
	w.everybody(l)
	big := question{server: r.Name(), key: fmt.Sprintf("app.big/%d", rows), floor: all}
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		a, err := askRouter(p.Router)(w.ctx, big)
		w.must(err)
		return a.yes, a.String()
	})
	if got, err := r.QueryString(w.ctx, "SELECT COUNT(*) FROM app.big"); err != nil || got != fmt.Sprint(rows) {
		t.Errorf("%s showed %s rows, %v, want %d", r.Name(), got, err, rows)
	}
}

// TestRivalTailers: of two tailers one writes; when it is killed the other
// takes over within seconds.
func TestRivalTailers(t *testing.T) {
	w := newWorld(t)
	n := testenvtest.NATS(t, testenv.NATSOptions{})
	// At once, on an empty stream: one watches the servers, the other stands by.
	tails := []*testenv.Process{
		w.child("tail", settings{nats: n.URL(), dir: t.TempDir()}),
		w.child("tail", settings{nats: n.URL(), dir: t.TempDir()}),
	}
	p := w.start(serveOnly, settings{nats: n.URL()})
	p.ready()
	l := p.load()
	w.everybody(l)
	for i, tail := range tails { // one of them leads
		w.must(tail.Kill())
		began := time.Now()
		w.everybody(l)
		if took := time.Since(began); took > takeover {
			t.Errorf("answers were back after %s, want within %s", took, takeover)
		} else {
			t.Logf("without tailer %d answers were back after %s", i+1, took)
		}
		w.must(tail.Start(w.ctx))
		w.everybody(l)
	}
}

// takeover is the design's 3 s, and what a loaded machine adds.
const takeover = 10 * time.Second

// TestRouterKilledWhileCatchingUp: a router that is killed again and again,
// also before it has caught up, never says yes too early.
func TestRouterKilledWhileCatchingUp(t *testing.T) {
	w := newWorld(t)
	n := testenvtest.NATS(t, testenv.NATSOptions{})
	w.start(tailOnly, settings{nats: n.URL()})
	addr := w.port()
	s := settings{nats: n.URL(), dir: t.TempDir(), http: addr, more: "index: {persist_every: 50ms}\n"}
	serve := w.child("serve", s)
	l := w.load(askHTTP(addr))
	w.everybody(l)
	for range 4 {
		w.must(serve.Kill())
		w.grows(l, 100)
		w.must(serve.Start(w.ctx)) // it answers, and has much to catch up
	}
	w.everybody(l)
}
