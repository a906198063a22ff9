package index

import (
	"fmt"
	"strings"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// Reasons of the router's list that the index gives.
const (
	reasonExcluded     = "excluded"
	reasonCatchingUp   = "catching_up"
	reasonEpochChanged = "epoch_changed"
	reasonNoPrimary    = "no_primary"
)

// server is what the owner knows of one server.
type server struct {
	view serverView

	executed, owned gtid.Set
	proven          gtid.Set // Executed minus Unproven; of the announced primary Executed
	announced       bool     // it is the announced run of the primary
	tick            uint64   // newest tick of this router that its state names
	tickAt          int64
	whole           bool // proven is within D ∪ H
	mark            mark
	atEnd           bool // its prefix is as new as the stream
	fresh           *probe

	live bool
	twin string // another live server with its UUID

	distrust *distrust // nil: none

	// unexplained is what it executed and neither D, H, the announced primary
	// nor the server's own list of errant GTIDs accounts for (rules §2.3).
	unexplained gtid.Set
	// suspects is the same of what it owns, which is errant only when a counted
	// probe that began later does not show it either.
	suspects    gtid.Set
	suspectTick uint64
}

func (ix *Index) addServer(name string) int {
	names := make(map[string]int, len(ix.names)+1)
	for k, v := range ix.names {
		names[k] = v
	}
	i := len(ix.servers)
	names[name] = i
	ix.names = names
	ix.servers = append(ix.servers, &server{view: serverView{name: name}})
	return i
}

// State takes the newest state of a server. One of a lower epoch than the last
// is ignored. The index keeps s; nobody may modify it.
func (ix *Index) State(s *event.ServerState) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	i, ok := ix.names[s.Server]
	if !ok {
		i = ix.addServer(s.Server)
		ix.opt.Log.Info("a server that is not configured was heard of", "server", s.Server)
	}
	sv := ix.servers[i]
	if old := sv.view.state; old != nil && s.Epoch < old.Epoch {
		return nil
	}
	sv.view.state = s
	sv.tick, sv.tickAt = 0, 0
	if s.Alive { // losing the pinned connection ends the lease at once
		for k := range s.Ticks {
			if t := &s.Ticks[k]; t.Router == ix.opt.Router && t.Tick > sv.tick {
				sv.tick = t.Tick
			}
		}
		sv.tickAt = ix.ticks.at(sv.tick)
	}
	sv.view.leaseAt = sv.tickAt
	sv.executed, sv.owned = ix.share(s.Executed), s.Owned
	sv.setTables(s)
	ix.evaluate()
	counted := ix.count(i, s)
	ix.assess(sv, false)
	if counted {
		ix.advanceClocks()
		ix.explain()
	}
	ix.judge(sv)
	ix.publish()
	return nil
}

// setTables notes the tables on which the server may lack data or that it
// filters (rules §2.4).
func (sv *server) setTables(s *event.ServerState) {
	sv.view.tables = nil
	if len(s.Taints)+len(s.FilteredTables) == 0 {
		return
	}
	m := make(map[key.Digest]struct{}, len(s.Taints)+len(s.FilteredTables))
	for i := range s.Taints {
		if !s.Taints[i].All {
			m[s.Taints[i].Table] = struct{}{}
		}
	}
	for _, d := range s.FilteredTables {
		m[d] = struct{}{}
	}
	sv.view.tables = m
}

// announcedRun tells whether a state is of the run of the primary that WRITES
// has announced (rules §6.2).
func (ix *Index) announcedRun(s *event.ServerState) bool {
	a := ix.announced
	return a != nil && s.Server == a.Server && s.UUID == a.ServerUUID && s.Epoch == a.Epoch
}

// assess works out what a server's newest state proves. anew: D, H, lost or the
// versions changed otherwise than by growing.
func (ix *Index) assess(sv *server, anew bool) {
	s := sv.view.state
	if s == nil {
		return
	}
	announced := ix.announcedRun(s) && s.Alive && s.Role == event.RolePrimary
	proven := sv.executed
	if !announced {
		proven = sv.executed.Subtract(s.Unproven)
	}
	if announced != sv.announced || !proven.ContainsSet(sv.proven) {
		anew = true
	}
	sv.announced, sv.proven = announced, proven
	ix.confirm(sv)
	if anew {
		sv.mark, sv.fresh = mark{}, nil
	}
	ix.setPrefix(sv)
	ix.setFresh(sv)
	ix.setUnexplained(sv)
}

// confirm sets C(X): what is proven, as far as the stream has shown what it
// means (rules §2.2).
func (ix *Index) confirm(sv *server) {
	if sv.announced {
		sv.view.conf, sv.whole = sv.proven, true
		return
	}
	dh := ix.dh.Set()
	sv.view.conf = dh.Intersect(sv.proven)
	sv.whole = dh.ContainsSet(sv.proven)
}

func (ix *Index) setPrefix(sv *server) {
	sv.view.prefix, sv.atEnd = ix.ord.advance(&sv.mark, sv.proven)
	if sv.atEnd {
		sv.view.prefix = ix.max
	}
}

func (ix *Index) setFresh(sv *server) {
	sv.fresh = ix.clk.reach(sv.fresh, sv.view.conf, ix.lost)
	sv.view.freshAt = sv.fresh.sentAt()
}

// grown looks at every server again after D or H grew.
func (ix *Index) grown() {
	for _, sv := range ix.servers {
		if sv.view.state == nil {
			continue
		}
		if !sv.whole {
			ix.confirm(sv)
			ix.setFresh(sv)
		}
		if sv.atEnd {
			ix.setPrefix(sv)
		}
		if !sv.unexplained.IsEmpty() || !sv.suspects.IsEmpty() {
			ix.setUnexplained(sv)
			ix.judge(sv)
		}
	}
	ix.clk.mark = ix.clk.reach(ix.clk.mark, ix.dh.Set(), ix.lost)
}

// advanceClocks looks at W and all freshness after E or lost changed.
func (ix *Index) advanceClocks() {
	ix.clk.mark = ix.clk.reach(ix.clk.mark, ix.dh.Set(), ix.lost)
	for _, sv := range ix.servers {
		if sv.view.state != nil {
			ix.setFresh(sv)
		}
	}
}

// lossChanged forgets what was concluded with another set of lost GTIDs.
func (ix *Index) lossChanged() {
	ix.clk.mark = nil
	for _, sv := range ix.servers {
		sv.fresh = nil
		if sv.view.state != nil {
			ix.judge(sv)
		}
	}
}

// reassess works everything out anew.
func (ix *Index) reassess() {
	ix.clk.mark = nil
	ix.evaluate()
	for _, sv := range ix.servers {
		ix.assess(sv, true)
	}
	ix.clk.mark = ix.clk.reach(nil, ix.dh.Set(), ix.lost)
	for _, sv := range ix.servers {
		ix.judge(sv)
	}
}

// explain looks again at what was not accounted for.
func (ix *Index) explain() {
	for _, sv := range ix.servers {
		if !sv.unexplained.IsEmpty() || !sv.suspects.IsEmpty() {
			ix.setUnexplained(sv)
			ix.judge(sv)
		}
	}
}

// setUnexplained compares what a server executed and owns with everything that
// accounts for it (rules §2.3).
func (ix *Index) setUnexplained(sv *server) {
	if sv.announced { // what it has is what there is
		sv.unexplained, sv.suspects = gtid.Set{}, gtid.Set{}
		return
	}
	dh := ix.dh.Set()
	rest := func(s gtid.Set) gtid.Set {
		if dh.ContainsSet(s) {
			return gtid.Set{}
		}
		// Its own errant ones are in its taints and exclusions; lost ones exclude
		// it by themselves.
		return s.Subtract(dh).Subtract(ix.explained).Subtract(sv.view.state.Errant).Subtract(ix.lost)
	}
	sv.unexplained = rest(sv.executed)
	owned := rest(sv.owned)
	if sv.suspects = sv.suspects.Intersect(owned); sv.suspects.IsEmpty() {
		sv.suspects, sv.suspectTick = owned, ix.ticks.last
	}
}

// errant tells whether the server has GTIDs that nobody accounts for.
func (ix *Index) errant(sv *server) gtid.Set {
	if !sv.unexplained.IsEmpty() {
		return sv.unexplained
	}
	if p := ix.clk.newest; p != nil && p.tick > sv.suspectTick {
		return sv.suspects
	}
	return gtid.Set{}
}

// judge says what excludes a server apart from lease and role.
func (ix *Index) judge(sv *server) {
	sv.view.reason, sv.view.detail = ix.verdict(sv)
}

const shownIntervals = 8 // of a set in a detail

func (ix *Index) verdict(sv *server) (reason, detail string) {
	s := sv.view.state
	if s == nil {
		return "", ""
	}
	if d := sv.distrust; d != nil && s.Epoch <= d.epoch {
		return reasonEpochChanged, "a yes for it was contradicted: " + d.why
	}
	if sv.twin != "" {
		return reasonExcluded, "server " + sv.twin + " has the same server_uuid " + s.UUID.String()
	}
	if len(s.Excluded) > 0 {
		detail := strings.Join(s.Excluded, "; ")
		for _, e := range s.Excluded {
			if strings.HasPrefix(e, reasonEpochChanged) {
				return reasonEpochChanged, detail
			}
		}
		return reasonExcluded, detail
	}
	for i := range s.Taints {
		if t := &s.Taints[i]; t.All {
			return reasonExcluded, fmt.Sprintf("tainted as a whole since %s: %s", t.GTID, t.Reason)
		}
	}
	if ix.lost.Overlaps(sv.executed) || ix.lost.Overlaps(sv.owned) {
		held := ix.lost.Intersect(sv.executed.Union(sv.owned))
		return reasonExcluded, "it holds lost transactions: " + held.Limit(shownIntervals).OneLine()
	}
	if !sv.announced && s.Follow != followExecuted { // who compares nothing names no history
		if s.History != ix.history {
			return reasonCatchingUp, fmt.Sprintf("its state is of history %d, the stream is in %d", s.History, ix.history)
		}
		if s.LossSeen < ix.lossAt {
			return reasonCatchingUp, fmt.Sprintf("its tailer has not compared since the loss at version %d", ix.lossAt)
		}
	}
	if e := ix.errant(sv); !e.IsEmpty() {
		return reasonExcluded, "it has transactions that neither the stream nor the primary accounts for: " + e.Limit(shownIntervals).OneLine()
	}
	return "", ""
}

// followExecuted is the mode of a server whose binlog is not read.
const followExecuted = "executed"

func (sv *server) isLivePrimary() bool {
	return sv.live && sv.view.state.Role == event.RolePrimary
}

// evaluate works out which servers can be reached, which UUIDs are claimed
// twice, and who the primary is.
func (ix *Index) evaluate() {
	now := ix.opt.Clock()
	for _, sv := range ix.servers {
		s := sv.view.state
		sv.live = s != nil && s.Alive && sv.tickAt != 0 && now-sv.tickAt <= int64(ix.opt.Lease)
	}
	for i, sv := range ix.servers {
		twin := ""
		for k, o := range ix.servers {
			if k != i && sv.live && o.live && o.view.state.UUID == sv.view.state.UUID && !o.view.state.UUID.IsZero() {
				twin = o.view.name
			}
		}
		if twin != sv.twin {
			sv.twin = twin
			ix.judge(sv)
		}
	}
	ix.primary = ix.findPrimary()
}

// findPrimary says who the primary is, or why it is not known (rules §7).
func (ix *Index) findPrimary() primaryView {
	none := func(reason, detail string) primaryView { return primaryView{reason: reason, detail: detail} }
	a := ix.announced
	if a == nil {
		return none(reasonCatchingUp, "no primary is announced yet")
	}
	i, ok := ix.names[a.Server]
	if !ok || ix.servers[i].view.state == nil {
		return none(reasonNoPrimary, "the announced primary "+a.Server+" was not heard of")
	}
	for k, o := range ix.servers {
		if k != i && o.isLivePrimary() {
			if ix.servers[i].isLivePrimary() {
				return none(reasonNoPrimary, "both "+a.Server+" and "+o.view.name+" are primaries")
			}
			return none(reasonCatchingUp, "server "+o.view.name+" is a primary and not announced yet")
		}
	}
	switch s := ix.servers[i].view.state; {
	case !s.Alive:
		return none(reasonNoPrimary, "the announced primary "+a.Server+" is down: "+s.Down)
	case s.Role != event.RolePrimary:
		return none(reasonNoPrimary, "the announced primary "+a.Server+" is no primary any more")
	case !ix.announcedRun(s):
		return none(reasonCatchingUp, fmt.Sprintf("epoch %d of %s is not announced, epoch %d is", s.Epoch, a.Server, a.Epoch))
	}
	return primaryView{i: i, ok: true}
}
