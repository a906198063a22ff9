package testenv_test

import (
	"testing"
	"time"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// checkPrimary writes on the primary and expects every other running server to
// follow it, read-only.
func checkPrimary(t *testing.T, c *testenv.Cluster, want *testenv.Server) {
	t.Helper()
	ctx := testenvtest.Context(t, testenvtest.HangTimeout)
	if c.Primary() != want {
		t.Fatalf("primary is %s, want %s", c.Primary().Name(), want.Name())
	}
	must(t, want.Exec(ctx, "INSERT INTO app.t SELECT COALESCE(MAX(id), 0)+1, 0 FROM app.t"))
	must(t, c.WaitInSync(ctx))
	if status, err := want.ReplicaStatus(ctx); err != nil || status != nil {
		t.Errorf("the primary has a channel: %v %v", status, err)
	}
	for _, s := range c.Replicas() {
		if s.Running() && query(t, s, "SELECT @@GLOBAL.super_read_only") != "1" {
			t.Errorf("replica %s is writable", s.Name())
		}
	}
}

func TestPromote(t *testing.T) {
	t.Parallel()
	c := testenvtest.Cluster(t, testenv.Options{})
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	a, b, d := c.Server("a"), c.Server("b"), c.Server("c")
	must(t, a.Exec(ctx, createT))
	must(t, c.EnableSemiSync(ctx, 10*time.Second))
	checkPrimary(t, c, a)
	if got := query(t, a, "SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME='Rpl_semi_sync_source_yes_tx'"); got == "0" {
		t.Error("semi-sync acknowledged nothing")
	}

	t.Run("planned", func(t *testing.T) {
		must(t, c.Promote(ctx, b, true))
		checkPrimary(t, c, b)
		if got := query(t, b, "SELECT @@GLOBAL.rpl_semi_sync_source_enabled"); got != "1" {
			t.Error("the new primary does not wait for acknowledgements")
		}
	})
	t.Run("drained failover from a dead primary", func(t *testing.T) {
		must(t, a.StopSQLThread(ctx)) // received, not applied
		must(t, b.Exec(ctx, "INSERT INTO app.t VALUES (1000, 0)"))
		received(t, b, a)
		must(t, b.Kill())
		must(t, c.Promote(ctx, a, false))
		if got := query(t, a, "SELECT COUNT(*) FROM app.t WHERE id=1000"); got != "1" {
			t.Error("the relay log was not drained")
		}
		checkPrimary(t, c, a)
		must(t, b.Start(ctx))
		if got := query(t, b, "SELECT @@GLOBAL.super_read_only"); got != "1" {
			t.Error("the old primary came back writable")
		}
		must(t, b.WipeAndRebuildFrom(ctx, a, false))
		checkPrimary(t, c, a)
	})
	t.Run("lossy failover, old primary fenced", func(t *testing.T) {
		must(t, a.Exec(ctx, "SET GLOBAL rpl_semi_sync_source_enabled=OFF"))
		for _, s := range c.Replicas() {
			must(t, s.StopSQLThread(ctx))
		}
		must(t, a.Exec(ctx, "INSERT INTO app.t VALUES (2000, 0)"))
		received(t, a, d)
		must(t, c.PromoteWith(ctx, d, testenv.PromoteOptions{Drain: testenv.DrainNever}))
		if got := query(t, d, "SELECT COUNT(*) FROM app.t WHERE id=2000"); got != "0" {
			t.Error("the relay log was applied")
		}
		if err := a.Exec(ctx, "INSERT INTO app.t VALUES (2001, 0)"); err == nil {
			t.Error("the old primary is not fenced")
		}
		must(t, a.WipeAndRebuildFrom(ctx, d, false))
		checkPrimary(t, c, d)
	})
	t.Run("writable before it drained, two primaries", func(t *testing.T) {
		release, err := b.HoldTable(ctx, "app.t")
		must(t, err)
		must(t, d.Exec(ctx, "INSERT INTO app.t VALUES (3000, 0)"))
		received(t, d, b)
		done := make(chan error, 1)
		go func() {
			done <- c.PromoteWith(ctx, b, testenv.PromoteOptions{Drain: testenv.DrainAfter, LeaveOld: true})
		}()
		testenvtest.WaitUntil(t, testenvtest.HangTimeout, func() (bool, string) {
			return query(t, b, "SELECT @@GLOBAL.read_only") == "0", "still read-only"
		})
		status, err := b.ReplicaStatus(ctx)
		if err != nil || status["Replica_SQL_Running"] != "Yes" {
			t.Errorf("writable without a running applier: %v", err)
		}
		release()
		must(t, <-done)
		if got := query(t, b, "SELECT COUNT(*) FROM app.t WHERE id=3000"); got != "1" {
			t.Error("not drained afterwards")
		}
		must(t, d.Exec(ctx, "INSERT INTO app.t VALUES (3001, 0)")) // still a primary
	})
	t.Run("refused", func(t *testing.T) {
		if err := c.Promote(ctx, b, true); err == nil {
			t.Error("promoted the primary")
		}
		must(t, a.Kill())
		if err := c.Promote(ctx, a, false); err == nil {
			t.Error("promoted a dead server")
		}
		if err := c.PromoteWith(ctx, d, testenv.PromoteOptions{Planned: true, LeaveOld: true}); err == nil {
			t.Error("a planned change that leaves two primaries")
		}
		if err := c.EnableSemiSync(ctx, 0); err == nil {
			t.Error("a semi-sync timeout of 0")
		}
	})
}
