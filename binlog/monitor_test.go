package binlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tidegate/cdc/event"
)

func TestMonitorProvesHints(t *testing.T) {
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{})
		defer r.end()
		st := r.latest()
		r.want("role", st.Role, event.RoleReplica)
		r.want("alive", st.Alive, true)
		r.want("epoch", st.Epoch, 1)
		r.want("base", st.Base.OneLine(), uuidA+":1-10")
		r.want("tail from", r.tails()[0].OneLine(), uuidA+":1-10")
		// The hint alone proves nothing.
		r.ids.say(t, uuidA+":11", 5, 1)
		r.show(uuidA+":11", 5, 1)
		r.settle()
		st = r.latest()
		r.want("executed", st.Executed.OneLine(), uuidA+":1-10")
		r.want("hinted", st.Hinted.OneLine(), uuidA+":11")
		// Executed without the stream's word stays unproven.
		r.show(uuidA+":12", 6, 1)
		r.s.execute(t, uuidA+":11-12")
		r.settle()
		st = r.latest()
		r.want("executed", st.Executed.OneLine(), uuidA+":1-12")
		r.want("unproven", st.Unproven.OneLine(), uuidA+":12")
		// News of the stream is enough, without a probe or a tick.
		r.ids.say(t, uuidA+":12", 6, 1)
		r.settle()
		r.want("unproven", r.latest().Unproven.OneLine(), "")
		if c := r.m.Counters(); c.Proofs != 1 || c.Compared != 2 || c.Pending != 0 {
			t.Errorf("counters %+v", c)
		}
		r.want("forgotten", r.ids.forgotten(), 2)
	})
}

func TestMonitorNamesTicksSeenBeforeTheProbe(t *testing.T) {
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{AliveInterval: time.Hour})
		defer r.end()
		r.mu.Lock()
		r.tick = 7
		r.mu.Unlock()
		n := r.count()
		r.m.Tick()
		r.settle()
		st := r.latest()
		if len(st.Ticks) != 1 || st.Ticks[0].Tick != 7 {
			t.Errorf("ticks %v", st.Ticks)
		}
		r.want("states for one tick on an idle server", r.count()-n, 1)
		r.settle()
		r.want("states without a tick", r.count()-n, 1)
	})
}

func TestMonitorKeepsTheEpochOfOneRun(t *testing.T) {
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{})
		defer r.end()
		r.s.do(func() { r.s.down = errors.New("connection reset by peer") })
		r.settle()
		st := r.latest()
		r.want("alive", st.Alive, false)
		r.want("why", st.Down, "connection reset by peer")
		r.s.do(func() { r.s.down = nil })
		r.settle()
		r.settle()
		st = r.latest()
		r.want("alive", st.Alive, true)
		r.want("epoch after a lost connection", st.Epoch, 1)
		r.s.do(func() {
			r.s.restartLocked()
			r.s.run.Files = append(r.s.run.Files, binlogFile{"binlog.000002", 200})
			r.s.ends["binlog.000001"] = "Stop"
		})
		r.settle()
		r.settle()
		st = r.latest()
		r.want("alive", st.Alive, true)
		r.want("epoch after a restart", st.Epoch, 2)
		r.want("data sets", r.m.Counters().DataSets, 1)
		r.want("excluded", len(st.Excluded), 0)
	})
}

func TestMonitorEndsTheLeaseBeforeItReconnects(t *testing.T) {
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{AliveInterval: 100 * time.Millisecond})
		defer r.end()
		n := r.count()
		r.s.do(func() { r.s.restartLocked() })
		r.settle()
		r.settle()
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.states) <= n || r.states[n].Alive || r.states[n].Epoch != 1 {
			t.Fatalf("the first state after the loss is %+v", r.states[n])
		}
	})
}

func TestMonitorRelaxedDurability(t *testing.T) {
	scripted(t, func(r *rig) {
		r.s.run.Relaxed, r.s.f.relaxed = true, true
		r.start(MonitorOptions{})
		r.want("excluded at first sight", len(r.latest().Excluded), 0)
		r.want("relaxed", r.latest().RelaxedDurable, true)
		r.s.do(func() { // kill -9: the file ends in the middle
			r.s.restartLocked()
			r.s.run.Files = append(r.s.run.Files, binlogFile{"binlog.000002", 200})
		})
		r.settle()
		r.settle()
		st := r.latest()
		if len(st.Excluded) != 1 || !IsRestartExclusion(st.Excluded[0]) {
			t.Fatalf("excluded %q", st.Excluded)
		}
		// It stays over a clean restart of mysqld and over one of the tailer.
		r.s.do(func() {
			r.s.restartLocked()
			r.s.run.Files = append(r.s.run.Files, binlogFile{"binlog.000003", 200})
			r.s.ends["binlog.000002"] = "Stop"
		})
		r.settle()
		r.settle()
		r.want("exclusions after a clean restart", len(r.latest().Excluded), 1)
		r.end()
		resume := r.latest()
		r.start(MonitorOptions{Resume: resume})
		r.want("exclusions after a restart of the tailer", len(r.latest().Excluded), 1)
		r.mu.Lock()
		r.accept = []Acceptance{{DataSet: resume.DataSet, Restart: true, Epoch: resume.Epoch}}
		r.mu.Unlock()
		r.settle()
		r.want("exclusions once accepted", len(r.latest().Excluded), 0)
		r.end()
	})
}

func TestMonitorResume(t *testing.T) {
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{})
		r.ids.say(t, uuidA+":11", 5, 1, 2)
		r.ids.say(t, uuidA+":12", 6, 1)
		r.show(uuidA+":11", 5, 1)
		r.s.execute(t, uuidA+":11-12") // 12 is executed, and no binlog shows it
		r.settle()
		r.end()
		st := r.latest()
		r.want("alive after the end", st.Alive, false)
		r.want("unproven", st.Unproven.OneLine(), uuidA+":12")
		r.want("taints", len(st.Taints), 1)
		r.s.execute(t, uuidA+":13")
		r.ids.do(func() { r.ids.vouched = mustSet(t, uuidA+":1-11") })
		r.start(MonitorOptions{Resume: st})
		again := r.latest()
		r.want("data set", again.DataSet, st.DataSet)
		r.want("base", again.Base.OneLine(), uuidA+":1-10")
		r.want("unproven", again.Unproven.OneLine(), uuidA+":12-13")
		r.want("taints", len(again.Taints), 1)
		r.want("tail from", r.tails()[len(r.tails())-1].OneLine(), uuidA+":1-11")
		r.want("epoch", again.Epoch, 2)
		r.end()
	})
}

// TestMonitorStartsAnew: what was compared with the stream before is worth
// nothing until the stream's reader has begun, and then only as far as the
// checkpoint vouches for it (rules §5.4); and none of it is forgotten meanwhile.
func TestMonitorStartsAnew(t *testing.T) {
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{})
		for n := int64(11); n <= 13; n++ {
			g := fmt.Sprintf("%s:%d", uuidA, n)
			r.ids.say(t, g, n, 1)
			r.show(g, n, 1)
		}
		r.s.execute(t, uuidA+":11-13")
		r.settle()
		r.end()
		st := r.latest()
		r.want("unproven", st.Unproven.OneLine(), "")

		r.ids.do(func() { r.ids.starts = 0 })
		r.start(MonitorOptions{Resume: st})
		st = r.latest()
		r.want("unproven before the stream is read", st.Unproven.OneLine(), "")
		if len(st.Excluded) != 1 || !strings.HasPrefix(st.Excluded[0], excludedUnread) {
			t.Errorf("excluded %q before the stream is read", st.Excluded)
		}
		r.ids.do(func() { r.ids.starts, r.ids.vouched = 1, mustSet(t, uuidA+":1-11") })
		r.settle()
		st = r.latest()
		r.want("excluded", st.Excluded, []string(nil))
		r.want("unproven once it is", st.Unproven.OneLine(), uuidA+":12-13")
		r.want("tail from", r.tails()[len(r.tails())-1].OneLine(), uuidA+":1-11")
		r.ids.say(t, uuidA+":13", 99, 1) // given again since
		r.show(uuidA+":12", 12, 1)
		r.show(uuidA+":13", 13, 1)
		r.settle()
		st = r.latest()
		r.want("unproven", st.Unproven.OneLine(), uuidA+":13")
		if len(st.Taints) != 1 || !st.Taints[0].All {
			t.Errorf("taints %v, want the server's as a whole", st.Taints)
		}

		// The stream steps back under the live monitor.
		r.ids.do(func() { r.ids.starts, r.ids.vouched = 2, mustSet(t, uuidA+":1-10") })
		r.settle()
		r.want("unproven after a step back", r.latest().Unproven.OneLine(), uuidA+":11-13")
		r.want("tail from", r.tails()[len(r.tails())-1].OneLine(), uuidA+":1-10")
		r.end()
	})
}

// TestMonitorPurged: what binlog files carried joins base once they are gone;
// what SET GLOBAL gtid_purged named, and what was lost once, does not (rules
// §1, §2.2).
func TestMonitorPurged(t *testing.T) {
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{})
		r.end()
		st := r.latest()
		r.s.do(func() {
			r.s.executed = mustSet(t, uuidA+":1-14")
			r.s.gone, r.s.setPurged = mustSet(t, uuidA+":1-13"), mustSet(t, uuidA+":12")
		})
		r.ids.do(func() {
			r.ids.loss, r.ids.ever, r.ids.vouched = 99, mustSet(t, uuidA+":13"), mustSet(t, uuidA+":1-14")
			r.ids.known[mustGTID(t, uuidA+":13")] = event.Known{State: event.NoIdentity}
		})
		r.start(MonitorOptions{Resume: st})
		st = r.latest()
		r.want("base", st.Base.OneLine(), uuidA+":1-11")
		r.want("unproven", st.Unproven.OneLine(), uuidA+":12-14")
		if len(st.Excluded) != 1 || !strings.Contains(st.Excluded[0], uuidA+":13") {
			t.Errorf("excluded %q, want 13 named", st.Excluded)
		}
		r.mu.Lock()
		r.accept = []Acceptance{{DataSet: st.DataSet, GTIDs: mustSet(t, uuidA+":13"), LossSeen: st.LossSeen}}
		r.mu.Unlock()
		r.settle()
		r.want("excluded once 13 is accepted", r.latest().Excluded, []string(nil))
		r.want("unproven once 13 is accepted", r.latest().Unproven.OneLine(), uuidA+":12:14")
		r.end()
	})
}

// TestMonitorLooksWhenItBecomesWritable: a promotion is not noticed only at the next
// look at channels.
func TestMonitorLooksWhenItBecomesWritable(t *testing.T) {
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{FactsInterval: time.Hour})
		defer r.end()
		r.want("role", r.latest().Role, event.RoleReplica)
		r.s.do(func() { r.s.readOnly, r.s.f.channels = false, nil })
		r.settle()
		r.want("role once it is writable", r.latest().Role, event.RolePrimary)
	})
}

func TestMonitorNewDataSet(t *testing.T) {
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{})
		defer r.end()
		r.ids.say(t, uuidA+":11", 5, 1, 2)
		r.show(uuidA+":11", 5, 1)
		r.s.execute(t, uuidA+":11")
		r.settle()
		before := r.latest()
		r.want("taints", len(before.Taints), 1)
		// RESET and restore behind the same address, the connection held open.
		r.s.do(func() { r.s.executed = mustSet(t, uuidA+":1-8") })
		r.settle()
		r.settle()
		st := r.latest()
		if st.DataSet == before.DataSet || st.Epoch <= before.Epoch || len(st.Taints) != 0 {
			t.Errorf("got %+v", st)
		}
		r.want("base", st.Base.OneLine(), uuidA+":1-8")
	})
}

func TestMonitorErrant(t *testing.T) {
	scripted(t, func(r *rig) {
		r.e = mustSet(t, uuidA+":1-20")
		r.start(MonitorOptions{})
		defer r.end()
		r.show(uuidB+":1", 5, 7) // a local write
		r.show(uuidB+":2", 6)    // FLUSH
		r.show(uuidA+":11", 7, 1)
		r.s.execute(t, uuidA+":11,"+uuidB+":1-2")
		r.settle()
		st := r.latest()
		r.want("errant", st.Errant.OneLine(), uuidB+":1-2")
		if len(st.Taints) != 1 || st.Taints[0].Table != table(7) {
			t.Errorf("taints %v", st.Taints)
		}
		// One that the binlog does not show taints everything, once the tail has
		// passed the end of the binlog.
		end := r.write()
		r.s.execute(t, uuidB+":3")
		r.settle()
		r.want("taints before the tail has passed", len(r.latest().Taints), 1)
		r.tail <- hint{nil, end}
		r.settle()
		st = r.latest()
		r.want("errant", st.Errant.OneLine(), uuidB+":1-3")
		if len(st.Taints) != 2 || !st.Taints[1].All {
			t.Errorf("taints %v", st.Taints)
		}
		r.mu.Lock()
		r.accept = []Acceptance{{DataSet: st.DataSet, GTIDs: mustSet(t, uuidB+":1-3")}}
		r.mu.Unlock()
		r.settle()
		st = r.latest()
		// A router excludes a server with what nothing accounts for.
		r.want("accounted for once accepted", st.Errant.OneLine(), uuidB+":1-3")
		r.want("taints once accepted", len(st.Taints), 0)
	})
}

func TestMonitorPromotion(t *testing.T) {
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{})
		defer r.end()
		r.s.do(func() { r.s.readOnly = false }) // writable while its channel runs
		r.settle()
		st := r.latest()
		r.want("role", st.Role, event.RoleReplica)
		r.want("writable", st.Writable, true)
		r.s.do(func() {
			r.s.f.channels[0] = channel{io: "OFF", sql: "OFF", received: mustSet(t, uuidA+":1-11")}
		})
		r.settle()
		st = r.latest()
		r.want("role", st.Role, event.RolePrimary)
		r.want("drained", st.Drained, false)
		r.s.do(func() { r.s.f.channels = nil })
		r.settle()
		st = r.latest()
		r.want("drained", st.Drained, true)
		// Its own transactions come from the tailer that writes the stream.
		if err := r.m.Transaction(t.Context(), &event.Transaction{GTID: mustGTID(t, uuidB+":1"), OriginalCommit: 3, Tables: tables(1)}, Position{}); err != nil {
			t.Fatal(err)
		}
		r.ids.say(t, uuidB+":1", 3, 1)
		r.s.execute(t, uuidB+":1")
		r.settle()
		r.want("unproven", r.latest().Unproven.OneLine(), "")
		tails := len(r.tails())
		r.s.do(func() {
			r.s.readOnly = true
			r.s.f.channels = []channel{{io: "ON", sql: "ON"}}
		})
		r.settle()
		r.want("role", r.latest().Role, event.RoleReplica)
		r.want("tails", len(r.tails()), tails+1)
		r.want("tail from", r.tails()[tails].OneLine(), uuidA+":1-10,"+uuidB+":1")
	})
}

func TestMonitorLosses(t *testing.T) {
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{})
		defer r.end()
		r.ids.say(t, uuidA+":11", 5, 1)
		r.show(uuidA+":11", 5, 1)
		r.s.execute(t, uuidA+":11")
		r.settle()
		tails := len(r.tails())
		r.ids.do(func() {
			r.ids.history, r.ids.loss, r.ids.ever = 2, 99, mustSet(t, uuidA+":10-11")
			r.ids.known[mustGTID(t, uuidA+":10")] = event.Known{State: event.IsLost}
			r.ids.known[mustGTID(t, uuidA+":11")] = event.Known{State: event.Identified, OriginalCommit: 50, Tables: tables(1)}
		})
		r.settle()
		st := r.latest()
		r.want("history", st.History, 2)
		r.want("loss seen", st.LossSeen, 99)
		r.want("unproven", st.Unproven.OneLine(), uuidA+":10-11")
		r.want("base", st.Base.OneLine(), uuidA+":1-9")
		r.want("tail from", r.tails()[len(r.tails())-1].OneLine(), uuidA+":1-9")
		r.want("tails", len(r.tails()), tails+1)
		r.show(uuidA+":11", 5, 1) // it still holds the old one
		r.settle()
		st = r.latest()
		r.want("unproven", st.Unproven.OneLine(), uuidA+":10-11")
		if len(st.Taints) != 1 || !st.Taints[0].All {
			t.Errorf("taints %v", st.Taints)
		}
	})
}

// TestMonitorReceivedLosses: rules §10. What a replica has received of what was
// lost it will show as soon as it applies it, before anybody has compared it.
func TestMonitorReceivedLosses(t *testing.T) {
	scripted(t, func(r *rig) {
		r.s.f.channels[0].received = mustSet(t, uuidA+":1-12")
		r.start(MonitorOptions{})
		defer r.end()
		r.settle()
		r.want("excluded", strings.Join(r.latest().Excluded, "; "), "")
		r.ids.do(func() {
			r.ids.loss, r.ids.ever = 99, mustSet(t, uuidA+":11-13")
			r.ids.known[mustGTID(t, uuidA+":11")] = event.Known{State: event.Identified, OriginalCommit: 5, Tables: tables(1)}
			r.ids.known[mustGTID(t, uuidA+":12")] = event.Known{State: event.Identified, OriginalCommit: 6, Tables: tables(1)}
		})
		r.settle()
		if got := strings.Join(r.latest().Excluded, "; "); !strings.HasPrefix(got, excludedUnread) || !strings.Contains(got, uuidA+":11-12,") {
			t.Errorf("excluded %q, want %s for 11 and 12, which it has to apply", got, excludedUnread)
		}
		r.show(uuidA+":11", 5, 1)
		r.show(uuidA+":12", 6, 1)
		r.s.execute(t, uuidA+":11-12")
		r.settle()
		r.want("excluded", strings.Join(r.latest().Excluded, "; "), "")
	})
}

func TestMonitorFollowExecuted(t *testing.T) {
	scripted(t, func(r *rig) {
		r.s.run.LogBin = false
		r.start(MonitorOptions{Server: ServerConfig{Follow: FollowExecuted}, AliveInterval: time.Hour})
		defer r.end()
		n, probes := r.count(), r.m.Counters().Probes
		r.s.execute(t, uuidA+":11")
		r.settle()
		r.want("states", r.count()-n, 1)
		r.want("executed", r.latest().Executed.OneLine(), uuidA+":1-11")
		r.want("unproven", r.latest().Unproven.OneLine(), "")
		r.want("tails", len(r.tails()), 0)
		if per := float64(r.m.Counters().Probes-probes) / 1.5; per > 60 {
			t.Errorf("%.0f probes a second on an idle server", per)
		}
		// A tagged GTID is found when the stream names it.
		r.s.execute(t, uuidA+":x:1")
		r.m.Hint(mustGTID(t, uuidA+":x:1"))
		r.settle()
		r.want("executed", r.latest().Executed.OneLine(), uuidA+":1-11:x:1")
	})
}

func TestMonitorSemiSyncStall(t *testing.T) {
	// A hinted transaction that is not executed for long is asked about seldom.
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{AliveInterval: time.Hour})
		defer r.end()
		r.show(uuidA+":11", 5, 1)
		r.settle()
		waits := r.waited()
		r.settle()
		if per := float64(r.waited()-waits) / 1.5; per > 60 || per < 5 {
			t.Errorf("%.0f waits a second", per)
		}
		r.ids.say(t, uuidA+":11", 5, 1)
		r.s.execute(t, uuidA+":11")
		r.settle()
		r.want("unproven", r.latest().Unproven.OneLine(), "")
		r.want("executed", r.latest().Executed.OneLine(), uuidA+":1-11")
	})
}

func TestMonitorPausesTheTail(t *testing.T) {
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{MaxPending: 2})
		defer r.end()
		for _, g := range []string{"11", "12", "13", "14"} {
			r.show(uuidA+":"+g, 5, 1)
		}
		r.settle()
		r.want("taken in", r.m.Counters().Pending, 2)
		r.want("left in the source", len(r.tail), 1) // and one in hand
		for _, g := range []string{"11", "12", "13", "14"} {
			r.ids.say(t, uuidA+":"+g, 5, 1)
		}
		r.settle()
		r.want("taken in", r.m.Counters().Pending, 0)
		r.want("compared", r.m.Counters().Compared, 4)
	})
}

func TestMonitorFilterRemovedTaints(t *testing.T) {
	scripted(t, func(r *rig) {
		r.s.own = []tableFact{{"app", "t", "InnoDB"}, {"app", "u", "InnoDB"}}
		r.s.f.filters = []replicationFilter{{kind: "REPLICATE_IGNORE_TABLE", rule: "app.t"}}
		r.start(MonitorOptions{TablesInterval: time.Hour})
		st := r.latest()
		r.want("filtered tables", len(st.FilteredTables), 1)
		r.want("filters", st.Filtered, "[replicate-ignore-table: app.t]")
		r.end()
		r.s.do(func() { r.s.f.filters = nil })
		r.start(MonitorOptions{TablesInterval: time.Hour, Resume: st})
		defer r.end()
		st = r.latest()
		r.want("filtered tables", len(st.FilteredTables), 0)
		if len(st.Taints) != 1 || st.Taints[0].Name != "app.t" {
			t.Errorf("taints %+v", st.Taints)
		}
	})
}

func TestMonitorForeignEngine(t *testing.T) {
	scripted(t, func(r *rig) {
		r.s.own = []tableFact{{"app", "t", "BLACKHOLE"}}
		def := event.TableDefinition{Engine: "InnoDB"}
		def.Schema, def.Table = "app", "t"
		defs := []event.TableDefinition{def}
		o := MonitorOptions{Definitions: func() []event.TableDefinition { r.mu.Lock(); defer r.mu.Unlock(); return defs }, TablesInterval: time.Second}
		r.start(o)
		st := r.latest()
		r.want("excluded tables", len(st.FilteredTables), 1)
		r.end()
		// After a restart the definitions are not there yet: still excluded.
		r.mu.Lock()
		defs = nil
		r.mu.Unlock()
		o.Resume = st
		r.start(o)
		defer r.end()
		r.want("excluded tables without definitions", len(r.latest().FilteredTables), 1)
		r.want("taints without definitions", len(r.latest().Taints), 0)
		// Mended: what it missed meanwhile nobody knows.
		r.mu.Lock()
		defs = []event.TableDefinition{def}
		r.mu.Unlock()
		r.s.do(func() { r.s.own = []tableFact{{"app", "t", "InnoDB"}} })
		r.settle()
		r.want("excluded tables when mended", len(r.latest().FilteredTables), 0)
		r.want("taints when mended", len(r.latest().Taints), 1)
	})
}

func TestMonitorRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*script)
	}{
		{"gtid_mode", func(s *script) { s.run.GTIDMode = "OFF" }},
		{"log_bin", func(s *script) { s.run.LogBin = false }},
		{"log_replica_updates", func(s *script) { s.run.LogUpdates = false }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			scripted(t, func(r *rig) {
				tt.change(r.s)
				r.start(MonitorOptions{})
				var refused *RefusedError
				if err := <-r.ended; !errors.As(err, &refused) || refused.Mend == "" {
					t.Errorf("Run: %v; want a refusal with what mends it", err)
				}
				r.stop()
			})
		})
	}
}

func TestMonitorGTIDModeRelaxedAtRunTime(t *testing.T) {
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{})
		defer r.end()
		r.s.do(func() { r.s.mode, r.s.run.GTIDMode = "OFF_PERMISSIVE", "OFF_PERMISSIVE" })
		r.settle()
		r.want("mode", r.latest().GTIDMode, "OFF_PERMISSIVE")
		r.s.do(func() { r.s.restartLocked() })
		r.settle()
		r.settle()
		// It was known before, so it is followed on and says why it is no use.
		r.want("alive", r.latest().Alive, true)
		r.want("mode", r.latest().GTIDMode, "OFF_PERMISSIVE")
	})
}

// TestMonitorRestartFile: rules §11.2: a run that was never announced may have
// given GTIDs again, so the comparison begins at the end of the announced one.
func TestMonitorRestartFile(t *testing.T) {
	scripted(t, func(r *rig) {
		r.epochs = 4
		r.start(MonitorOptions{})
		// Nothing is known of what was before: all there is is compared.
		if end, ok := r.m.RestartFile(5); !ok || end != (event.RunEnd{File: "binlog.000001"}) {
			t.Errorf("the first run began after %+v", end)
		}
		for n := 2; n <= 4; n++ { // runs 6, 7 and 8
			r.s.do(func() {
				r.s.restartLocked()
				r.s.run.Files = append(r.s.run.Files, binlogFile{fmt.Sprintf("binlog.%06d", n), 200})
			})
			r.settle()
			r.settle()
		}
		r.want("epoch", r.latest().Epoch, 8)
		file := func(announced event.Epoch) string {
			end, ok := r.m.RestartFile(announced)
			r.want("known", ok, end.File != "")
			return end.File
		}
		r.want("after run 4, of which nothing is known,", file(4), "binlog.000001")
		r.want("after run 5", file(5), "binlog.000001")
		// Though it began in that file: what the announced run had before is no
		// other data set's.
		if end, _ := r.m.RestartFile(5); end.Epoch != 5 {
			t.Errorf("after run 5 the comparison begins at %+v", end)
		}
		r.want("after run 6", file(6), "binlog.000002")
		r.want("after run 7", file(7), "binlog.000003")
		r.end()
		// A tailer that starts again knows the last state, which names all ends.
		r.start(MonitorOptions{Resume: r.latest()})
		r.want("epoch", r.latest().Epoch, 9)
		r.want("after run 8, resumed,", file(8), "binlog.000004")
		r.want("after run 7, resumed,", file(7), "binlog.000003")
		r.want("after run 4, resumed,", file(4), "binlog.000001")
		// Another binlog: its files tell nothing of the old one.
		r.s.do(func() {
			r.s.restartLocked()
			r.s.executed = mustSet(t, uuidA+":1-3")
		})
		r.settle()
		r.settle()
		r.want("after run 8, another data set", file(8), "binlog.000001")
		r.want("after run 9, another data set", file(9), "binlog.000001")
		r.end()
	})
}

// TestMonitorNeverHoldsUpTheWriter: comparison that stalls must not stop the
// stream: what is left out is read again by the tail of the later replica.
func TestMonitorNeverHoldsUpTheWriter(t *testing.T) {
	scripted(t, func(r *rig) {
		r.s.readOnly, r.s.f.channels = false, nil
		r.start(MonitorOptions{MaxPending: 2})
		defer r.end()
		r.want("role", r.latest().Role, event.RolePrimary)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for n := 1; n <= 4; n++ { // the stream says nothing of them
			tx := &event.Transaction{GTID: mustGTID(t, fmt.Sprintf("%s:%d", uuidB, n)), OriginalCommit: 3, Tables: tables(1)}
			if err := r.m.Transaction(ctx, tx, r.write()); err != nil {
				t.Fatalf("transaction %d: %v", n, err)
			}
		}
		r.want("pending", r.m.Counters().Pending, 2)
		r.s.execute(t, uuidB+":1-4")
		r.s.do(func() { r.s.readOnly, r.s.f.channels = true, []channel{{io: "ON", sql: "ON"}} })
		r.settle()
		r.want("tail from", r.tails()[len(r.tails())-1].OneLine(), uuidA+":1-10")
	})
}

// TestMonitorFirstSight: a replica has 10 before the primary gives it to another
// transaction (rules §2.2).
func TestMonitorFirstSight(t *testing.T) {
	for _, clone := range []bool{false, true} {
		t.Run(fmt.Sprintf("Clone%v", clone), func(t *testing.T) {
			scripted(t, func(r *rig) {
				r.e = mustSet(t, uuidA+":1-9")
				r.ids.vouched = mustSet(t, uuidA+":1-8")
				if clone {
					r.s.gone, r.s.setPurged = r.s.executed, r.s.executed
				}
				r.start(MonitorOptions{})
				defer r.end()
				if !clone {
					r.want("tail from", r.tails()[len(r.tails())-1].OneLine(), uuidA+":1-8")
					r.ids.say(t, uuidA+":9", 9, 1)
					r.show(uuidA+":9", 9, 1)
					r.show(uuidA+":10", 10, 1)
					r.settle()
				}
				st := r.latest()
				r.want("unproven", st.Unproven.OneLine(), uuidA+":10")
				r.want("errant", st.Errant.OneLine(), uuidA+":10")
				if len(st.Taints) != 1 || st.Taints[0].All != clone {
					t.Errorf("taints %v", st.Taints)
				}
				// The primary gives it, and the stream brings it.
				r.mu.Lock()
				r.e = mustSet(t, uuidA+":1-10")
				r.mu.Unlock()
				r.ids.say(t, uuidA+":10", 99, 1)
				r.settle()
				st = r.latest()
				r.want("unproven once it is given again", st.Unproven.OneLine(), uuidA+":10")
				if n := len(st.Taints); n != 1 || !st.Taints[0].All {
					t.Errorf("taints %v, want the server's as a whole", st.Taints)
				}
			})
		})
	}
}

// TestMonitorFirstSightWaits: a first start, with neither a stream nor a primary.
func TestMonitorFirstSightWaits(t *testing.T) {
	scripted(t, func(r *rig) {
		r.ids.starts, r.ids.vouched = 0, mustSet(t, "")
		r.e = mustSet(t, uuidA+":1-12")
		r.s.gone = mustSet(t, uuidA+":1-9")
		r.start(MonitorOptions{})
		st := r.latest()
		r.want("unproven before the stream is read", st.Unproven.OneLine(), uuidA+":1-10")
		r.want("errant", st.Errant.OneLine(), "")
		r.want("tail from", r.tails()[0].OneLine(), uuidA+":1-10")
		r.end()
		// The tailer starts again meanwhile.
		r.start(MonitorOptions{Resume: st})
		defer r.end()
		r.want("tail from", r.tails()[len(r.tails())-1].OneLine(), uuidA+":1-10")
		r.ids.do(func() { r.ids.starts, r.ids.vouched = 1, mustSet(t, uuidA+":1-5") })
		r.settle()
		st = r.latest()
		r.want("unproven once it is read", st.Unproven.OneLine(), uuidA+":10")
		r.want("base", st.Base.OneLine(), uuidA+":1-9")
		r.want("taints", len(st.Taints), 0)
		r.want("tail from", r.tails()[len(r.tails())-1].OneLine(), uuidA+":1-9")
	})
}
