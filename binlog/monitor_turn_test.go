package binlog

import (
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// resumeAt lets the monitor go on from a state with 1-10 in base, before the
// stream's reader has begun.
func (r *rig) resumeAt(executed, unproven string, seen event.Version) {
	r.t.Helper()
	r.s.executed = mustSet(r.t, uuidA+":1-12")
	r.e = mustSet(r.t, uuidA+":1-20")
	r.ids.starts, r.ids.vouched, r.ids.forgets = 0, gtid.Set{}, true
	r.start(MonitorOptions{Resume: &event.ServerState{
		Server: "b", UUID: mustUUID(r.t, uuidB), Epoch: 1, DataSet: 7, History: 1, LossSeen: seen, Follow: FollowBinlog, Role: event.RoleReplica,
		Base: mustSet(r.t, uuidA+":1-10"), Executed: mustSet(r.t, executed), Unproven: mustSet(r.t, unproven), BinlogFile: "binlog.000001", BinlogPos: 10,
	}})
}

// The stream's reader begins, and brings 12, as the tail comes to 12 and before
// anybody was told. What was compared then would be taken back by the turn, and
// could not be compared again: the reader has forgotten it.
func TestMonitorComparesBehindTheTurn(t *testing.T) {
	scripted(t, func(r *rig) {
		r.resumeAt(uuidA+":1-11", "", 0)
		r.want("unproven at first", r.latest().Unproven.OneLine(), uuidA+":12")
		r.ids.ahead = func() {
			r.ids.starts, r.ids.vouched = 1, mustSet(t, uuidA+":1-11")
			r.ids.known[mustGTID(t, uuidA+":12")] = event.Known{State: event.Identified, OriginalCommit: 12, Tables: tables(1)}
		}
		r.show(uuidA+":12", 12, 1)
		r.settle()
		r.ids.do(func() {})
		r.settle()
		r.want("unproven", r.latest().Unproven.OneLine(), "")
		r.end()
	})
}

// The server has a 12 that was lost, and the stream another 12 before its oldest
// checkpoint; nothing tells them apart but that one was lost, and that is not known
// before the turn.
func TestMonitorKnowsOfLossesFirst(t *testing.T) {
	scripted(t, func(r *rig) {
		r.resumeAt(uuidA+":1-12", uuidA+":12", 99)
		r.ids.ahead = func() {
			r.ids.starts, r.ids.vouched, r.ids.loss = 1, mustSet(t, uuidA+":1-12"), 99
			r.ids.ever = mustSet(t, uuidA+":12")
			r.ids.known[mustGTID(t, uuidA+":12")] = event.Known{State: event.NoIdentity}
		}
		r.show(uuidA+":12", 1200, 1)
		r.settle()
		r.ids.do(func() {})
		r.settle()
		st := r.latest()
		r.want("unproven", st.Unproven.OneLine(), uuidA+":12")
		r.want("exclusions", len(st.Excluded), 1)
		r.end()
	})
}
