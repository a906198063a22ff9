package testenv_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// residentMB is how much memory a process has, in MiB.
func residentMB(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	must(t, err)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kilobytes int
			_, err := fmt.Sscan(rest, &kilobytes)
			must(t, err)
			return kilobytes >> 10
		}
	}
	t.Fatal("no VmRSS line")
	return 0
}

func TestChainAndServerOptions(t *testing.T) {
	t.Parallel()
	c := testenvtest.Cluster(t, testenv.Options{
		Chain: true,
		Args:  []string{"--max-connections=77"},
		PerServer: map[string]testenv.ServerOptions{
			"b": {Relaxed: true, Writable: true, Args: []string{"--max-connections=66"}},
			"c": {NoBinlog: true},
		},
	})
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	a, b, d := c.Server("a"), c.Server("b"), c.Server("c")
	must(t, a.Exec(ctx, createT+"; INSERT INTO app.t VALUES (1, 0)"))
	must(t, c.WaitInSync(ctx))
	for s, source := range map[*testenv.Server]*testenv.Server{b: a, d: b} {
		status, err := s.ReplicaStatus(ctx)
		must(t, err)
		if status["Source_Port"] != strconv.Itoa(source.Port()) {
			t.Errorf("%s follows port %s, want %s's %d", s.Name(), status["Source_Port"], source.Name(), source.Port())
		}
	}
	const variables = "SELECT CONCAT_WS(' ', @@max_connections, @@log_bin, @@sync_binlog, @@innodb_flush_log_at_trx_commit, @@super_read_only)"
	for s, want := range map[*testenv.Server]string{a: "77 1 1 1 0", b: "66 1 0 0 0", d: "77 0 1 1 1"} {
		if got := query(t, s, variables); got != want {
			t.Errorf("%s: max_connections, log_bin, sync_binlog, flush, super_read_only = %q, want %q", s.Name(), got, want)
		}
		if mb := residentMB(t, s.PID()); mb > 300 {
			t.Errorf("%s takes %d MiB, want 300 at most", s.Name(), mb)
		}
	}
	// The accounts reach every server over TCP.
	for _, user := range []string{testenv.RootUser, testenv.TidegateUser, testenv.AppUser} {
		if !strings.Contains(a.DSN(user, "app"), a.Addr()) {
			t.Errorf("DSN %s lacks the address", a.DSN(user, "app"))
		}
	}
	must(t, c.Promote(ctx, b, true)) // b keeps c, and gains a
	must(t, b.Exec(ctx, "INSERT INTO app.t VALUES (2, 0)"))
	must(t, c.WaitInSync(ctx))
	if status, err := d.ReplicaStatus(ctx); err != nil || status["Source_Port"] != strconv.Itoa(b.Port()) {
		t.Errorf("c follows %v, %v; want b", status["Source_Port"], err)
	}
}

func TestIndependentServersInAKeptFolder(t *testing.T) {
	t.Parallel()
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	dir := filepath.Join(t.TempDir(), "sandbox with a long name, so that a socket in it would not fit into an address of the kernel's")
	opts := testenv.Options{Servers: 2, Independent: true, Dir: dir}
	c, err := testenv.Start(ctx, opts)
	must(t, err)
	for _, s := range c.Servers() {
		must(t, s.Exec(ctx, createT))
		if status, err := s.ReplicaStatus(ctx); err != nil || status != nil {
			t.Errorf("%s replicates: %v %v", s.Name(), status, err)
		}
	}
	// Rebuilt from the other, it stands alone again, and stays writable.
	must(t, c.Server("a").Exec(ctx, "INSERT INTO app.t VALUES (1, 0)"))
	must(t, c.Server("b").WipeAndRebuildFrom(ctx, c.Server("a"), true))
	must(t, c.Server("b").Exec(ctx, "INSERT INTO app.t VALUES (2, 0)"))
	uuid := query(t, c.Server("b"), "SELECT @@server_uuid")
	must(t, c.Close())
	must(t, c.Close())

	opts.Servers = 2
	c = testenvtest.Cluster(t, opts) // the same folder: the same servers
	if got := query(t, c.Server("b"), "SELECT CONCAT(@@server_uuid, ' ', COUNT(*)) FROM app.t"); got != uuid+" 2" {
		t.Errorf("second start: %q, want %q", got, uuid+" 2")
	}
	must(t, c.Close())
	if _, err := os.Stat(filepath.Join(dir, "a", "data")); err != nil {
		t.Errorf("a folder of the caller's was removed: %v", err)
	}
	if _, err := c.Server("a").Proxy(); err == nil {
		t.Error("a proxy of a closed sandbox")
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	for _, bad := range []struct {
		opts testenv.Options
		want string
	}{
		{testenv.Options{Servers: 27}, "27"},
		{testenv.Options{Servers: -1}, "-1"},
		{testenv.Options{Chain: true, Independent: true}, "exclude"},
		{testenv.Options{PerServer: map[string]testenv.ServerOptions{"x": {}}}, `"x"`},
		{testenv.Options{Servers: 1, Args: []string{"--no-such-option"}}, "no-such-option"},
	} {
		c, err := testenv.Start(testenvtest.Context(t, testenvtest.StartTimeout), bad.opts)
		if err == nil {
			t.Errorf("%+v accepted", bad.opts)
			must(t, c.Close())
			continue
		}
		if !strings.Contains(err.Error(), bad.want) {
			t.Errorf("error %q does not say %q", err, bad.want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := testenv.Start(ctx, testenv.Options{Servers: 1}); err == nil {
		t.Error("started with a context that has ended")
	}
}
