package testenv_test

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envVictim) != "" {
		os.Exit(victim())
	}
	goleak.VerifyTestMain(m)
}

func TestClusterReplicates(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := testenvtest.Cluster(t, testenv.Options{})
	t.Logf("three servers after %s", time.Since(began))
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	for _, s := range c.Servers() {
		if set, err := s.GTIDExecuted(ctx); err != nil || set != "" {
			t.Fatalf("fresh %s: executed %q, err %v; want empty", s.Name(), set, err)
		}
	}
	if err := c.Primary().Exec(ctx, "CREATE TABLE app.t (id INT PRIMARY KEY, v INT); INSERT INTO app.t VALUES (1, 7)"); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitInSync(ctx); err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Replicas() {
		if v, err := s.QueryString(ctx, "SELECT v FROM app.t WHERE id=1"); err != nil || v != "7" {
			t.Errorf("%s: v=%q err=%v, want 7", s.Name(), v, err)
		}
	}
}

func TestStopKillRestart(t *testing.T) {
	t.Parallel()
	c := testenvtest.Cluster(t, testenv.Options{Servers: 1})
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	a := c.Server("a")
	if err := a.Exec(ctx, "CREATE TABLE app.t (id INT PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	for i, end := range map[int]func() error{1: a.Kill, 2: func() error { return a.Stop(ctx) }} {
		if err := a.Exec(ctx, "INSERT INTO app.t VALUES (?)", i); err != nil {
			t.Fatal(err)
		}
		addr := a.Addr()
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if a.Running() || a.PID() != 0 {
			t.Fatal("still running")
		}
		if err := a.Exec(ctx, "SELECT 1"); err == nil {
			t.Fatal("a dead server answers")
		}
		if err := a.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if a.Addr() != addr {
			t.Errorf("address moved from %s to %s", addr, a.Addr())
		}
	}
	if n, err := a.QueryString(ctx, "SELECT COUNT(*) FROM app.t"); err != nil || n != "2" {
		t.Errorf("rows %q err %v, want 2", n, err)
	}
}
