package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/daemon"
	"tidegate/cmd/internal/metrics"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// logBuffer is what a program has logged so far.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// lines are the logged lines that contain the text.
func (b *logBuffer) lines(text string) (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

// startText opens and runs the whole program on a configuration's text, and
// keeps what it logs.
func (w *world) startText(text string) (*program, *logBuffer) {
	w.t.Helper()
	cfg, err := config.Parse("test", []byte(text), os.LookupEnv)
	w.must(err)
	logged := &logBuffer{}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(w.t.Output(), logged), nil))
	d, err := daemon.Open(w.ctx, cfg, daemon.Options{Parts: everything, Log: log})
	w.must(err)
	p := &program{Daemon: d, w: w, done: make(chan struct{})}
	p.run()
	return p, logged
}

// unlogged changes rows of one server alone, as damage does: no GTID tells of it.
func (w *world) unlogged(s *testenv.Server, query string) {
	w.t.Helper()
	w.must(s.Exec(w.ctx, "SET GLOBAL super_read_only=OFF; SET sql_log_bin=0; "+query+"; SET sql_log_bin=1; SET GLOBAL super_read_only=ON"))
}

// holdReads makes every read of app.posts on the server wait until release is
// called.
func (w *world) holdReads(s *testenv.Server) (release func()) {
	w.t.Helper()
	conn, err := s.DB().Conn(w.ctx)
	w.must(err)
	// read_only stays on: a lock for writing is refused under super_read_only only.
	_, err = conn.ExecContext(w.ctx, "SET GLOBAL super_read_only=OFF; LOCK TABLES app.posts WRITE")
	w.must(err)
	release = sync.OnceFunc(func() {
		_, err := conn.ExecContext(context.WithoutCancel(w.ctx), "UNLOCK TABLES; SET GLOBAL super_read_only=ON")
		if err := conn.Close(); err != nil {
			w.t.Error(err)
		}
		if err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(release)
	return release
}

// asks has the canary look at a yes for the key of the server, and waits until
// its counters are as wanted. After a check without a verdict, such as one that
// fails because it takes more than its 5 s, the question is put again.
func (w *world) asks(p *program, s *testenv.Server, k, want string, ok func(daemon.CanaryCounters) bool) (n daemon.CanaryCounters) {
	w.t.Helper()
	mute := func(n daemon.CanaryCounters) uint64 { return n.Failed + n.Inconclusive + n.Dropped }
	before := mute(p.CanaryCounters())
	w.yes(p, s.Name(), k)
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		n = p.CanaryCounters()
		if ok(n) {
			return true, ""
		}
		if now := mute(n); now > before {
			before = now
			w.yes(p, s.Name(), k)
		}
		return false, fmt.Sprintf("want %s: %+v", want, n)
	})
	return n
}

// inconclusive has the canary look at a yes for the key of a replica, and wants no
// verdict of it: between is what happens after the answer and before the rows can
// be read. The check waits meanwhile; one that fails for that is made again.
func (w *world) inconclusive(p *program, s *testenv.Server, k string, between func()) {
	w.t.Helper()
	for {
		w.caughtUp(s, w.c.Primary())
		w.must(s.StopSQLThread(w.ctx)) // the rows stay as they are at the answer
		before := p.CanaryCounters()
		release := w.holdReads(s)
		w.yes(p, s.Name(), k)
		between()
		release()
		var n daemon.CanaryCounters
		testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
			n = p.CanaryCounters()
			return n.Inconclusive > before.Inconclusive || n.Failed > before.Failed, fmt.Sprintf("want one more inconclusive: %+v, then %+v", before, n)
		})
		w.must(s.StartSQLThread(w.ctx))
		if n.Inconclusive > before.Inconclusive {
			return
		}
	}
}

// TestCanary: a replica's row was changed, another's deleted, without a trace in
// any GTID. The first yes for such a row is contradicted: it is counted, all that
// explains it is logged, and the server answers `epoch_changed` until it has a
// new epoch. A key that was written again meanwhile, or whose record was evicted,
// contradicts nothing, and keys of more than one row are not looked at.
func TestCanary(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.c.Primary(), w.c.Replicas()[0], w.c.Replicas()[1]
	w.must(a.Exec(w.ctx, "DROP TABLE IF EXISTS app.filler; CREATE TABLE app.filler (id INT AUTO_INCREMENT PRIMARY KEY)"))
	w.must(w.c.WaitInSync(w.ctx))
	p, logged := w.startText(w.configText(settings{canary: "{one_in: 1, per_s: 1000}", more: "index: {max_records: 1024}\n"}))
	p.ready()

	// More than one row: nothing to compare.
	w.unlogged(b, "UPDATE app.posts SET v=999 WHERE id=1")
	w.unlogged(c, "DELETE FROM app.posts WHERE id=2")
	for _, s := range []*testenv.Server{b, c} {
		for _, k := range []string{"app.posts@author_id/0", "app.posts@author_id/1", "app.posts/*"} {
			w.yes(p, s.Name(), k)
		}
	}
	if handed, n := p.Router.Router().Counters().Canaries, p.CanaryCounters(); handed != 0 || n != (daemon.CanaryCounters{}) {
		t.Fatalf("%d keys of more than one row were handed to the canary: %+v", handed, n)
	}

	// What is equal is a verdict.
	w.asks(p, b, "app.posts/4", "one checked", func(n daemon.CanaryCounters) bool { return n.Checked == 1 })

	// Written again between the answer and the look at the rows.
	w.inconclusive(p, b, "app.posts/3", func() { w.must(a.Exec(w.ctx, "UPDATE app.posts SET v=v+5 WHERE id=3")) })

	// The index forgets records in between: a newer one may be among them.
	w.inconclusive(p, b, "app.posts/1", func() {
		horizon := p.Router.Index().Snapshot().Horizon()
		w.must(a.Exec(w.ctx, "SET SESSION cte_max_recursion_depth=3000; INSERT INTO app.filler WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) SELECT NULL FROM n"))
		testenvtest.WaitUntil(t, settle, func() (bool, string) {
			now := p.Router.Index().Snapshot().Horizon()
			return !now.Equal(horizon), "the horizon is still " + now.OneLine()
		})
	})
	if n := p.CanaryCounters(); n.WrongYes != 0 || n.Dropped != 0 || len(logged.lines("WRONG YES")) != 0 {
		t.Fatalf("nothing was contradicted: %+v %s", n, logged.lines("WRONG YES"))
	}

	w.contradicted(p, logged)

	// A later write does not bring back who was contradicted; a new run of the
	// server does, and is as good as its rows.
	w.must(a.Exec(w.ctx, "UPDATE app.posts SET v=6 WHERE id=1"))
	w.caughtUp(b, a)
	for _, s := range []*testenv.Server{b, c} {
		w.refused(askRouter(p.Router), s.Name(), "app.posts/1", "epoch_changed", "contradicted")
	}
	w.must(b.Restart(w.ctx))
	before := p.CanaryCounters().Checked
	n := w.asks(p, b, "app.posts/1", "one more checked", func(n daemon.CanaryCounters) bool { return n.Checked > before })
	if n.WrongYes != 2 {
		t.Errorf("the repaired row was called wrong: %+v", n)
	}
	w.refused(askRouter(p.Router), c.Name(), "app.posts/1", "epoch_changed", "contradicted")
}

// contradicted asks for the damaged rows of [TestCanary] when nothing is written.
func (w *world) contradicted(p *program, logged *logBuffer) {
	w.t.Helper()
	a, b, c := w.c.Primary(), w.c.Replicas()[0], w.c.Replicas()[1]
	for i, x := range []struct {
		s            *testenv.Server
		key, differs string
	}{
		{b, "app.posts/1", "v"},
		{c, "app.posts/2", "no row on this side"},
	} {
		epoch := p.state(x.s).Epoch
		// The log comes last: whoever asks before may be given one more wrong yes.
		w.asks(p, x.s, x.key, "one more line of a wrong answer", func(daemon.CanaryCounters) bool { return len(logged.lines("WRONG YES")) > i })
		lines := logged.lines("WRONG YES")
		for _, k := range []string{x.key, "app.posts/5", "app.posts@author_id/1"} {
			w.refused(askRouter(p.Router), x.s.Name(), k, "epoch_changed", x.key+" differs from the primary: "+x.differs)
		}
		if n := p.CanaryCounters().WrongYes; n != uint64(i+1) || len(lines) != i+1 {
			w.t.Fatalf("%d wrong answers, and lines %s", n, lines)
		}
		for _, part := range []string{
			"level=ERROR", "key=" + x.key, "server=" + x.s.Name(), "server_uuid=" + p.state(x.s).UUID.String(), fmt.Sprintf("epoch=%d ", epoch),
			"primary=" + a.Name(), x.differs, "newest=", "prefix=", "decided_at=", "watermark_at=", "lease_at=", "staleness=", "confirmed=", "delivered=", "horizon=",
		} {
			if !strings.Contains(lines[i], part) {
				w.t.Errorf("the log does not say %q: %s", part, lines[i])
			}
		}
	}
	scraped := httptest.NewRecorder()
	metrics.Handler(p.Daemon, slog.New(slog.DiscardHandler)).ServeHTTP(scraped, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if !strings.Contains(scraped.Body.String(), "\ntidegate_router_wrong_yes_total 2\n") {
		w.t.Errorf("the metric is not 2:\n%s", scraped.Body)
	}
}
