package binlog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tidegate/binlog"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestCutAnywhere cuts the connection behind random numbers of bytes, in the
// middle of events too, while transactions are written: each comes once, whole.
func TestCutAnywhere(t *testing.T) {
	primary := servers.Primary()
	s := newSession(t, primary)
	schema(t, s, "cuts")
	s.exec("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)")
	proxy, err := primary.Proxy()
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	from := executed(t, primary)
	l := startTail(t, primary, func(o *binlog.TailerOptions) {
		o.Server.Addr = proxy.Addr()
		o.Log = nil
	})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	const txns = 120
	for i := range txns {
		if i%4 == 0 {
			if _, err := proxy.CutAfter(testenv.FromTarget, int64(1+rnd.IntN(400000))); err != nil {
				t.Fatal(err)
			}
		}
		if i%20 == 7 {
			s.exec(fmt.Sprintf("SET binlog_transaction_compression=%t", i%40 == 7))
		}
		s.exec(fmt.Sprintf("INSERT INTO t VALUES (%d, REPEAT('x', %d)), (%d, 'y')", 2*i, rnd.IntN(300000), 2*i+1))
	}
	// A tail that is far behind has yet to come to the last cut.
	testenvtest.WaitUntil(t, hang, func() (bool, string) {
		c := l.tailer.Counters()
		return c.Reconnects > 0, fmt.Sprintf("no cut was met: %+v", c)
	})
	if err := proxy.Pass(); err != nil {
		t.Fatal(err)
	}
	set := l.caughtUp()
	got := l.rec.in(set.Subtract(from)) // the recorder refuses what comes twice
	if len(got) != txns {
		t.Errorf("%d transactions of %d", len(got), txns)
	}
	for _, tx := range got {
		if len(tx.Tables) != 1 || len(tx.Scopes) != 2 && !isWide(tx, "cuts", "t") {
			t.Errorf("%s wrote %d tables, %d scopes", tx.GTID, len(tx.Tables), len(tx.Scopes))
		}
	}
	c := l.tailer.Counters()
	if c.NotUnderstood != 0 || c.Holes != 0 {
		t.Errorf("%+v", c)
	}
	t.Logf("%d reconnects, %d failures", c.Reconnects, c.Failures)
}

// isWide tells whether a transaction wrote all-rows of a table: before its
// definition is known it does.
func isWide(tx *event.Transaction, schema, table string) bool {
	for _, d := range tx.Scopes {
		if d == testHasher.Table(schema, table).AllRows {
			return true
		}
	}
	return false
}

// TestStalledConnection: silence longer than the read timeout is a broken
// connection, an idle server with heartbeats is not.
func TestStalledConnection(t *testing.T) {
	primary := servers.Primary()
	s := newSession(t, primary)
	schema(t, s, "stall")
	s.exec("CREATE TABLE t (id INT PRIMARY KEY)")
	proxy, err := primary.Proxy()
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	l := startTail(t, primary, func(o *binlog.TailerOptions) {
		o.Server.Addr = proxy.Addr()
		o.Heartbeat, o.ReadTimeout = 50*time.Millisecond, 400*time.Millisecond
		o.Log = nil
	})
	// Idle for some read timeouts: heartbeats come, and one connection outlives them.
	// A loaded machine may keep heartbeats back and break an earlier one; were
	// heartbeats not counted as life, none would bring more than eight.
	var connection uint64
	first := 0
	testenvtest.WaitUntil(t, hang, func() (bool, string) {
		n := l.tailer.Counters().Reconnects
		l.rec.mu.Lock()
		defer l.rec.mu.Unlock()
		if n != connection {
			connection, first = n, l.rec.progress
		}
		got := l.rec.progress - first
		return got > 30, fmt.Sprintf("%d heartbeats after %d reconnects", got, n)
	})
	proxy.Stall(testenv.BothWays)
	testenvtest.WaitUntil(t, hang, func() (bool, string) {
		up, _, err := l.tailer.Status()
		return !up, fmt.Sprintf("still up: %v", err)
	})
	s.exec("INSERT INTO t VALUES (1)")
	if err := proxy.Pass(); err != nil {
		t.Fatal(err)
	}
	l.caughtUp()
}

// TestXAAcrossRestarts prepares, restarts the server, and commits or rolls back.
func TestXAAcrossRestarts(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{Servers: 1})
	primary := c.Primary()
	ctx := testenvtest.Context(t, hang)
	must := func(statements ...string) {
		t.Helper()
		conn, err := primary.DB().Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, q := range statements {
			if _, err := conn.ExecContext(ctx, q); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
	}
	must("CREATE DATABASE xa", "CREATE TABLE xa.t (id INT PRIMARY KEY)")
	l := startTail(t, primary, func(o *binlog.TailerOptions) { o.Log = nil })
	l.caughtUp()
	l.defined("xa.t")
	from := executed(t, primary)
	for i, name := range []string{"'one'", "'two','branch',7", "0x6f6e6c79"} {
		must("XA START "+name, fmt.Sprintf("INSERT INTO xa.t VALUES (%d)", i+1), "XA END "+name, map[bool]string{true: "XA COMMIT " + name + " ONE PHASE", false: "XA PREPARE " + name}[i == 2])
	}
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := primary.Start(ctx); err != nil {
		t.Fatal(err)
	}
	must("XA COMMIT 'one'")
	if err := primary.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	must("XA ROLLBACK 'two','branch',7", "INSERT INTO xa.t VALUES (9)")
	set := l.caughtUp()
	d, _ := l.rec.definition("xa.t")
	n := scopeNames{}
	n.table("xa", "t")
	for i := range 10 {
		n.key(t, &d.Definition, fmt.Sprintf("xa.t/%d", i))
	}
	var got []string
	for _, tx := range l.rec.in(set.Subtract(from)) {
		got = append(got, fmt.Sprintf("%b %s %s", tx.Flags&^event.CascadesLogged, tx.XID, strings.Join(n.names(tx), " ")))
	}
	want := []string{
		fmt.Sprintf("%b X'6f6e65',X'',1 any:xa.t xa.t/1", event.XAPrepare),
		fmt.Sprintf("%b X'74776f',X'6272616e6368',7 any:xa.t xa.t/2", event.XAPrepare),
		"0  any:xa.t xa.t/3",
		fmt.Sprintf("%b X'6f6e65',X'',1 ", event.XACommit),
		fmt.Sprintf("%b X'74776f',X'6272616e6368',7 ", event.XARollback),
		"0  any:xa.t xa.t/9",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestUnloggedCascades: with foreign keys carried out by the storage engine, what
// a cascade changes has no rows events; all-rows of all that it reaches is
// written (rules §3.3).
func TestUnloggedCascades(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{Servers: 1, Args: []string{"--innodb-native-foreign-keys=ON"}})
	primary := c.Primary()
	s := newSession(t, primary)
	schema(t, s, "fk")
	s.exec("CREATE TABLE a (id INT PRIMARY KEY)",
		"CREATE TABLE b (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id) ON DELETE CASCADE ON UPDATE CASCADE)",
		"CREATE TABLE c (id INT PRIMARY KEY, b INT, FOREIGN KEY (b) REFERENCES b (id) ON DELETE SET NULL)",
		"CREATE TABLE d (id INT PRIMARY KEY, b INT, FOREIGN KEY (b) REFERENCES b (id))",
		"INSERT INTO a VALUES (1),(2)", "INSERT INTO b VALUES (1,1),(2,2)", "INSERT INTO c VALUES (1,1)")
	l := startTail(t, primary, nil)
	l.caughtUp()
	l.defined("fk.a", "fk.b", "fk.c", "fk.d")
	n := scopeNames{}
	for _, table := range []string{"a", "b", "c", "d"} {
		n.table("fk", table)
		d, _ := l.rec.definition("fk." + table)
		for i := range 10 {
			n.key(t, &d.Definition, fmt.Sprintf("fk.%s/%d", table, i))
		}
	}
	if d, _ := l.rec.definition("fk.a"); strings.Join(d.Cascades, " ") != "fk.b fk.c" {
		t.Errorf("cascades of a: %q", d.Cascades)
	}
	for _, step := range []struct {
		sql  string
		want []string
	}{
		{"INSERT INTO a VALUES (3)", []string{"any:fk.a", "fk.a/3"}},
		{"DELETE FROM a WHERE id=1", []string{"any:fk.a", "fk.a/1", "all:fk.b", "all:fk.c"}},
		{"UPDATE a SET id=5 WHERE id=2", []string{"any:fk.a", "fk.a/2", "fk.a/5", "all:fk.b", "all:fk.c"}},
		{"DELETE FROM b WHERE id=2", []string{"any:fk.b", "fk.b/2", "all:fk.c"}},
		{"UPDATE d SET b=NULL WHERE id=1", nil},
	} {
		from := executed(t, primary)
		s.exec(step.sql)
		set := l.caughtUp()
		same(t, step.sql, n.names(l.rec.in(set.Subtract(from))...), step.want)
	}
}

// TestLoggedCascades: the server carries them out and logs them.
func TestLoggedCascades(t *testing.T) {
	b := newBed(t, "fklogged", nil,
		"CREATE TABLE a (id INT PRIMARY KEY)",
		"CREATE TABLE b (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id) ON DELETE CASCADE ON UPDATE CASCADE)",
		"INSERT INTO a VALUES (1),(2)", "INSERT INTO b VALUES (1,1),(2,2),(3,2)")
	txns, c := b.change("DELETE FROM a WHERE id=1", "UPDATE a SET id=9 WHERE id=2")
	want := b.narrow(c)
	if len(c.rows["b"]) == 0 {
		t.Fatal("no cascade")
	}
	same(t, "cascade", b.n.names(txns...), want)
}

// TestPurgedPosition: what is missing is named; an owner who goes on gets a hole
// and everything behind it.
func TestPurgedPosition(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{Servers: 1})
	primary := c.Primary()
	ctx := testenvtest.Context(t, hang)
	s := newSession(t, primary)
	schema(t, s, "purged")
	from := executed(t, primary)
	s.exec("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	missing := executed(t, primary).Subtract(from)
	if err := primary.RotateBinlog(ctx); err != nil {
		t.Fatal(err)
	}
	if err := primary.PurgeBinlogs(ctx); err != nil {
		t.Fatal(err)
	}
	s.exec("INSERT INTO t VALUES (2)")
	tailer, err := binlog.NewTailer(binlog.TailerOptions{Server: serverConfig(primary), From: from})
	if err != nil {
		t.Fatal(err)
	}
	err = tailer.Run(ctx, newRecorder())
	var purged *binlog.PurgedError
	if !errors.As(err, &purged) || !purged.Missing.Equal(missing) || binlog.ClassOf(err) != binlog.Reseed || !strings.Contains(err.Error(), missing.OneLine()) {
		t.Fatalf("Run: %v; missing is %s", err, missing)
	}
	l := startTail(t, primary, func(o *binlog.TailerOptions) {
		o.From, o.Log = from, nil
		o.OnPurged = func(context.Context, *binlog.PurgedError) bool { return true }
	})
	l.caughtUp()
	l.rec.mu.Lock()
	defer l.rec.mu.Unlock()
	if len(l.rec.holes) != 1 || !l.rec.holes[0].GTIDs.Equal(missing) || len(l.rec.txns) != 1 {
		t.Errorf("holes %+v, %d transactions", l.rec.holes, len(l.rec.txns))
	}
}

// TestRefusedServers: what can't be tailed is refused at the start with what
// mends it.
func TestRefusedServers(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{
		Servers: 2, Independent: true,
		PerServer: map[string]testenv.ServerOptions{"b": {NoBinlog: true}},
	})
	ctx := testenvtest.Context(t, hang)
	run := func(o binlog.TailerOptions) error {
		tailer, err := binlog.NewTailer(o)
		if err != nil {
			return err
		}
		return tailer.Run(ctx, newRecorder())
	}
	a := c.Server("a")
	refused := func(err error, words ...string) {
		t.Helper()
		var r *binlog.RefusedError
		if !errors.As(err, &r) || binlog.ClassOf(err) != binlog.Stop {
			t.Fatalf("Run: %v", err)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q does not say %q", err, w)
			}
		}
	}
	refused(run(binlog.TailerOptions{Server: serverConfig(c.Server("b"))}), "no binlog", "log_bin")
	wrong := serverConfig(a)
	wrong.Password = "wrong"
	refused(run(binlog.TailerOptions{Server: wrong}), "Access denied", "tidegate")
	poor := serverConfig(a)
	poor.User, poor.Password = testenv.AppUser, testenv.AppPassword
	refused(run(binlog.TailerOptions{Server: poor}), "REPLICATION SLAVE", "GRANT")
	if err := a.Exec(ctx, "SET GLOBAL binlog_format=STATEMENT"); err != nil {
		t.Fatal(err)
	}
	refused(run(binlog.TailerOptions{Server: serverConfig(a)}), "binlog_format", "SET PERSIST binlog_format = ROW")
	if err := a.Exec(ctx, "SET GLOBAL binlog_format=ROW"); err != nil {
		t.Fatal(err)
	}
	if err := a.Exec(ctx, "SET GLOBAL gtid_mode=ON_PERMISSIVE"); err != nil {
		t.Fatal(err)
	}
	refused(run(binlog.TailerOptions{Server: serverConfig(a)}), "gtid_mode", "SET PERSIST")
}

// TestAnonymousTransaction: gtid_mode is relaxed while the tail runs, and a
// transaction without a GTID is logged: a hole, and the tail ends.
func TestAnonymousTransaction(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{Servers: 1})
	primary := c.Primary()
	s := newSession(t, primary)
	schema(t, s, "anon")
	s.exec("CREATE TABLE t (id INT PRIMARY KEY)")
	ctx := testenvtest.Context(t, hang)
	tailer, err := binlog.NewTailer(binlog.TailerOptions{Server: serverConfig(primary), From: executed(t, primary), Heartbeat: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	rec := newRecorder()
	done := make(chan error, 1)
	go func() { done <- tailer.Run(ctx, rec) }()
	testenvtest.WaitUntil(t, hang, func() (bool, string) {
		up, _, err := tailer.Status()
		return up, fmt.Sprint(err)
	})
	s.exec("INSERT INTO t VALUES (1)")
	testenvtest.WaitUntil(t, hang, func() (bool, string) { // a server that has sent nothing yet is refused as it is
		rec.mu.Lock()
		defer rec.mu.Unlock()
		return len(rec.txns) == 1, "the first transaction was not read"
	})
	s.exec("SET GLOBAL gtid_mode=ON_PERMISSIVE", "SET GLOBAL gtid_mode=OFF_PERMISSIVE", "INSERT INTO t VALUES (2)")
	err = <-done
	var anonymous *binlog.AnonymousError
	if !errors.As(err, &anonymous) || binlog.ClassOf(err) != binlog.Reseed {
		t.Fatalf("Run: %v", err)
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if len(rec.txns) != 1 || len(rec.holes) != 1 || !rec.holes[0].Anonymous {
		t.Errorf("%d transactions, holes %+v", len(rec.txns), rec.holes)
	}
}

// TestPrimaryKeyMoves: rules §4.4, on a real server: the table map does not
// change by a byte, the key does.
func TestPrimaryKeyMoves(t *testing.T) {
	b := newBed(t, "moves", nil, "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, PRIMARY KEY (a))", "CREATE TABLE u (a INT NOT NULL, b INT NOT NULL, PRIMARY KEY (b))", "INSERT INTO t VALUES (1,2)")
	for _, ddl := range [][]string{
		{"ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b)"},
		{"RENAME TABLE t TO x, u TO t, x TO u"},
		{"DROP TABLE t", "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, PRIMARY KEY (a))"},
		{"DROP DATABASE moves", "CREATE DATABASE moves", "CREATE TABLE moves.t (a INT NOT NULL, b INT NOT NULL, PRIMARY KEY (b,a))", "USE moves"},
	} {
		b.s.exec(ddl...)
		// At once behind the DDL: before the look-up all-rows, after it rows; the
		// definition that a transaction names is always the one that holds.
		for i := range 20 {
			b.s.exec(fmt.Sprintf("INSERT INTO t VALUES (%d,%d)", 10+i, 100+i))
		}
		set := b.l.caughtUp()
		b.learn()
		d := b.defs["t"]
		rows := 0
		for _, tx := range b.l.rec.in(set) {
			for _, ref := range tx.Defs {
				if ref.Version == d.Version && len(tx.Scopes) == 1 && ref.Table == testHasher.Table("moves", "t").AnyRow {
					rows++
				}
			}
		}
		txns, c := b.change("INSERT INTO t VALUES (1000,2000)", "UPDATE t SET a=a+1 WHERE b=2000")
		want := b.narrow(c)
		want = append(want, b.n[b.n.key(t, &d, keyOf(&d, "1000", "2000"))])
		same(t, strings.Join(ddl, "; "), b.n.names(txns...), want)
		t.Logf("%s: %d of 20 rows were folded", ddl[0], rows)
	}
}

func keyOf(d *key.Definition, a, b string) string {
	k := key.Key{Kind: key.KindRow, Schema: d.Schema, Table: d.Table}
	for _, c := range d.Primary {
		k.Values = append(k.Values, key.TextValue{Text: map[string]string{"a": a, "b": b}[c.Name]})
	}
	return k.String()
}

// TestKeyCapOnRealRows: a large UPDATE streams through; beyond the cap it is
// all-rows.
func TestKeyCapOnRealRows(t *testing.T) {
	primary := servers.Primary()
	s := newSession(t, primary)
	schema(t, s, "capped")
	s.exec("SET cte_max_recursion_depth=1000000", "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
		"INSERT INTO t WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n+1 FROM r WHERE n<40000) SELECT n, n FROM r")
	for _, compression := range []bool{false, true} {
		l := startTail(t, primary, func(o *binlog.TailerOptions) { o.KeyCap = 1000 })
		l.defined("capped.t")
		from := executed(t, primary)
		s.exec(fmt.Sprintf("SET binlog_transaction_compression=%t", compression), "UPDATE t SET v=v+1")
		set := l.caughtUp()
		txns := l.rec.in(set.Subtract(from))
		if len(txns) != 1 || txns[0].Flags != event.Capped|event.CascadesLogged || len(txns[0].Scopes) != 1 || !isWide(txns[0], "capped", "t") {
			t.Errorf("wrote %+v", txns)
		}
		if c := l.tailer.Counters(); c.Capped != 1 || c.Wide[binlog.CauseCapped] != 1 {
			t.Errorf("%+v", c)
		}
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestLargeEvents: an event beyond the bound writes all-rows of its table,
// compressed or not, and the rest of the log is read as ever.
func TestLargeEvents(t *testing.T) {
	primary := servers.Primary()
	s := newSession(t, primary)
	schema(t, s, "large")
	s.exec("CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB)")
	var calls atomic.Int64
	l := startTail(t, primary, func(o *binlog.TailerOptions) {
		o.MaxEventBytes = 1 << 20
		o.Server.Dial = countingDial(&calls)
	})
	l.defined("large.t")
	for _, compression := range []bool{false, true} {
		from := executed(t, primary)
		s.exec(fmt.Sprintf("SET binlog_transaction_compression=%t", compression), "DELETE FROM t",
			"INSERT INTO t VALUES (1, RANDOM_BYTES(1024))", "INSERT INTO t SELECT 2, REPEAT(b, 20000) FROM t WHERE id=1", "INSERT INTO t VALUES (3,'x')")
		set := l.caughtUp()
		d, _ := l.rec.definition("large.t")
		n := scopeNames{}
		n.table("large", "t")
		for i := range 4 {
			n.key(t, &d.Definition, fmt.Sprintf("large.t/%d", i))
		}
		txns := l.rec.in(set.Subtract(from))
		txns = txns[len(txns)-3:]
		same(t, "small", n.names(txns[0]), []string{"any:large.t", "large.t/1"})
		same(t, "large", n.names(txns[1]), []string{"any:large.t", "all:large.t"})
		same(t, "after", n.names(txns[2]), []string{"any:large.t", "large.t/3"})
		if txns[1].Flags != event.CascadesLogged {
			t.Errorf("flags %b", txns[1].Flags)
		}
	}
	if c := l.tailer.Counters(); c.Reconnects != 0 || c.Wide[binlog.CauseLarge] != 3 || calls.Load() == 0 {
		t.Errorf("%+v, %d dials", c, calls.Load())
	}
}
