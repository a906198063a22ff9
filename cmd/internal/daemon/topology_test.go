package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"tidegate/binlog"
	"tidegate/cmd/internal/daemon"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// findings are what check says of one server.
func (w *world) findings(s *testenv.Server) (out []string) {
	w.t.Helper()
	cfg, err := w.config(settings{})
	w.must(err)
	list, err := daemon.ServerConfigs(cfg, []string{s.Name()})
	w.must(err)
	db, err := list[0].OpenDB()
	w.must(err)
	defer func() { w.must(db.Close()) }()
	in, err := binlog.Gather(w.ctx, db, &list[0])
	w.must(err)
	for _, f := range in.Findings() {
		out = append(out, f.Severity.String()+": "+f.What)
	}
	return out
}

// TestSecondChannel: no GTID set tells which of two sources a replica has
// applied; once the second channel is gone the replica is good again.
func TestSecondChannel(t *testing.T) {
	w, p, l := newRunning(t)
	r, other := w.c.Replicas()[0], w.c.Replicas()[1]
	w.must(r.Exec(w.ctx, `CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=?, SOURCE_USER=?, SOURCE_PASSWORD=?,
		SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1 FOR CHANNEL 'second'; START REPLICA FOR CHANNEL 'second'`,
		other.Port(), testenv.ReplicationUser, testenv.ReplicationPassword))
	t.Cleanup(func() {
		if t.Failed() {
			_ = r.Exec(testenvtest.Context(t, settle), "STOP REPLICA FOR CHANNEL 'second'; RESET REPLICA ALL FOR CHANNEL 'second'")
		}
	})
	w.refused(askRouter(p.Router), r.Name(), "app.posts/1", "excluded", "2 asynchronous replication channels")
	if f := strings.Join(w.findings(r), "\n"); !strings.Contains(f, "broken: 2 asynchronous replication channels") {
		t.Errorf("check says %s", f)
	}
	w.answers(l, w.c.Primary().Name(), other.Name())
	w.must(r.Exec(w.ctx, "STOP REPLICA FOR CHANNEL 'second'; RESET REPLICA ALL FOR CHANNEL 'second'"))
	w.everybody(l)
}

// TestChain: a replica behind a replica, moved to the primary and back under
// load, and the one in the middle promoted when the primary dies.
func TestChain(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.c.Primary(), w.c.Replicas()[0], w.c.Replicas()[1]
	w.must(c.RepointTo(w.ctx, b, ""))
	p := w.start(everything, settings{})
	p.ready()
	l := p.load()
	w.everybody(l)
	epochB, epochC := p.state(b).Epoch, p.state(c).Epoch
	for _, source := range []*testenv.Server{a, b} {
		w.must(c.RepointTo(w.ctx, source, ""))
		w.grows(l, 20)
		w.everybody(l)
	}
	l.writeTo(nil)
	w.must(w.c.WaitInSync(w.ctx))
	w.must(a.Kill())
	w.must(w.c.PromoteWith(w.ctx, b, testenv.PromoteOptions{}))
	l.writeTo(b)
	w.answers(l, b.Name(), c.Name())
	if x, y := p.state(b).Epoch, p.state(c).Epoch; x != epochB || y != epochC {
		t.Errorf("epochs %d and %d became %d and %d, though both mysqlds ran on", epochB, epochC, x, y)
	}
	if lost := p.Router.Index().Snapshot().Lost(); !lost.IsEmpty() {
		t.Errorf("nothing was lost, and it says %s", lost.OneLine())
	}
	w.must(a.Start(w.ctx)) // read-only
	w.must(a.RepointTo(w.ctx, c, ""))
	w.everybody(l)
}

// TestExcludedTables: what a replica filters by its configuration, renames, does
// not log, or keeps in another engine is excluded there, table by table; the
// rest of it is not.
func TestExcludedTables(t *testing.T) {
	w := newWorldOn(t, testenv.Options{PerServer: map[string]testenv.ServerOptions{
		"b": {Args: []string{
			"--replicate-ignore-table=app.ignored", "--replicate-wild-ignore-table=app.wild%",
			"--replicate-rewrite-db=src->dst", "--binlog-ignore-db=kept",
		}},
		"c": {Args: []string{"--replicate-do-db=app"}},
	}})
	a, b, c := w.c.Primary(), w.c.Server("b"), w.c.Server("c")
	tables := []string{"app.ignored", "app.wild1", "app.engine", "src.t", "dst.t", "kept.t", "shop.t"}
	setup := "CREATE DATABASE src; CREATE DATABASE dst; CREATE DATABASE kept; CREATE DATABASE shop"
	for _, name := range tables {
		schema, _, _ := strings.Cut(name, ".")
		setup += fmt.Sprintf("; USE %s; CREATE TABLE %s (id INT PRIMARY KEY, v INT)", schema, name)
	}
	w.must(a.Exec(w.ctx, setup))
	w.must(w.c.WaitInSync(w.ctx))
	w.must(c.Exec(w.ctx, "SET GLOBAL super_read_only=OFF; SET sql_log_bin=0; ALTER TABLE app.engine ENGINE=BLACKHOLE; SET sql_log_bin=1; SET GLOBAL super_read_only=ON"))

	p := w.start(everything, settings{})
	p.ready()
	l := p.load()
	for i, name := range tables { // src.t and dst.t meet on b
		w.must(a.Exec(w.ctx, fmt.Sprintf("INSERT INTO %s VALUES (%d,1)", name, i)))
	}
	for _, x := range []struct {
		s        *testenv.Server
		excluded []string
	}{
		{a, nil},
		{b, []string{"app.ignored", "app.wild1", "src.t", "dst.t", "kept.t"}},
		{c, []string{"app.engine", "src.t", "dst.t", "kept.t", "shop.t"}},
	} {
		for i, name := range tables {
			k, out := fmt.Sprintf("%s/%d", name, i), false
			for _, e := range x.excluded {
				out = out || e == name
			}
			if out {
				w.refused(askRouter(p.Router), x.s.Name(), k, "excluded", "")
			} else {
				w.yes(p, x.s.Name(), k)
			}
		}
	}
	w.everybody(l) // app.posts
	for s, rules := range map[*testenv.Server][]string{
		b: {"replicate-ignore-table: app.ignored", "replicate-wild-ignore-table: app.wild%", "replicate-rewrite-db: src", "binlog-ignore-db: kept"},
		c: {"replicate-do-db: app"},
	} {
		found := strings.Join(w.findings(s), "\n")
		for _, r := range rules {
			if !strings.Contains(found, "warning: "+r) {
				t.Errorf("check of %s does not say %q: %s", s.Name(), r, found)
			}
		}
	}

	// What a replica executes into such a table it need not keep.
	w.must(a.Exec(w.ctx, "USE app; CREATE TABLE mem (id INT PRIMARY KEY, v INT) ENGINE=MEMORY; INSERT INTO mem VALUES (1,1)"))
	w.yes(p, "a", "app.mem/1")
	for _, s := range []string{"b", "c"} {
		w.refused(askRouter(p.Router), s, "app.mem/1", "excluded", "")
		w.yes(p, s, "app.posts/1")
	}
	w.must(c.Exec(w.ctx, "SET GLOBAL default_storage_engine=MEMORY"))
	w.refused(askRouter(p.Router), "c", "app.posts/1", "excluded", "default_storage_engine is MEMORY")
	if found := strings.Join(w.findings(c), "\n"); !strings.Contains(found, "broken: default_storage_engine is MEMORY") {
		t.Errorf("check does not tell the default engine: %s", found)
	}
	w.must(c.Exec(w.ctx, "SET GLOBAL default_storage_engine=DEFAULT"))
	w.yes(p, "c", "app.posts/1")
}

// TestBinlogSettings: how the primary writes its binlog may change under the
// program's eyes; answers stay right, and nothing becomes a hole.
func TestBinlogSettings(t *testing.T) {
	w := newWorld(t)
	a := w.c.Primary()
	w.must(a.Exec(w.ctx, "DROP TABLE IF EXISTS app.docs; CREATE TABLE app.docs (id INT PRIMARY KEY, n INT NOT NULL, j JSON); INSERT INTO app.docs VALUES (1, 0, JSON_OBJECT('n', 0, 'pad', REPEAT('x', 300)))"))
	w.must(w.c.WaitInSync(w.ctx))
	p := w.start(everything, settings{keys: "app.posts: [author_id], app.docs: [n]"})
	p.ready()
	l := p.load()
	w.everybody(l)
	horizon := p.Router.Index().Snapshot().Horizon()
	restore := "SET GLOBAL binlog_format=ROW, GLOBAL binlog_row_image=FULL, GLOBAL binlog_row_metadata=FULL, GLOBAL binlog_transaction_compression=OFF, " +
		"GLOBAL binlog_row_value_options='', GLOBAL binlog_checksum=CRC32, GLOBAL max_binlog_size=1073741824"
	anew := func() { // sessions take most of these when they begin
		a.DB().SetMaxIdleConns(0)
		a.DB().SetMaxIdleConns(4)
	}
	t.Cleanup(func() {
		if err := a.Exec(testenvtest.Context(t, settle), restore); err != nil {
			t.Error(err)
		}
		anew()
	})
	for n, set := range []string{
		"binlog_row_image=MINIMAL", "binlog_row_metadata=MINIMAL", "binlog_transaction_compression=ON", "binlog_row_value_options=PARTIAL_JSON",
		"binlog_format=MIXED", "binlog_format=STATEMENT", "binlog_format=ROW", "binlog_checksum=NONE", "max_binlog_size=4096",
	} {
		w.must(a.Exec(w.ctx, "SET GLOBAL "+set))
		anew()
		l.writeTo(nil)
		l.writeTo(a)
		w.must(a.Exec(w.ctx, "UPDATE app.docs SET n=?, j=JSON_SET(j, '$.n', ?) WHERE id=1", n+1, n+1))
		floor := w.executed(a)
		w.grows(l, 10)
		w.everybody(l)
		for _, s := range w.c.Servers() {
			for _, k := range []string{"app.docs/1", fmt.Sprintf("app.docs@n/%d", n), fmt.Sprintf("app.docs@n/%d", n+1), "app.docs/*"} {
				w.shows(p, s, question{server: s.Name(), key: k, floor: floor}, "SELECT JSON_EXTRACT(j, '$.n') FROM app.docs WHERE id=1", fmt.Sprint(n+1))
			}
		}
	}
	for range 3 {
		w.must(a.Exec(w.ctx, "FLUSH BINARY LOGS"))
		w.must(a.PurgeBinlogs(w.ctx))
		w.grows(l, 10)
	}
	w.everybody(l)
	if now := p.Router.Index().Snapshot().Horizon(); !now.Equal(horizon) {
		t.Errorf("the horizon was %s and is %s", horizon.OneLine(), now.OneLine())
	}
}

// shows waits for a yes and then wants the query's value on the server.
func (w *world) shows(p *program, s *testenv.Server, q question, query, want string) {
	w.t.Helper()
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		got, err := askRouter(p.Router)(w.ctx, q)
		w.must(err)
		return got.yes, fmt.Sprintf("%s for %s: %s", q.server, q.key, got)
	})
	got, err := s.QueryString(w.ctx, query)
	w.must(err)
	if got != want {
		w.t.Errorf("STALE YES: %s for %s shows %s, want %s", q.server, q.key, got, want)
	}
}
