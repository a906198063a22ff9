package binlog_test

import (
	"fmt"
	"testing"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestFirstSightOnRealServers: b has a transaction under the next GTID of the
// primary before anybody watches it; then the primary gives that GTID itself.
func TestFirstSightOnRealServers(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{})
	a, b := c.Primary(), c.Server("b")
	must(t, a.Exec(t.Context(), "CREATE TABLE app.first (id INT PRIMARY KEY)"))
	must(t, c.WaitInSync(testenvtest.Context(t, hang)))
	next := newestOf(t, a)
	next.Seq++
	must(t, b.Exec(t.Context(), fmt.Sprintf(
		"SET GLOBAL super_read_only = OFF; SET gtid_next = '%s'; INSERT INTO app.first VALUES (1); SET gtid_next = 'AUTOMATIC'; SET GLOBAL super_read_only = ON", next)))
	stream := startStream(t, a)
	w := watch(t, b, stream, func(o *binlog.MonitorOptions) { o.PrimaryE = primaryE(a) })
	st := w.wait("errant", func(st *event.ServerState) bool { return st.Errant.Contains(next) })
	if st.Base.Contains(next) || len(st.Taints) != 1 || st.Taints[0].Table != testHasher.Table("app", "first").AnyRow {
		t.Errorf("base %s, taints %+v; want the table that it wrote", st.Base.OneLine(), st.Taints)
	}
	must(t, a.Exec(t.Context(), "INSERT INTO app.first VALUES (2)"))
	if got := newestOf(t, a); got != next {
		t.Fatalf("the primary gave %s, not %s", got, next)
	}
	testenvtest.WaitUntil(t, hang, func() (bool, string) {
		return stream.Lookup(next).State == event.Identified, "the stream has not brought it"
	})
	st = w.wait("tainted as a whole", func(st *event.ServerState) bool {
		for _, x := range st.Taints {
			if x.All && x.GTID == next {
				return true
			}
		}
		return false
	})
	if !st.Unproven.Equal(gtid.Of(next)) {
		t.Errorf("unproven %s, want %s alone", st.Unproven.OneLine(), next)
	}
}
