package rulestest

import "tidegate/cdc/event"

// writer is the tailer of the primary that writes the stream: it reads the tail,
// announces the primary, and goes on with its binlog.
type writer struct {
	on     bool
	server int8
	run    int
	epoch  event.Epoch
	groups bool
	led    ledger
	unsent []item
	// A look-up of the definition is due once lookAfter is executed; it counts
	// once the tail has passed lookedUp (rules §4.4).
	lookUp, looked      bool
	lookAfter, lookedUp set
	def                 int8
}

// publish is one step of the writer.
func (w *world) publish(a, b byte) bool {
	x := w.primary()
	if x < 0 || !w.servers[x].up {
		return false
	}
	s, t, p := &w.servers[x], &w.tailers[x], &w.writer
	if t.run != s.run {
		return false // nobody has met this run yet
	}
	if !p.on || p.server != x || p.run != s.run || p.epoch != t.epoch || p.groups != w.groupsOn {
		return w.begin(x, b)
	}
	if len(p.unsent) > 0 {
		it := p.unsent[0]
		p.unsent = p.unsent[1:]
		if it.kind == itemCheckpoint && it.ledger == nil { // what it says is known only now
			it = w.checkpointItem(&p.led)
		}
		return w.sent(it)
	}
	// What the stream has beyond executed may be a DDL that no look-up shows yet.
	if p.lookUp && !p.looked && (p.lookAfter | p.led.delivered).within(s.executed) {
		p.looked, p.lookedUp, p.def = true, s.executed, w.defOn(s)
		w.defsPosted = append(w.defsPosted, p.def)
		return true
	}
	if p.lookUp && p.looked && p.lookedUp.within(p.led.delivered) {
		p.lookUp = false
		if w.defsPosted[len(w.defsPosted)-1] != p.def {
			w.defsPosted = append(w.defsPosted, p.def)
		}
		ev := &event.Definitions{Defs: []event.DefRef{{Table: w.v.any, Version: w.v.defs[p.def].Version}}}
		return w.sent(item{kind: itemDefinitions, ev: ev, def: p.def})
	}
	return w.publishNext(s, a, b)
}

// look is what a writer does on every reconnect: it compares the stream's end
// with its own (rules §5.4).
func (w *world) look() bool {
	l := &w.writer.led
	if !w.writer.on || w.stream.lastID() == l.id && len(w.stream.messages) == l.at {
		return false
	}
	w.writer.on = false
	w.say("the writer finds that the stream stepped back")
	return true
}

// sent sends items; a writer that was fenced, or under which the stream stepped
// back, begins again.
func (w *world) sent(items ...item) bool {
	p := &w.writer
	if !w.send(&p.led, items...) {
		p.on = false
		w.say("the writer finds another end of the stream than its own")
		return true
	}
	for i := range items {
		w.sayItem(&items[i])
	}
	return true
}

func (w *world) sayItem(it *item) {
	if !w.traced {
		return
	}
	l := &w.writer.led
	v := event.MakeVersion(l.timeline, l.next-1)
	switch it.kind {
	case itemTransaction:
		w.say("WRITES: t%d, version %d.%d", it.tx, v.Timeline(), v.Ordinal())
	case itemFirstChunk:
		w.say("WRITES: first chunk of t%d", it.tx)
	case itemLastChunk:
		w.say("WRITES: last chunk of t%d, version %d.%d", it.tx, v.Timeline(), v.Ordinal())
	case itemHole:
		w.say("WRITES: hole %s, header of t%d, version %d.%d", it.gtids.print("g"), it.tx, v.Timeline(), v.Ordinal())
	case itemAnnouncement:
		w.say("WRITES: primary %s epoch %d history %d, executed %s, lost %s, newly %s, version %d.%d", name(l.announced.server),
			l.announced.epoch, l.history, l.executed.print("g"), l.lost.print("g"), it.newly.print("g"), v.Timeline(), v.Ordinal())
	case itemCheckpoint:
		w.say("WRITES: checkpoint of history %d, delivered %s, version %d.%d", l.history, l.delivered.print("g"), v.Timeline(), v.Ordinal())
	case itemDefinitions:
		w.say("WRITES: definition %d", it.def)
	}
}

// publishNext sends what the binlog has next.
func (w *world) publishNext(s *server, a, b byte) bool {
	p := &w.writer
	l := &p.led
	var next []int8
	for i, e := range s.binlog {
		if l.delivered.has(e.slot) {
			if id := l.ids[e.slot]; id >= 0 && id != e.tx && i >= s.purged { // given again under its hands (rules §11.4)
				p.on = false
				return true
			}
			continue
		}
		if i < s.purged {
			p.lookUp, p.looked, p.lookAfter = true, false, one(e.slot)
			return w.sent(w.purgedItem(one(e.slot)))
		}
		if next = append(next, e.tx); len(next) == 2 {
			break
		}
	}
	if len(next) == 0 {
		return false
	}
	n := next[0]
	t := &w.txs[n]
	if w.features.has(FeatureHoles) && a > 225 && l.half == nothing {
		p.lookUp, p.looked, p.lookAfter = true, false, one(t.slot) // who knows what it changed
		// Who has what was lost under a GTID that nobody published, and reads of the
		// new one that it can't be read, can't tell: sync_binlog=1 is required.
		return w.sent(w.holeItem(n, b&2 != 0 || t.empty || w.features.has(FeatureTailLost)))
	}
	if t.big {
		first, last := w.chunks(n)
		if l.half != n {
			return w.sent(item{kind: itemFirstChunk, tx: n, ev: first})
		}
		return w.sent(item{kind: itemLastChunk, tx: n, ev: last})
	}
	if len(w.event(n).Defs) > 0 && w.defsPosted[len(w.defsPosted)-1] != t.def {
		w.defsPosted = append(w.defsPosted, t.def)
	}
	p.lookUp = p.lookUp && !t.ddl // the event tells more
	items := []item{{kind: itemTransaction, tx: n, ev: w.event(n)}}
	if len(next) > 1 && b&1 == 1 && !w.txs[next[1]].big && !w.txs[next[1]].ddl {
		items = append(items, item{kind: itemTransaction, tx: next[1], ev: w.event(next[1])})
	}
	return w.sent(items...)
}

// holeItem is a transaction that can't be read; its header may have been. A
// header tells whether it was empty.
func (w *world) holeItem(n int8, header bool) item {
	g := one(w.txs[n].slot)
	h := &event.Hole{GTIDs: w.gtids(g), Reason: "unreadable"}
	it := item{kind: itemHole, tx: nothing, gtids: g, ev: h}
	if header {
		it.tx = n
		h.Headers = []event.HoleHeader{{Identity: w.identity(n), Empty: w.txs[n].empty}}
	}
	return it
}

// purgedItem is what the primary's binlog has no more.
func (w *world) purgedItem(g set) item {
	return item{kind: itemHole, tx: nothing, gtids: g, ev: &event.Hole{GTIDs: w.gtids(g), Reason: "purged"}}
}

// checkpoint is one that comes by count or by time.
func (w *world) checkpoint() bool {
	p := &w.writer
	if !p.on || len(p.unsent) > 0 || p.led.half != nothing {
		return false // never between the chunks of a transaction
	}
	if n := len(w.stream.messages); n > w.stream.first && w.stream.messages[n-1].items[0].kind == itemCheckpoint {
		return false
	}
	return w.sent(w.checkpointItem(&p.led))
}
