package binlog_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tidegate/binlog"
	"tidegate/cdc/event"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// filtered are the tables of TestFiltersOnRealServers.
var filtered = [][2]string{
	{"a", "t"}, {"a", "t,u"}, {"a", "x_y"}, {"a", "xéy"}, {"a", `w\`}, {"a", "Logs"}, {"b", "t"}, {"b", "t,u"}, {"a,b", "t"}, {"a,b", "t,u"},
}

// filterBed writes to all tables of a primary and sees what arrives elsewhere.
type filterBed struct {
	t      *testing.T
	c      *testenv.Cluster
	tables [][2]string // (schema, table)
	row    int
}

// newFilterBed makes the tables.
func newFilterBed(t *testing.T, c *testenv.Cluster, tables [][2]string) *filterBed {
	t.Helper()
	b := &filterBed{t: t, c: c, tables: tables}
	setup, made := "", map[string]bool{}
	for _, n := range tables {
		if !made[n[0]] {
			setup += fmt.Sprintf("CREATE DATABASE `%s`; ", n[0])
		}
		made[n[0]] = true
		setup += fmt.Sprintf("USE `%s`; CREATE TABLE %s (id INT PRIMARY KEY); ", n[0], quotedTable(n))
	}
	must(t, c.Primary().Exec(t.Context(), setup))
	must(t, c.WaitInSync(t.Context()))
	return b
}

// under sets filters on s while fn runs, however that ends.
func (b *filterBed) under(s *testenv.Server, rules string, fn func()) {
	b.t.Helper()
	set := func(rules string) {
		b.t.Helper()
		must(b.t, s.StopSQLThread(b.t.Context()))
		must(b.t, s.Exec(b.t.Context(), "CHANGE REPLICATION FILTER "+rules))
		must(b.t, s.StartSQLThread(b.t.Context()))
	}
	kind, _, _ := strings.Cut(rules, " ")
	defer set(kind + " = ()")
	set(rules)
	fn()
}

func quotedTable(n [2]string) string { return fmt.Sprintf("`%s`.`%s`", n[0], n[1]) }

func (b *filterBed) count(s *testenv.Server) map[[2]string]string {
	b.t.Helper()
	out := map[[2]string]string{}
	for _, n := range b.tables {
		// A table that is not there, being filtered, has no rows.
		rows, _ := s.QueryString(b.t.Context(), "SELECT COUNT(*) FROM "+quotedTable(n))
		out[n] = rows
	}
	return out
}

// missing writes a row to each table and returns the tables that got none on s,
// or one that is another table's.
func (b *filterBed) missing(s *testenv.Server) (out [][2]string) {
	b.t.Helper()
	b.row++
	here, there := b.count(b.c.Primary()), b.count(s)
	for i, n := range b.tables {
		must(b.t, b.c.Primary().Exec(b.t.Context(), fmt.Sprintf("USE `%s`; INSERT INTO %s VALUES (%d)", n[0], quotedTable(n), b.row*len(b.tables)+i)))
	}
	must(b.t, b.c.WaitInSync(b.t.Context()))
	more := func(a, b string) int {
		var x, y int
		_, _ = fmt.Sscan(a, &x)
		_, _ = fmt.Sscan(b, &y)
		return y - x
	}
	hereNow, thereNow := b.count(b.c.Primary()), b.count(s)
	for _, n := range b.tables {
		if more(here[n], hereNow[n]) != 1 {
			b.t.Fatalf("%v has %s rows after %s", n, hereNow[n], here[n])
		}
		if more(there[n], thereNow[n]) != 1 {
			out = append(out, n)
		}
	}
	return out
}

// check holds what is excluded against what does not arrive.
func (b *filterBed) check(s *testenv.Server, want ...[2]string) {
	b.t.Helper()
	missing := b.missing(s)
	got, _, err := binlog.Excluded(b.t.Context(), tidegateConfig(s), b.tables)
	must(b.t, err)
	for _, n := range missing {
		if !slices.Contains(got, n) {
			b.t.Errorf("%v does not arrive and is not excluded", n)
		}
	}
	if len(missing) == 0 {
		b.t.Error("everything arrives")
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("excluded %q, want %q; %q do not arrive", got, want, missing)
	}
}

// TestFiltersOnRealServers: how MySQL prints filters is told by what arrives under
// them. It quotes no name, --replicate-do-db=a,b is one name for it, and it does
// not show filters in the performance schema that is OFF.
func TestFiltersOnRealServers(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{Servers: 4, PerServer: map[string]testenv.ServerOptions{
		"c": {Args: []string{"--replicate-do-db=a,b"}},
		"d": {Args: []string{"--performance-schema=OFF", "--replicate-ignore-table=a.t", "--replicate-wild-ignore-table=a.x%", "--replicate-rewrite-db=a,b->b"}},
	}})
	b := newFilterBed(t, c, filtered)
	for _, tt := range []struct {
		rules string
		want  string // schema.table, separated by blanks; more than what MySQL filters where the text has other readings
	}{
		{"REPLICATE_IGNORE_DB = (`a,b`)", "a.t a.t,u a.x_y a.xéy a.w\\ a.Logs b.t b.t,u a,b.t a,b.t,u"},
		{"REPLICATE_DO_DB = (`a,b`)", "a.t a.t,u a.x_y a.xéy a.w\\ a.Logs b.t b.t,u a,b.t a,b.t,u"},
		{"REPLICATE_IGNORE_TABLE = (`a,b`.`t,u`, a.Logs)", "a.Logs b.t b.t,u a,b.t a,b.t,u"},
		{"REPLICATE_DO_TABLE = (a.t)", "a.t,u a.x_y a.xéy a.w\\ a.Logs b.t b.t,u a,b.t a,b.t,u"},
		{"REPLICATE_WILD_IGNORE_TABLE = ('a,b.t%', 'a.x_y', 'a.logs')", "a.x_y b.t b.t,u a,b.t a,b.t,u"},
		{"REPLICATE_WILD_IGNORE_TABLE = ('a.w\\\\', 'a.x\\\\_y')", "a.x_y a.w\\"},
		{"REPLICATE_WILD_DO_TABLE = ('a.%,b.%')", "a.t a.t,u a.x_y a.xéy a.w\\ a.Logs b.t b.t,u a,b.t a,b.t,u"},
		{"REPLICATE_REWRITE_DB = ((`a,b`, b))", "a.t a.t,u a.x_y a.xéy a.w\\ a.Logs b.t b.t,u a,b.t a,b.t,u"},
		{"REPLICATE_REWRITE_DB = ((b, a))", "a.t a.t,u a.x_y a.xéy a.w\\ a.Logs b.t b.t,u"},
	} {
		t.Run(tt.rules, func(t *testing.T) {
			b.t = t
			b.under(c.Server("b"), tt.rules, func() { b.check(c.Server("b"), named(tt.want)...) })
		})
	}
	b.t = t
	b.check(c.Server("c"), filtered...)
	b.check(c.Server("d"), filtered...)
}

// named finds tables of filtered by schema.table.
func named(list string) (out [][2]string) {
	for _, n := range filtered {
		if slices.Contains(strings.Fields(list), n[0]+"."+n[1]) {
			out = append(out, n)
		}
	}
	return out
}

// TestFiltersFoldCase: with lower_case_table_names=1.
func TestFiltersFoldCase(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{Servers: 2, InitArgs: []string{"--lower-case-table-names=1"}})
	all := [][2]string{{"a", "t"}, {"a", "u"}, {"a", "é"}, {"b", "t"}, {"a", "e"}}
	b := newFilterBed(t, c, all)
	for _, tt := range []struct {
		rules string
		want  [][2]string
	}{
		{"REPLICATE_IGNORE_DB = (A)", [][2]string{all[0], all[1], all[2], all[4]}},
		{"REPLICATE_DO_DB = (B)", [][2]string{all[0], all[1], all[2], all[4]}},
		{"REPLICATE_IGNORE_TABLE = (A.T, A.É)", [][2]string{all[0], all[2]}},
		{"REPLICATE_DO_TABLE = (A.T)", all[1:]},
		{"REPLICATE_DO_TABLE = (A.É)", [][2]string{all[0], all[1], all[3], all[4]}},
		{"REPLICATE_WILD_IGNORE_TABLE = ('A.T%')", all[:1]},
		{"REPLICATE_WILD_IGNORE_TABLE = ('A.É')", all[2:3]},
		{"REPLICATE_WILD_IGNORE_TABLE = ('a._')", [][2]string{all[0], all[1], all[2], all[4]}},
		{"REPLICATE_WILD_DO_TABLE = ('A.%')", all[3:4]},
		{"REPLICATE_WILD_DO_TABLE = ('A.É')", [][2]string{all[0], all[1], all[3], all[4]}},
		{"REPLICATE_WILD_DO_TABLE = ('A._')", all[3:4]},
		{"REPLICATE_REWRITE_DB = ((b, a))", all},
	} {
		t.Run(tt.rules, func(t *testing.T) {
			b.t = t
			b.under(c.Server("b"), tt.rules, func() { b.check(c.Server("b"), tt.want...) })
		})
	}
}

// TestFactsUnderSQLModes: PAD_CHAR_TO_FULL_LENGTH fills the performance schema's
// names with blanks, and ANSI_QUOTES and NO_BACKSLASH_ESCAPES read quotes otherwise.
func TestFactsUnderSQLModes(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{Servers: 2, Args: []string{
		"--sql-mode=PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,IGNORE_SPACE,HIGH_NOT_PRECEDENCE",
	}})
	ctx := testenvtest.Context(t, hang)
	s := c.Server("b")
	must(t, s.StopSQLThread(ctx))
	must(t, s.Exec(ctx, "CHANGE REPLICATION FILTER REPLICATE_IGNORE_TABLE = (app.t)"))
	must(t, s.StartSQLThread(ctx))
	got, role, err := binlog.Excluded(ctx, tidegateConfig(s), [][2]string{{"app", "t"}, {"app", "u"}})
	if want := [][2]string{{"app", "t"}}; err != nil || !slices.Equal(got, want) || role != event.RoleReplica {
		t.Errorf("excluded %q of a %v, %v; want %q", got, role, err, want)
	}
	// A replica that has never connected has no source_uuid.
	must(t, s.Exec(ctx, "STOP REPLICA; RESET REPLICA ALL; SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF"))
	if _, role, err := binlog.Excluded(ctx, tidegateConfig(s), nil); err != nil || role != event.RolePrimary {
		t.Errorf("role %v without a channel, %v", role, err)
	}
	must(t, s.Exec(ctx, "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=1, SOURCE_USER='nobody', SOURCE_AUTO_POSITION=1; START REPLICA"))
	if _, role, err := binlog.Excluded(ctx, tidegateConfig(s), nil); err != nil || role != event.RoleReplica {
		t.Errorf("role %v while its channel connects, %v", role, err)
	}
}

// TestChannelNamedLikeTheGroups: only two names are Group Replication's own.
func TestChannelNamedLikeTheGroups(t *testing.T) {
	s := servers.Primary()
	ctx := testenvtest.Context(t, hang)
	role := func() event.Role {
		t.Helper()
		_, role, err := binlog.Excluded(ctx, tidegateConfig(s), nil)
		must(t, err)
		return role
	}
	if got := role(); got != event.RolePrimary {
		t.Fatalf("role %v before", got)
	}
	const channel = " FOR CHANNEL 'group_replication_x'"
	must(t, s.Exec(ctx, "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=1, SOURCE_USER='nobody', SOURCE_AUTO_POSITION=1"+channel))
	t.Cleanup(func() {
		must(t, s.Exec(context.Background(), "STOP REPLICA"+channel+"; RESET REPLICA ALL"+channel))
	})
	must(t, s.Exec(ctx, "START REPLICA SQL_THREAD"+channel))
	if got := role(); got != event.RoleReplica {
		t.Errorf("role %v with a running channel", got)
	}
}
