package daemon_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidegate/binlog/gtid"
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

// awayFor is how long NATS stays away under load.
func awayFor() time.Duration {
	if testing.Short() {
		return 5 * time.Second
	}
	return time.Minute
}

// TestNATSAwayForAMinute: from when a router knows that it is cut off until NATS
// is back it says no yes at level key, however long that is; and of all that was
// written meanwhile nothing is missing from the stream or becomes a hole.
func TestNATSAwayForAMinute(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, testenv.Options{})
	w.ctx = testenvtest.Context(t, awayFor()+testTimeout)
	n := testenvtest.NATS(t, testenv.NATSOptions{})
	p := w.start(everything, settings{nats: n.URL()})
	p.ready()
	l := p.load()
	w.everybody(l)
	horizon := p.Router.Index().Snapshot().Horizon()

	w.must(n.Kill())
	away := time.NewTimer(awayFor())
	defer away.Stop()
	for _, s := range w.c.Servers() {
		w.refused(askRouter(p.Router), s.Name(), "app.posts/1", "blind", "")
	}
	// One answer of each server may have been under way then; it comes before the next.
	_, before := l.counts()
	for _, s := range w.c.Servers() {
		testenvtest.WaitUntil(t, settle, func() (bool, string) {
			_, asked := l.counts()
			return asked[s.Name()] > before[s.Name()], "nobody asks about " + s.Name()
		})
	}
	said, _ := l.counts()
	wrote := l.acked()
	for waiting := true; waiting; {
		w.grows(l, 20)
		select {
		case <-away.C:
			waiting = false
		default:
		}
	}
	wrote = l.acked() - wrote
	if now, _ := l.counts(); !maps.Equal(now, said) {
		t.Errorf("without NATS %v became %v yes", said, now)
	}
	w.must(n.Start(w.ctx))
	w.everybody(l)
	t.Logf("%d writes in %s without NATS", wrote, awayFor())

	l.writeTo(nil)
	w.must(w.c.WaitInSync(w.ctx))
	all := w.executed(w.c.Primary())
	w.delivered(p, all)
	snap := p.Router.Index().Snapshot()
	if !snap.Horizon().Equal(horizon) {
		t.Errorf("the horizon was %s and is %s", horizon.OneLine(), snap.Horizon().OneLine())
	}
	if !snap.Lost().IsEmpty() {
		t.Errorf("nothing was lost, and it says %s", snap.Lost().OneLine())
	}
	for _, s := range w.c.Servers() {
		for row := 1; row <= loadRows; row++ {
			q := question{server: s.Name(), key: fmt.Sprintf("app.posts/%d", row), floor: all}
			testenvtest.WaitUntil(t, settle, func() (bool, string) {
				a, err := askRouter(p.Router)(w.ctx, q)
				w.must(err)
				return a.yes, fmt.Sprintf("%s for %s: %s", q.server, q.key, a)
			})
			shown, err := s.QueryString(w.ctx, "SELECT v FROM app.posts WHERE id=?", row)
			w.must(err)
			version, err := strconv.ParseInt(shown, 10, 64)
			w.must(err)
			// A write of unknown fate may be newer.
			if want := l.newest(row, -1, math.MaxInt64); want != nil && version < want.version {
				t.Errorf("%s shows version %d of row %d, the newest acknowledged is %d", s.Name(), version, row, want.version)
			}
		}
	}
}

// counts are how many questions were answered yes, and how many were asked in all,
// by server.
func (l *load) counts() (said, asked map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	said, asked = map[string]int{}, map[string]int{}
	for name, n := range l.seen {
		said[name], asked[name] = n.yes, n.yes
		for _, times := range n.reasons {
			asked[name] += times
		}
	}
	return said, asked
}

// delivered waits until the stream has the set.
func (w *world) delivered(p *program, set gtid.Set) {
	w.t.Helper()
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		d := p.Router.Index().Snapshot().Delivered()
		return d.ContainsSet(set), "the stream lacks " + set.Subtract(d).OneLine()
	})
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

// natsThrough is a proxy in front of a NATS server, and its URL.
func natsThrough(t *testing.T, n *testenv.NATSProcess) (*testenv.Proxy, string) {
	t.Helper()
	u, err := url.Parse(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	p := testenvtest.Proxy(t, u.Host)
	u.Host = p.Addr()
	return p, u.String()
}

// TestTailKilledInATransaction: the tailer is killed when the stream has some of
// the keys of a transaction and not the rest. The next one begins it again, and
// nobody says yes for a part of it.
func TestTailKilledInATransaction(t *testing.T) {
	w := newWorld(t)
	n := testenvtest.NATS(t, testenv.NATSOptions{})
	proxy, through := natsThrough(t, n)
	// Only the primary's states go with the transaction. Those of the replicas go on
	// after the kill, so that no lease but the primary's is over.
	const many = "tail: {key_cap: 1000000}\n"
	primary, r := w.c.Primary(), w.c.Replicas()[0]
	tail := w.child("tail", settings{nats: through, dir: t.TempDir(), more: many}, envChildOnly+"="+primary.Name())
	w.child("tail", settings{nats: n.URL(), dir: t.TempDir(), more: many}, envChildOnly+"="+strings.Join(names(w.c.Replicas()), ","))
	p := w.start(serveOnly, settings{nats: n.URL()})
	p.ready()
	l := p.load()
	w.everybody(l)
	// 3.2 MB of keys, 16 bytes each, in parts of at most 1 MB. The tailer is cut off
	// before all are sent, and long after the first part: what it sends besides, a
	// state of some 650 bytes 24 times a second, counts too.
	const (
		rows  = 200_000
		after = 3_000_000
		part  = 500_000 // less than a part, more than anything else that WRITES gets then
	)
	w.must(primary.Exec(w.ctx, `DROP TABLE IF EXISTS app.big; CREATE TABLE app.big (id INT PRIMARY KEY, author_id INT NOT NULL, KEY (author_id))`))
	l.writeTo(nil) // all that comes now is of the big transaction
	w.delivered(p, w.executed(primary))
	before := p.Router.Follower().Counters().Bytes
	w.must(proxy.Refuse())
	struck, err := proxy.CutAfter(testenv.ToTarget, after)
	w.must(err)
	w.must(primary.Exec(w.ctx, fmt.Sprintf(`SET SESSION cte_max_recursion_depth=1000000;
		INSERT INTO app.big WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d) SELECT i, i FROM n`, rows)))
	select {
	case <-struck:
	case <-w.ctx.Done():
		t.Fatal("the transaction is not on its way to the stream")
	}
	w.must(tail.Kill())
	all := w.executed(primary)
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		n := p.Router.Follower().Counters().Bytes - before // of WRITES alone, without states
		return n >= part, fmt.Sprintf("the stream has %d bytes more, not a part of the transaction", n)
	})
	if d := p.Router.Index().Snapshot().Delivered(); d.ContainsSet(all) {
		t.Fatal("the stream has the whole transaction: the tailer was not killed in it")
	}
	big := question{server: r.Name(), key: fmt.Sprintf("app.big/%d", rows), floor: all}
	if a, err := askRouter(p.Router)(w.ctx, big); err != nil || a.yes {
		t.Errorf("of a part of a transaction the answer is %s, %v", a, err)
	}
	l.writeTo(primary)
	w.grows(l, 50)
	w.must(proxy.Pass())
	w.must(tail.Start(w.ctx))
	w.everybody(l)
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
// takes over by itself. How soon is for bench to tell.
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
		// Young watermarks outlive the tailer a little: only what is written now
		// needs the other one.
		w.grows(l, 20)
		w.delivered(p, w.executed(w.c.Primary()))
		w.everybody(l)
		t.Logf("without tailer %d answers were back after %s", i+1, time.Since(began))
		w.must(tail.Start(w.ctx))
		w.everybody(l)
	}
}

// TestRouterKilledWhileCatchingUp: a router that is killed again and again
// before it has caught up never says yes too early.
func TestRouterKilledWhileCatchingUp(t *testing.T) {
	w := newWorld(t)
	n := testenvtest.NATS(t, testenv.NATSOptions{})
	w.start(tailOnly, settings{nats: n.URL()})
	proxy, through := natsThrough(t, n)
	addr := w.port()
	s := settings{nats: through, dir: t.TempDir(), http: addr, more: "index: {persist_every: 50ms}\n"}
	serve := w.child("serve", s)
	l := w.load(askHTTP(addr))
	w.everybody(l)
	caught := 0
	for n := 0; n < 4; {
		if caught == mostCaught {
			t.Fatalf("the router had caught up in %d rounds, and was killed before in %d", caught, n)
		}
		w.must(serve.Kill())
		w.grows(l, 100)
		missed := w.executed(w.c.Primary())
		proxy.SetBandwidth(catchUpRate)
		w.must(serve.Start(w.ctx)) // it answers, and has much to catch up
		w.reads(addr)
		proxy.Stall(testenv.FromTarget)
		if d := w.deliveredTo(addr); !d.ContainsSet(missed) {
			n++
		} else {
			caught++ // such a round shows nothing
		}
		w.must(serve.Kill())
		w.must(proxy.Pass())
	}
	w.must(serve.Start(w.ctx))
	w.everybody(l)
}

// mostCaught bounds the rounds in which the router has caught up before it is
// killed: at catchUpRate a machine that stands still for a moment makes one such
// round, and only a router that ignores the rate makes so many.
const mostCaught = 20

// catchUpRate, in bytes a second, makes the writes of one round last for some
// seconds. It is below what the load and its states give the stream: who reads at
// that rate reaches what was missed then, and never its end.
const catchUpRate = 16 << 10

// reads waits until the router that listens there takes in what it missed.
func (w *world) reads(addr string) {
	w.t.Helper()
	began := w.deliveredTo(addr)
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		d := w.deliveredTo(addr)
		return !d.Equal(began), "it stays at " + d.OneLine()
	})
}

// deliveredTo is what the router that listens there has read of the stream.
func (w *world) deliveredTo(addr string) gtid.Set {
	w.t.Helper()
	code, body, err := get(w.ctx, "http://"+addr+"/v1/servers?verbose=1")
	w.must(err)
	if code != http.StatusOK {
		w.t.Fatalf("/v1/servers: %d %s", code, body)
	}
	var report struct {
		Delivered string `json:"delivered"`
	}
	w.must(json.Unmarshal(body, &report))
	set, err := gtid.Parse(report.Delivered)
	w.must(err)
	return set
}
