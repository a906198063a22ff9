package event

import (
	"encoding/binary"
	"unsafe"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
)

// minTxBytes is the least that a transaction takes: lead, two times, size,
// three lists.
const minTxBytes = 7

// decoder mirrors encoder.
type decoder struct {
	reader
	source  gtid.Source
	seq     int64
	sources []gtid.Source
	commit  int64
	tables  [][]key.Digest
	defs    [][]DefRef
	txs     []Transaction // handed out one by one
}

// DecodeMessage reads a message of WRITES and sets its Digest. The message
// refers to b, which nobody may modify any more. Errors wrap [ErrNewerFormat]
// or [ErrCorrupt]. Memory is bounded by a small multiple of len(b).
func DecodeMessage(b []byte) (*Message, error) {
	r, err := open(b, kindMessage)
	if err != nil {
		return nil, err
	}
	d := decoder{reader: r}
	m := &Message{Digest: DigestOf(b), Format: r.format}
	m.Incarnation = d.array16()
	m.Count = d.fixed64()
	m.Prev = d.array16()
	copy(m.SecretPrint[:], d.raw(len(m.SecretPrint)))
	m.Generation = Generation(d.uvarint())
	m.Timeline = uint32(d.small(1<<20 - 1))
	m.Fold = uint16(d.small(1<<16 - 1))
	m.First = d.small(1<<ordinalBits - 1)
	items := d.count(1)
	txs := d.count(minTxBytes)
	if txs > items {
		d.fail("more transactions than items")
		txs, items = 0, 0
	}
	if items > 0 {
		m.Items = make([]Item, items)
		d.txs = make([]Transaction, txs)
	}
	for i := range m.Items {
		if d.err != nil {
			return nil, d.err
		}
		m.Items[i] = d.item()
	}
	if err := d.close(); err != nil {
		return nil, err
	}
	return m, nil
}

func (d *decoder) item() Item {
	lead := d.byte()
	if kind := lead & itemKindMask; kind != itemTransaction && lead != kind {
		d.fail("unknown item")
		return nil
	}
	switch lead & itemKindMask {
	case itemTransaction:
		if len(d.txs) == 0 {
			d.fail("more transactions than announced")
			return nil
		}
		t := &d.txs[0]
		d.txs = d.txs[1:]
		d.transaction(t, lead)
		return t
	case itemChunk:
		return d.chunk()
	case itemHole:
		return d.hole()
	case itemAnnouncement:
		a := &Announcement{}
		d.announcement(a)
		return a
	case itemCheckpoint:
		return d.checkpoint()
	case itemDefinitions:
		return &Definitions{Defs: d.defList()}
	case itemPart:
		return d.part()
	}
	d.fail("unknown item")
	return nil
}

func (d *decoder) transaction(t *Transaction, lead byte) {
	if lead&^txMask != 0 {
		d.fail("unknown transaction fields")
		return
	}
	if lead&txNext != 0 {
		if len(d.sources) == 0 || d.seq >= gtid.MaxSeq {
			d.fail("no GTID to follow")
			return
		}
		d.seq++
		t.GTID = gtid.GTID{UUID: d.source.UUID, Tag: d.source.Tag, Seq: d.seq}
	} else {
		t.GTID = d.sourced()
	}
	d.commit += d.varint()
	t.OriginalCommit = d.commit
	t.ImmediateCommit = d.commit + d.varint()
	t.SizeBytes = d.uvarint()
	if lead&txFlags != 0 {
		// A flag that is not known may mean anything, a change of what the scopes
		// say too (P3).
		if t.Flags = Flags(d.small(uint64(allFlags))); t.Flags == 0 {
			d.fail("no flag, or an unknown one")
		}
	}
	if lead&txXID != 0 {
		t.XID = d.text()
		if t.XID == "" {
			d.fail("empty XID")
		}
	}
	t.Tables = d.tableList()
	t.Scopes = d.shared()
	t.Defs = d.defList()
}

// sourced reads a GTID by the number of its source within the message.
func (d *decoder) sourced() gtid.GTID {
	ref := d.uvarint()
	switch {
	case ref == 0:
		d.source = gtid.Source{UUID: d.array16(), Tag: d.text()}
		d.sources = append(d.sources, d.source)
		if d.err == nil && (gtid.GTID{UUID: d.source.UUID, Tag: d.source.Tag, Seq: 1}).Validate() != nil {
			d.fail("invalid tag")
		}
	case ref <= uint64(len(d.sources)):
		d.source = d.sources[ref-1]
	default:
		d.fail("unknown source")
	}
	d.seq = int64(d.small(uint64(gtid.MaxSeq)))
	if d.seq < 1 {
		d.fail("invalid sequence number")
	}
	return gtid.GTID{UUID: d.source.UUID, Tag: d.source.Tag, Seq: d.seq}
}

// shared reads digests without copying them: an array of bytes has no
// alignment, and the message's bytes are never modified.
func (d *decoder) shared() []key.Digest {
	n := d.count(digestBytes)
	if n == 0 {
		return nil
	}
	b := d.raw(n * digestBytes)
	if b == nil {
		return nil
	}
	return unsafe.Slice((*key.Digest)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func (d *decoder) tableList() []key.Digest {
	return listOf(d, &d.tables, (*decoder).shared, "unknown list of tables")
}

func (d *decoder) defList() []DefRef {
	return listOf(d, &d.defs, (*decoder).defRefs, "unknown list of definitions")
}

func (d *decoder) defRefs() []DefRef {
	list := make([]DefRef, d.count(defBytes))
	for i := range list {
		list[i] = DefRef{Table: d.array16(), Version: key.DefVersion(d.fixed64())}
	}
	return list
}

// listOf reads a list that stands here, or names one of those before it.
func listOf[T any](d *decoder, before *[][]T, inline func(*decoder) []T, unknown string) []T {
	switch ref := d.uvarint(); {
	case ref == listEmpty:
		return nil
	case ref == listInline:
		list := inline(d)
		if len(list) == 0 {
			d.fail("empty inline list")
		}
		if len(list) <= maxShared {
			*before = append(*before, list)
		}
		return list
	case ref-firstList < uint64(len(*before)):
		return (*before)[ref-firstList]
	}
	d.fail(unknown)
	return nil
}

func (d *decoder) chunk() Item {
	c := &Chunk{GTID: d.sourced(), Number: uint32(d.small(1<<32 - 1)), Scopes: d.shared()}
	if !d.bool() {
		return c
	}
	c.Total = uint32(d.small(1<<32 - 1))
	c.Digest = d.array16()
	lead := d.byte()
	if lead&itemKindMask != itemTransaction {
		d.fail("last chunk without its transaction")
		return c
	}
	c.Last = &Transaction{}
	d.transaction(c.Last, lead)
	return c
}

func (d *decoder) part() Item {
	p := &Part{Digest: d.array16(), Number: uint32(d.small(1<<32 - 1)), Total: uint32(d.small(1<<32 - 1))}
	p.Bytes = d.raw(d.count(1))
	return p
}

func (d *decoder) hole() Item {
	h := &Hole{GTIDs: d.set()}
	if n := d.count(4); n > 0 {
		h.Headers = make([]HoleHeader, n)
		for i := range h.Headers {
			h.Headers[i] = HoleHeader{Identity: d.identity(), Empty: d.bool()}
		}
	}
	h.Anonymous = d.bool()
	h.Reason = d.text()
	return h
}

func (d *decoder) identity() Identity {
	g := d.sourced()
	d.commit += d.varint()
	return Identity{GTID: g, OriginalCommit: d.commit}
}

func (d *decoder) identities() []Identity {
	n := d.count(3)
	if n == 0 {
		return nil
	}
	ids := make([]Identity, n)
	for i := range ids {
		ids[i] = d.identity()
	}
	return ids
}

func (d *decoder) announcement(a *Announcement) {
	a.Server = d.text()
	a.ServerUUID = d.array16()
	a.Epoch = Epoch(d.uvarint())
	a.History = History(d.uvarint())
	a.Executed = d.set()
	a.Lost = d.set()
	a.LostIDs = d.identities()
	a.NewlyLost = d.set()
	a.Timelines = d.timelines()
	a.Groups = d.groups()
	a.FoldNames = d.bool()
	a.Had = d.set()
}

func (d *decoder) timelines() []TimelineStart {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	list := make([]TimelineStart, n)
	for i := range list {
		list[i] = TimelineStart{Number: uint32(d.small(1<<20 - 1)), First: d.small(1<<ordinalBits - 1)}
	}
	return list
}

func (d *decoder) groups() []GroupColumn {
	n := d.count(4)
	if n == 0 {
		return nil
	}
	list := make([]GroupColumn, n)
	for i := range list {
		list[i] = GroupColumn{Schema: d.text(), Table: d.text(), Column: d.text(), Before: d.set()}
	}
	return list
}

func (d *decoder) checkpoint() Item {
	c := &Checkpoint{
		History: History(d.uvarint()), Delivered: d.set(), Holes: d.set(), Lost: d.set(), LostIDs: d.identities(),
		LossAt: Version(d.small(1<<63 - 1)), KnownEmpty: d.set(),
	}
	d.announcement(&c.Announced)
	c.Timelines = d.timelines()
	if n := d.count(5); n > 0 {
		c.Open = make([]OpenXA, n)
		for i := range c.Open {
			c.Open[i] = OpenXA{XID: d.text(), GTID: d.sourced(), Tables: d.tableList(), Scopes: d.shared()}
		}
	}
	c.Defs = d.defList()
	c.Groups = d.groups()
	return c
}

// EncodeItems returns the wire form of items without a message around it: what
// [Part]s carry.
func EncodeItems(items []Item) []byte {
	e := encoder{b: binary.AppendUvarint(nil, uint64(len(items)))}
	for _, it := range items {
		e.item(it)
	}
	return e.b
}

// DecodeItems reads what [EncodeItems] wrote, in the format of the message that
// carried it ([Format] where this program kept it itself); the items refer to b. It
// is for the rare large items: transactions are refused.
func DecodeItems(b []byte, format uint8) ([]Item, error) {
	d := decoder{reader: reader{b: b, format: format}}
	items := make([]Item, d.count(1))
	for i := range items {
		if d.err != nil {
			return nil, d.err
		}
		items[i] = d.item()
	}
	if err := d.close(); err != nil {
		return nil, err
	}
	return items, nil
}
