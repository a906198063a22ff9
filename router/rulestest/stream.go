package rulestest

import (
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// stream is WRITES.
type stream struct {
	messages []message
	first    int // older ones are discarded
	ids      uint64
}

func (s *stream) lastID() uint64 {
	if n := len(s.messages); n > 0 {
		return s.messages[n-1].id
	}
	return 0
}

// checkpoints lists where readers may start.
func (s *stream) checkpoints() []int {
	var at []int
	for i := s.first; i < len(s.messages); i++ {
		if its := s.messages[i].items; len(its) == 1 && its[0].kind == itemCheckpoint {
			at = append(at, i)
		}
	}
	return at
}

// send appends a message behind the ledger's position, unless somebody else
// wrote there meanwhile (rules §11.3).
func (w *world) send(l *ledger, items ...item) bool {
	s := &w.stream
	if s.lastID() != l.id || len(s.messages) != l.at {
		return false
	}
	s.ids++
	m := message{id: s.ids, prev: l.id, items: items}
	m.ev = &event.Message{
		Header: event.Header{
			Incarnation: [16]byte{1}, Count: l.count + 1, Prev: digestOf(l.id), Generation: w.kv.generation,
			Timeline: l.timeline, Fold: key.FoldVersion, SecretPrint: w.v.secret.Print(),
		},
		First: l.next, Digest: digestOf(s.ids),
	}
	for i := range items {
		m.ev.Items = append(m.ev.Items, items[i].ev)
	}
	s.messages = append(s.messages[:len(s.messages):len(s.messages)], m)
	l.read(w, &m)
	return true
}

// stepBack loses the stream's newest messages (a power cut under an ack that
// was no fsync).
func (w *world) stepBack(b byte) bool {
	n := len(w.stream.messages) - 1 - pick(3, b)
	if n < w.stream.first || n < 1 {
		return false
	}
	w.say("WRITES steps back from %d messages to %d", len(w.stream.messages), n)
	w.stream.messages = w.stream.messages[:n:n]
	for _, r := range w.routers {
		r.target = min(r.target, n)
	}
	return true
}

// discard is what retention does.
func (w *world) discard(b byte) bool {
	s := &w.stream
	n := s.first + 1 + pick(3, b)
	if n >= len(s.messages) || w.features.has(FeatureTailLost) {
		return false // identities of the newest transactions are kept (rules §11.2)
	}
	s.first = n
	w.say("WRITES discards its first %d messages", n)
	return true
}

// checkpointItem says all that a reader needs to start there.
func (w *world) checkpointItem(l *ledger) item {
	c := *l
	cp := &event.Checkpoint{
		History: l.history, Delivered: w.gtids(l.delivered), Holes: w.gtids(l.holes), Lost: w.gtids(l.lost),
		LostIDs: w.lostIDs(l.lostTxs), LossAt: l.lossAt, KnownEmpty: w.gtids(l.empty), Groups: w.groupColumns(l),
	}
	if l.announced.server != nothing {
		cp.Announced = *w.announcement(l, 0)
	}
	l.open.each(func(n int8) {
		e := w.event(n)
		cp.Open = append(cp.Open, event.OpenXA{XID: e.XID, GTID: e.GTID, Tables: e.Tables, Scopes: e.Scopes})
	})
	if l.def != nothing {
		cp.Defs = []event.DefRef{{Table: w.v.any, Version: w.v.defs[l.def].Version}}
	}
	return item{kind: itemCheckpoint, ev: cp, ledger: &c}
}

func (w *world) lostIDs(txs set) []event.Identity {
	var ids []event.Identity
	txs.each(func(n int8) { ids = append(ids, w.identity(n)) })
	return ids
}

func (w *world) groupColumns(l *ledger) []event.GroupColumn {
	if !l.groups {
		return nil
	}
	return []event.GroupColumn{{Schema: schemaName, Table: tableName, Column: columnName, Before: w.gtids(l.before)}}
}

func (w *world) announcement(l *ledger, newly set) *event.Announcement {
	return &event.Announcement{
		Server: serverNames[l.announced.server], ServerUUID: l.announced.uuid, Epoch: l.announced.epoch,
		History: l.history, Executed: w.gtids(l.executed), Lost: w.gtids(l.lost), LostIDs: w.lostIDs(l.lostTxs),
		NewlyLost: w.gtids(newly), Groups: w.groupColumns(l),
	}
}
