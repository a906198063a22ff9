package binlog_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"tidegate/binlog"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/testenv/testenvtest"
)

func openAs(t *testing.T, cfg binlog.ServerConfig) *sql.DB {
	t.Helper()
	db, err := cfg.OpenDB()
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// TestInspectRealServer finds what is wrong with a sandbox server and runs the
// SQL that mends it.
func TestInspectRealServer(t *testing.T) {
	s := servers.Primary()
	ctx := testenvtest.Context(t, hang)
	cfg := tidegateConfig(s)
	db := openAs(t, cfg)
	find := func(what string) (binlog.Finding, bool) {
		t.Helper()
		in, err := binlog.Gather(ctx, db, &cfg)
		must(t, err)
		list := in.Findings()
		i := slices.IndexFunc(list, func(f binlog.Finding) bool { return strings.Contains(f.What, what) })
		if i < 0 {
			return binlog.Finding{}, false
		}
		return list[i], true
	}
	t.Cleanup(func() {
		must(t, s.Exec(context.Background(), "RESET PERSIST; DROP USER IF EXISTS poor@'%'; SET GLOBAL binlog_row_image = FULL, GLOBAL binlog_expire_logs_seconds = 2592000"))
	})
	for what, spoil := range map[string]string{
		"binlog_row_image is MINIMAL": "SET GLOBAL binlog_row_image = MINIMAL",
		"binlogs are kept for 1h":     "SET GLOBAL binlog_expire_logs_seconds = 3600",
	} {
		if f, ok := find(what); ok {
			t.Errorf("found before it was spoilt: %v", f)
		}
		must(t, s.Exec(ctx, spoil))
		f, ok := find(what)
		if !ok {
			t.Errorf("%s was not found", what)
			continue
		}
		must(t, s.Exec(ctx, f.Mend))
		if f, ok := find(what); ok {
			t.Errorf("still there after %s: %v", f.Mend, f)
		}
	}
	// Too few privileges: the finding's GRANT is all that it takes.
	must(t, s.Exec(ctx, "CREATE USER poor@'%' IDENTIFIED BY 'p'"))
	cfg.User, cfg.Password = "poor", "p"
	db = openAs(t, cfg)
	f, ok := find("account poor lacks")
	if !ok || f.Severity != binlog.Broken {
		t.Fatalf("missing privileges not found: %v", f)
	}
	for _, p := range []string{"REPLICATION CLIENT", "REPLICATION SLAVE", "SELECT"} {
		if !strings.Contains(f.What, p) {
			t.Errorf("%q does not name %s", f.What, p)
		}
	}
	must(t, s.Exec(ctx, f.Mend))
	db = openAs(t, cfg)
	if f, ok := find("lacks"); ok {
		t.Errorf("still there after %s: %v", f.Mend, f)
	}
}

// TestMonitorRefusesTooFewPrivileges: refused at start, with the GRANT.
func TestMonitorRefusesTooFewPrivileges(t *testing.T) {
	s := servers.Primary()
	ctx := testenvtest.Context(t, hang)
	must(t, s.Exec(ctx, "CREATE USER lame@'%' IDENTIFIED BY 'p'"))
	t.Cleanup(func() { must(t, s.Exec(context.Background(), "DROP USER lame@'%'")) })
	for _, tt := range []struct{ password, want string }{
		{"p", "GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO 'lame'@'%'"},
		{"wrong", "check user and password"},
	} {
		cfg := tidegateConfig(s)
		cfg.User, cfg.Password = "lame", tt.password
		m, err := binlog.NewMonitor(binlog.MonitorOptions{
			Server: cfg, Identities: everything{},
			NextEpoch: func(context.Context) (event.Epoch, error) { return 1, nil },
			Publish:   func(context.Context, *event.ServerState) error { return nil },
		})
		must(t, err)
		var refused *binlog.RefusedError
		if err := m.Run(ctx); !errors.As(err, &refused) || !strings.Contains(refused.Mend, tt.want) {
			t.Errorf("Run: %v; want a refusal with %q", err, tt.want)
		}
	}
}

// TestCanary reads rows by their clear keys.
func TestCanary(t *testing.T) {
	s := servers.Primary()
	ctx := testenvtest.Context(t, hang)
	must(t, s.Exec(ctx, "CREATE DATABASE canary; CREATE TABLE canary.t (id INT, name VARCHAR(20) COLLATE utf8mb4_0900_ai_ci, bin VARBINARY(4), at TIMESTAMP(3) NULL, v VARCHAR(10), PRIMARY KEY (id, name, bin)); "+
		"INSERT INTO canary.t VALUES (1, 'Résumé', 0x00ff, '2026-11-30 10:00:00.5', NULL), (1, 'x', '', NULL, '')"))
	t.Cleanup(func() { must(t, s.Exec(context.Background(), "DROP DATABASE canary")) })
	def := &key.Definition{Schema: "canary", Table: "t", Primary: []key.Column{
		{Name: "id", Type: key.TypeInt}, {Name: "name", Type: key.TypeVarchar, Collation: "utf8mb4_0900_ai_ci"}, {Name: "bin", Type: key.TypeVarbinary},
	}}
	cfg := tidegateConfig(s)
	db := openAs(t, cfg)
	read := func(printed string) (binlog.CanaryRow, error) {
		t.Helper()
		k, err := key.Parse(printed)
		must(t, err)
		return binlog.ReadCanary(ctx, db, def, k)
	}
	first, err := read("canary.t/1,RESUME,0x00ff")
	must(t, err)
	again, err := read("canary.t/1,résumé,0x00FF")
	must(t, err)
	if !first.Found || !first.Equal(again) || first.Differs(again) != "" {
		t.Errorf("one row reads as %+v and %+v", first, again)
	}
	must(t, s.Exec(ctx, "UPDATE canary.t SET v = '' WHERE id = 1 AND name = 'resume'"))
	changed, err := read("canary.t/1,resume,0x00ff")
	must(t, err)
	if changed.Equal(first) || changed.Differs(first) != "v" {
		t.Errorf("NULL and empty are alike: %+v, differs in %q", changed, changed.Differs(first))
	}
	none, err := read("canary.t/2,x,0x")
	must(t, err)
	if none.Found || none.Equal(first) || !strings.Contains(first.Differs(none), "no row on the other") || !strings.Contains(none.Differs(first), "this side") {
		t.Errorf("a missing row reads as %+v", none)
	}
	other, err := read("canary.t/1,x,0x")
	must(t, err)
	if !other.Found || other.Equal(first) {
		t.Errorf("the row with the empty binary key reads as %+v", other)
	}
	for _, printed := range []string{"canary.t/*", "canary.t/1", "canary.t/1,@null,0x"} {
		if _, err := read(printed); !errors.Is(err, binlog.ErrNotOneRow) {
			t.Errorf("%s: %v, want ErrNotOneRow", printed, err)
		}
	}
	for _, printed := range []string{"canary.t/x,a,0x", "canary.t/1,a,0xzz", "canary.t/1,a,ff"} {
		if _, err := read(printed); err == nil {
			t.Errorf("%s was read", printed)
		}
	}
}
