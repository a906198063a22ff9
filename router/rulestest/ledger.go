package rulestest

import (
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// What an item of the stream is.
type itemKind uint8

const (
	itemTransaction itemKind = iota
	itemFirstChunk
	itemLastChunk
	itemHole
	itemAnnouncement
	itemCheckpoint
	itemDefinitions
)

// item is an item of WRITES: the value that the index gets, and the same in the
// terms of this world, for the readers that are modelled.
type item struct {
	kind itemKind
	ev   event.Item

	tx     int8 // transactions and chunks; a hole's header, or nothing
	gtids  set  // of a hole
	ledger *ledger
	// Of an announcement.
	newly set
	def   int8
}

// ordinals is how many ordinals the item takes.
func (it *item) ordinals() uint64 {
	if it.kind == itemFirstChunk {
		return 0
	}
	return 1
}

// message is one message of WRITES. id and prev stand for its digest and that
// of the one before.
type message struct {
	ev    *event.Message
	items []item
	id    uint64
	prev  uint64
}

// run is a run of the primary that the stream announces.
type announced struct {
	server int8 // nothing: none is in force
	uuid   gtid.UUID
	epoch  event.Epoch
	run    int // of mysqld
}

// ledger is what the stream says up to a position, as the writer and each
// replica's tailer keep it.
type ledger struct {
	at       int    // position: so many messages were read
	id       uint64 // of the newest of them
	count    uint64
	next     uint64 // ordinal
	timeline uint32

	history   event.History
	delivered set // holes included
	holes     set
	empty     set // known to be empty on the primary
	lost      set
	everLost  set           // every GTID that ever named a lost transaction
	lostTxs   set           // the identities known of them
	lossAt    event.Version // of the newest announcement
	losses    []loss        // behind the checkpoint where it started
	known     event.Version // since when they are complete
	starts    int           // how often it started at a checkpoint
	vouched   set           // delivered at the newest start
	announced announced
	executed  set // of the announced primary, when it was announced
	groups    bool
	before    set // what had passed when the group column was announced
	open      set // prepared transactions
	def       int8
	ids       [maxTransactions]int8 // by GTID: the transaction that the stream or a header named
	half      int8                  // the transaction of which chunks were read
}

// loss is what an announcement lost.
type loss struct {
	at    event.Version
	gtids set
}

// lostSince is what was lost behind an announcement, all that ever was where
// that lies further back than what was read.
func (l *ledger) lostSince(at event.Version) set {
	if at < l.known {
		return l.everLost
	}
	var out set
	for _, x := range l.losses {
		if x.at > at {
			out |= x.gtids
		}
	}
	return out
}

func newLedger() ledger {
	l := ledger{next: 1, half: nothing, def: nothing, announced: announced{server: nothing}}
	for i := range l.ids {
		l.ids[i] = nothing
	}
	return l
}

// read takes in a message.
func (l *ledger) read(w *world, m *message) {
	l.at++
	l.id, l.count, l.next, l.timeline = m.id, m.ev.Count, m.ev.First, m.ev.Timeline
	for i := range m.items {
		l.item(w, &m.items[i], event.MakeVersion(m.ev.Timeline, l.next))
		l.next += m.items[i].ordinals()
	}
}

func (l *ledger) item(w *world, it *item, at event.Version) {
	if it.kind != itemFirstChunk && it.kind != itemLastChunk {
		l.half = nothing
	}
	switch it.kind {
	case itemFirstChunk:
		l.half = it.tx
	case itemTransaction, itemLastChunk:
		l.transaction(w, it.tx)
	case itemHole:
		l.hole(w, it)
	case itemAnnouncement:
		l.announcement(it, at)
	case itemCheckpoint:
		if it.ledger.history != l.history {
			l.restart(it.ledger)
		}
	case itemDefinitions:
		l.def = it.def
	}
}

func (l *ledger) transaction(w *world, n int8) {
	t := &w.txs[n]
	g := one(t.slot)
	l.half = nothing
	l.delivered |= g
	l.holes &^= g
	l.lost &^= g
	l.lostTxs &^= one(n) // a server that still had it is the primary now
	l.ids[t.slot] = n
	l.empty &^= g
	if t.empty {
		l.empty |= g
	}
	switch {
	case t.xa == xaPrepare:
		l.open |= one(n)
	case t.xa >= 0:
		l.open &^= one(t.xa)
	}
	if len(w.event(n).Defs) > 0 {
		l.def = t.def
	}
}

func (l *ledger) hole(w *world, it *item) {
	l.delivered |= it.gtids
	l.holes |= it.gtids
	l.empty &^= it.gtids
	l.lost &^= it.gtids
	l.open = 0 // what it hides may have ended one and prepared another under its XID
	it.gtids.each(func(g int8) { l.ids[g] = nothing })
	if it.tx != nothing {
		t := &w.txs[it.tx]
		l.ids[t.slot] = it.tx
		l.lostTxs &^= one(it.tx)
		if t.empty {
			l.empty |= one(t.slot)
		}
	}
}

func (l *ledger) announcement(it *item, at event.Version) {
	a := it.ledger // what the announcement says
	l.announced, l.executed = a.announced, a.executed
	l.lost, l.lostTxs = a.lost, a.lostTxs
	l.everLost |= a.everLost
	l.groups, l.before = a.groups, a.before
	l.delivered &^= a.lost
	l.holes &^= a.lost
	l.empty &^= a.lost
	a.lost.each(func(g int8) { l.ids[g] = nothing })
	l.lossAt = at
	if it.newly != 0 {
		l.losses = append(l.losses[:len(l.losses):len(l.losses)], loss{at, it.newly | a.lost})
	}
}

// restart begins at a checkpoint, which carries sets and no identities.
func (l *ledger) restart(c *ledger) {
	at, id, count, next, timeline, ever := l.at, l.id, l.count, l.next, l.timeline, l.everLost
	losses, known := l.losses, l.known
	if l.lossAt != c.lossAt { // not where it stood
		losses, known = nil, c.lossAt
	}
	starts := l.starts + 1
	*l = *c
	l.losses, l.known, l.starts, l.vouched = losses, known, starts, c.delivered
	l.at, l.id, l.count, l.next, l.timeline = at, id, count, next, timeline
	l.everLost |= ever
	l.half = nothing
	for i := range l.ids {
		l.ids[i] = nothing
	}
}

// identified is the GTIDs of which an identity is known.
func (l *ledger) identified() set {
	var out set
	for g, n := range l.ids {
		if n != nothing {
			out |= one(int8(g))
		}
	}
	return out
}

// startAt puts the ledger behind the checkpoint in message m.
func (l *ledger) startAt(w *world, at int) bool {
	m := &w.stream.messages[at]
	starts := l.starts
	*l = newLedger()
	l.starts = starts
	l.at, l.id, l.count, l.timeline = at+1, m.id, m.ev.Count, m.ev.Timeline
	l.next = m.ev.First + 1
	for i := range m.items {
		if m.items[i].kind == itemCheckpoint {
			l.restart(m.items[i].ledger)
			return true
		}
	}
	return false
}
