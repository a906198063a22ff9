package daemon_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/daemon"
	"tidegate/router/local"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// settings vary the configuration; the zero value is everything in one process.
type settings struct {
	cluster string // default "test"
	dir     string // data_dir; empty: the world's own
	nats    string // URL; empty: embedded
	http    string // address of the HTTP API; empty: off
	keys    string // default "app.posts: [author_id]"
	canary  string // default "{one_in: 0}"
	more    string // further lines of the file
	tls     string // keys of each server's tls; empty: no TLS

	ahead time.Duration // by which the tail half's clock is ahead of the serve half's
}

// world is one test's use of the servers.
type world struct {
	t   *testing.T
	ctx context.Context
	c   *testenv.Cluster
	dir string
	n   int // programs opened so far
}

// testTimeout bounds one test that hangs; none takes half of it.
const testTimeout = 5 * time.Minute

// newWorld gives the test healthy servers, with app.posts as the load wants it.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := newWorldFor(t, servers)
	t.Cleanup(func() { w.heal() })
	w.makeTable()
	return w
}

// newRunning gives the test healthy servers, the whole program on them, and a load
// for which every server answers yes.
func newRunning(t *testing.T) (*world, *program, *load) {
	t.Helper()
	w := newWorld(t)
	p := w.start(everything, settings{})
	p.ready()
	l := p.load()
	w.everybody(l)
	return w, p, l
}

// newWorldOn gives the test servers of its own.
func newWorldOn(t *testing.T, o testenv.Options) *world {
	t.Helper()
	w := newWorldFor(t, testenvtest.Cluster(t, o))
	w.makeTable()
	return w
}

// newWorldFor leaves the test's own servers as they are.
func newWorldFor(t *testing.T, c *testenv.Cluster) *world {
	t.Helper()
	return &world{t: t, ctx: testenvtest.Context(t, testTimeout), c: c, dir: t.TempDir()}
}

// makeTable makes app.posts as the load wants it.
func (w *world) makeTable() {
	w.t.Helper()
	// With a default schema: replicate-do-db looks at that for DDL.
	query := "USE app; DROP TABLE IF EXISTS app.posts; CREATE TABLE app.posts (id INT PRIMARY KEY, author_id INT NOT NULL, v BIGINT NOT NULL, body VARCHAR(200), KEY (author_id))"
	for id := range loadRows {
		query += fmt.Sprintf("; INSERT INTO app.posts (id, author_id, v) VALUES (%d, %d, 0)", id+1, (id+1)%loadAuthors)
	}
	w.must(w.c.Primary().Exec(w.ctx, query))
	w.must(w.c.WaitInSync(w.ctx))
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) configText(s settings) string {
	or := func(v, std string) string {
		if v == "" {
			return std
		}
		return v
	}
	var b strings.Builder
	fmt.Fprintf(&b, "cluster: %s\ndata_dir: %q\n", or(s.cluster, "test"), or(s.dir, filepath.Join(w.dir, "data")))
	fmt.Fprintf(&b, "listen: {http: %q, resp: \"off\"}\nkeys: {%s}\ncanary: %s\n", or(s.http, "off"), or(s.keys, "app.posts: [author_id]"), or(s.canary, "{one_in: 0}"))
	fmt.Fprintf(&b, "nats: {url: %q, max_bytes: 64MiB}\n%sservers:\n", s.nats, s.more)
	for _, m := range w.c.Servers() {
		fmt.Fprintf(&b, "  - {name: %s, addr: %q, user: %s, password: %s, tls: {%s}}\n", m.Name(), m.Addr(), testenv.TidegateUser, testenv.TidegatePassword, s.tls)
	}
	return b.String()
}

// program is the program in this process.
type program struct {
	*daemon.Daemon
	w    *world
	stop context.CancelFunc
	done chan struct{}
	err  error // of Run; valid after done
	shut bool
}

func (w *world) config(s settings) (*config.Config, error) {
	return config.Parse("test", []byte(w.configText(s)), os.LookupEnv)
}

// open opens the program without running it.
func (w *world) open(parts daemon.Parts, s settings) (*program, error) {
	w.t.Helper()
	cfg, err := w.config(s)
	if err != nil {
		return nil, err
	}
	w.n++
	log := slog.New(slog.NewTextHandler(w.t.Output(), nil)).With("program", w.n)
	d, err := daemon.Open(w.ctx, cfg, daemon.Options{
		Parts: parts, Log: log,
		TailClock: func() int64 { return local.Clock() + int64(s.ahead) },
	})
	if err != nil {
		return nil, err
	}
	return &program{Daemon: d, w: w, done: make(chan struct{})}, nil
}

var (
	everything = daemon.Parts{Tail: true, Serve: true}
	tailOnly   = daemon.Parts{Tail: true}
	serveOnly  = daemon.Parts{Serve: true}
)

// start opens and runs the program; the test ends it, unless it was ended.
func (w *world) start(parts daemon.Parts, s settings) *program {
	w.t.Helper()
	p, err := w.open(parts, s)
	w.must(err)
	p.run()
	return p
}

// run runs the opened program.
func (p *program) run() {
	run, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() {
		defer close(p.done)
		p.err = p.Run(run)
	}()
	p.w.t.Cleanup(p.end)
}

// end stops the program and reports how it ended.
func (p *program) end() {
	p.w.t.Helper()
	if p.shut {
		return
	}
	p.shut = true
	p.stop()
	<-p.done
	if p.err != nil {
		p.w.t.Errorf("run: %v", p.err)
	}
	if err := p.Close(); err != nil {
		p.w.t.Errorf("close: %v", err)
	}
}

// ready waits until the router may answer.
func (p *program) ready() {
	p.w.t.Helper()
	ctx, cancel := context.WithTimeout(p.w.ctx, testenvtest.HangTimeout)
	defer cancel()
	p.w.must(p.Ready(ctx))
}

// load starts writing and checking against the program's router.
func (p *program) load() *load {
	p.w.t.Helper()
	return p.w.load(askRouter(p.Router))
}

// load starts writing and checking; at its end no answer may have been stale.
func (w *world) load(a ask) *load {
	w.t.Helper()
	l := startLoad(w.c, a)
	w.t.Cleanup(func() { w.finish(l) })
	return l
}

// finish ends the load and reports every stale yes. It may be called twice.
func (w *world) finish(l *load) {
	w.t.Helper()
	if l.ended {
		return
	}
	l.ended = true
	l.close()
	stale, summary := l.report()
	w.t.Log(summary)
	for i, s := range stale {
		if i == 10 {
			w.t.Errorf("and %d more", len(stale)-i)
			break
		}
		w.t.Errorf("STALE YES: %s", s)
	}
}

// settle bounds the wait for answers that come back by themselves.
const settle = testenvtest.HangTimeout

// answers waits until each of the servers had some more yes answers, all of
// them held against their rows.
func (w *world) answers(l *load, names ...string) {
	w.t.Helper()
	const some = 10
	for _, name := range names {
		before, _ := l.checked(name)
		testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
			n, last := l.checked(name)
			return n >= before+some, fmt.Sprintf("%s: %d of %d answers are yes; last: %s", name, n-before, some, last)
		})
	}
}

// names are the names of some servers.
func names(list []*testenv.Server) (out []string) {
	for _, s := range list {
		out = append(out, s.Name())
	}
	return out
}

// everybody waits for answers from all servers.
func (w *world) everybody(l *load) {
	w.t.Helper()
	w.answers(l, names(w.c.Servers())...)
}

// refused waits until the server's answer is a no with the reason, and a detail
// that contains the text, and returns the answer.
func (w *world) refused(a ask, server, k, reason, detail string) answer {
	w.t.Helper()
	var got answer
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		var err error
		if got, err = a(w.ctx, question{server: server, key: k}); err != nil {
			return false, err.Error()
		}
		return !got.yes && got.reason == reason && strings.Contains(got.detail, detail), fmt.Sprintf("%s for %s: %s; want %s ... %s", server, k, got, reason, detail)
	})
	return got
}

// grows waits for some more acknowledged writes.
func (w *world) grows(l *load, by int) {
	w.t.Helper()
	before := l.acked()
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		n := l.acked() - before
		return n >= by, fmt.Sprintf("%d of %d writes acknowledged", n, by)
	})
}

// executed is what a server has executed.
func (w *world) executed(s *testenv.Server) gtid.Set {
	w.t.Helper()
	text, err := s.GTIDExecuted(w.ctx)
	w.must(err)
	set, err := gtid.Parse(text)
	w.must(err)
	return set
}

// heal gives the next test whole servers: running, replicating from the
// primary, with its data.
func (w *world) heal() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	primary := w.c.Primary()
	if err := primary.Start(ctx); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range w.c.Replicas() {
		if err := w.healReplica(ctx, s, primary); err != nil {
			w.t.Logf("rebuild %s: %v", s.Name(), err)
			if err := s.WipeAndRebuildFrom(ctx, primary, false); err != nil {
				w.t.Error(err)
			}
		}
	}
	if err := w.c.WaitInSync(ctx); err != nil {
		w.t.Error(err)
	}
}

func (w *world) healReplica(ctx context.Context, s, primary *testenv.Server) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	if err := s.SetReadOnly(ctx, true); err != nil {
		return err
	}
	status, err := s.ReplicaStatus(ctx)
	if err != nil {
		return err
	}
	if status["Replica_IO_Running"] != "Yes" || status["Replica_SQL_Running"] != "Yes" || status["Source_Port"] != fmt.Sprint(primary.Port()) {
		if err := s.RepointTo(ctx, primary, ""); err != nil {
			return err
		}
	}
	text, err := primary.GTIDExecuted(ctx)
	if err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := s.WaitForGTIDs(short, text); err != nil {
		return err
	}
	// Nobody writes any more: what the primary has not is errant, or was lost.
	extra, err := s.QueryString(ctx, "SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, ?)", text)
	if err == nil && extra != "" {
		err = fmt.Errorf("it has %s, which the primary has not", extra)
	}
	return err
}

// state is the newest state of a server that the router knows.
func (p *program) state(s *testenv.Server) event.ServerState {
	p.w.t.Helper()
	snap := p.Router.Index().Snapshot()
	i, ok := snap.ServerIndex(s.Name())
	if !ok || snap.Server(i) == nil {
		p.w.t.Fatalf("nothing is known of %s", s.Name())
	}
	return *snap.Server(i)
}
