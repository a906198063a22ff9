package event

import (
	"encoding/binary"
	"slices"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
)

// Item kinds, the low bits of an item's first byte.
const (
	itemTransaction byte = iota + 1
	itemChunk
	itemHole
	itemAnnouncement
	itemCheckpoint
	itemDefinitions
	itemPart

	itemKindMask byte = 0x07
)

// What the other bits of a transaction's first byte say.
const (
	txNext  byte = 0x08 // same source as the GTID before it, next number
	txFlags byte = 0x10 // Flags follow
	txXID   byte = 0x20 // XID follows
	txMask       = itemKindMask | txNext | txFlags | txXID
)

// Lists of tables and of definitions repeat from transaction to transaction.
// Those of at most maxShared elements are numbered as they appear in a
// message and named by number from then on.
const maxShared = 16

// List references below firstList.
const (
	listEmpty uint64 = iota
	listInline
	firstList
)

// slots is the size of the encoder's memory of lists, a power of two. A list
// that fell out of it is sent again under a new number, so nothing depends on
// it but size.
const slots = 32

type memory[T comparable] struct {
	list [slots][]T
	ref  [slots]uint64
	next uint64
}

// find returns the number under which list was sent; 0 when it has to be sent
// inline, which numbers it if it is short.
func (m *memory[T]) find(list []T, hash byte) uint64 {
	i := hash & (slots - 1)
	if m.ref[i] != 0 && slices.Equal(m.list[i], list) {
		return m.ref[i]
	}
	if len(list) <= maxShared {
		m.list[i], m.ref[i] = list, m.next+firstList
		m.next++
	}
	return 0
}

// encoder appends items. What it remembers of earlier items of the message
// makes later ones small; the decoder remembers the same.
type encoder struct {
	b       []byte
	source  gtid.Source
	seq     int64
	sources [8]gtid.Source // by slot; known[i] 0: unused
	known   [8]uint64
	nsource uint64
	commit  int64
	tables  memory[key.Digest]
	defs    memory[DefRef]
}

// AppendBinary appends the wire form of m to dst and returns it. It does not
// modify m; Digest is not part of the form. GTIDs must be valid
// ([gtid.GTID.Validate]): the decoder refuses others.
func (m *Message) AppendBinary(dst []byte) []byte {
	txs := 0
	for _, it := range m.Items {
		if _, ok := it.(*Transaction); ok {
			txs++
		}
	}
	b := append(dst, Format, kindMessage)
	b = append(b, m.Incarnation[:]...)
	b = binary.LittleEndian.AppendUint64(b, m.Count)
	b = append(b, m.Prev[:]...)
	b = append(b, m.SecretPrint[:]...)
	b = binary.AppendUvarint(b, uint64(m.Generation))
	b = binary.AppendUvarint(b, uint64(m.Timeline))
	b = binary.AppendUvarint(b, uint64(m.Fold))
	b = binary.AppendUvarint(b, m.First)
	b = binary.AppendUvarint(b, uint64(len(m.Items)))
	b = binary.AppendUvarint(b, uint64(txs))
	e := encoder{b: b}
	for _, it := range m.Items {
		e.item(it)
	}
	return e.b
}

func (e *encoder) item(it Item) {
	switch v := it.(type) {
	case *Transaction:
		e.transaction(v)
	case *Chunk:
		e.b = append(e.b, itemChunk)
		e.chunk(v)
	case *Hole:
		e.b = append(e.b, itemHole)
		e.hole(v)
	case *Announcement:
		e.b = append(e.b, itemAnnouncement)
		e.announcement(v)
	case *Checkpoint:
		e.b = append(e.b, itemCheckpoint)
		e.checkpoint(v)
	case *Definitions:
		e.b = append(e.b, itemDefinitions)
		e.defList(v.Defs)
	case *Part:
		e.b = append(e.b, itemPart)
		e.part(v)
	}
}

func (e *encoder) transaction(t *Transaction) {
	lead := itemTransaction
	next := t.GTID.Seq == e.seq+1 && t.GTID.UUID == e.source.UUID && t.GTID.Tag == e.source.Tag && e.nsource > 0
	if next {
		lead |= txNext
		e.seq++
	}
	if t.Flags != 0 {
		lead |= txFlags
	}
	if t.XID != "" {
		lead |= txXID
	}
	e.b = append(e.b, lead)
	if !next {
		e.gtid(t.GTID)
	}
	b := appendZigzag(e.b, t.OriginalCommit-e.commit)
	e.commit = t.OriginalCommit
	b = appendZigzag(b, t.ImmediateCommit-t.OriginalCommit)
	b = binary.AppendUvarint(b, t.SizeBytes)
	if t.Flags != 0 {
		b = binary.AppendUvarint(b, uint64(t.Flags))
	}
	if t.XID != "" {
		b = appendText(b, t.XID)
	}
	e.b = b
	e.tableList(t.Tables)
	e.b = appendDigests(e.b, t.Scopes)
	e.defList(t.Defs)
}

// gtid writes a GTID by the number of its source within the message.
func (e *encoder) gtid(g gtid.GTID) {
	src := g.Source()
	i := (src.UUID[0] ^ src.UUID[15] ^ byte(len(src.Tag))) & byte(len(e.sources)-1)
	if e.known[i] != 0 && e.sources[i] == src {
		e.b = binary.AppendUvarint(e.b, e.known[i])
	} else {
		e.nsource++
		e.sources[i], e.known[i] = src, e.nsource
		e.b = append(append(e.b, 0), src.UUID[:]...)
		e.b = appendText(e.b, src.Tag)
	}
	e.b = binary.AppendUvarint(e.b, uint64(g.Seq))
	e.source, e.seq = src, g.Seq
}

func (e *encoder) tableList(list []key.Digest) {
	if len(list) == 0 {
		e.b = append(e.b, byte(listEmpty))
		return
	}
	if ref := e.tables.find(list, list[0][0]^byte(len(list))); ref != 0 {
		e.b = binary.AppendUvarint(e.b, ref)
		return
	}
	e.b = appendDigests(append(e.b, byte(listInline)), list)
}

func (e *encoder) defList(list []DefRef) {
	if len(list) == 0 {
		e.b = append(e.b, byte(listEmpty))
		return
	}
	if ref := e.defs.find(list, list[0].Table[0]^byte(len(list))); ref != 0 {
		e.b = binary.AppendUvarint(e.b, ref)
		return
	}
	e.b = append(e.b, byte(listInline))
	e.b = binary.AppendUvarint(e.b, uint64(len(list)))
	for i := range list {
		e.b = append(e.b, list[i].Table[:]...)
		e.b = binary.LittleEndian.AppendUint64(e.b, uint64(list[i].Version))
	}
}

func (e *encoder) chunk(c *Chunk) {
	e.gtid(c.GTID)
	e.b = binary.AppendUvarint(e.b, uint64(c.Number))
	e.b = appendDigests(e.b, c.Scopes)
	e.b = appendBool(e.b, c.Last != nil)
	if c.Last != nil {
		e.b = binary.AppendUvarint(e.b, uint64(c.Total))
		e.b = append(e.b, c.Digest[:]...)
		e.transaction(c.Last)
	}
}

func (e *encoder) part(p *Part) {
	e.b = append(e.b, p.Digest[:]...)
	e.b = binary.AppendUvarint(e.b, uint64(p.Number))
	e.b = binary.AppendUvarint(e.b, uint64(p.Total))
	e.b = binary.AppendUvarint(e.b, uint64(len(p.Bytes)))
	e.b = append(e.b, p.Bytes...)
}

func (e *encoder) hole(h *Hole) {
	e.b = h.GTIDs.AppendBinary(e.b)
	e.b = binary.AppendUvarint(e.b, uint64(len(h.Headers)))
	for i := range h.Headers {
		e.identity(h.Headers[i].Identity)
		e.b = appendBool(e.b, h.Headers[i].Empty)
	}
	e.b = appendBool(e.b, h.Anonymous)
	e.b = appendText(e.b, h.Reason)
}

func (e *encoder) identity(id Identity) {
	e.gtid(id.GTID)
	e.b = appendZigzag(e.b, id.OriginalCommit-e.commit)
	e.commit = id.OriginalCommit
}

func (e *encoder) identities(ids []Identity) {
	e.b = binary.AppendUvarint(e.b, uint64(len(ids)))
	for _, id := range ids {
		e.identity(id)
	}
}

func (e *encoder) announcement(a *Announcement) {
	e.b = appendText(e.b, a.Server)
	e.b = append(e.b, a.ServerUUID[:]...)
	e.b = binary.AppendUvarint(e.b, uint64(a.Epoch))
	e.b = binary.AppendUvarint(e.b, uint64(a.History))
	e.b = a.Executed.AppendBinary(e.b)
	e.b = a.Lost.AppendBinary(e.b)
	e.identities(a.LostIDs)
	e.b = a.NewlyLost.AppendBinary(e.b)
	e.timelines(a.Timelines)
	e.groups(a.Groups)
	e.b = appendBool(e.b, a.FoldNames)
	e.b = a.Had.AppendBinary(e.b)
}

func (e *encoder) timelines(list []TimelineStart) {
	e.b = binary.AppendUvarint(e.b, uint64(len(list)))
	for _, t := range list {
		e.b = binary.AppendUvarint(e.b, uint64(t.Number))
		e.b = binary.AppendUvarint(e.b, t.First)
	}
}

func (e *encoder) groups(list []GroupColumn) {
	e.b = binary.AppendUvarint(e.b, uint64(len(list)))
	for i := range list {
		e.b = appendText(e.b, list[i].Schema)
		e.b = appendText(e.b, list[i].Table)
		e.b = appendText(e.b, list[i].Column)
		e.b = list[i].Before.AppendBinary(e.b)
	}
}

func (e *encoder) checkpoint(c *Checkpoint) {
	e.b = binary.AppendUvarint(e.b, uint64(c.History))
	e.b = c.Delivered.AppendBinary(e.b)
	e.b = c.Holes.AppendBinary(e.b)
	e.b = c.Lost.AppendBinary(e.b)
	e.identities(c.LostIDs)
	e.b = binary.AppendUvarint(e.b, uint64(c.LossAt))
	e.b = c.KnownEmpty.AppendBinary(e.b)
	e.announcement(&c.Announced)
	e.timelines(c.Timelines)
	e.b = binary.AppendUvarint(e.b, uint64(len(c.Open)))
	for i := range c.Open {
		x := &c.Open[i]
		e.b = appendText(e.b, x.XID)
		e.gtid(x.GTID)
		e.tableList(x.Tables)
		e.b = appendDigests(e.b, x.Scopes)
	}
	e.defList(c.Defs)
	e.groups(c.Groups)
}

// SizeBound is an upper bound, in bytes, of what it adds to the wire form of a
// message. It is cheap and, for transactions, close.
func SizeBound(it Item) int {
	switch v := it.(type) {
	case *Transaction:
		return txBound + len(v.XID) + len(v.GTID.Tag) + digestBytes*(len(v.Tables)+len(v.Scopes)) + defBytes*len(v.Defs)
	case *Definitions:
		return txBound + defBytes*len(v.Defs)
	}
	// Rare items: their size is found by writing them.
	e := encoder{}
	e.item(it)
	return len(e.b)
}

const (
	digestBytes = len(key.Digest{})
	defBytes    = digestBytes + 8
	// txBound covers the fields of a transaction but its lists and texts: lead,
	// source, and twelve numbers.
	txBound = 1 + 1 + 16 + 12*binary.MaxVarintLen64
	// HeaderBound is an upper bound of a message without items.
	HeaderBound = headerBytes + 16 + 8 + 16 + 8 + 6*binary.MaxVarintLen64
)
