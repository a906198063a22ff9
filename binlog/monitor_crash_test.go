package binlog_test

import (
	"strconv"
	"strings"
	"testing"

	"tidegate/binlog"
	"tidegate/cdc/event"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestRunsOnRealServers plays restarts, crashes, rebuilds and promotions. b
// has relaxed durability and skips duplicate keys; c is durable.
func TestRunsOnRealServers(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{PerServer: map[string]testenv.ServerOptions{
		"b": {Relaxed: true, Args: []string{"--replica-skip-errors=1062"}},
	}})
	must(t, c.Primary().Exec(testenvtest.Context(t, hang), "CREATE TABLE app.t (id INT PRIMARY KEY, v INT)"))
	must(t, c.WaitInSync(testenvtest.Context(t, hang)))
	for _, tt := range []struct {
		name string
		run  func(*testing.T, *testenv.Cluster)
	}{
		{"SkippedError", skippedError},
		{"CleanRestart", cleanRestart},
		{"KilledRelaxed", killedRelaxed},
		{"KilledDurable", killedDurable},
		{"BinlogPurgedWhileAway", purgedWhileAway},
		{"RebuiltSameUUID", rebuiltSameUUID},
		{"RebuiltNewUUID", rebuiltNewUUID},
		{"RebuiltLongerBinlog", rebuiltLongerBinlog},
		{"Promotion", promotion},
	} {
		if !t.Run(tt.name, func(t *testing.T) { tt.run(t, c) }) {
			return // the cluster is in no known state
		}
	}
}

func insert(t *testing.T, s *testenv.Server, id int) {
	t.Helper()
	must(t, s.Exec(t.Context(), "INSERT INTO app.t VALUES (?, 0)", id))
}

// skippedError: an error that replica_skip_errors hides leaves the GTID
// executed under the primary's identity, and the rows as they were (rules §2.2).
func skippedError(t *testing.T, c *testenv.Cluster) {
	b := c.Server("b")
	w := watch(t, b, startStream(t, c.Primary()), nil)
	w.alive()
	must(t, b.Exec(t.Context(), "SET GLOBAL super_read_only = OFF; SET sql_log_bin = 0; INSERT INTO app.t VALUES (1, 666); SET sql_log_bin = 1; SET GLOBAL super_read_only = ON"))
	insert(t, c.Primary(), 1)
	st := w.wait("tainted", func(st *event.ServerState) bool { return len(st.Taints) == 1 })
	if x := st.Taints[0]; x.All || x.Table != testHasher.Table("app", "t").AnyRow {
		t.Errorf("taint %+v", x)
	}
	w.waitConfirmed(c.Primary())
	must(t, b.Exec(t.Context(), "SET GLOBAL super_read_only = OFF; SET sql_log_bin = 0; UPDATE app.t SET v = 0 WHERE id = 1; SET sql_log_bin = 1; SET GLOBAL super_read_only = ON"))
}

// cleanRestart: another epoch, the same data set, and nothing excluded though
// durability is relaxed: the binlog ends in a STOP event.
func cleanRestart(t *testing.T, c *testenv.Cluster) {
	b := c.Server("b")
	w := watch(t, b, startStream(t, c.Primary()), nil)
	before := w.alive()
	if !before.RelaxedDurable {
		t.Error("relaxed durability not seen")
	}
	insert(t, c.Primary(), 10)
	w.waitConfirmed(c.Primary())
	must(t, b.Restart(t.Context()))
	insert(t, c.Primary(), 11)
	st := w.waitConfirmed(c.Primary())
	if st.Epoch <= before.Epoch || st.DataSet != before.DataSet || len(st.Excluded) != 0 {
		t.Errorf("epoch %d was %d, data set %d was %d, excluded %q", st.Epoch, before.Epoch, st.DataSet, before.DataSet, st.Excluded)
	}
	// The writer is told where to begin comparing (rules §11.2).
	end, ok := w.m.RestartFile(before.Epoch)
	file := end.File
	if !ok {
		t.Fatal("the file before the restart is not known")
	}
	facts, err := w.m.PrimaryFacts(t.Context(), file)
	must(t, err)
	if len(facts.Restart.Files) != 2 || facts.Restart.Files[0] != before.BinlogFile || facts.Restart.Purged || facts.Epoch != st.Epoch {
		t.Errorf("facts %+v; the file before the restart was %s", facts, before.BinlogFile)
	}
	if !st.Base.Equal(before.Base) {
		t.Errorf("base %s was %s", st.Base.OneLine(), before.Base.OneLine())
	}
}

// killedRelaxed: rules §2.5.
func killedRelaxed(t *testing.T, c *testenv.Cluster) {
	b := c.Server("b")
	w := watch(t, b, startStream(t, c.Primary()), nil)
	before := w.alive()
	insert(t, c.Primary(), 20)
	w.waitConfirmed(c.Primary())
	must(t, b.Kill())
	w.wait("lease ended", func(st *event.ServerState) bool { return !st.Alive })
	must(t, b.Start(t.Context()))
	st := w.wait("excluded", func(st *event.ServerState) bool { return st.Alive && len(st.Excluded) == 1 })
	if !strings.HasPrefix(st.Excluded[0], "epoch_changed") || st.DataSet != before.DataSet || st.Epoch <= before.Epoch {
		t.Errorf("state %+v", st)
	}
	// A clean restart does not mend it, nor does one of the tailer.
	must(t, b.Restart(t.Context()))
	st = w.wait("back", func(s *event.ServerState) bool { return s.Alive && s.Epoch > st.Epoch })
	if len(st.Excluded) != 1 {
		t.Errorf("excluded %q after a clean restart", st.Excluded)
	}
	w.stop()
	last := w.m.State()
	again := watch(t, b, startStream(t, c.Primary()), func(o *binlog.MonitorOptions) { o.Resume = last })
	st = again.alive()
	if len(st.Excluded) != 1 {
		t.Errorf("excluded %q after a restart of the tailer", st.Excluded)
	}
	again.mu.Lock()
	again.accept = []binlog.Acceptance{{DataSet: st.DataSet, Restart: true, Epoch: st.Epoch}}
	again.mu.Unlock()
	again.wait("accepted", func(st *event.ServerState) bool { return len(st.Excluded) == 0 })
}

func killedDurable(t *testing.T, c *testenv.Cluster) {
	s := c.Server("c")
	w := watch(t, s, startStream(t, c.Primary()), nil)
	before := w.alive()
	must(t, s.Kill())
	insert(t, c.Primary(), 30)
	must(t, s.Start(t.Context()))
	st := w.waitConfirmed(c.Primary())
	if st.Epoch <= before.Epoch || st.DataSet != before.DataSet || len(st.Excluded) != 0 || len(st.Taints) != 0 {
		t.Errorf("state %+v", st)
	}
}

// purgedWhileAway: what the replica's binlog lost while nobody read it joins
// base and is counted (rules §2.2).
func purgedWhileAway(t *testing.T, c *testenv.Cluster) {
	s := c.Server("c")
	stream := startStream(t, c.Primary())
	w := watch(t, s, stream, nil)
	w.alive()
	w.stop()
	last := w.m.State()
	insert(t, c.Primary(), 40)
	gone := newestOf(t, c.Primary())
	must(t, c.WaitInSync(t.Context()))
	must(t, s.RotateBinlog(t.Context()))
	must(t, s.PurgeBinlogs(t.Context()))
	insert(t, c.Primary(), 41)
	again := watch(t, s, stream, func(o *binlog.MonitorOptions) { o.Resume = last })
	st := again.waitConfirmed(c.Primary())
	if st.DataSet != last.DataSet || !st.Base.Contains(gone) || again.m.Counters().PurgedJoined == 0 {
		t.Errorf("data set %d was %d, base %s, joined %d", st.DataSet, last.DataSet, st.Base.OneLine(), again.m.Counters().PurgedJoined)
	}
}

func rebuiltSameUUID(t *testing.T, c *testenv.Cluster) { rebuilt(t, c, false) }
func rebuiltNewUUID(t *testing.T, c *testenv.Cluster)  { rebuilt(t, c, true) }

// rebuilt: wiped, and restored behind the same address: another data set, and
// what was known of the old one is gone.
func rebuilt(t *testing.T, c *testenv.Cluster, newUUID bool) {
	s := c.Server("c")
	ctx := testenvtest.Context(t, hang)
	w := watch(t, s, startStream(t, c.Primary()), nil)
	before := w.alive()
	must(t, s.WipeAndRebuildFrom(ctx, c.Primary(), newUUID))
	insert(t, c.Primary(), 50+len(t.Name()))
	st := w.waitConfirmed(c.Primary())
	if st.DataSet == before.DataSet || st.Epoch <= before.Epoch || (st.UUID != before.UUID) != newUUID {
		t.Errorf("data set %d was %d, epoch %d was %d, uuid %s was %s", st.DataSet, before.DataSet, st.Epoch, before.Epoch, st.UUID, before.UUID)
	}
	if n := w.m.Counters().DataSets; n != 2 {
		t.Errorf("%d data sets", n)
	}
}

// rebuiltLongerBinlog: the rebuilt server's binlog has a file of the name that
// was read last, and a longer one. Its beginning tells it from the old one, also
// to a monitor that knows the published state alone.
func rebuiltLongerBinlog(t *testing.T, c *testenv.Cluster) {
	s := c.Server("c")
	ctx := testenvtest.Context(t, hang)
	binlogOf := func(what string) string {
		v, err := s.QueryString(ctx, "SELECT LOCAL->>'$.binary_log_"+what+"' FROM performance_schema.log_status")
		must(t, err)
		return v
	}
	must(t, s.RotateBinlog(ctx))
	stream := startStream(t, c.Primary())
	w := watch(t, s, stream, nil)
	file := binlogOf("file")
	w.wait("marked", func(st *event.ServerState) bool { return st.BinlogMark != 0 && st.BinlogFile == file })
	w.stop()
	last := w.m.State()
	// The same server is known again by its mark.
	same := watch(t, s, stream, func(o *binlog.MonitorOptions) { o.Resume = last })
	if st := same.alive(); st.DataSet != last.DataSet || st.BinlogMark != last.BinlogMark {
		t.Fatalf("the same server has data set %d, was %d, mark %x, was %x", st.DataSet, last.DataSet, st.BinlogMark, last.BinlogMark)
	}
	same.stop()

	insert(t, c.Primary(), 69) // within one second, PREVIOUS_GTIDS alone tells the files apart
	must(t, s.WipeAndRebuildFrom(ctx, c.Primary(), false))
	for binlogOf("file") < file {
		must(t, s.RotateBinlog(ctx))
	}
	if got := binlogOf("file"); got != file {
		t.Fatalf("the new binlog is at %s, the old one was at %s", got, file)
	}
	for id := 70; ; id++ {
		insert(t, c.Primary(), id)
		must(t, c.WaitInSync(ctx))
		if pos, err := strconv.ParseUint(binlogOf("position"), 10, 64); err != nil || pos > last.BinlogPos {
			must(t, err)
			break
		}
	}
	again := watch(t, s, stream, func(o *binlog.MonitorOptions) { o.Resume = last })
	st := again.waitConfirmed(c.Primary())
	if st.DataSet == last.DataSet || st.UUID != last.UUID || st.Epoch <= last.Epoch {
		t.Errorf("data set %d was %d, uuid %s was %s, epoch %d was %d", st.DataSet, last.DataSet, st.UUID, last.UUID, st.Epoch, last.Epoch)
	}
}

// promotion: roles follow a planned change, and the old primary becomes a
// replica whose own transactions are confirmed by what its binlog shows.
func promotion(t *testing.T, c *testenv.Cluster) {
	a, next := c.Primary(), c.Server("c")
	wa := watch(t, a, startStream(t, a), nil)
	stream := startStream(t, a)
	wc := watch(t, next, stream, nil)
	first := wa.wait("primary", func(st *event.ServerState) bool { return st.Role == event.RolePrimary && st.Drained })
	wc.wait("replica", func(st *event.ServerState) bool { return st.Role == event.RoleReplica })
	facts, err := wa.m.PrimaryFacts(t.Context(), "")
	must(t, err)
	if facts.Role != event.RolePrimary || facts.GTIDMode != "ON" || !facts.Drained || facts.Executed.IsEmpty() || len(facts.Restart.Files) != 1 {
		t.Errorf("facts %+v", facts)
	}
	insert(t, a, 200)
	// What the last binlog file carries, as the writer reads it again (rules §11.2).
	var ids int
	now, err := wa.m.PrimaryFacts(t.Context(), facts.Restart.Files[0])
	must(t, err)
	must(t, wa.m.ReadIdentities(t.Context(), now.Restart.Before, now.Executed, "", func(tx *event.Transaction) error {
		if tx.OriginalCommit == 0 || tx.ImmediateCommit != tx.OriginalCommit {
			t.Errorf("%s committed at %d, at first at %d, on the server itself", tx.GTID, tx.ImmediateCommit, tx.OriginalCommit)
		}
		ids++
		return nil
	}))
	if want := int(now.Executed.Subtract(now.Restart.Before).Count()); ids != want || want == 0 {
		t.Errorf("%d identities, want %d", ids, want)
	}
	must(t, c.Promote(testenvtest.Context(t, hang), next, true))
	wc.wait("primary", func(st *event.ServerState) bool { return st.Role == event.RolePrimary && st.Drained && st.Writable })
	wa.wait("replica", func(st *event.ServerState) bool { return st.Role == event.RoleReplica && !st.Writable })
	insert(t, next, 201)
	old := wa.wait("applied", func(st *event.ServerState) bool { return st.Executed.Contains(newestOf(t, next)) })
	if old.Epoch != first.Epoch || len(old.Taints) != 0 {
		t.Errorf("state %+v", old)
	}
	// The old primary's own transactions are read from its binlog and compared.
	wa.wait("own transactions proven", func(st *event.ServerState) bool {
		return !st.Unproven.Contains(newestOf(t, a))
	})
}
