package binlog_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestRulesOnRealServers plays what the rules say of a primary (a), a replica
// (b) and a replica without a binlog (c); MySQL itself says what is right.
func TestRulesOnRealServers(t *testing.T) {
	onReplicas(t, "CREATE TABLE app.shown (w INT, n INT, PRIMARY KEY (w, n)); CREATE TABLE app.r (id INT PRIMARY KEY, v INT); INSERT INTO app.r VALUES (1, 0)", []onCluster{
		{"ConfirmedIsVisible", func(t *testing.T, c *testenv.Cluster) { confirmedIsVisible(t, c, 1) }},
		{"ConfirmedIsVisibleUnorderedCommits", unorderedCommits},
		{"EIsAnUpperBound", upperBound},
		{"GapByLock", gapByLock},
		{"SemiSyncWithoutAck", semiSyncWithoutAck},
		{"UnloggedWrites", unloggedWrites},
	})
}

// writer commits transactions one after another under a UUID of its own, so
// that a GTID names what its commit makes visible: the n-th has the number
// per*n.
type writer struct {
	kind  string
	id    int
	uuid  gtid.UUID
	per   int64 // GTIDs that one takes
	total int64
}

// writers are of every way to commit (rules §2.1); round keeps those of one test
// apart from those of others.
func writers(round int, xaOnly bool) (list []*writer) {
	add := func(kind string, per, total int64) {
		id := round*100 + len(list)
		list = append(list, &writer{kind, id, gtid.UUID{0xed, byte(round >> 8), byte(round), byte(len(list)), 1}, per, total})
	}
	for range 2 {
		add("xa", 2, 150)
		if xaOnly {
			add("xa", 2, 150)
			continue
		}
		add("insert", 1, 150)
		add("one phase", 1, 150)
		add("ddl", 1, 15)
	}
	return list
}

func (w *writer) gtid(n int64) gtid.GTID { return gtid.GTID{UUID: w.uuid, Seq: n * w.per} }

// statements commit the n-th transaction.
func (w *writer) statements(n int64) string {
	insert := fmt.Sprintf("INSERT INTO app.shown VALUES (%d, %d)", w.id, n)
	// A xid of its own: workers of a replica may apply the next one before it.
	xid := fmt.Sprintf("'x%d_%d'", w.id, n)
	var text string
	switch w.kind {
	case "insert":
		text = insert
	case "one phase":
		text = "XA START " + xid + "; " + insert + "; XA END " + xid + "; XA COMMIT " + xid + " ONE PHASE"
	case "xa":
		text = "XA START " + xid + "; " + insert + "; XA END " + xid + "; XA PREPARE " + xid +
			fmt.Sprintf("; SET gtid_next = '%s'; XA COMMIT %s", w.gtid(n), xid)
	case "ddl":
		text = fmt.Sprintf("CREATE TABLE app.ddl_%d_%d (id INT PRIMARY KEY)", w.id, n)
	}
	first := gtid.GTID{UUID: w.uuid, Seq: (n-1)*w.per + 1}
	return fmt.Sprintf("SET gtid_next = '%s'; %s; SET gtid_next = 'AUTOMATIC'", first, text)
}

// run commits all of them on s and calls committed after each.
func (w *writer) run(s *testenv.Server, committed func(gtid.GTID)) error {
	ctx := context.Background()
	conn, err := s.DB().Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for n := int64(1); n <= w.total; n++ {
		if _, err := conn.ExecContext(ctx, w.statements(n)); err != nil {
			return fmt.Errorf("%s %d: %w", w.kind, n, err)
		}
		committed(w.gtid(n))
	}
	return nil
}

// visible counts what s shows of the transactions after, up to last.
func (w *writer) visible(s *testenv.Server, after, last int64) (n int64, err error) {
	query := "SELECT COUNT(*) FROM app.shown WHERE w = ? AND n > ? AND n <= ?"
	if w.kind == "ddl" {
		query = `SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'app' AND TABLE_NAME LIKE CONCAT('ddl\_', ?, '\_%')
			AND CAST(SUBSTRING_INDEX(TABLE_NAME, '_', -1) AS SIGNED) > ? AND CAST(SUBSTRING_INDEX(TABLE_NAME, '_', -1) AS SIGNED) <= ?`
	}
	err = s.QueryRow(context.Background(), query, w.id, after, last).Scan(&n)
	return n, err
}

// confirmedIsVisible: P1, and rules §2.1 for XA in two phases and in one, DDL and
// plain inserts at once, on the primary and on replicas with and without a
// binlog. Whatever a published state newly confirms is looked up there.
func confirmedIsVisible(t *testing.T, c *testenv.Cluster, round int) {
	a := c.Primary()
	stream := startStream(t, a)
	list := writers(round, false)
	var want int64
	for _, w := range list {
		want += w.total
	}
	type looked struct {
		w       *watched
		checked atomic.Int64
		looks   atomic.Int64
	}
	all := map[string]*looked{}
	for _, s := range c.Servers() {
		l := &looked{w: watch(t, s, stream, func(o *binlog.MonitorOptions) {
			if s.Name() == "c" {
				o.Server.Follow, o.Tail, o.Identities = binlog.FollowExecuted, nil, nil
			}
		})}
		all[s.Name()] = l
		newest := make([]int64, len(list))
		check := func(st *event.ServerState) {
			if !st.Alive {
				return
			}
			set := confirmed(st)
			if st.Role == event.RolePrimary {
				set = st.Executed // rules §2.2
			}
			for i, w := range list {
				// Everything up to the first gap is checked at once.
				ivs := set.Intervals(gtid.Source{UUID: w.uuid})
				if len(ivs) == 0 || ivs[0].First != 1 || ivs[0].Last/w.per == newest[i] {
					continue
				}
				last := ivs[0].Last / w.per
				n, err := w.visible(s, newest[i], last)
				if err != nil || n != last-newest[i] {
					t.Errorf("%s confirmed %s by %s up to %d, and shows %d of %d (%v)", s.Name(), w.uuid, w.kind, last, n, last-newest[i], err)
				}
				l.checked.Add(last - newest[i])
				l.looks.Add(1)
				newest[i] = last
			}
		}
		l.w.alive()
		l.w.onState.Store(&check)
	}
	var group errgroup.Group
	for _, w := range list {
		group.Go(func() error {
			return w.run(a, func(g gtid.GTID) {
				all["a"].w.m.Hint(g)
				all["c"].w.m.Hint(g)
			})
		})
	}
	must(t, group.Wait())
	for name, l := range all {
		testenvtest.WaitUntil(t, hang, func() (bool, string) {
			n := l.checked.Load()
			return n == want, fmt.Sprintf("%d of %d transactions were looked up on %s: %s", n, want, name, applierOf(c.Server(name)))
		})
		t.Logf("%s: %d transactions looked up %d times", name, want, l.looks.Load())
	}
	// On a slow machine each transaction may be executed before its hint was read;
	// then there is no delay to measure, and it is proven all the same.
	counters := all["b"].w.m.Counters()
	var delayed uint64
	for _, n := range counters.HintToProof {
		delayed += n
	}
	if counters.Proofs == 0 {
		t.Errorf("nothing was proven on b: %+v", counters)
	}
	t.Logf("b: %d proofs, mean hint to proof %s, %v", counters.Proofs, counters.HintToProofTotal/time.Duration(max(1, delayed)), counters.HintToProof[:16])
}

// applierOf is what a replica says of its applier, for a test that fails.
func applierOf(s *testenv.Server) string {
	status, err := s.ReplicaStatus(context.Background())
	return fmt.Sprintf("applier running %s, error %q (%v)", status["Replica_SQL_Running"], status["Last_SQL_Error"], err)
}

func unorderedCommits(t *testing.T, c *testenv.Cluster) {
	for _, s := range []*testenv.Server{c.Server("a"), c.Server("b")} {
		must(t, s.Exec(t.Context(), "SET GLOBAL binlog_order_commits = OFF"))
		defer func() { must(t, s.Exec(context.Background(), "SET GLOBAL binlog_order_commits = ON")) }()
	}
	confirmedIsVisible(t, c, 2)
}

// upperBound: rules §6.2. Rows are read, and a probe is sent after it: E has
// the GTIDs of all that was visible, also of what was visible before it was
// executed, which concurrent XA commits and a server without a binlog bring
// about. There is more load until such a row was seen, or the time is over: without
// one the owned part would not have been needed.
func upperBound(t *testing.T, c *testenv.Cluster) {
	var current atomic.Pointer[[]*writer]
	list := writers(3, true)
	current.Store(&list)
	done := make(chan struct{})
	readers, ctx := errgroup.WithContext(testenvtest.Context(t, hang))
	early := map[string]*atomic.Int64{}
	var looks atomic.Int64
	for _, s := range c.Servers() {
		early[s.Name()] = &atomic.Int64{}
		for range 2 {
			readers.Go(func() error {
				p, err := binlog.NewProber(context.Background(), tidegateConfig(s))
				if err != nil {
					return err
				}
				defer func() { _ = p.Close() }()
				for i := 0; ; i++ {
					list := *current.Load()
					w := list[i%len(list)]
					select {
					case <-done:
						return nil
					default:
					}
					var newest int64
					if err := s.QueryRow(context.Background(), "SELECT COALESCE(MAX(n), 0) FROM app.shown WHERE w = ?", w.id).Scan(&newest); err != nil {
						return err
					}
					probe, err := p.Probe(context.Background())
					if err != nil {
						return err
					}
					if newest == 0 {
						continue
					}
					looks.Add(1)
					g := w.gtid(newest)
					if !probe.Owned.Union(probe.Executed).Contains(g) {
						return fmt.Errorf("%s shows %s, which is neither owned nor executed: owned %s, executed %s", s.Name(), g, probe.Owned.OneLine(), probe.Executed.OneLine())
					}
					if !probe.Executed.Contains(g) {
						early[s.Name()].Add(1)
					}
				}
			})
		}
	}
	var err error
	for round := 3; err == nil; round++ {
		list := writers(round, true)
		current.Store(&list)
		var load errgroup.Group
		for _, w := range list {
			load.Go(func() error { return w.run(c.Primary(), func(gtid.GTID) {}) })
		}
		if err = load.Wait(); err == nil {
			err = c.WaitInSync(testenvtest.Context(t, hang))
		}
		if ctx.Err() != nil || early["a"].Load() > 0 && early["c"].Load() > 0 {
			break
		}
	}
	close(done)
	must(t, err)
	must(t, readers.Wait())
	for name, n := range early {
		t.Logf("%s: %d looks of %d on all servers found a row before it was executed", name, n.Load(), looks.Load())
	}
}

// gapByLock: rules §7. Without replica_preserve_commit_order, a lock on a
// replica holds one transaction while later ones are committed there.
func gapByLock(t *testing.T, c *testenv.Cluster) {
	stream := startStream(t, c.Primary())
	for _, name := range []string{"b", "c"} {
		gapOn(t, c, c.Server(name), stream)
	}
}

func gapOn(t *testing.T, c *testenv.Cluster, s *testenv.Server, stream *streamOf) {
	const inserts = 10
	a, name := c.Primary(), s.Name()
	id := 1000 + int(name[0]) // of its rows in app.shown
	set := func(value string) {
		must(t, s.StopSQLThread(context.Background()))
		must(t, s.Exec(context.Background(), "SET GLOBAL replica_parallel_workers = 4; SET GLOBAL replica_preserve_commit_order = "+value))
		must(t, s.StartSQLThread(context.Background()))
	}
	set("OFF")
	defer set("ON")
	w := watch(t, s, stream, func(o *binlog.MonitorOptions) {
		if name == "c" {
			o.Server.Follow, o.Tail, o.Identities = binlog.FollowExecuted, nil, nil
		}
	})
	w.alive()
	// An applier that was started lets nothing pass its first transaction.
	must(t, a.Exec(t.Context(), "UPDATE app.r SET v = v + 1 WHERE id = 1"))
	must(t, c.WaitInSync(testenvtest.Context(t, hang)))
	var states atomic.Int64
	check := func(st *event.ServerState) {
		// Read after the state was made: a set only grows.
		text, err := s.GTIDExecuted(context.Background())
		now, parsed := gtid.Parse(text)
		if err != nil || parsed != nil || st.Alive && !now.ContainsSet(confirmed(st)) {
			t.Errorf("%s confirmed %s, which is not all executed: %s (%v, %v)", name, confirmed(st).OneLine(), text, err, parsed)
		}
		states.Add(1)
	}
	w.onState.Store(&check)
	release, err := s.HoldRow(t.Context(), "app.r", "id = 1")
	must(t, err)
	defer release()
	held := newestOf(t, a)
	held.Seq++ // what comes next
	// Workers apply at once what the primary had begun to commit before the
	// other was committed.
	let := holdCommits(t, a)
	var writes errgroup.Group
	writes.Go(func() error { return a.Exec(context.Background(), "UPDATE app.r SET v = v + 1 WHERE id = 1") })
	waitOwned(t, a, 1)
	for n := range inserts {
		writes.Go(func() error {
			return a.Exec(context.Background(), "INSERT INTO app.shown VALUES (?, ?)", id, n)
		})
	}
	waitOwned(t, a, 1+inserts)
	let()
	must(t, writes.Wait())
	last := newestOf(t, a)
	behind := gtid.Set{}.AddInterval(last.Source(), gtid.Interval{First: held.Seq + 1, Last: last.Seq}) // in any order
	st := w.wait("what is behind it is confirmed", func(st *event.ServerState) bool { return st.Alive && confirmed(st).ContainsSet(behind) })
	if st.Executed.Contains(held) || confirmed(st).Contains(held) {
		t.Errorf("%s: %s is held by a lock, and executed %s, confirmed %s", name, held, st.Executed.OneLine(), confirmed(st).OneLine())
	}
	ivs := confirmed(st).Intervals(last.Source())
	if n := len(ivs); n < 2 || ivs[n-2].Last >= held.Seq || ivs[n-1].First <= held.Seq {
		t.Errorf("%s confirmed %s: want a gap at %s", name, confirmed(st).OneLine(), held)
	}
	shown := func(s *testenv.Server) string {
		text, err := s.QueryString(t.Context(), "SELECT CONCAT((SELECT v FROM app.r WHERE id = 1), ' ', (SELECT COUNT(*) FROM app.shown WHERE w = ?))", id)
		must(t, err)
		return text
	}
	if there, here := shown(a), shown(s); there == here || !strings.HasSuffix(here, fmt.Sprint(" ", inserts)) {
		t.Errorf("%s shows %q, the primary %q; want all inserts and the old value", name, here, there)
	}
	release()
	st = w.waitConfirmed(a)
	if ivs := confirmed(st).Intervals(held.Source()); len(ivs) != 1 {
		t.Errorf("%s confirmed %s: the gap stays", name, confirmed(st).OneLine())
	}
	if there, here := shown(a), shown(s); there != here {
		t.Errorf("%s shows %q, the primary %q", name, here, there)
	}
	if states.Load() == 0 {
		t.Errorf("%s: no state was held against executed", name)
	}
	w.stop()
}

// holdCommits lets each commit wait between binlog and engine until let is
// called: no replica is semi-synchronous, so nobody acknowledges.
func holdCommits(t *testing.T, s *testenv.Server) (let func()) {
	must(t, s.Exec(t.Context(), "SET GLOBAL rpl_semi_sync_source_timeout = 3600000; SET GLOBAL rpl_semi_sync_source_wait_no_replica = ON; SET GLOBAL rpl_semi_sync_source_enabled = ON"))
	let = sync.OnceFunc(func() { must(t, s.Exec(context.Background(), "SET GLOBAL rpl_semi_sync_source_enabled = OFF")) })
	t.Cleanup(let)
	return let
}

// waitOwned waits until n transactions are being committed.
func waitOwned(t *testing.T, s *testenv.Server, n int) {
	testenvtest.WaitUntil(t, hang, func() (bool, string) {
		owned, err := s.QueryString(context.Background(), "SELECT @@GLOBAL.gtid_owned")
		return strings.Count(owned, "#") == n, fmt.Sprintf("owned %q, want %d (%v)", owned, n, err)
	})
}

// semiSyncWithoutAck: rules §7, §11.1. The primary waits between its binlog and
// its engine for an acknowledgement that never comes, while replicas show the
// transaction.
func semiSyncWithoutAck(t *testing.T, c *testenv.Cluster) {
	a, b := c.Server("a"), c.Server("b")
	stream := startStream(t, a)
	wa, wb := watch(t, a, stream, nil), watch(t, b, stream, nil)
	wa.alive()
	wb.alive()
	off := holdCommits(t, a)
	before := newestOf(t, a)
	g := gtid.GTID{UUID: before.UUID, Seq: before.Seq + 1}
	done := make(chan error, 1)
	go func() { done <- a.Exec(context.Background(), "INSERT INTO app.r VALUES (2, 2)") }()
	wb.wait("the replica confirms it", func(st *event.ServerState) bool { return st.Alive && confirmed(st).Contains(g) })
	count := func(s *testenv.Server) string {
		n, err := s.QueryString(t.Context(), "SELECT COUNT(*) FROM app.r WHERE id = 2")
		must(t, err)
		return n
	}
	if here, there := count(b), count(a); here != "1" || there != "0" {
		t.Errorf("the replica shows %s rows, the primary %s; want 1 and 0", here, there)
	}
	// A probe from after the replica showed it.
	st, err := wa.m.Fresh(testenvtest.Context(t, hang))
	must(t, err)
	if st.Executed.Contains(g) || !st.Owned.Contains(g) {
		t.Errorf("the primary's executed %s, owned %s; want %s owned alone", st.Executed.OneLine(), st.Owned.OneLine(), g)
	}
	select {
	case err := <-done:
		t.Errorf("the commit returned (%v) without an acknowledgement", err)
		done <- err
	default:
	}
	off()
	must(t, <-done)
	wa.waitConfirmedExecuted(a)
	if n := count(a); n != "1" {
		t.Errorf("after the wait ended the primary shows %s rows", n)
	}
}

// unloggedWrites: rules §12. What is written with sql_log_bin=0 moves no set and
// is in no binlog, so that servers differ and every state says that they do not.
// The promises exclude it, and the README says so.
func unloggedWrites(t *testing.T, c *testenv.Cluster) {
	a, b := c.Server("a"), c.Server("b")
	must(t, a.Exec(t.Context(), "INSERT INTO app.r VALUES (22, 0)"))
	must(t, c.WaitInSync(testenvtest.Context(t, hang)))
	stream := startStream(t, a)
	wa, wb := watch(t, a, stream, nil), watch(t, b, stream, nil)
	wa.alive()
	wb.alive()
	before := executed(t, a)
	must(t, a.Exec(t.Context(), "SET sql_log_bin = 0; INSERT INTO app.r VALUES (23, 0); SET sql_log_bin = 1"))
	must(t, b.Exec(t.Context(), "SET GLOBAL super_read_only = OFF; SET sql_log_bin = 0; DELETE FROM app.r WHERE id = 22; SET sql_log_bin = 1; SET GLOBAL super_read_only = ON"))
	for _, w := range []*watched{wa, wb} {
		st, err := w.m.Fresh(testenvtest.Context(t, hang))
		must(t, err)
		if !st.Executed.Equal(before) || !st.Owned.IsEmpty() {
			t.Errorf("executed was %s, and is %s, owned %s", before.OneLine(), st.Executed.OneLine(), st.Owned.OneLine())
		}
	}
	// The next write passes by both.
	must(t, a.Exec(t.Context(), "INSERT INTO app.r VALUES (24, 0)"))
	st := wb.waitConfirmed(a)
	if len(st.Taints) != 0 || !st.Errant.IsEmpty() {
		t.Errorf("taints %+v, errant %s", st.Taints, st.Errant.OneLine())
	}
	stream.mu.Lock()
	known := len(stream.known)
	stream.mu.Unlock()
	if known != 1 {
		t.Errorf("the stream has %d transactions, want the logged one alone", known)
	}
	for s, want := range map[*testenv.Server]string{a: "22,23,24", b: "24"} {
		got, err := s.QueryString(t.Context(), "SELECT GROUP_CONCAT(id ORDER BY id) FROM app.r WHERE id > 20")
		must(t, err)
		if got != want {
			t.Errorf("%s shows rows %s, want %s", s.Name(), got, want)
		}
	}
	for _, doc := range []string{"../README.md", "../router/RULES.md", "CONFIRMATION.md"} {
		text, err := os.ReadFile(doc)
		must(t, err)
		if !strings.Contains(string(text), "sql_log_bin=0") {
			t.Errorf("%s does not say that writes with sql_log_bin=0 are not seen", doc)
		}
	}
}
