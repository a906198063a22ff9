package daemon_test

import (
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cmd/internal/daemon"
	"tidegate/router/serve"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestReplicaKilled: a replica that is gone is a no, and comes back by itself.
func TestReplicaKilled(t *testing.T) {
	w, p, l := newRunning(t)
	r := w.c.Replicas()[0]
	w.must(r.Kill())
	w.refused(askRouter(p.Router), r.Name(), "app.posts/1", "lease_expired", "")
	w.grows(l, 50)
	w.must(r.Start(w.ctx))
	w.everybody(l)
}

// TestReplicaRebuilt: a replica is wiped and comes back behind the same address
// with an older position, under its UUID, then under a new one.
func TestReplicaRebuilt(t *testing.T) {
	w := newWorld(t)
	p := w.start(everything, settings{})
	p.ready()
	l := p.load()
	r, backup := w.c.Replicas()[0], w.c.Replicas()[1]
	for _, newUUID := range []bool{false, true} {
		w.everybody(l)
		before := p.state(r).DataSet
		w.grows(l, 100) // the new binlog stays the shorter one
		w.must(backup.StopSQLThread(w.ctx))
		w.grows(l, 20)
		l.writeTo(nil)
		w.must(r.WipeAndRebuildFrom(w.ctx, backup, newUUID))
		l.writeTo(w.c.Primary())
		w.answers(l, r.Name())
		if after := p.state(r).DataSet; after == before {
			t.Errorf("new UUID %v: the data set is still %d", newUUID, before)
		}
		w.must(backup.StartSQLThread(w.ctx))
	}
	w.everybody(l)
}

// TestReceiverStopped: a replica whose receiver is stopped looks idle and
// healthy; what was written since turns its answers into no all the same.
func TestReceiverStopped(t *testing.T) {
	w, p, l := newRunning(t)
	r := w.c.Replicas()[0]
	w.must(r.StopIOThread(w.ctx))
	w.grows(l, 50)
	for _, k := range []string{"app.posts/1", "app.posts/2", "app.posts@author_id/1"} {
		w.refused(askRouter(p.Router), r.Name(), k, "key_behind", "")
	}
	w.answers(l, w.c.Primary().Name(), w.c.Replicas()[1].Name())
	w.must(r.StartIOThread(w.ctx))
	w.everybody(l)
}

// TestInjectedEmptyTransactions: a replica executed GTIDs without their data.
// It is tainted until the operator vouches for them.
func TestInjectedEmptyTransactions(t *testing.T) {
	w, p, l := newRunning(t)
	r := w.c.Replicas()[0]
	w.must(r.StopIOThread(w.ctx))
	w.grows(l, 10)
	l.writeTo(nil)
	missing := w.executed(w.c.Primary()).Subtract(w.executed(r))
	for source, iv := range missing.All() {
		for n := iv.First; n <= iv.Last; n++ {
			w.must(r.InjectEmpty(w.ctx, gtid.GTID{UUID: source.UUID, Tag: source.Tag, Seq: n}.String()))
		}
	}
	w.refused(askRouter(p.Router), r.Name(), "app.posts/1", "excluded", "tainted")
	w.must(r.StartIOThread(w.ctx))
	l.writeTo(w.c.Primary())
	w.answers(l, w.c.Replicas()[1].Name())

	// Every row has been written again by the time that both have the same.
	l.writeTo(nil)
	w.must(w.c.WaitInSync(w.ctx))
	w.sameRows(r)
	w.refused(askRouter(p.Router), r.Name(), "app.posts/1", "excluded", "tainted")
	l.writeTo(w.c.Primary())
	w.must(daemon.Accept(w.ctx, p.Conn, serve.Acceptance{Server: r.Name(), GTIDs: missing, Author: "test", Reason: "rows compared"}))
	w.everybody(l)
}

// sameRows writes on the primary what the replica may lack until both show the
// same.
func (w *world) sameRows(r *testenv.Server) {
	w.t.Helper()
	const rows = "SELECT GROUP_CONCAT(CONCAT(id, '=', v) ORDER BY id) FROM app.posts"
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		w.must(w.c.Primary().Exec(w.ctx, "UPDATE app.posts SET body=UUID()"))
		w.must(w.c.WaitInSync(w.ctx))
		want, err := w.c.Primary().QueryString(w.ctx, rows)
		w.must(err)
		got, err := r.QueryString(w.ctx, rows)
		w.must(err)
		return got == want, r.Name() + " has " + got + ", the primary " + want
	})
}

// TestRelaxedDurability: a replica that is killed while it may lose what it has
// committed is not trusted any more until the operator says so.
func TestRelaxedDurability(t *testing.T) {
	w := newWorld(t)
	r := w.c.Replicas()[0]
	w.must(r.Exec(w.ctx, "SET GLOBAL innodb_flush_log_at_trx_commit=0; SET GLOBAL sync_binlog=0"))
	p := w.start(everything, settings{})
	p.ready()
	l := p.load()
	w.everybody(l)
	// Nothing may really be missing, or accepting it would be a lie.
	l.writeTo(nil)
	w.must(w.c.WaitInSync(w.ctx))
	w.must(r.Exec(w.ctx, "FLUSH LOCAL ENGINE LOGS"))
	w.must(r.Kill())
	l.writeTo(w.c.Primary())
	w.must(r.Start(w.ctx)) // durable again, as it is configured
	w.refused(askRouter(p.Router), r.Name(), "app.posts/1", "epoch_changed", "")
	w.grows(l, 50)
	w.refused(askRouter(p.Router), r.Name(), "app.posts/1", "epoch_changed", "")
	w.must(daemon.Accept(w.ctx, p.Conn, serve.Acceptance{Server: r.Name(), Restart: true, Author: "test", Reason: "flushed before"}))
	w.everybody(l)
}

// TestGTIDModeRelaxed: while the primary's gtid_mode is not ON nobody promises
// anything, and after it is back answers return by themselves.
func TestGTIDModeRelaxed(t *testing.T) {
	w, p, l := newRunning(t)
	w.must(w.c.Primary().Exec(w.ctx, "SET GLOBAL gtid_mode=ON_PERMISSIVE"))
	t.Cleanup(func() {
		if err := w.c.Primary().Exec(testenvtest.Context(t, settle), "SET GLOBAL gtid_mode=ON"); err != nil {
			t.Error(err)
		}
	})
	for _, s := range w.c.Servers() {
		w.refused(askRouter(p.Router), s.Name(), "app.posts/1", "watermark_old", "gtid_mode is ON_PERMISSIVE")
	}
	w.grows(l, 20)
	w.must(w.c.Primary().Exec(w.ctx, "SET GLOBAL gtid_mode=ON"))
	w.everybody(l)
}
