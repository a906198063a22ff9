package binlog_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

var testHasher = key.NewHasher(key.Secret{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})

// recorder is a handler that keeps everything.
type recorder struct {
	mu       sync.Mutex
	txns     []*event.Transaction
	holes    []*event.Hole
	defs     map[string]event.TableDefinition // newest, by schema.table
	seen     gtid.Set
	progress int
}

func newRecorder() *recorder { return &recorder{defs: map[string]event.TableDefinition{}} }

func (r *recorder) Transaction(_ context.Context, t *event.Transaction, _ binlog.Position) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen.Contains(t.GTID) {
		return fmt.Errorf("transaction %s came twice", t.GTID)
	}
	r.txns = append(r.txns, t)
	r.seen = r.seen.Add(t.GTID)
	return nil
}

func (r *recorder) Hole(_ context.Context, h *event.Hole) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holes = append(r.holes, h)
	r.seen = r.seen.Union(h.GTIDs)
	return nil
}

func (r *recorder) Definitions(_ context.Context, defs []event.TableDefinition) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range defs {
		r.defs[d.Schema+"."+d.Table] = d
	}
	return nil
}

func (r *recorder) Progress(context.Context, binlog.Position) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress++
	return nil
}

// since returns the transactions of a set, in order.
func (r *recorder) in(s gtid.Set) (txns []*event.Transaction) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.txns {
		if s.Contains(t.GTID) {
			txns = append(txns, t)
		}
	}
	return txns
}

func (r *recorder) definition(table string) (event.TableDefinition, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.defs[table]
	return d, ok
}

// tail is a tailer that runs for one test.
type tail struct {
	t      testing.TB
	server *testenv.Server
	tailer *binlog.Tailer
	rec    *recorder
	stop   func() error
}

func serverConfig(s *testenv.Server) binlog.ServerConfig {
	return binlog.ServerConfig{Name: s.Name(), Addr: s.Addr(), User: testenv.TidegateUser, Password: testenv.TidegatePassword}
}

// testLog writes to the test's log.
func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// startTail tails the server from where it is. Silence ends no connection before
// the test is given up: a loaded machine is no reason to reconnect.
func startTail(t testing.TB, s *testenv.Server, change func(*binlog.TailerOptions)) *tail {
	t.Helper()
	o := binlog.TailerOptions{
		Server: serverConfig(s), Hasher: testHasher, From: executed(t, s),
		Heartbeat: 100 * time.Millisecond, ReadTimeout: hang, Log: testLog(t),
	}
	if change != nil {
		change(&o)
	}
	tailer, err := binlog.NewTailer(o)
	if err != nil {
		t.Fatal(err)
	}
	rec := newRecorder()
	rec.seen = o.From
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tailer.Run(ctx, rec) }()
	stop := sync.OnceValue(func() error {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("tailer: %v", err)
		}
	})
	return &tail{t: t, server: s, tailer: tailer, rec: rec, stop: stop}
}

func executed(t testing.TB, s *testenv.Server) gtid.Set {
	t.Helper()
	text, err := s.GTIDExecuted(testenvtest.Context(t, hang))
	if err != nil {
		t.Fatal(err)
	}
	set, err := gtid.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// caughtUp waits until everything executed was delivered, and returns it.
func (l *tail) caughtUp() gtid.Set {
	l.t.Helper()
	want := executed(l.t, l.server)
	testenvtest.WaitUntil(l.t, hang, func() (bool, string) {
		l.rec.mu.Lock()
		defer l.rec.mu.Unlock()
		_, _, err := l.tailer.Status()
		return l.rec.seen.ContainsSet(want), fmt.Sprintf("tail misses %s (last error: %v)", want.Subtract(l.rec.seen), err)
	})
	return want
}

// defined waits for the newest definition of tables to be usable.
func (l *tail) defined(tables ...string) {
	l.t.Helper()
	for _, name := range tables {
		testenvtest.WaitUntil(l.t, hang, func() (bool, string) {
			d, ok := l.rec.definition(name)
			return ok && !d.Dropped, "no definition of " + name
		})
	}
}

// session is one connection for a test's statements.
type session struct {
	t    testing.TB
	conn *sql.Conn
}

func newSession(t testing.TB, s *testenv.Server) *session {
	t.Helper()
	c, err := s.DB().Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	// The pool keeps connections: what a test set must not meet the next one.
	t.Cleanup(func() {
		_ = c.Raw(func(any) error { return driver.ErrBadConn })
		_ = c.Close()
	})
	return &session{t, c}
}

func (s *session) exec(statements ...string) {
	s.t.Helper()
	for _, q := range statements {
		if _, err := s.conn.ExecContext(testenvtest.Context(s.t, hang), q); err != nil {
			s.t.Fatalf("%s: %v", q, err)
		}
	}
}

// rows returns a query's rows as text, columns separated by a bar.
func (s *session) rows(q string) (out []string) {
	s.t.Helper()
	rows, err := s.conn.QueryContext(testenvtest.Context(s.t, hang), q)
	if err != nil {
		s.t.Fatalf("%s: %v", q, err)
	}
	defer rows.Close()
	cols, err := rows.Columns()
	if err != nil {
		s.t.Fatal(err)
	}
	for rows.Next() {
		vals := make([]sql.NullString, len(cols))
		ptrs := make([]any, len(cols))
		for i := range vals {
			ptrs[i] = &vals[i]
		}
		if err := rows.Scan(ptrs...); err != nil {
			s.t.Fatalf("%s: %v", q, err)
		}
		line := make([]string, len(vals))
		for i, v := range vals {
			line[i] = "\x00"
			if v.Valid {
				line[i] = v.String
			}
		}
		out = append(out, strings.Join(line, "\x01"))
	}
	if err := rows.Err(); err != nil {
		s.t.Fatalf("%s: %v", q, err)
	}
	return out
}

// scopesOf names the scopes that transactions wrote, as far as they are among
// the names that a test knows.
type scopeNames map[key.Digest]string

func (n scopeNames) table(schema, table string) {
	s := testHasher.Table(schema, table)
	n[s.AllRows] = "all:" + schema + "." + table
	n[s.AnyRow] = "any:" + schema + "." + table
	n[s.Schema] = "schema:" + schema
	n[s.Everything] = "everything"
}

// key adds the scope of a printed key under a definition.
func (n scopeNames) key(t testing.TB, d *key.Definition, printed string) key.Digest {
	t.Helper()
	k, err := key.Parse(printed)
	if err != nil {
		t.Fatalf("%s: %v", printed, err)
	}
	var c key.Cover
	if err := d.Cover(testHasher, &k, &c); err != nil {
		t.Fatalf("%s: %v", printed, err)
	}
	if _, known := n[c.Own]; !known {
		n[c.Own] = printed
	}
	if k.Kind == key.KindGroup {
		n[c.GroupColumn] = "all:" + strings.SplitN(printed, "/", 2)[0]
	}
	return c.Own
}

// names prints the scopes of transactions, sorted; unknown digests as such.
func (n scopeNames) names(txns ...*event.Transaction) []string {
	var out []string
	for _, t := range txns {
		for _, list := range [][]key.Digest{t.Tables, t.Scopes} {
			for _, d := range list {
				name, ok := n[d]
				if !ok {
					name = fmt.Sprintf("?%x", d[:4])
				}
				out = append(out, name)
			}
		}
	}
	sort.Strings(out)
	return slices.Compact(out)
}

func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	want = slices.Clone(want)
	sort.Strings(want)
	want = slices.Compact(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// countingDial counts connections.
func countingDial(n *atomic.Int64) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		n.Add(1)
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
}
