package index

import (
	"slices"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// probe is one counted E (rules §6.2): what the announced primary owned or had
// executed when a probe that began after tick was sent looked at it.
type probe struct {
	n        uint64 // running number, so that a place in a thinned list is found again
	tick     uint64
	at       int64 // when the tick was sent
	e        gtid.Set
	executed gtid.Set
}

// ticks remembers when this router's newest ticks were sent.
type ticks struct {
	ring [maxTicks]struct {
		tick uint64
		at   int64
	}
	next int
	last uint64
}

const (
	// maxTicks is how many ticks are remembered. A state that names an older one
	// is as good as one that names none.
	maxTicks = 4096
	// maxProbes is how many E are kept for W and freshness. The newer half is
	// kept whole; of the older, those that others can stand for best are dropped,
	// so that their distances grow with their age.
	maxProbes = 128
)

func (t *ticks) sent(tick uint64, at int64) {
	t.ring[t.next].tick, t.ring[t.next].at = tick, at
	t.next = (t.next + 1) % maxTicks
	t.last = tick
}

// at returns when a tick was sent; 0: unknown or too old.
func (t *ticks) at(tick uint64) int64 {
	if tick == 0 {
		return 0
	}
	for i := range maxTicks { // newest first: nearly always the first or second
		s := &t.ring[(t.next+maxTicks-1-i)%maxTicks]
		if s.tick == tick {
			return s.at
		}
		if s.tick < tick {
			break
		}
	}
	return 0
}

// clock is what the index knows of the primary's commits over time.
type clock struct {
	probes []*probe
	count  uint64
	newest *probe // newest counted E, whatever its tick
	ofRun  bool   // newest is of the run that is announced now
	// executed is the executed part of the newest counted probe, which the next
	// one must contain.
	executed gtid.Set
	mark     *probe // W; nil: none
	// anonymous: an anonymous transaction was read, or the announced run was seen
	// with a gtid_mode that allows one. Nothing counts until the next announcement.
	anonymous bool
	// refused says why the newest state of a primary did not count; empty: it did.
	refused string
}

// within tells whether s is in c or lost.
func within(s, c, lost gtid.Set) bool {
	return c.ContainsSet(s) || !lost.IsEmpty() && c.Union(lost).ContainsSet(s)
}

// counts tells why E of a state of server i can't count; empty: it counts.
func (ix *Index) counts(i int, s *event.ServerState) string {
	switch {
	case !ix.announcedRun(s) && rule(ruleEAnnounced):
		return "this run of the primary is not announced"
	case !s.Alive:
		return "not alive"
	case !s.Writable && rule(ruleEWritable):
		return "not a writable primary"
	case !s.Drained && rule(ruleEDrained):
		return "its old channel is not drained"
	case s.GTIDMode != gtidModeOn && rule(ruleEMode):
		return "gtid_mode is " + s.GTIDMode
	case ix.clk.anonymous && rule(ruleAnonymous):
		return "an anonymous transaction was read, or gtid_mode allowed one; nothing counts until the next announcement"
	}
	for k, o := range ix.servers {
		if k != i && o.isLivePrimary() && rule(ruleEAlone) {
			return "server " + o.view.name + " is a primary as well"
		}
	}
	if rule(ruleEPrevious) && !within(ix.clk.executed, s.Owned.Union(s.Executed), ix.lost) {
		return "it lacks a part of the executed set of the probe before"
	}
	return ""
}

// noteMode notes that the announced run was seen with a gtid_mode in which what is
// written may have no GTID: E shows nothing of it, also when the mode is ON again
// (rules §6.2). A state that knows no mode tells nothing, nor does one from before
// the newest announcement, which STATE may bring after it: the writer announced
// because of it.
func (ix *Index) noteMode(s *event.ServerState) {
	if s.GTIDMode != "" && s.GTIDMode != gtidModeOn && ix.announcedRun(s) && s.LossSeen >= ix.lossAt && rule(ruleEMode) && rule(ruleModeKept) {
		ix.clk.anonymous = true
	}
}

// count takes E of the announced primary's newest state, if it counts. It
// reports whether anything that depends on E has to be looked at again.
func (ix *Index) count(i int, s *event.ServerState) bool {
	c := &ix.clk
	sv := ix.servers[i]
	if s.Role != event.RolePrimary {
		return false
	}
	if c.refused = ix.counts(i, s); c.refused != "" {
		ix.n.ProbesRefused++
		return false
	}
	if sv.tickAt == 0 {
		c.refused = "it names no tick of this router"
		return false
	}
	ix.n.ProbesCounted++
	// Sharing what has not changed with D ∪ H makes the comparisons cheap.
	p := &probe{n: c.count, tick: sv.tick, at: sv.tickAt, executed: ix.share(s.Executed)}
	p.e = p.executed
	if rule(ruleEOwned) {
		p.e = ix.share(p.executed.Union(s.Owned))
	}
	c.count++
	if c.ofRun && p.at-c.newest.at > int64(ix.opt.Lease) {
		ix.reigned = true // for so long another may have, unseen
	}
	c.executed, c.newest, c.ofRun = p.executed, p, true
	ix.account(p.e, p.e.Subtract(p.executed))
	for _, sv := range ix.servers {
		alone := sv.executedAlone.proven(p).Union(sv.ownedAlone.proven(p))
		if !alone.IsEmpty() && !sv.view.state.Grouped {
			sv.foreign = sv.foreign.Union(alone)
		}
	}
	ix.leave(p, s)
	if rule(ruleShownAgain) && ix.announced != nil {
		// What the primary has again is not lost any more; else a GTID that was
		// given anew would count as seen before the stream brings it (P2). One that
		// was owned alone, and given back by a rollback, is lost as before.
		if lost := ix.announced.Lost.Subtract(p.e).Subtract(ix.dh.Set()); !lost.Equal(ix.lost) {
			ix.lost = lost
			ix.lossChanged()
		}
	}
	// Of the probes that name one tick the first has the smallest E.
	if n := len(c.probes); n == 0 || c.probes[n-1].tick < p.tick {
		c.probes = append(c.probes, p)
		c.thin()
	}
	return true
}

// leave keeps what failovers left (see [Snapshot.FailoverLeft]): a primary that has
// transactions of other servers beyond that was a replica in between, for a time
// that no announcement told of. So was one that a state showed as no writable
// primary, of which nothing that the other acknowledged need be left.
func (ix *Index) leave(p *probe, s *event.ServerState) {
	if ix.reigned {
		ix.left, ix.reigned = p.executed, false
		return
	}
	if s.Grouped || !rule(ruleFailoverLeft) { // in a group all GTIDs are the group's
		return
	}
	for src := range p.executed.Subtract(ix.left).All() {
		if src.UUID != s.UUID {
			ix.left = p.executed
			return
		}
	}
}

// thin drops one of the older probes when there are too many.
func (c *clock) thin() {
	if len(c.probes) <= maxProbes {
		return
	}
	newest := c.probes[len(c.probes)-1].at
	drop, least := 1, 0.0
	for i := 1; i < maxProbes/2; i++ {
		gap := float64(c.probes[i+1].at - c.probes[i-1].at)
		if cost := gap / float64(newest-c.probes[i].at+1); i == 1 || cost < least {
			drop, least = i, cost
		}
	}
	c.probes = slices.Delete(c.probes, drop, drop+1)
}

// after returns the probes behind p; nil: all of them.
func (c *clock) after(p *probe) []*probe {
	if p == nil {
		return c.probes
	}
	i, ok := slices.BinarySearchFunc(c.probes, p.n, func(q *probe, n uint64) int {
		switch {
		case q.n < n:
			return -1
		case q.n > n:
			return 1
		}
		return 0
	})
	if ok {
		i++
	}
	return c.probes[i:]
}

// reach returns the newest probe at or behind from whose E is within set ∪ lost.
func (c *clock) reach(from *probe, set, lost gtid.Set) *probe {
	ps := c.after(from)
	if len(ps) == 0 {
		return from
	}
	if p := ps[len(ps)-1]; within(p.e, set, lost) {
		return p
	}
	for _, p := range ps {
		if !within(p.executed, set, lost) {
			break // later ones contain it
		}
		if within(p.e, set, lost) {
			from = p
		}
	}
	return from
}

// at is the time of a probe's tick; 0 for none.
func (p *probe) sentAt() int64 {
	if p == nil {
		return 0
	}
	return p.at
}

// share returns s with everything that equals a part of D ∪ H in the same
// memory as there.
func (ix *Index) share(s gtid.Set) gtid.Set {
	return ix.dh.Set().Intersect(s).Union(s)
}
