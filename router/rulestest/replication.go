package rulestest

// receive takes the next transaction from the primary into a replica's relay
// log.
func (w *world) receive(x int) bool {
	s := &w.servers[x]
	p := w.primary()
	if p < 0 || !w.servers[p].up || !s.up || s.primary {
		return false
	}
	have := s.executed | s.owned
	for _, n := range s.relay {
		have |= one(w.txs[n].slot)
	}
	for i, e := range w.servers[p].binlog {
		if have.has(e.slot) {
			continue
		}
		if i < w.servers[p].purged {
			return false // replication stops with an error
		}
		s.relay = append(s.relay, e.tx)
		w.say("%s receives t%d", serverNames[x], e.tx)
		return true
	}
	return false
}

const appliers = 3

// received is what a replica has still to apply.
func (w *world) received(s *server) (all set) {
	for _, n := range s.relay {
		all |= one(w.txs[n].slot)
	}
	return all
}

// apply begins to apply a transaction of the relay log. Without commit order
// any that waits for no row may overtake.
func (w *world) apply(x int, b byte) bool {
	s := &w.servers[x]
	if !s.up || len(s.relay) == 0 || len(s.inFlight) >= appliers {
		return false
	}
	i := pick(len(s.relay), b)
	if s.ordered {
		i = 0
	}
	n := s.relay[i]
	t := &w.txs[n]
	if w.locked(s, t.changed()) || t.xa >= 0 && !s.executed.has(w.txs[t.xa].slot) {
		return false
	}
	for _, before := range s.relay[:i] {
		if w.txs[before].changed()&t.changed() != 0 || w.txs[before].ddl || t.ddl {
			return false
		}
	}
	for _, f := range s.inFlight { // a DDL waits for all before it, and all wait for it
		if t.ddl || w.txs[f.tx].ddl {
			return false
		}
	}
	s.relay = append(s.relay[:i:i], s.relay[i+1:]...)
	if (s.executed | s.owned).has(t.slot) {
		return true // skipped by GTID
	}
	s.owned |= one(t.slot)
	s.inFlight = append(s.inFlight, flight{tx: n, stage: stageOwned, applied: true})
	w.say("%s begins to apply t%d", serverNames[x], n)
	return true
}

// drain applies all that a server has.
func (w *world) drain(s *server) {
	w.recover(s, true)
	for len(s.relay) > 0 {
		n := s.relay[0]
		s.relay = s.relay[1:]
		if !s.executed.has(w.txs[n].slot) {
			w.finish(s, flight{tx: n, stage: stageOwned})
		}
	}
	s.owned = 0
}

// recover ends what was in flight: what is in the binlog is committed, the rest
// rolled back (all: committed as well).
func (w *world) recover(s *server, all bool) {
	var again []int8
	for _, f := range s.inFlight {
		if f.stage >= stageLogged || all {
			w.finish(s, f)
			continue
		}
		s.owned &^= one(w.txs[f.tx].slot)
		if f.applied {
			again = append(again, f.tx)
		} else {
			w.lose(f.tx)
		}
	}
	s.inFlight, s.relay = nil, append(again, s.relay...)
}

// lose notes that a transaction is no more.
func (w *world) lose(n int8) {
	if t := &w.txs[n]; !t.lost {
		t.lost, t.lostAt = true, w.now
		for i := range w.sessions {
			w.sessions[i].told &^= one(n)
		}
		for i := range w.asks {
			w.asks[i].told &^= one(n)
		}
		w.redefine()
		w.say("t%d is lost", n)
	}
}

// promote makes a server the primary: in order when the old one is up, else as
// a failover.
func (w *world) promote(x int, c byte) bool {
	s := &w.servers[x]
	p := w.primary()
	if !s.up || s.primary || s.followExecuted || s.dirty || s.relaxed || w.holdsOther(s) || w.holdsPassedDDL(s) {
		return false
	}
	undrained := false
	if p >= 0 && w.servers[p].up {
		o := &w.servers[p]
		if len(o.inFlight) > 0 || len(s.inFlight) > 0 || !o.executed.within(s.executed) {
			return false
		}
		o.primary, o.demotedAt = false, w.now
		w.drain(s) // the operator waits for it; a relay log of before may be left
		w.say("planned switch-over from %s to %s", name(p), serverNames[x])
	} else {
		undrained = w.features.has(FeatureUndrained) && c&1 == 1 && len(s.relay)+len(s.inFlight) > 0
		if !undrained {
			w.drain(s)
		}
		if p >= 0 {
			w.servers[p].primary, w.servers[p].demotedAt = false, w.now
		}
		w.say("failover from %s to %s, drained: %v", name(p), serverNames[x], !undrained)
	}
	s.undrained = undrained
	w.loseAbsent(s)
	s.primary = true
	for i := range w.servers {
		if i != x && !(w.features.has(FeatureKeepRelay) && c&2 != 0) {
			w.servers[i].relay = nil // CHANGE REPLICATION SOURCE TO drops it
		}
	}
	return true
}

// holdsOther tells whether a server holds a lost transaction under a GTID that
// was given to another since. Nobody promotes it: it is tainted as a whole, and a
// history that began since knows no identities to tell the two apart by.
func (w *world) holdsOther(s *server) bool {
	for n := range w.txs {
		t := &w.txs[n]
		if other := s.holds[t.slot]; !t.lost && !t.errant && s.executed.has(t.slot) && other != int8(n) {
			return true
		}
	}
	return false
}

// holdsPassedDDL tells whether a server has a DDL that was lost, and behind which
// others have written by the older definition. MySQL logs those anew by the
// definition that the server has; a transaction here has the one that it was made
// by.
func (w *world) holdsPassedDDL(s *server) bool {
	has := w.has(s)
	for n := range w.txs {
		t := &w.txs[n]
		if !t.ddl || !t.lost || has[t.slot] != int8(n) {
			continue
		}
		for _, later := range w.txs[n+1:] {
			if later.def != t.def {
				return true
			}
		}
	}
	return false
}

// has is what a server holds under each GTID, or will when it has applied all that
// it received.
func (w *world) has(s *server) [maxTransactions]int8 {
	var has [maxTransactions]int8
	copy(has[:], s.holds[:])
	for _, n := range s.relay {
		has[w.txs[n].slot] = n
	}
	for _, f := range s.inFlight {
		has[w.txs[f.tx].slot] = f.tx
	}
	return has
}

// loseAbsent notes as lost what a new primary has not, and will not have; what
// it has is not lost any more.
func (w *world) loseAbsent(s *server) {
	has := w.has(s)
	for n := range w.txs {
		switch t := &w.txs[n]; {
		case !t.lost && has[t.slot] != int8(n):
			w.lose(int8(n))
		case t.lost && !t.errant && has[t.slot] == int8(n):
			t.lost, t.revived = false, w.now
			w.say("t%d is there again", n)
		}
	}
	w.redefine()
}

// settleRelay ends the drain of a primary that was promoted too early. When
// everything that is due has happened, what it still has can not be applied (an XA
// COMMIT whose prepare a crash took): its applier has stopped, and people skip it.
func (w *world) settleRelay() {
	for i := range w.servers {
		s := &w.servers[i]
		if s.undrained && w.healing && s.up && len(s.inFlight) == 0 {
			for _, n := range s.relay {
				w.lose(n)
			}
			s.relay = nil
		}
		if s.undrained && len(s.relay) == 0 && len(s.inFlight) == 0 {
			s.undrained = false
		}
	}
}

// redefine works out which definition is in force: after a loss, an older one.
func (w *world) redefine() {
	w.def = 0
	for n := range w.txs {
		if t := &w.txs[n]; t.ddl && !t.lost {
			w.def = t.def
		}
	}
}
