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
		must(t, in.ReadTables(ctx, db, tt.keys))
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
