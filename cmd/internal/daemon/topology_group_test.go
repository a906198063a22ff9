package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"tidegate/cdc/event"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// groupName is the UUID under which the group's transactions are numbered.
const groupName = "aaaaaaaa-1111-2222-3333-bbbbbbbbbbbb"

// newGroup gives the test a group of three in single-primary mode, with blocks
// of GTIDs so small that each change of the primary leaves a gap.
func newGroup(t *testing.T) *world {
	t.Helper()
	per, seeds := map[string]testenv.ServerOptions{}, []string(nil)
	for _, name := range []string{"a", "b", "c"} {
		port, err := testenv.ReservePort()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(port.Release)
		seeds = append(seeds, port.Addr())
		per[name] = testenv.ServerOptions{Args: []string{"--loose-group-replication-local-address=" + port.Addr()}}
	}
	c := testenvtest.Cluster(t, testenv.Options{
		Independent: true, PerServer: per,
		Args: []string{
			"--plugin-load-add=group_replication.so",
			"--loose-group-replication-group-name=" + groupName,
			"--loose-group-replication-group-seeds=" + strings.Join(seeds, ","),
			"--loose-group-replication-start-on-boot=OFF",
			"--loose-group-replication-recovery-get-public-key=ON",
			"--loose-group-replication-gtid-assignment-block-size=7",
			"--loose-group-replication-member-expel-timeout=20",
		},
	})
	w := newWorldFor(t, c)
	w.must(c.Server("a").Exec(w.ctx, "SET GLOBAL group_replication_bootstrap_group=ON"))
	w.join(c.Server("a"))
	w.must(c.Server("a").Exec(w.ctx, "SET GLOBAL group_replication_bootstrap_group=OFF"))
	for _, s := range c.Replicas() {
		w.join(s)
	}
	w.makeTable()
	return w
}

// join makes the server a member and waits until it is one.
func (w *world) join(s *testenv.Server) {
	w.t.Helper()
	w.must(s.Exec(w.ctx, fmt.Sprintf("START GROUP_REPLICATION USER='%s', PASSWORD='%s'", testenv.ReplicationUser, testenv.ReplicationPassword)))
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		state, err := s.QueryString(w.ctx, "SELECT MEMBER_STATE FROM performance_schema.replication_group_members WHERE MEMBER_ID=@@server_uuid")
		w.must(err)
		return state == "ONLINE", s.Name() + " is " + state
	})
}

// groupPrimary waits until one of the servers is the group's primary and takes
// writes.
func (w *world) groupPrimary(among ...*testenv.Server) *testenv.Server {
	w.t.Helper()
	var found *testenv.Server
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		var seen []string
		for _, s := range among {
			v, err := s.QueryString(w.ctx, "SELECT CONCAT(MEMBER_ROLE, ' ', MEMBER_STATE, ' ', @@super_read_only) FROM performance_schema.replication_group_members WHERE MEMBER_ID=@@server_uuid")
			w.must(err)
			if v == "PRIMARY ONLINE 0" {
				found = s
				return true, ""
			}
			seen = append(seen, s.Name()+": "+v)
		}
		return false, strings.Join(seen, ", ")
	})
	return found
}

// role waits until the newest known role of a server is the one wanted.
func (w *world) role(p *program, s *testenv.Server, want event.Role) {
	w.t.Helper()
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		st := p.state(s)
		return st.Alive && st.Role == want, fmt.Sprintf("%s: role %d, alive %t %s", s.Name(), st.Role, st.Alive, st.Down)
	})
}

// TestGroupReplication: roles, confirmation and gaps in the GTIDs of a group,
// a primary killed under load, a member outside of the group, and a group with
// more than one primary.
func TestGroupReplication(t *testing.T) {
	w := newGroup(t)
	a, b, c := w.c.Server("a"), w.c.Server("b"), w.c.Server("c")
	p := w.start(everything, settings{})
	p.ready()
	w.role(p, a, event.RolePrimary)
	w.role(p, b, event.RoleReplica)
	w.role(p, c, event.RoleReplica)
	l := p.load()
	w.everybody(l)
	if f := strings.Join(w.findings(b), "\n"); !strings.Contains(f, "member of a replication group") {
		t.Errorf("check says %s", f)
	}

	// What a group has acknowledged is on most members: nothing is lost.
	w.must(a.Kill())
	next := w.groupPrimary(b, c)
	l.writeTo(next)
	w.grows(l, 50)
	w.answers(l, b.Name(), c.Name())
	if lost := p.Router.Index().Snapshot().Lost(); !lost.IsEmpty() {
		t.Errorf("nothing was lost, and it says %s", lost.OneLine())
	}

	// Back, and not yet in the group, it is one more primary.
	w.must(a.Start(w.ctx))
	w.refused(askRouter(p.Router), b.Name(), "app.posts/1", "no_primary", "")
	w.must(a.SetReadOnly(w.ctx, true))
	w.join(a)
	w.everybody(l)
	w.role(p, a, event.RoleReplica)

	// More than one primary.
	l.writeTo(nil)
	w.must(next.Exec(w.ctx, "SELECT group_replication_switch_to_multi_primary_mode()"))
	for _, s := range w.c.Servers() {
		w.role(p, s, event.RolePrimary)
		w.refused(askRouter(p.Router), s.Name(), "app.posts/1", "no_primary", "")
		// Each takes its own block of GTIDs.
		w.must(s.Exec(w.ctx, "INSERT INTO app.posts (id, author_id, v) VALUES (?, 100, 0)", 100+s.Port()))
	}
	t.Logf("executed %s", w.executed(next).OneLine())
	text, err := next.UUID(w.ctx)
	w.must(err)
	w.must(next.Exec(w.ctx, fmt.Sprintf("SELECT group_replication_switch_to_single_primary_mode('%s')", text)))
	l.writeTo(w.groupPrimary(next))
	w.everybody(l)
	for _, s := range w.c.Servers() {
		w.yes(p, s.Name(), fmt.Sprintf("app.posts/%d", 100+a.Port()))
	}
}
