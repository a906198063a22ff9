package binlog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestConfirmationOnRealServers plays what needs a healthy primary (a), a
// replica (b) and a replica without a binlog (c).
func TestConfirmationOnRealServers(t *testing.T) {
	onReplicas(t, "CREATE TABLE app.other (id INT PRIMARY KEY AUTO_INCREMENT, v INT); CREATE TABLE app.filtered (id INT PRIMARY KEY)", []onCluster{
		{"FollowExecuted", followExecuted},
		{"IOThreadStopped", ioThreadStopped},
		{"Stall", stalledByProxy},
		{"GTIDModeRelaxed", gtidModeRelaxed},
		{"Filters", filtersExclude},
		{"Errant", errantTransactions},
		{"InjectedEmpty", injectedEmpty},
		{"PurgedIn", purgedIn},
	})
}

// onCluster is one test on servers that others use too.
type onCluster struct {
	name string
	run  func(*testing.T, *testenv.Cluster)
}

// onReplicas runs tests one after another on a primary (a), a replica (b) and a
// replica without a binlog (c), which have the tables.
func onReplicas(t *testing.T, tables string, tests []onCluster) {
	t.Helper()
	c := testenvtest.Cluster(t, testenv.Options{PerServer: map[string]testenv.ServerOptions{"c": {NoBinlog: true}}})
	must(t, c.Primary().Exec(testenvtest.Context(t, hang), tables))
	must(t, c.WaitInSync(testenvtest.Context(t, hang)))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, c) })
	}
}

// waitConfirmedExecuted is waitConfirmed for a primary, where executed is what
// is confirmed.
func (w *watched) waitConfirmedExecuted(s *testenv.Server) {
	w.t.Helper()
	text, err := s.GTIDExecuted(testenvtest.Context(w.t, hang))
	must(w.t, err)
	set, err := gtid.Parse(text)
	must(w.t, err)
	st := w.wait("executed", func(st *event.ServerState) bool { return st.Alive && st.Executed.ContainsSet(set) })
	if st.Role != event.RolePrimary || !st.Drained {
		w.t.Errorf("role %d, drained %v; want a drained primary", st.Role, st.Drained)
	}
}

func followExecuted(t *testing.T, c *testenv.Cluster) {
	w := watch(t, c.Server("c"), nil, func(o *binlog.MonitorOptions) {
		o.Server.Follow, o.Tail = binlog.FollowExecuted, nil
		o.Ticks, o.AliveInterval = nil, time.Hour // what it finds, it finds by waiting
	})
	w.alive()
	before := w.m.Counters().Probes
	began := time.Now()
	for range 20 {
		must(t, c.Primary().Exec(t.Context(), "INSERT INTO app.other (v) VALUES (1)"))
		w.waitConfirmed(c.Primary())
	}
	st := w.m.State()
	if st.Follow != binlog.FollowExecuted || !st.Unproven.IsEmpty() || st.BinlogFile != "" {
		t.Errorf("state %+v", st)
	}
	t.Logf("20 inserts found in %s with %d probes", time.Since(began), w.m.Counters().Probes-before)
}

func ioThreadStopped(t *testing.T, c *testenv.Cluster) {
	b := c.Server("b")
	stream := startStream(t, c.Primary())
	w := watch(t, b, stream, nil)
	w.wait("both threads", func(st *event.ServerState) bool { return st.IORunning && st.SQLRunning && !st.SourceUUID.IsZero() })
	must(t, b.StopIOThread(t.Context()))
	defer func() { must(t, b.StartIOThread(t.Context())) }() // however the test ends
	w.wait("the receiver stopped", func(st *event.ServerState) bool { return !st.IORunning && st.SQLRunning && st.Alive })
	must(t, c.Primary().Exec(t.Context(), "INSERT INTO app.other (v) VALUES (2)"))
	st := w.wait("a tick later", func(st *event.ServerState) bool { return len(st.Ticks) == 1 && st.Ticks[0].Tick > 5 })
	primary, err := gtid.Parse(executedOf(t, c.Primary()))
	must(t, err)
	if confirmed(st).ContainsSet(primary) || st.Received.ContainsSet(primary) {
		t.Error("confirmed or received what it can't have")
	}
	must(t, b.StartIOThread(t.Context()))
	st = w.waitConfirmed(c.Primary())
	w.wait("received too", func(st *event.ServerState) bool { return st.IORunning })
	if st.ReplicationErr != "" {
		t.Errorf("replication error %q", st.ReplicationErr)
	}
}

func executedOf(t *testing.T, s *testenv.Server) string {
	t.Helper()
	text, err := s.GTIDExecuted(t.Context())
	must(t, err)
	return text
}

// stalledByProxy: the pinned connection hangs without breaking (rules §6.3).
func stalledByProxy(t *testing.T, c *testenv.Cluster) {
	b := c.Server("b")
	proxy, err := b.Proxy()
	must(t, err)
	w := watch(t, b, startStream(t, c.Primary()), func(o *binlog.MonitorOptions) {
		o.Server.Addr = proxy.Addr()
		o.ProbeTimeout = 300 * time.Millisecond
		o.Server.ConnectTimeout = 500 * time.Millisecond
		o.Tail = binlog.HintsTail(binlog.TailerOptions{Server: o.Server, Hasher: testHasher})
	})
	before := w.alive()
	proxy.Stall(testenv.FromTarget)
	// A probe that names a later tick begins behind the stall.
	newest := w.tick.Load()
	down := w.wait("lease ended", func(st *event.ServerState) bool { return !st.Alive })
	w.mu.Lock()
	for _, st := range w.seen {
		if st.Alive && len(st.Ticks) == 1 && st.Ticks[0].Tick > newest {
			t.Errorf("a state names tick %d, sent after the stall at %d", st.Ticks[0].Tick, newest)
		}
	}
	w.mu.Unlock()
	if down.Epoch != before.Epoch || down.Down == "" {
		t.Errorf("down state %+v", down)
	}
	must(t, proxy.Pass())
	after := w.alive()
	if after.Epoch != before.Epoch || after.DataSet != before.DataSet {
		t.Errorf("epoch %d of data set %d became %d of %d, though mysqld ran on", before.Epoch, before.DataSet, after.Epoch, after.DataSet)
	}
	must(t, c.Primary().Exec(t.Context(), "INSERT INTO app.other (v) VALUES (3)"))
	w.waitConfirmed(c.Primary())
}

func gtidModeRelaxed(t *testing.T, c *testenv.Cluster) {
	a := c.Primary()
	w := watch(t, a, startStream(t, a), nil)
	w.alive()
	must(t, a.Exec(t.Context(), "SET GLOBAL gtid_mode = ON_PERMISSIVE"))
	defer func() { must(t, a.Exec(t.Context(), "SET GLOBAL gtid_mode = ON")) }() // however the test ends
	w.wait("mode", func(st *event.ServerState) bool { return st.GTIDMode == "ON_PERMISSIVE" && st.Alive })
	must(t, a.Exec(t.Context(), "SET GLOBAL gtid_mode = ON"))
	w.wait("mode", func(st *event.ServerState) bool { return st.GTIDMode == "ON" && st.Alive })
	if n := w.m.Counters().Sessions; n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func filtersExclude(t *testing.T, c *testenv.Cluster) {
	b := c.Server("b")
	filter := func(tables string) {
		t.Helper()
		must(t, b.StopSQLThread(t.Context()))
		must(t, b.Exec(t.Context(), "CHANGE REPLICATION FILTER REPLICATE_IGNORE_TABLE = ("+tables+")"))
		must(t, b.StartSQLThread(t.Context()))
	}
	defer filter("") // however the test ends
	filter("app.filtered")
	w := watch(t, b, startStream(t, c.Primary()), nil)
	digest := testHasher.Table("app", "filtered").AnyRow
	w.wait("filtered", func(st *event.ServerState) bool {
		return len(st.FilteredTables) == 1 && st.FilteredTables[0] == digest && len(st.Filtered) == 1
	})
	must(t, c.Primary().Exec(t.Context(), "INSERT INTO app.filtered VALUES (1); INSERT INTO app.other (v) VALUES (4)"))
	st := w.wait("tainted", func(st *event.ServerState) bool { return len(st.Taints) == 1 })
	if x := st.Taints[0]; x.All || x.Table != digest {
		t.Errorf("taint %+v", x)
	}
	w.waitConfirmed(c.Primary()) // the others are not held up
	filter("")
	st = w.wait("filter gone", func(st *event.ServerState) bool { return len(st.Filtered) == 0 && st.SQLRunning })
	if len(st.Taints) != 1 {
		t.Errorf("taints %+v after the filter was removed", st.Taints)
	}
	testenvtest.WaitUntil(t, hang, func() (bool, string) {
		return w.m.State().Taints[0].Name == "app.filtered", fmt.Sprintf("taint %+v", w.m.State().Taints)
	})
}

func errantTransactions(t *testing.T, c *testenv.Cluster) {
	a, b := c.Primary(), c.Server("b")
	w := watch(t, b, startStream(t, a), func(o *binlog.MonitorOptions) { o.PrimaryE = primaryE(a) })
	first := w.alive()
	source := gtid.Source{UUID: first.UUID}
	// Under super_read_only even FLUSH makes one; it writes nothing.
	must(t, b.Exec(t.Context(), "FLUSH TABLES"))
	st := w.wait("errant", func(st *event.ServerState) bool { return st.Errant.Max(source) == first.Executed.Max(source)+1 })
	if len(st.Taints) != 0 {
		t.Errorf("FLUSH made taints: %+v", st.Taints)
	}
	must(t, b.Exec(t.Context(), "SET GLOBAL super_read_only = OFF; INSERT INTO app.other (id, v) VALUES (1000000, 1); SET GLOBAL super_read_only = ON"))
	st = w.wait("tainted", func(st *event.ServerState) bool { return len(st.Taints) > 0 })
	x := st.Taints[len(st.Taints)-1]
	if x.All || x.Table != testHasher.Table("app", "other").AnyRow || x.Name != "app.other" || x.GTID.UUID != st.UUID {
		t.Errorf("taint %+v", x)
	}
	// Neither holds up what the primary writes.
	must(t, a.Exec(t.Context(), "INSERT INTO app.other (v) VALUES (5)"))
	w.waitConfirmed(a)
	// The operator accepts, for this data set.
	w.mu.Lock()
	accepted := st.Errant
	w.accept = []binlog.Acceptance{{DataSet: st.DataSet, GTIDs: accepted}}
	w.mu.Unlock()
	w.wait("accepted", func(st *event.ServerState) bool { return st.Errant.Equal(accepted) && len(st.Taints) == 0 })
}

// injectedEmpty: a GTID of the primary is made executed on the replica before
// it comes (rules §2.2).
func injectedEmpty(t *testing.T, c *testenv.Cluster) {
	a, b := c.Primary(), c.Server("b")
	w := watch(t, b, startStream(t, a), nil)
	w.alive()
	must(t, b.StopSQLThread(t.Context()))
	must(t, a.Exec(t.Context(), "INSERT INTO app.other (v) VALUES (6)"))
	stolen := newestOf(t, a)
	must(t, b.Exec(t.Context(), "SET GLOBAL super_read_only = OFF"))
	must(t, b.InjectEmpty(t.Context(), stolen.String()))
	must(t, b.Exec(t.Context(), "SET GLOBAL super_read_only = ON"))
	must(t, b.StartSQLThread(t.Context()))
	st := w.wait("tainted", func(st *event.ServerState) bool { return len(st.Taints) > 0 })
	if !st.Taints[0].All || st.Taints[0].GTID != stolen || !st.Unproven.Contains(stolen) {
		t.Errorf("taints %+v, unproven %s; want all, by %s", st.Taints, st.Unproven.OneLine(), stolen)
	}
	// Over a restart of the tailer both stay.
	w.stop()
	last := w.m.State()
	again := watch(t, b, startStream(t, a), func(o *binlog.MonitorOptions) { o.Resume = last })
	st = again.alive()
	if len(st.Taints) == 0 || !st.Unproven.Contains(stolen) || st.DataSet != last.DataSet {
		t.Errorf("after a restart: taints %+v, unproven %s, data set %d, was %d", st.Taints, st.Unproven.OneLine(), st.DataSet, last.DataSet)
	}
}

func newestOf(t *testing.T, s *testenv.Server) gtid.GTID {
	t.Helper()
	uuid, err := s.UUID(t.Context())
	must(t, err)
	u, err := gtid.ParseUUID(uuid)
	must(t, err)
	set, err := gtid.Parse(executedOf(t, s))
	must(t, err)
	return gtid.GTID{UUID: u, Seq: set.Max(gtid.Source{UUID: u})}
}

// purgedIn: SET GLOBAL gtid_purged = '+...' makes GTIDs executed that no binlog
// shows.
func purgedIn(t *testing.T, c *testenv.Cluster) {
	a, b := c.Primary(), c.Server("b")
	w := watch(t, b, startStream(t, a), nil)
	w.alive()
	// The tail is up: what the server has purged before a tail begins counts as
	// base, because nothing can be read of it (rules §2.2).
	must(t, a.Exec(t.Context(), "INSERT INTO app.other (v) VALUES (6)"))
	first := newestOf(t, a)
	w.wait("the tail is up", func(st *event.ServerState) bool {
		return confirmed(st).Contains(first) && !st.Base.Contains(first)
	})
	must(t, b.StopSQLThread(t.Context()))
	must(t, a.Exec(t.Context(), "INSERT INTO app.other (v) VALUES (7)"))
	stolen := newestOf(t, a)
	must(t, b.Exec(t.Context(), "SET GLOBAL gtid_purged = '+"+stolen.String()+"'"))
	must(t, b.StartSQLThread(t.Context()))
	must(t, a.Exec(t.Context(), "INSERT INTO app.other (v) VALUES (8)"))
	next := newestOf(t, a)
	st := w.wait("the next is confirmed", func(st *event.ServerState) bool { return confirmed(st).Contains(next) })
	if !st.Executed.Contains(stolen) || !st.Unproven.Contains(stolen) {
		t.Errorf("executed %s, unproven %s; %s has no data here", st.Executed.OneLine(), st.Unproven.OneLine(), stolen)
	}
	if strings.Contains(st.Base.OneLine(), fmt.Sprint(stolen.Seq)) && st.Base.Contains(stolen) {
		t.Error("it joined base")
	}
}
