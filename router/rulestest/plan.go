package rulestest

import "tidegate/binlog/gtid"

// begin reads the tail of the stream and decides what a writer for server x
// announces: what is lost, and whether the history goes on (rules §5.3, §10,
// §11.2).
func (w *world) begin(x int8, b byte) bool {
	s, t, p := &w.servers[x], &w.tailers[x], &w.writer
	if s.undrained {
		return false // lost is taken once its old channel is drained
	}
	*p = writer{on: true, server: x, run: s.run, epoch: t.epoch, groups: w.groupsOn, led: w.tail()}
	l := &p.led
	old := *l
	w.kv.timeline = max(w.kv.timeline, l.timeline) + 1
	w.kv.generation++
	l.timeline = w.kv.timeline

	has := s.executed | s.owned
	sameServer := l.announced.server != nothing && l.announced.uuid == s.uuid
	sameRun := sameServer && l.announced.epoch == t.epoch
	var newly set
	if !sameRun {
		newly = (l.delivered | w.previousE(l) | w.anywhere(s.uuid)) &^ has
	}
	gone, maybe, ended := w.compare(&old, s, sameServer && !sameRun)
	if gone&has|maybe != 0 {
		maybe |= w.undelivered(&old, s) // the stream may have had only a part of it
	}
	newly |= gone | maybe
	ended = ended || l.history == 0

	said := old // what the announcement says
	said.announced = announced{server: x, uuid: s.uuid, epoch: t.epoch, run: s.run}
	said.executed = s.executed
	said.lost = (l.lost | newly) &^ s.executed
	newly.each(func(g int8) {
		if id := old.ids[g]; id >= 0 && !maybe.has(g) {
			said.lostTxs |= one(id)
		}
	})
	said.everLost = l.everLost | newly | said.lost
	passed := l.delivered &^ said.lost
	if ended {
		w.kv.history = max(w.kv.history, l.history) + 1
		// What was given again is read again, so that the stream names it; and so is
		// what the old stream had not come to, of which a server may have an older one.
		said.history, passed = w.kv.history, s.executed&^((newly|w.undelivered(&old, s))&s.readable())
	}
	if said.groups = w.groupsOn; w.groupsOn && (ended || !old.groups) {
		said.before = passed
	}
	if ended {
		c := newLedger() // the first checkpoint of a history (rules §5.3)
		c.history, c.delivered, c.lost, c.lostTxs, c.everLost = said.history, passed, said.lost, said.lostTxs, said.everLost
		c.lossAt, c.groups, c.before = old.lossAt, said.groups, said.before
		c.empty = old.empty & passed &^ newly
		p.unsent = append(p.unsent, w.checkpointItem(&c))
	}
	p.unsent = append(p.unsent, item{kind: itemAnnouncement, ev: w.announcement(&said, newly), ledger: &said, newly: newly})
	if hole := s.purgedSet() &^ passed; hole != 0 && !ended {
		p.unsent = append(p.unsent, w.purgedItem(hole))
	}
	if !ended {
		p.unsent = append(p.unsent, item{kind: itemCheckpoint})
	}
	p.lookUp = true
	w.say("the writer of %s begins timeline %d: new history %v, newly lost %s", name(x), l.timeline, ended, newly.print("g"))
	if b&4 != 0 { // it takes its time
		return true
	}
	return w.publish(0, b|4)
}

// undelivered is what a server has executed or is committing, and the stream of an
// announced run has not come to.
func (w *world) undelivered(old *ledger, s *server) set {
	if old.announced.server == nothing {
		return 0
	}
	return (s.executed | s.owned) &^ old.delivered
}

// tail reads the stream from the oldest checkpoint that it still has; a ledger
// of history 0 when there is none.
func (w *world) tail() ledger {
	l := newLedger()
	s := &w.stream
	l.at, l.id = len(s.messages), s.lastID()
	if l.at > 0 {
		l.count = s.messages[l.at-1].ev.Count
	}
	at := s.checkpoints()
	if len(at) == 0 {
		return l
	}
	l.startAt(w, at[0])
	for i := at[0] + 1; i < len(s.messages); i++ {
		l.read(w, &s.messages[i])
	}
	return l
}

// previousE is what the announced primary owned or had executed by its newest
// state.
func (w *world) previousE(l *ledger) set {
	if l.announced.server == nothing {
		return 0
	}
	posted := w.states[l.announced.server]
	if len(posted) == 0 {
		return 0
	}
	last := &posted[len(posted)-1]
	if last.ev.Epoch != l.announced.epoch || last.ev.UUID != l.announced.uuid {
		return 0
	}
	return last.owned | last.executed
}

// anywhere is what all servers owned, had executed or had still to apply of one
// server's own, by their newest states.
func (w *world) anywhere(uuid gtid.UUID) (all set) {
	for x := range w.states {
		if posted := w.states[x]; len(posted) > 0 {
			last := &posted[len(posted)-1]
			all |= last.owned | last.executed | last.received
		}
	}
	var own set
	all.each(func(g int8) {
		if w.slots[g].UUID == uuid {
			own |= one(g)
		}
	})
	return own
}

// compare holds the stream's identities against the binlog's: what is gone, what
// may be for all that is known, and whether GTIDs were given again, which ends
// the history.
func (w *world) compare(l *ledger, s *server, restarted bool) (gone, maybe set, ended bool) {
	if restarted {
		if s.purged > s.endOf(l.announced.run) { // nothing can be proven
			if w.features.has(FeatureTailLost) {
				maybe = l.delivered&^l.holes&(s.executed|s.owned) | w.undelivered(l, s)&^s.readable()
			}
			return 0, maybe, true
		}
		// Holes were never read there; the one that it is committing again it has not.
		gone = (l.delivered&^l.holes | l.holes&s.owned&^s.executed) &^ s.previousGTIDs(len(s.binlog))
	}
	var differs set
	for _, e := range s.binlog[s.purged:] {
		if id := l.ids[e.slot]; id >= 0 && l.delivered.has(e.slot) && w.txs[id].commit != e.commit {
			differs |= one(e.slot)
		}
	}
	reused := gone&(s.executed|s.owned) | differs
	return gone | differs, 0, reused != 0
}

// defOn is the definition of the table as a server has it.
func (w *world) defOn(s *server) int8 {
	for n := range w.txs {
		if t := &w.txs[n]; t.ddl && !t.lost && s.visible.has(int8(n)) {
			return t.def
		}
	}
	return 0
}
