package cdc

import (
	"bytes"
	"maps"
	"slices"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// position is a place in WRITES and what the next message must follow.
type position struct {
	seq    uint64
	header event.Header
	digest [16]byte
}

// follows tells whether m is the message after p, by the chain of rules §5.4.
func (p *position) follows(m *event.Message) bool {
	return m.Incarnation == p.header.Incarnation && m.Count == p.header.Count+1 && m.Prev == p.digest
}

// ledger is what WRITES says up to a position: what a writer reads from the
// tail, keeps while it writes, and puts into checkpoints. One goroutine owns it.
type ledger struct {
	at   position
	next uint64 // ordinal of the next item

	history    event.History
	delivered  *gtid.Builder // holes included
	holes      *gtid.Builder
	empty      *gtid.Builder // known to be empty on the primary
	lost       gtid.Set
	lostIDs    []event.Identity
	everLost   gtid.Set           // every GTID under which a transaction was lost
	lossAt     event.Version      // of the newest announcement
	announced  event.Announcement // Epoch 0: none in force
	timelines  []event.TimelineStart
	groups     []event.GroupColumn
	open       map[string]*event.OpenXA
	defs       map[key.Digest]key.DefVersion
	identities identityRing
	// Of a transaction whose last chunk has not come.
	chunk       gtid.GTID
	chunkScopes []key.Digest
}

func newLedger(window int) *ledger {
	return &ledger{
		next: 1, delivered: &gtid.Builder{}, holes: &gtid.Builder{}, empty: &gtid.Builder{},
		open: map[string]*event.OpenXA{}, defs: map[key.Digest]key.DefVersion{}, identities: newRing(window),
	}
}

// message takes a whole message in; its place becomes the ledger's.
func (l *ledger) message(m *event.Message, seq uint64) {
	l.at = position{seq: seq, header: m.Header, digest: m.Digest}
	l.next = m.First
	for _, it := range m.Items {
		l.item(it, event.MakeVersion(m.Timeline, l.next))
		l.next += ordinals(it)
	}
}

// ordinals is how many ordinals an item uses up: the last chunk or part does
// so for all of its item.
func ordinals(it event.Item) uint64 {
	switch v := it.(type) {
	case *event.Chunk:
		if v.Last == nil {
			return 0
		}
	case *event.Part:
		if v.Number+1 < v.Total {
			return 0
		}
	}
	return 1
}

func (l *ledger) item(it event.Item, at event.Version) {
	switch v := it.(type) {
	case *event.Transaction:
		l.transaction(v)
	case *event.Chunk:
		l.addChunk(v)
	case *event.Hole:
		l.hole(v)
	case *event.Announcement:
		l.announcement(v, at)
	case *event.Checkpoint:
		if v.History != l.history {
			l.reset(v)
		}
	case *event.Definitions:
		l.define(v.Defs)
	}
}

// addChunk keeps the scopes only for the one who needs them later: a prepared
// XA transaction is carried by checkpoints until its outcome.
func (l *ledger) addChunk(c *event.Chunk) {
	if c.Number == 0 {
		l.chunkScopes = nil
	}
	l.chunk = c.GTID
	l.chunkScopes = append(l.chunkScopes, c.Scopes...)
	if c.Last == nil {
		return
	}
	l.transaction(c.Last)
	if x := l.open[c.Last.XID]; x != nil && c.Last.Flags&event.XAPrepare != 0 {
		x.Scopes = slices.Concat(l.chunkScopes, x.Scopes)
	}
	l.chunkScopes = nil
}

func (l *ledger) transaction(t *event.Transaction) {
	l.chunk = gtid.GTID{}
	l.delivered.Add(t.GTID)
	l.identities.push(t.Identity(), t.ImmediateCommit)
	// Given again, or read after all: neither lost nor a hole any more.
	if !l.lost.IsEmpty() {
		l.lost = l.lost.Subtract(gtid.Of(t.GTID))
	}
	if len(l.lostIDs) > 0 && l.everLost.Contains(t.GTID) {
		l.lostIDs = without(l.lostIDs, t.Identity())
	}
	if !l.holes.IsEmpty() && l.holes.Contains(t.GTID) {
		l.holes.Remove(gtid.Of(t.GTID))
	}
	switch {
	case t.Flags&event.Empty != 0:
		l.empty.Add(t.GTID)
	case !l.empty.IsEmpty() && l.empty.Contains(t.GTID):
		l.empty.Remove(gtid.Of(t.GTID))
	}
	switch {
	case t.Flags&event.XAPrepare != 0:
		l.open[t.XID] = &event.OpenXA{XID: t.XID, GTID: t.GTID, Tables: t.Tables, Scopes: t.Scopes}
	case t.Flags&(event.XACommit|event.XARollback) != 0:
		delete(l.open, t.XID)
	}
	l.define(t.Defs)
}

// without returns ids less one that the primary has after all: a server that
// still had it is the primary now. The old slice may be in an announcement.
func without(ids []event.Identity, back event.Identity) []event.Identity {
	if i := slices.Index(ids, back); i >= 0 {
		return slices.Delete(slices.Clone(ids), i, i+1)
	}
	return ids
}

func (l *ledger) define(defs []event.DefRef) {
	for i := range defs {
		if l.defs[defs[i].Table] != defs[i].Version {
			l.defs[defs[i].Table] = defs[i].Version
		}
	}
}

func (l *ledger) hole(h *event.Hole) {
	l.chunk = gtid.GTID{}
	l.delivered.AddSet(h.GTIDs)
	l.holes.AddSet(h.GTIDs)
	l.empty.Remove(h.GTIDs)
	l.lost = l.lost.Subtract(h.GTIDs)
	// It may have ended a prepared transaction and prepared another one under the
	// same XID: what commits under an XID that is not open writes everything (rules
	// §3.1).
	clear(l.open)
	for i := range h.Headers {
		l.identities.push(h.Headers[i].Identity, 0)
		l.lostIDs = without(l.lostIDs, h.Headers[i].Identity)
		if h.Headers[i].Empty {
			l.empty.Add(h.Headers[i].GTID)
		}
	}
	if h.Anonymous {
		// Nothing that the primary says counts until the next announcement
		// (rules §6.2). Which one was in force is no longer told: what had been
		// delivered is, by which [plan] knows why.
		l.announced = event.Announcement{NewlyLost: l.everLost, Had: l.delivered.Set()}
	}
}

func (l *ledger) announcement(a *event.Announcement, at event.Version) {
	l.chunk = gtid.GTID{} // a half transaction is sent again
	l.announced = *a
	l.everLost = l.everLost.Union(a.NewlyLost).Union(a.Lost)
	l.announced.NewlyLost = l.everLost // as checkpoints have it
	l.lost, l.lostIDs = a.Lost, a.LostIDs
	l.timelines, l.groups = a.Timelines, a.Groups
	l.delivered.Remove(a.Lost)
	l.holes.Remove(a.Lost)
	l.empty.Remove(a.Lost)
	l.identities.forget(a.Lost)
	l.identities.mark = l.identities.n
	for xid, x := range l.open {
		if a.Lost.Contains(x.GTID) {
			delete(l.open, xid)
		}
	}
	l.lossAt = at
}

// reset starts the ledger from a checkpoint.
func (l *ledger) reset(c *event.Checkpoint) {
	l.chunk = gtid.GTID{}
	l.history = c.History
	l.delivered.Reset(c.Delivered)
	l.holes.Reset(c.Holes)
	l.empty.Reset(c.KnownEmpty)
	l.lost, l.lostIDs, l.lossAt = c.Lost, c.LostIDs, c.LossAt
	l.everLost = l.everLost.Union(c.EverLost())
	l.announced, l.timelines, l.groups = c.Announced, c.Timelines, c.Groups
	l.open = map[string]*event.OpenXA{}
	for i := range c.Open {
		l.open[c.Open[i].XID] = &c.Open[i]
	}
	l.defs = map[key.Digest]key.DefVersion{}
	l.define(c.Defs)
	l.identities = newRing(cap(l.identities.slots))
}

// checkpoint says everything that an index needs to start here.
func (l *ledger) checkpoint() *event.Checkpoint {
	c := &event.Checkpoint{
		History: l.history, Delivered: l.delivered.Set(), Holes: l.holes.Set(), Lost: l.lost, LostIDs: l.lostIDs, LossAt: l.lossAt,
		KnownEmpty: l.empty.Set(), Announced: l.announced, Timelines: l.timelines, Groups: l.groups,
	}
	for _, xid := range slices.Sorted(maps.Keys(l.open)) {
		c.Open = append(c.Open, *l.open[xid])
	}
	for table, version := range l.defs {
		c.Defs = append(c.Defs, event.DefRef{Table: table, Version: version})
	}
	slices.SortFunc(c.Defs, func(a, b event.DefRef) int { return bytes.Compare(a.Table[:], b.Table[:]) })
	return c
}
