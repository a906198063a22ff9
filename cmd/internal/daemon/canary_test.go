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

// canaries waits until the canary's counters are as wanted.
func (w *world) canaries(p *program, what string, ok func(daemon.CanaryCounters) bool) daemon.CanaryCounters {
	w.t.Helper()
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		n := p.CanaryCounters()
		return ok(n), fmt.Sprintf("want %s: %+v", what, n)
	})
	return p.CanaryCounters()
}

// TestCanary: a replica's row was changed, another's deleted, without a trace in
// any GTID. The first yes for such a row is contradicted: it is counted, all that
// explains it is logged, and the server answers `epoch_changed` until it has a
// new epoch. A key that was written again meanwhile, or whose record was evicted,
// contradicts nothing, and keys of more than one row are not looked at.
func TestCanary(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.c.Primary(), w.c.Replicas()[0], w.c.Replicas()[1]
	w.must(a.Exec(w.ctx, "DROP TABLE IF EXISTS app.filler; CREATE TABLE app.filler (id INT PRIMARY KEY)"))
	w.must(w.c.WaitInSync(w.ctx))
	p, logged := w.startText(w.configText(settings{canary: "{one_in: 1, per_s: 1000}", more: "index: {max_records: 1024}\n"}))
	p.ready()
	handed := func() uint64 { return p.Router.Router().Counters().Canaries }

	// More than one row: nothing to compare.
	w.unlogged(b, "UPDATE app.posts SET v=999 WHERE id=1")
	w.unlogged(c, "DELETE FROM app.posts WHERE id=2")
	for _, s := range []*testenv.Server{b, c} {
		for _, k := range []string{"app.posts@author_id/0", "app.posts@author_id/1", "app.posts/*"} {
			w.yes(p, s.Name(), k)
		}
	}
	if n := p.CanaryCounters(); handed() != 0 || n != (daemon.CanaryCounters{}) {
		t.Fatalf("%d keys of more than one row were handed to the canary: %+v", handed(), n)
	}

	// What is equal is a verdict.
	w.yes(p, b.Name(), "app.posts/4")
	w.canaries(p, "one checked", func(n daemon.CanaryCounters) bool { return n.Checked == handed() && n.Checked > 0 })

	// Written again between the answer and the look at the rows.
	w.must(b.StopSQLThread(w.ctx))
	release := w.holdReads(b)
	w.yes(p, b.Name(), "app.posts/3")
	w.must(a.Exec(w.ctx, "UPDATE app.posts SET v=5 WHERE id=3"))
	release()
	w.canaries(p, "one inconclusive", func(n daemon.CanaryCounters) bool { return n.Inconclusive == 1 })
	w.must(b.StartSQLThread(w.ctx))

	// The index forgets records in between: a newer one may be among them.
	release = w.holdReads(b)
	w.yes(p, b.Name(), "app.posts/1")
	horizon := p.Router.Index().Snapshot().Horizon()
	w.must(a.Exec(w.ctx, "SET SESSION cte_max_recursion_depth=3000; INSERT INTO app.filler WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) SELECT i FROM n"))
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		now := p.Router.Index().Snapshot().Horizon()
		return !now.Equal(horizon), "the horizon is still " + now.OneLine()
	})
	release()
	n := w.canaries(p, "two inconclusive", func(n daemon.CanaryCounters) bool { return n.Inconclusive == 2 })
	if n.WrongYes != 0 || n.Dropped != 0 || n.Failed != 0 || len(logged.lines("WRONG YES")) != 0 {
		t.Fatalf("nothing was contradicted: %+v %s", n, logged.lines("WRONG YES"))
	}

	// The same rows, and nothing in between.
	for i, x := range []struct {
		s            *testenv.Server
		key, differs string
	}{
		{b, "app.posts/1", "v"},
		{c, "app.posts/2", "no row on this side"},
	} {
		epoch := p.state(x.s).Epoch
		w.yes(p, x.s.Name(), x.key)
		// The log comes last: whoever asks before may be given one more wrong yes.
		var lines []string
		testenvtest.WaitUntil(t, settle, func() (bool, string) {
			lines = logged.lines("WRONG YES")
			return len(lines) > i, fmt.Sprintf("%d lines of wrong answers: %+v", len(lines), p.CanaryCounters())
		})
		for _, k := range []string{x.key, "app.posts/5", "app.posts@author_id/1"} {
			w.refused(askRouter(p.Router), x.s.Name(), k, "epoch_changed", x.key+" differs from the primary: "+x.differs)
		}
		if n := p.CanaryCounters().WrongYes; n != uint64(i+1) || len(logged.lines("WRONG YES")) != i+1 {
			t.Fatalf("%d wrong answers, and lines %s", n, logged.lines("WRONG YES"))
		}
		for _, part := range []string{
			"level=ERROR", "key=" + x.key, "server=" + x.s.Name(), "server_uuid=" + p.state(x.s).UUID.String(), fmt.Sprintf("epoch=%d ", epoch),
			"primary=" + a.Name(), x.differs, "newest=", "prefix=", "decided_at=", "watermark_at=", "lease_at=", "staleness=", "confirmed=", "delivered=", "horizon=",
		} {
			if !strings.Contains(lines[i], part) {
				t.Errorf("the log does not say %q: %s", part, lines[i])
			}
		}
	}
	scraped := httptest.NewRecorder()
	metrics.Handler(p.Daemon, slog.New(slog.DiscardHandler)).ServeHTTP(scraped, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if !strings.Contains(scraped.Body.String(), "\ntidegate_router_wrong_yes_total 2\n") {
		t.Errorf("the metric is not 2:\n%s", scraped.Body)
	}

	// A later write does not bring back who was contradicted; a new run of the
	// server does, and is as good as its rows.
	w.must(a.Exec(w.ctx, "UPDATE app.posts SET v=6 WHERE id=1"))
	w.caughtUp(b, a)
	for _, s := range []*testenv.Server{b, c} {
		w.refused(askRouter(p.Router), s.Name(), "app.posts/1", "epoch_changed", "contradicted")
	}
	w.must(b.Restart(w.ctx))
	before := p.CanaryCounters().Checked
	w.yes(p, b.Name(), "app.posts/1")
	n = w.canaries(p, "one more checked", func(n daemon.CanaryCounters) bool { return n.Checked > before })
	if n.WrongYes != 2 {
		t.Errorf("the repaired row was called wrong: %+v", n)
	}
	w.refused(askRouter(p.Router), c.Name(), "app.posts/1", "epoch_changed", "contradicted")
}
