package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// storeFormat is the version of what is in a store. Others are built anew, but
// for newer ones, which are refused.
const storeFormat = 2

// ErrForeignStore is wrapped when a store belongs to another cluster, or was
// written by a newer program. It is not touched.
var ErrForeignStore = errors.New("the store is not this index's")

// ErrCorruptStore is wrapped when the content of a store is not what a flush
// writes.
var ErrCorruptStore = errors.New("the store is corrupt: remove it, and the index is built anew from the stream")

// meta is the value of keyMeta.
func (ix *Index) meta() []byte {
	b := []byte{storeFormat}
	b = binary.AppendUvarint(b, uint64(len(ix.opt.Cluster)))
	b = append(b, ix.opt.Cluster...)
	print := ix.opt.Secret.Print()
	b = append(b, print[:]...)
	b = binary.LittleEndian.AppendUint16(b, key.FoldVersion)
	resumable := byte(0)
	if ix.started && ix.cold == "" {
		resumable = 1
	}
	anonymous := byte(0)
	if ix.clk.anonymous {
		anonymous = 1
	}
	b = append(b, resumable, anonymous)
	h := &ix.header
	b = append(b, h.Incarnation[:]...)
	b = append(b, h.Prev[:]...)
	b = append(b, h.SecretPrint[:]...)
	b = append(b, ix.digest[:]...)
	for _, n := range []uint64{
		ix.seq, h.Count, uint64(h.Generation), uint64(h.Timeline), uint64(h.Fold),
		uint64(ix.max), uint64(ix.failover), uint64(ix.tab.cut),
	} {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// cursor reads fields; after the first that is cut off everything is zero.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.bad, c.b = true, nil
		return make([]byte, min(max(n, 0), 64))
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.bad, c.b = true, nil
		return 0
	}
	c.b = c.b[n:]
	return v
}

// length reads a count of things of at least one byte each.
func (c *cursor) length() int {
	n := c.uvarint()
	if n > uint64(len(c.b)) {
		c.bad, c.b = true, nil
		return 0
	}
	return int(n)
}

func corrupt(what string, err error) error {
	if err == nil {
		return fmt.Errorf("%s: %w", what, ErrCorruptStore)
	}
	return fmt.Errorf("%s: %w (%w)", what, ErrCorruptStore, err)
}

// load reads what the last flush left (rules §5.6). C(X), W and leases are not
// in the store: they come from the streams.
func (ix *Index) load() error {
	ix.flush.wake = make(chan struct{}, 1)
	ix.pending.on = true
	ix.stored.at = ix.opt.Clock()
	ix.stored.oldest = 1
	st := ix.opt.Store
	raw, ok, err := st.Get([]byte(keyMeta))
	if err != nil || !ok {
		return err
	}
	usable, err := ix.loadMeta(raw)
	if err != nil {
		return err
	}
	if !usable {
		ix.pending.reset()
		return nil
	}
	for _, f := range []func(Store) error{
		ix.loadSets, ix.loadState, ix.loadHalf, ix.loadXA, ix.loadDefinitions, ix.loadOrdinals, ix.loadRecords,
	} {
		if err := f(st); err != nil {
			return err
		}
	}
	ix.started, ix.cold = true, ""
	ix.opt.Log.Info("index restored", "seq", ix.seq, "records", ix.tab.count, "runs", ix.ord.len())
	return nil
}

// loadMeta tells whether the rest of the store is of use.
func (ix *Index) loadMeta(raw []byte) (bool, error) {
	c := cursor{b: raw}
	format := c.take(1)[0]
	if format > storeFormat {
		return false, fmt.Errorf("store of format %d, this program knows %d: %w", format, storeFormat, ErrForeignStore)
	}
	if cluster := string(c.take(c.length())); !c.bad && cluster != ix.opt.Cluster {
		return false, fmt.Errorf("store of cluster %q, this is %q: %w", cluster, ix.opt.Cluster, ErrForeignStore)
	}
	print := ix.opt.Secret.Print()
	sameSecret := bytes.Equal(c.take(len(print)), print[:])
	fold := binary.LittleEndian.Uint16(c.take(2))
	flags := c.take(2)
	resumable, anonymous := flags[0] == 1, flags[1] == 1
	h := &ix.header
	copy(h.Incarnation[:], c.take(len(h.Incarnation)))
	copy(h.Prev[:], c.take(len(h.Prev)))
	copy(h.SecretPrint[:], c.take(len(h.SecretPrint)))
	copy(ix.digest[:], c.take(len(ix.digest)))
	var n [8]uint64
	for i := range n {
		n[i] = c.uvarint()
	}
	if c.bad || len(c.b) > 0 || n[3] > math.MaxUint32 || n[4] > math.MaxUint16 {
		return false, corrupt("position", nil)
	}
	ix.seq, h.Count, h.Generation = n[0], n[1], event.Generation(n[2])
	h.Timeline, h.Fold = uint32(n[3]), uint16(n[4])
	ix.max, ix.failover, ix.tab.cut = event.Version(n[5]), event.Version(n[6]), event.Version(n[7])
	ix.clk.anonymous = anonymous
	if usable := resumable && sameSecret && fold == key.FoldVersion && format == storeFormat; !usable {
		ix.opt.Log.Info("the store is of no use and is built anew", "resumable", resumable,
			"same_secret", sameSecret, "fold", fold, "format", format)
		ix.seq, ix.header, ix.digest, ix.max, ix.failover, ix.tab.cut = 0, event.Header{}, [16]byte{}, 0, 0, 0
		ix.clk.anonymous = false
		return false, nil
	}
	return true, nil
}

func (ix *Index) loadSets(st Store) error {
	sets := map[string]gtid.Set{}
	for _, k := range []string{keyDelivered, keyHorizon, keyLost} {
		raw, ok, err := st.Get([]byte(k))
		if err != nil {
			return err
		}
		if !ok {
			return corrupt("set "+k+" is missing", nil)
		}
		s, rest, err := gtid.DecodeBinary(raw)
		if err != nil || len(rest) > 0 {
			return corrupt("set "+k, err)
		}
		sets[k] = s
	}
	d, h := sets[keyDelivered], sets[keyHorizon]
	ix.d.Reset(d)
	ix.h.Reset(h)
	ix.dh.Reset(d.Union(h))
	ix.lost = sets[keyLost]
	ix.stored.horizon, ix.stored.lost = h, ix.lost
	return nil
}

// encodeState is what announcements say, without what has keys of its own.
func (ix *Index) encodeState() []byte {
	cp := &event.Checkpoint{History: ix.history, LossAt: ix.lossAt, Groups: ix.groupList}
	if ix.announced != nil {
		cp.Announced = *ix.announced
	}
	return event.EncodeItems([]event.Item{cp})
}

func decodeOne[T event.Item](raw []byte) (T, error) {
	var none T
	items, err := event.DecodeItems(raw, event.Format)
	if err != nil {
		return none, err
	}
	if len(items) == 1 {
		if it, ok := items[0].(T); ok {
			return it, nil
		}
	}
	return none, fmt.Errorf("%d items where one %T belongs", len(items), none)
}

func (ix *Index) loadState(st Store) error {
	raw, ok, err := st.Get([]byte(keyState))
	if err != nil {
		return err
	}
	if !ok {
		return corrupt("announcement is missing", nil)
	}
	cp, err := decodeOne[*event.Checkpoint](raw)
	if err != nil {
		return corrupt("announcement", err)
	}
	ix.history, ix.lossAt = cp.History, cp.LossAt
	if cp.Announced.Epoch != 0 {
		ix.announced = &cp.Announced
		ix.account(cp.Announced.Executed, gtid.Set{})
		ix.left, ix.reigned = cp.Announced.Executed, true // as for a start at a checkpoint
	}
	ix.setGroups(cp.Groups)
	return nil
}

// fillHalf writes, or deletes, the transaction of which chunks were read.
func (ix *Index) fillHalf(b *counted) {
	h := &ix.half
	if !h.on {
		b.Delete([]byte(keyHalf))
		return
	}
	v := binary.LittleEndian.AppendUint64(nil, uint64(h.version))
	broken := byte(0)
	if h.broken {
		broken = 1
	}
	v = append(v, broken)
	b.Set([]byte(keyHalf), append(v, event.EncodeItems([]event.Item{
		&event.Chunk{GTID: h.gtid, Number: h.next, Scopes: h.scopes},
	})...))
}

func (ix *Index) loadHalf(st Store) error {
	raw, ok, err := st.Get([]byte(keyHalf))
	if err != nil || !ok {
		return err
	}
	c := cursor{b: raw}
	version, broken := binary.LittleEndian.Uint64(c.take(8)), c.take(1)[0]
	if c.bad {
		return corrupt("half transaction", nil)
	}
	half, err := decodeOne[*event.Chunk](c.b)
	if err != nil {
		return corrupt("half transaction", err)
	}
	ix.half = halfTransaction{
		on: true, broken: broken == 1, gtid: half.GTID,
		version: event.Version(version), next: half.Number, scopes: half.Scopes,
	}
	return nil
}

func (ix *Index) loadXA(st Store) error {
	ix.open = map[string]*openXA{}
	return st.Scan([]byte(keyXA), after(keyXA), func(_, raw []byte) error {
		cp, err := decodeOne[*event.Checkpoint](bytes.Clone(raw))
		if err != nil || len(cp.Open) != 1 {
			return corrupt("open XA transaction", err)
		}
		o := &cp.Open[0]
		ix.open[o.XID] = &openXA{gtid: o.GTID, tables: o.Tables, scopes: o.Scopes}
		return nil
	})
}

func (ix *Index) loadDefinitions(st Store) error {
	err := st.Scan([]byte(keyStreamDef), after(keyStreamDef), func(k, raw []byte) error {
		var d key.Digest
		if len(k) != len(keyStreamDef)+len(d) || len(raw) != 8 {
			return corrupt("definition version", nil)
		}
		copy(d[:], k[len(keyStreamDef):])
		ix.streamDefs.set(digestShard(d), d, key.DefVersion(binary.LittleEndian.Uint64(raw)))
		return nil
	})
	if err != nil {
		return err
	}
	return st.Scan([]byte(keyDefinition), after(keyDefinition), func(_, raw []byte) error {
		d, err := event.DecodeTableDefinition(bytes.Clone(raw))
		if err != nil {
			return corrupt("definition", err)
		}
		d.Prepare(ix.hasher)
		k := nameKey{d.Schema, d.Table}
		ix.defs.set(k.shard(), k, d)
		return nil
	})
}

// encode returns runs [from, to) with their sources.
func (o *ordinals) encode(from, to int) []byte {
	var sources []byte
	ids := map[uint32]uint64{}
	body := binary.AppendUvarint(nil, uint64(to-from))
	last := event.Version(0)
	for i := from; i < to; i++ {
		r := o.at(i)
		id, ok := ids[r.src]
		if !ok {
			id = uint64(len(ids))
			ids[r.src] = id
			s := &o.sources[r.src]
			sources = append(sources, s.UUID[:]...)
			sources = append(append(sources, byte(len(s.Tag))), s.Tag...)
		}
		body = binary.AppendUvarint(body, id)
		body = binary.AppendUvarint(body, uint64(r.first-last))
		body = binary.AppendUvarint(body, uint64(r.seq))
		body = binary.AppendUvarint(body, r.n)
		last = r.last()
	}
	b := binary.AppendUvarint(nil, uint64(len(ids)))
	return append(append(b, sources...), body...)
}

// decode appends the runs of a block.
func (o *ordinals) decode(raw []byte, runs []run) ([]run, error) {
	c := cursor{b: raw}
	var ids []uint32
	for range c.length() {
		var s gtid.Source
		copy(s.UUID[:], c.take(len(s.UUID)))
		s.Tag = string(c.take(int(c.take(1)[0])))
		ids = append(ids, o.source(s))
	}
	last := event.Version(0)
	if n := len(runs); n > 0 {
		last = runs[n-1].last()
	}
	at := event.Version(0)
	for range c.length() {
		id, first, seq, n := c.uvarint(), at+event.Version(c.uvarint()), c.uvarint(), c.uvarint()
		if c.bad || id >= uint64(len(ids)) || first <= last || n == 0 || n > math.MaxInt64 ||
			seq == 0 || seq > uint64(math.MaxInt64)-n || first+event.Version(n) < first {
			return nil, corrupt("versions", nil)
		}
		r := run{first: first, n: n, seq: int64(seq), src: ids[id]}
		runs = append(runs, r)
		at = r.last()
		last = at
	}
	if c.bad || len(c.b) > 0 {
		return nil, corrupt("versions", nil)
	}
	return runs, nil
}

func (ix *Index) loadOrdinals(st Store) error {
	var runs []run
	err := st.Scan([]byte(keyOrdinals), after(keyOrdinals), func(_, raw []byte) error {
		var err error
		runs, err = ix.ord.decode(raw, runs)
		return err
	})
	if err != nil {
		return err
	}
	ix.ord.replaceAll(runs)
	ix.stored.blocks = len(ix.ord.closed) / runsPerBlock
	return nil
}

// loadRecords reads segments and journals, in whatever order.
func (ix *Index) loadRecords(st Store) error {
	put := func(raw []byte) error {
		if len(raw)%recordBytes != 0 {
			return corrupt("records", nil)
		}
		for ; len(raw) > 0; raw = raw[recordBytes:] {
			v := binary.LittleEndian.Uint64(raw[16:])
			if event.Version(v) > ix.tab.cut {
				ix.tab.putWords(binary.LittleEndian.Uint64(raw), binary.LittleEndian.Uint64(raw[8:]), v)
			}
		}
		return nil
	}
	own := segmentKey(len(ix.tab.segs), 0)
	err := st.Scan([]byte(keySegment), after(keySegment), func(k, raw []byte) error {
		if len(k) != len(own) {
			return corrupt("segment key", nil)
		}
		ix.stored.foreign = ix.stored.foreign || !bytes.Equal(k[:len(own)-4], own[:len(own)-4])
		return put(raw)
	})
	if err != nil {
		return err
	}
	first := true
	return st.Scan([]byte(keyJournal), after(keyJournal), func(k, raw []byte) error {
		if len(k) != len(keyJournal)+8 {
			return corrupt("journal key", nil)
		}
		n := binary.BigEndian.Uint64(k[len(keyJournal):])
		if first {
			first, ix.stored.oldest = false, n
		}
		ix.stored.journal = n
		return put(raw)
	})
}
