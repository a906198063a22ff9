package binlog_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// cascadeTables are three levels of foreign keys, another branch, and tables that
// no foreign key reaches.
var cascadeTables = []string{"p", "k", "g", "n", "up", "m", "tr"}

var cascadeSchema = strings.Join([]string{
	"CREATE TABLE app.p (id INT PRIMARY KEY, u INT UNIQUE)",
	"CREATE TABLE app.k (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES app.p (id) ON DELETE CASCADE ON UPDATE CASCADE)",
	"CREATE TABLE app.g (id INT PRIMARY KEY, k INT, FOREIGN KEY (k) REFERENCES app.k (id) ON DELETE CASCADE)",
	"CREATE TABLE app.n (id INT PRIMARY KEY, k INT, FOREIGN KEY (k) REFERENCES app.k (id) ON DELETE SET NULL)",
	"CREATE TABLE app.up (id INT PRIMARY KEY, self INT, FOREIGN KEY (self) REFERENCES app.up (id) ON DELETE CASCADE)",
	"CREATE TABLE app.m (id INT PRIMARY KEY, v INT) ENGINE=MyISAM",
	"CREATE TABLE app.tr (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
	"CREATE TRIGGER app.after_p AFTER DELETE ON app.p FOR EACH ROW INSERT INTO app.tr (v) VALUES (OLD.id)",
	"CREATE TRIGGER app.after_k AFTER DELETE ON app.k FOR EACH ROW INSERT INTO app.tr (v) VALUES (OLD.id)",
}, "; ")

// TestCascadesOnReplicas: a replica carries cascades out by itself, and logs them or
// not, as innodb_native_foreign_keys there says. Whichever way the primary and the
// replica have it, a replica with the primary's rows is not tainted, and one with
// others is (rules §2.2).
func TestCascadesOnReplicas(t *testing.T) {
	for _, native := range []string{"OFF", "ON"} {
		t.Run("primary="+native, func(t *testing.T) { cascadesOnReplicas(t, native) })
	}
}

func cascadesOnReplicas(t *testing.T, native string) {
	const option = "--innodb-native-foreign-keys="
	c := testenvtest.Cluster(t, testenv.Options{PerServer: map[string]testenv.ServerOptions{
		"a": {Args: []string{option + native}}, "b": {Args: []string{option + "ON"}}, "c": {Args: []string{option + "OFF"}},
	}})
	a := c.Primary()
	must(t, a.Exec(testenvtest.Context(t, hang), cascadeSchema))
	must(t, c.WaitInSync(testenvtest.Context(t, hang)))
	stream := startStream(t, a)
	type replica struct {
		s *testenv.Server
		w *watched
	}
	var replicas []*replica
	for _, s := range c.Replicas() {
		w := watch(t, s, stream, nil)
		w.alive()
		replicas = append(replicas, &replica{s, w})
	}
	for n, sql := range []string{
		"DELETE FROM app.p WHERE id = 1",
		"UPDATE app.p SET id = 50 WHERE id = 2",
		"DELETE FROM app.p ORDER BY id",
		"DELETE FROM app.k WHERE id = 1",
		"DELETE app.g, app.up FROM app.g JOIN app.up USING (id) WHERE id = 1",
		"DELETE FROM app.up WHERE id = 1",
		"BEGIN; INSERT INTO app.p VALUES (60, 60); DELETE FROM app.p WHERE id IN (1, 60); UPDATE app.p SET id = 61 WHERE id = 2; COMMIT",
		"BEGIN; DELETE FROM app.g WHERE id = 1; DELETE FROM app.p WHERE id = 1; COMMIT",
		"SET SESSION foreign_key_checks = OFF; DELETE FROM app.p WHERE id = 1",
		"SET SESSION binlog_transaction_compression = ON; DELETE FROM app.p WHERE id = 1",
		"SET SESSION binlog_row_image = MINIMAL; DELETE FROM app.p WHERE id = 1; UPDATE app.p SET id = 50 WHERE id = 2",
		"XA START 'x'; DELETE FROM app.p WHERE id = 1; XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'",
		"UPDATE app.m SET v = 7; DELETE FROM app.m WHERE id = 1",
		"INSERT INTO app.p VALUES (1, 1) ON DUPLICATE KEY UPDATE id = 51",
		// The primary does not carry these out as it logs them.
		"REPLACE INTO app.p VALUES (1, 8)",
		"REPLACE INTO app.p VALUES (9, 1)",
		"SET SESSION binlog_transaction_compression = ON; REPLACE INTO app.p VALUES (1, 8)",
		"BEGIN; INSERT INTO app.tr (v) VALUES (1); REPLACE INTO app.p VALUES (1, 8); COMMIT",
	} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ctx := testenvtest.Context(t, hang)
			// Whatever the one before left, all begin alike.
			applied(t, c)
			for _, s := range c.Servers() {
				newSession(t, s).exec("SET GLOBAL super_read_only = OFF; SET SESSION sql_log_bin = OFF; SET SESSION foreign_key_checks = OFF; DELETE FROM app." +
					strings.Join(cascadeTables, "; DELETE FROM app."))
			}
			for _, r := range replicas {
				r.w.t = t
				r.w.waitConfirmed(a)
				r.w.acceptAll()
			}
			must(t, a.Exec(ctx, `INSERT INTO app.p VALUES (1,1),(2,2),(3,3); INSERT INTO app.k VALUES (1,1),(2,2),(3,3); INSERT INTO app.g VALUES (1,1),(2,2);
				INSERT INTO app.n VALUES (1,1),(2,2); INSERT INTO app.up VALUES (1,NULL),(2,1),(3,2); INSERT INTO app.m VALUES (1,1),(2,2)`))
			newSession(t, a).exec(sql)
			t.Log(sql)
			applied(t, c)
			diverged := false
			for _, r := range replicas {
				st := r.w.waitConfirmed(a)
				for _, table := range cascadeTables {
					differ := rowsIn(t, a, table) != rowsIn(t, r.s, table)
					tainted := slices.ContainsFunc(st.Taints, func(x event.Taint) bool {
						return x.All || x.Table == testHasher.Table("app", table).AnyRow
					})
					diverged = diverged || differ
					if differ != tainted {
						t.Errorf("app.%s on %s: %q, on the primary %q; tainted %v: %+v", table, r.s.Name(), rowsIn(t, r.s, table), rowsIn(t, a, table), tainted, st.Taints)
					}
				}
			}
			if k := stream.Lookup(newestOf(t, a)); k.Flags&event.XACommit == 0 && (k.Flags&event.CascadesLogged != 0) != (native == "OFF") {
				t.Errorf("flags %b", k.Flags)
			}
			if want := native == "OFF" && strings.Contains(sql, "REPLACE INTO app.p VALUES (1, 8)"); diverged != want {
				t.Errorf("replicas with other rows than the primary: %v, want %v", diverged, want)
			}
		})
	}
}

// acceptAll accepts every taint that there is, and waits until it is gone.
func (w *watched) acceptAll() {
	w.t.Helper()
	st := w.m.State()
	w.mu.Lock()
	w.accept = nil
	for _, x := range st.Taints {
		w.accept = append(w.accept, binlog.Acceptance{DataSet: st.DataSet, Table: x.Table, Everything: x.All, Executed: st.Executed})
	}
	w.mu.Unlock()
	w.wait("accepted", func(st *event.ServerState) bool { return len(st.Taints) == 0 })
}

// rowsIn prints a table's rows.
func rowsIn(t *testing.T, s *testenv.Server, table string) string {
	t.Helper()
	var text sql.NullString
	columns := "id"
	if c := map[string]string{"p": "u", "k": "p", "g": "k", "n": "k", "up": "self", "m": "v", "tr": "v"}[table]; c != "" {
		columns += ", ':', COALESCE(" + c + ", 'NULL')"
	}
	q := "SELECT GROUP_CONCAT(CONCAT(" + columns + ") ORDER BY id) FROM app." + table
	must(t, s.QueryRow(testenvtest.Context(t, hang), q).Scan(&text))
	return text.String
}

// applied waits until the replicas have applied what the primary has, and fails at
// once where one can't.
func applied(t *testing.T, c *testenv.Cluster) {
	t.Helper()
	want, err := gtid.Parse(executedOf(t, c.Primary()))
	must(t, err)
	for _, s := range c.Replicas() {
		testenvtest.WaitUntil(t, hang, func() (bool, string) {
			st, err := s.ReplicaStatus(t.Context())
			must(t, err)
			if st["Last_SQL_Errno"] != "0" || st["Last_IO_Errno"] != "0" {
				t.Fatalf("server %s: %s%s", s.Name(), st["Last_SQL_Error"], st["Last_IO_Error"])
			}
			has, err := gtid.Parse(executedOf(t, s))
			must(t, err)
			return has.ContainsSet(want), fmt.Sprintf("server %s has %s, want %s", s.Name(), has.OneLine(), want.OneLine())
		})
	}
}

// definedStream is a stream whose tailer knows the tables.
type definedStream struct {
	*streamOf
	known chan struct{} // closed by the first definitions
	once  sync.Once
}

func (s *definedStream) Definitions(context.Context, []event.TableDefinition) error {
	s.once.Do(func() { close(s.known) })
	return nil
}

// TestStatementsThatChangedNothing: a session of a server in row format chose
// statements. On replicas in row format one that changed nothing, or a temporary
// table, is an empty transaction, and so is one that replica_skip_errors skipped.
func TestStatementsThatChangedNothing(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{PerServer: map[string]testenv.ServerOptions{
		"c": {Args: []string{"--replica-skip-errors=all"}},
	}})
	a := c.Primary()
	must(t, a.Exec(testenvtest.Context(t, hang), `CREATE TABLE app.r (id INT PRIMARY KEY, v INT); INSERT INTO app.r VALUES (1, 1), (2, 2);
		CREATE TABLE app.skipped (id INT PRIMARY KEY, v INT)`))
	must(t, c.WaitInSync(testenvtest.Context(t, hang)))
	stream := &definedStream{
		streamOf: &streamOf{before: executed(t, a), known: map[gtid.GTID]event.Known{}, changed: make(chan struct{})},
		known:    make(chan struct{}),
	}
	tailer, err := binlog.NewTailer(binlog.TailerOptions{Server: tidegateConfig(a), Hasher: testHasher, From: stream.before})
	must(t, err)
	background(t, "stream", func(ctx context.Context) error { return tailer.Run(ctx, stream) })
	select {
	case <-stream.known:
	case <-time.After(hang):
		t.Fatal("no definitions")
	}
	replicas := map[string]*watched{}
	for _, s := range c.Replicas() {
		replicas[s.Name()] = watch(t, s, stream, nil)
		replicas[s.Name()].alive()
	}
	// run runs one session's statements; tainted are the replicas that have a taint
	// of the newest of them then.
	run := func(t *testing.T, tainted string, statements ...string) {
		t.Helper()
		s := newSession(t, a)
		s.exec("SET SESSION binlog_format = STATEMENT")
		s.exec(statements...)
		g := newestOf(t, a)
		testenvtest.WaitUntil(t, hang, func() (bool, string) {
			return stream.Lookup(g).State == event.Identified, "the stream has not come to " + g.String()
		})
		for name, w := range replicas {
			w.t = t
			want := strings.Contains(tainted, name)
			st := w.wait("compared", func(st *event.ServerState) bool {
				return st.Alive && st.Executed.Contains(g) && (len(st.Taints) > 0 || !st.Unproven.Contains(g))
			})
			got := slices.ContainsFunc(st.Taints, func(x event.Taint) bool { return x.All && x.GTID == g })
			if got != want || !want && len(st.Taints) != 0 {
				t.Errorf("%s: taints %+v, want one: %v", name, st.Taints, want)
			}
			w.acceptEach()
		}
	}
	const temporary = "CREATE TEMPORARY TABLE app.tt (id INT)"
	t.Run("temporary table", func(t *testing.T) { run(t, "", temporary, "INSERT INTO app.tt VALUES (1)") })
	t.Run("temporary table of real rows", func(t *testing.T) { run(t, "", temporary, "INSERT INTO app.tt SELECT id FROM app.r") })
	t.Run("MyISAM temporary table", func(t *testing.T) { run(t, "", temporary+" ENGINE = MyISAM", "INSERT INTO app.tt VALUES (1)") })
	t.Run("rolled back", func(t *testing.T) {
		run(t, "", temporary+" ENGINE = MyISAM", "BEGIN", "INSERT INTO app.tt VALUES (1)", "ROLLBACK")
	})
	t.Run("no row", func(t *testing.T) { run(t, "", "UPDATE app.r SET v = 3 WHERE id = 77") })
	t.Run("no row of a temporary one's", func(t *testing.T) {
		run(t, "", temporary, "INSERT INTO app.tt VALUES (77)", "UPDATE app.r, app.tt SET v = 3 WHERE r.id = tt.id")
	})
	t.Run("compressed", func(t *testing.T) {
		run(t, "", "SET SESSION binlog_transaction_compression = ON", temporary, "INSERT INTO app.tt VALUES (1)")
	})
	t.Run("a real row", func(t *testing.T) {
		run(t, "", temporary, "INSERT INTO app.tt VALUES (1)", "UPDATE app.r, app.tt SET v = v + 5 WHERE r.id = tt.id")
	})
	other := func(t *testing.T, table string) {
		t.Helper()
		newSession(t, c.Server("c")).exec("SET GLOBAL super_read_only = OFF; SET SESSION sql_log_bin = OFF; INSERT INTO " + table + " VALUES (3, 33)")
	}
	t.Run("skipped", func(t *testing.T) {
		other(t, "app.skipped")
		run(t, "c", temporary, "INSERT INTO app.tt VALUES (3)", "INSERT INTO app.skipped SELECT id, id FROM app.tt")
	})
	// Of another engine's tables nothing tells: the replicas in row format wait for
	// the operator.
	must(t, a.Exec(testenvtest.Context(t, hang), "CREATE TABLE app.m (id INT PRIMARY KEY, v INT) ENGINE = MyISAM"))
	must(t, c.WaitInSync(testenvtest.Context(t, hang)))
	t.Run("MyISAM skipped", func(t *testing.T) {
		other(t, "app.m")
		run(t, "c", "INSERT INTO app.m VALUES (3, 3)")
	})
	t.Run("beside MyISAM", func(t *testing.T) { run(t, "b c", temporary, "INSERT INTO app.tt VALUES (1)") })
}

// acceptEach accepts the GTID of every taint that there is, as its reason says, and
// waits until they count.
func (w *watched) acceptEach() {
	w.t.Helper()
	st := w.m.State()
	var vouched gtid.Set
	for _, x := range st.Taints {
		vouched = vouched.Add(x.GTID)
	}
	w.mu.Lock()
	w.accept = append(w.accept, binlog.Acceptance{DataSet: st.DataSet, GTIDs: vouched, Executed: st.Executed})
	w.mu.Unlock()
	w.wait("accepted", func(st *event.ServerState) bool { return len(st.Taints) == 0 && !st.Unproven.Overlaps(vouched) })
}

// TestAnonymousInFront: a replica's binlog holds a transaction without a GTID in
// front of one that is not compared yet. The server lets no reader by GTID pass it.
func TestAnonymousInFront(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{Servers: 2})
	a, b := c.Primary(), c.Server("b")
	must(t, a.Exec(testenvtest.Context(t, hang), "CREATE TABLE app.r (id INT PRIMARY KEY); INSERT INTO app.r VALUES (1)"))
	must(t, c.WaitInSync(testenvtest.Context(t, hang)))
	before := executed(t, a)
	known := &streamOf{before: before, known: map[gtid.GTID]event.Known{}, changed: make(chan struct{})}
	w := watch(t, b, known, nil)
	w.waitConfirmed(a)
	onA, onB := newSession(t, a), newSession(t, b)
	onB.exec("STOP REPLICA; CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION = 0; SET GLOBAL gtid_mode = ON_PERMISSIVE; START REPLICA")
	// Seen without this: a receiver that got no more, as gtid_mode of its source changed
	// while it connected.
	testenvtest.WaitUntil(t, hang, func() (bool, string) {
		st, err := b.ReplicaStatus(t.Context())
		must(t, err)
		return st["Replica_IO_State"] == "Waiting for source to send event", "IO thread: " + st["Replica_IO_State"] + st["Last_IO_Error"]
	})
	// In a file of its own on the primary, where the stream is read from behind it.
	onA.exec("SET GLOBAL gtid_mode = ON_PERMISSIVE; SET GLOBAL gtid_mode = OFF_PERMISSIVE; INSERT INTO app.r VALUES (2)",
		"SET GLOBAL gtid_mode = ON_PERMISSIVE; SET GLOBAL gtid_mode = ON; FLUSH BINARY LOGS; INSERT INTO app.r VALUES (3)")
	g := newestOf(t, a)
	applied(t, c)
	onB.exec("SET GLOBAL gtid_mode = ON; STOP REPLICA; CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION = 1; START REPLICA")
	st := w.wait("the state says what is wrong", func(st *event.ServerState) bool {
		return st.GTIDMode == "ON" && st.IORunning && st.Unproven.Contains(g) &&
			strings.Contains(st.ReplicationErr, "without a GTID") && strings.Contains(st.ReplicationErr, "PURGE BINARY LOGS")
	})
	if len(st.Excluded) != 0 {
		t.Errorf("excluded: %q", st.Excluded)
	}
	must(t, b.PurgeBinlogs(testenvtest.Context(t, hang)))
	w.wait("mended", func(st *event.ServerState) bool {
		return st.Alive && confirmed(st).Contains(g) && st.ReplicationErr == ""
	})
}
