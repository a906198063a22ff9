package binlog_test

import (
	"context"
	"strings"
	"testing"

	"tidegate/binlog"
	"tidegate/testenv/testenvtest"
)

// TestInspectKeys: what `keys:` names is looked for on the primary.
func TestInspectKeys(t *testing.T) {
	s := servers.Primary()
	ctx := testenvtest.Context(t, hang)
	must(t, s.Exec(ctx, "CREATE DATABASE inspected; CREATE TABLE inspected.t (id INT PRIMARY KEY, author_id INT)"))
	t.Cleanup(func() { must(t, s.Exec(context.Background(), "DROP DATABASE inspected")) })
	cfg := tidegateConfig(s)
	db := openAs(t, cfg)
	for _, tt := range []struct {
		keys map[string][]string
		want []string // severity and beginning, in order
	}{
		{nil, nil},
		{map[string][]string{"inspected.t": {"author_id"}}, nil},
		{map[string][]string{"inspected.t": {"nocol", "author_id", "none"}}, []string{
			`broken: keys: table inspected.t has no column "nocol"; it has "id", "author_id"`,
			`broken: keys: table inspected.t has no column "none"`,
		}},
		{map[string][]string{"inspected.tt": {"author_id"}, "inspected.s": {"x"}, "inspected.t": {"id"}}, []string{
			"warning: keys: there is no table inspected.s", "warning: keys: there is no table inspected.tt",
		}},
	} {
		in, err := binlog.Gather(ctx, db, &cfg)
		must(t, err)
		in.ReadTables(ctx, db, tt.keys)
		got := binlog.CompareServers([]*binlog.Inspection{in})
		if len(got) != len(tt.want) {
			t.Errorf("%v: got %v, want %q", tt.keys, got, tt.want)
			continue
		}
		for i, f := range got {
			if !strings.HasPrefix(f.String(), cfg.Name+": "+tt.want[i]) || f.Mend == "" {
				t.Errorf("%v: got %v, want %q", tt.keys, f, tt.want[i])
			}
		}
	}
}

// TestInspectKeysInVain: a look-up that fails is a finding about the keys, beside
// all others. On a server that is no primary, whose tables are not judged, none is
// tried.
func TestInspectKeysInVain(t *testing.T) {
	s := servers.Primary()
	ctx := testenvtest.Context(t, hang)
	ended, end := context.WithCancel(ctx)
	end()
	cfg := tidegateConfig(s)
	db := openAs(t, cfg)
	lookUp := func() *binlog.Inspection {
		in, err := binlog.Gather(ctx, db, &cfg)
		must(t, err)
		in.ReadTables(ended, db, map[string][]string{"inspected.t": {"author_id"}})
		return in
	}
	got := binlog.CompareServers([]*binlog.Inspection{lookUp()})
	if want := cfg.Name + ": warning: keys: could not be looked up: "; len(got) != 1 || !strings.HasPrefix(got[0].String(), want) || !strings.Contains(got[0].What, context.Canceled.Error()) {
		t.Errorf("got %v, want one: %s...", got, want)
	}
	t.Cleanup(func() { must(t, s.SetReadOnly(context.Background(), false)) })
	must(t, s.SetReadOnly(ctx, true))
	if binlog.TriedKeys(lookUp()) {
		t.Error("a look-up was tried on a server that is no primary")
	}
}
