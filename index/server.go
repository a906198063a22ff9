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

	shown shownHorizon

	// What it executed, and what it owns, that nobody accounts for (rules §2.3).
	executedAlone, ownedAlone accusation
	// foreign is what it had executed or owned when a later probe of the announced
	// primary had not. When a primary gives such a GTID, it may name another
	// transaction: only the comparison by the server's own tailer clears it (rules
	// §2.3), also where another primary has the GTID, for the stream brings it then.
	foreign gtid.Set
}

// accusation is GTIDs of a server that neither D, H, the announced primary nor
// the server's own list of errant ones accounts for.
type accusation struct {
	all gtid.Set
	// parts are disjoint, longest so first. Together they are all, and what the
	// primary accounts for only as long as it owns it.
	parts []accused
}

// accused is so since before tick was sent. A counted probe of a later tick that
// lacks it too shows that it is errant.
type accused struct {
	gtids gtid.Set
	tick  uint64
}

// maxAccused bounds the parts. What comes beyond makes the newest one newer.
const maxAccused = 16

func (a *accusation) set(alone, passing gtid.Set, now uint64) {
	parts, rest := a.parts[:0], alone
	for _, p := range a.parts {
		if p.gtids = p.gtids.Intersect(alone); !p.gtids.IsEmpty() {
			parts, rest = append(parts, p), rest.Subtract(p.gtids)
		}
	}
	if !rest.IsEmpty() {
		if n := len(parts); n > 0 && (parts[n-1].tick == now || n == maxAccused) {
			parts[n-1] = accused{parts[n-1].gtids.Union(rest), now}
		} else {
			parts = append(parts, accused{rest, now})
		}
	}
	a.all, a.parts = alone.Subtract(passing), parts
}

// proven returns what is shown to be errant.
func (a *accusation) proven(newest *probe) gtid.Set {
	var out gtid.Set
	for i := range a.parts {
		if p := &a.parts[i]; newest != nil && newest.tick > p.tick {
			out = out.Union(p.gtids.Subtract(newest.e))
		}
	}
	return out
}

func (sv *server) accused() bool {
	return len(sv.executedAlone.parts) > 0 || len(sv.ownedAlone.parts) > 0 || !sv.foreign.IsEmpty()
}

func (ix *Index) addServer(name string) int {
	names := make(map[string]int, len(ix.names)+1)
	for k, v := range ix.names {
		names[k] = v
	}
	i := len(ix.servers)
	names[name] = i
	ix.names = names
	// Nothing is within nothing: the zero value of shown is worked out already.
	ix.servers = append(ix.servers, &server{view: serverView{name: name, horizonShown: true}})
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
	if old := sv.view.state; rule(ruleEpochs) && old != nil && s.Epoch < old.Epoch {
		return nil
	}
	sv.view.state = s
	sv.tick, sv.tickAt = 0, 0
	if s.Alive || !rule(ruleConnection) { // losing the pinned connection ends the lease at once
		for k := range s.Ticks {
			if t := &s.Ticks[k]; (t.Router == ix.opt.Router || !rule(ruleTicks)) && t.Tick > sv.tick {
				sv.tick = t.Tick
			}
		}
		sv.tickAt = ix.ticks.at(sv.tick)
	}
	sv.view.leaseAt = sv.tickAt
	sv.executed, sv.owned = ix.share(s.Executed), s.Owned
	sv.setTables(s)
	ix.evaluate()
	ix.noteMode(s)
	if ix.announcedRun(s) && s.Alive && (s.Role != event.RolePrimary || !s.Writable) && rule(ruleReignSeen) {
		ix.reigned = true
	}
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
	if len(s.Taints)+len(s.FilteredTables) == 0 || !rule(ruleTaintTable) {
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
	announced := ix.announcedRun(s) && s.Alive && s.Role == event.RolePrimary && rule(rulePrimaryShown)
	proven := sv.executed
	if !announced && rule(ruleUnproven) {
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
	ix.accuse(sv)
}

// confirm sets C(X): what is proven, as far as the stream has shown what it
// means (rules §2.2).
func (ix *Index) confirm(sv *server) {
	if sv.announced || !rule(ruleConfirmedKnown) {
		sv.view.conf, sv.whole = sv.proven, true
		return
	}
	dh := ix.dh.Set()
	sv.view.conf = dh.Intersect(sv.proven)
	sv.whole = dh.ContainsSet(sv.proven)
}

// shownHorizon remembers from which sets view.horizonShown was worked out.
type shownHorizon struct{ h, lost, conf gtid.Set }

// setHorizon works out whether H is within C(X) or lost, when one of them is
// another set than the last time. Sets that share their parts compare quickly.
func (ix *Index) setHorizon(sv *server, h gtid.Set) {
	m := &sv.shown
	if m.conf.Equal(sv.view.conf) && m.h.Equal(h) && m.lost.Equal(ix.lost) {
		return
	}
	*m = shownHorizon{h, ix.lost, sv.view.conf}
	sv.view.horizonShown = within(h, sv.view.conf, ix.lost)
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
		if !sv.whole || sv.fresh == nil {
			ix.confirm(sv)
			ix.setFresh(sv)
		}
		if sv.atEnd {
			ix.setPrefix(sv)
		}
		if sv.accused() {
			ix.accuse(sv)
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
			ix.accuse(sv)
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
		if sv.accused() {
			ix.accuse(sv)
			ix.judge(sv)
		}
	}
}

// account notes what the announced primary is known to have.
func (ix *Index) account(explained, passing gtid.Set) {
	ix.explained, ix.passing, ix.firm = explained, passing, explained.Subtract(passing)
}

// accuse compares what a server executed and owns with everything that
// accounts for it (rules §2.3).
func (ix *Index) accuse(sv *server) {
	if sv.announced { // what it has is what there is
		sv.executedAlone, sv.ownedAlone, sv.foreign = accusation{}, accusation{}, gtid.Set{}
		return
	}
	if s := sv.view.state; !sv.foreign.IsEmpty() && (s.Alive && s.Role != event.RoleUnknown || !rule(ruleForeignKept)) {
		// What it does not apply at the moment it may, from its relay log; of which a
		// state that has not seen the server says nothing.
		has := sv.executed.Union(sv.owned).Union(s.Received)
		sv.foreign = sv.foreign.Intersect(has).Subtract(sv.proven)
	}
	dh := ix.dh.Set()
	rest := func(s gtid.Set) gtid.Set {
		if dh.ContainsSet(s) {
			return gtid.Set{}
		}
		// Its own errant ones are in its taints and exclusions, or accepted by the
		// operator; lost ones exclude it by themselves.
		return s.Subtract(dh).Subtract(ix.firm).Subtract(sv.view.state.Errant).Subtract(ix.lost)
	}
	sv.executedAlone.set(rest(sv.executed), ix.passing, ix.ticks.last)
	sv.ownedAlone.set(rest(sv.owned), ix.passing, ix.ticks.last)
}

// held is what of foreign excludes the server.
func (ix *Index) held(sv *server) gtid.Set {
	if sv.foreign.IsEmpty() || !rule(ruleForeign) {
		return gtid.Set{}
	}
	return sv.foreign.Subtract(sv.view.state.Errant).Subtract(ix.lost)
}

// errant returns what excludes the server because nobody accounts for it. While
// there is a primary, its next probe soon accounts for what is not errant: until
// then, ignorance is a no (P3). Without one only what is proven counts: replicas
// may well have applied what the stream lost with the primary, and `eventual` is
// all that is left of them.
func (ix *Index) errant(sv *server) gtid.Set {
	if rule(ruleErrant) {
		e := sv.executedAlone.all
		if !ix.primary.ok {
			e = sv.executedAlone.proven(ix.clk.newest)
		}
		if e = e.Union(ix.held(sv)); !e.IsEmpty() {
			return e
		}
	}
	if rule(ruleErrantOwned) {
		return sv.ownedAlone.proven(ix.clk.newest)
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
	if sv.twin != "" && rule(ruleTwin) {
		return reasonExcluded, "server " + sv.twin + " has the same server_uuid " + s.UUID.String()
	}
	if rule(ruleHoldsLost) && (ix.lost.Overlaps(sv.executed) || ix.lost.Overlaps(sv.owned)) {
		held := ix.lost.Intersect(sv.executed.Union(sv.owned))
		return reasonExcluded, "it holds lost transactions: " + held.Limit(shownIntervals).OneLine()
	}
	if len(s.Excluded) > 0 && rule(ruleTailerExcluded) {
		detail := strings.Join(s.Excluded, "; ")
		for _, e := range s.Excluded {
			if strings.HasPrefix(e, reasonEpochChanged) {
				return reasonEpochChanged, detail
			}
		}
		if len(s.Excluded) == 1 && strings.HasPrefix(detail, reasonCatchingUp) {
			return reasonCatchingUp, detail // its tailer has still to read
		}
		return reasonExcluded, detail
	}
	for i := range s.Taints {
		if t := &s.Taints[i]; t.All && rule(ruleTaintAll) {
			return reasonExcluded, fmt.Sprintf("tainted as a whole since %s: %s", t.GTID, t.Reason)
		}
	}
	if !sv.announced && s.Follow != followExecuted { // who compares nothing names no history
		if s.History != ix.history && rule(ruleHistory) {
			return reasonCatchingUp, fmt.Sprintf("its state is of history %d, the stream is in %d", s.History, ix.history)
		}
		if s.LossSeen < ix.lossAt && rule(ruleLossSeen) {
			return reasonCatchingUp, fmt.Sprintf("its tailer has not compared up to the announcement at version %d", ix.lossAt)
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
	was := ix.primary.ok
	ix.primary = ix.findPrimary()
	if ix.primary.ok != was {
		for _, sv := range ix.servers {
			if sv.accused() {
				ix.judge(sv)
			}
		}
	}
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
		if k != i && o.isLivePrimary() && rule(rulePrimaryAlone) {
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
	case !ix.announcedRun(s) && rule(rulePrimaryRun):
		return none(reasonCatchingUp, fmt.Sprintf("epoch %d of %s is not announced, epoch %d is", s.Epoch, a.Server, a.Epoch))
	}
	return primaryView{i: i, ok: true}
}
