package index

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// What is in a store, by the first byte of the key. One flush is one batch, so
// that all of it is of one moment (rules §5.6).
//
// Records are kept twice over: a journal has what was put since the flush
// before, and every flush also writes some segments of the table whole, in
// turn. Once all segments were written, the journals from before that round are
// dropped. A start takes the newest of what segments and journals say, which is
// right in whatever order they were written, because records only grow; what
// the horizon covers is left out.
const (
	keyMeta       = "m"  // position, versions, and what the store belongs to
	keyState      = "a"  // announcement, groups, losses: a checkpoint's wire form
	keyDelivered  = "d"  // D
	keyHorizon    = "h"  // H
	keyLost       = "l"  // lost
	keyHalf       = "c"  // a transaction of which chunks were read
	keyXA         = "x/" // XID -> what it prepared
	keyStreamDef  = "s/" // any-row scope -> definition version
	keyDefinition = "t/" // schema, NUL, table -> definition
	keyOrdinals   = "o/" // number of a block of runs
	keyJournal    = "j/" // number of a flush
	keySegment    = "r/" // number of segments, number of the segment

	// keyEnd is behind all of them.
	keyEnd = "~"
)

const (
	recordWords = 3 // as in a journal: two of the digest, one of the version
	recordBytes = recordWords * 8

	// runsPerBlock is how many runs one key holds.
	runsPerBlock = 512
	// For each byte of journal so many bytes of segments are written, so that
	// journals never hold more than about the size of the table.
	segmentsPerJournal = 1.5
)

// pending is what the store does not have yet.
type pending struct {
	on        bool     // there is a store
	wipe      bool     // begins anew
	records   []uint64 // in the form of the journal
	seen      []int32  // place in records by digest, to write hot scopes once
	defs      []event.DefRef
	tables    []*event.TableDefinition
	xids      map[string]struct{}
	moved     bool // the position
	half      bool
	announced bool
	ordinals  bool // runs changed otherwise than by growing
}

const seenSlots = 1 << 12

func (p *pending) record(d *key.Digest, v event.Version) {
	a, b := split(d)
	p.words(a, b, v)
}

func (p *pending) words(a, b uint64, v event.Version) {
	if p.seen == nil {
		p.seen = make([]int32, seenSlots)
	}
	slot := &p.seen[a%seenSlots]
	if i := int(*slot); i > 0 && p.records[i-1] == a && p.records[i] == b {
		p.records[i+1] = uint64(v)
		return
	}
	*slot = int32(len(p.records) + 1)
	p.records = append(p.records, a, b, uint64(v))
}

func (p *pending) xa(xid string) {
	if !p.on {
		return
	}
	if p.xids == nil {
		p.xids = map[string]struct{}{}
	}
	p.xids[xid] = struct{}{}
}

func (p *pending) size() int { return len(p.records) * 8 }

// clear forgets what a batch took over, keeping memory.
func (p *pending) clear() {
	clear(p.seen)
	*p = pending{on: p.on, seen: p.seen, records: p.records[:0]}
}

// reset begins anew: the next batch empties the store first.
func (p *pending) reset() {
	p.clear()
	p.wipe = true
}

// stored is what the owner knows of the store's content.
type stored struct {
	horizon, lost gtid.Set
	blocks        int    // blocks of runs that are there whole
	journal       uint64 // number of the newest journal
	oldest        uint64 // number of the oldest that may be there; > journal: none
	round         uint64 // newest journal when the round over the segments began
	next          int    // segment that the round comes to next; 0: a new round
	foreign       bool   // segments of another number of segments are there
	at            int64  // when the last flush was
}

// flushing orders flushes; it is taken before the index's own mutex.
type flushing struct {
	mu      sync.Mutex
	wake    chan struct{}
	running bool // guarded by the index's mutex: Run flushes
}

// Run flushes to the store by time and by size until ctx ends, and once more
// then. It returns nil after that, or the first error of the store. Without a
// store it only waits.
func (ix *Index) Run(ctx context.Context) error {
	if ix.opt.Store == nil {
		<-ctx.Done()
		return nil
	}
	ix.setRunning(true)
	defer ix.setRunning(false)
	tick := time.NewTicker(ix.opt.FlushInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ix.Flush()
		case <-tick.C:
		case <-ix.flush.wake:
		}
		if err := ix.Flush(); err != nil {
			return err
		}
	}
}

func (ix *Index) setRunning(on bool) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.flush.running = on
}

// flushIfDue writes to the store when it is time, or asks Run to do it.
func (ix *Index) flushIfDue() error {
	if ix.opt.Store == nil {
		return nil
	}
	const tooFar = 4 // times FlushBytes: the source has to wait
	ix.mu.Lock()
	size, running := ix.pending.size(), ix.flush.running
	due := size >= ix.opt.FlushBytes
	if !running {
		due = due || ix.opt.Clock()-ix.stored.at >= int64(ix.opt.FlushInterval)
	}
	ix.mu.Unlock()
	switch {
	case !due:
		return nil
	case running && size < tooFar*ix.opt.FlushBytes:
		select {
		case ix.flush.wake <- struct{}{}:
		default:
		}
		return nil
	}
	return ix.Flush()
}

// Flush writes everything that the store does not have yet as one batch. After
// an error it is not known what is durable: the index answers no and applies
// nothing any more; a restart recovers.
func (ix *Index) Flush() error {
	if ix.opt.Store == nil {
		return nil
	}
	ix.flush.mu.Lock()
	defer ix.flush.mu.Unlock()
	ix.mu.Lock()
	if ix.failed != nil || !ix.dirty() {
		defer ix.mu.Unlock()
		return ix.failed
	}
	b := &counted{Batch: ix.opt.Store.Begin()}
	ix.fill(b)
	ix.mu.Unlock()
	err := b.Commit() // readers and the stream go on meanwhile

	ix.mu.Lock()
	defer ix.mu.Unlock()
	if err != nil {
		ix.failed = fmt.Errorf("flush index: %w", err)
		ix.opt.Log.Error("the index stops: its store failed", "err", err)
		ix.publish()
		return ix.failed
	}
	ix.n.Flushes++
	ix.n.FlushedBytes += uint64(b.bytes)
	return nil
}

func (ix *Index) dirty() bool {
	p := &ix.pending
	return p.wipe || p.moved || len(p.records) > 0 || len(p.tables) > 0
}

// counted counts the bytes that a batch sets.
type counted struct {
	Batch
	bytes int
}

func (c *counted) Set(key, value []byte) {
	c.bytes += len(key) + len(value)
	c.Batch.Set(key, value)
}

// fill puts everything that the store lacks into a batch.
func (ix *Index) fill(b *counted) {
	p, st := &ix.pending, &ix.stored
	st.at = ix.opt.Clock()
	if p.wipe {
		b.DeleteRange([]byte{0}, []byte(keyEnd))
		*st = stored{journal: st.journal, oldest: st.journal + 1, at: st.at}
		ix.defs.each(func(_ nameKey, d *event.TableDefinition) { b.Set(definitionKey(d), d.AppendBinary(nil)) })
	}
	b.Set([]byte(keyMeta), ix.meta())
	if ix.cold != "" { // nothing to resume from
		p.clear()
		return
	}
	b.Set([]byte(keyDelivered), ix.d.Set().AppendBinary(nil))
	if h := ix.h.Set(); p.wipe || !h.Equal(st.horizon) {
		b.Set([]byte(keyHorizon), h.AppendBinary(nil))
		st.horizon = h
	}
	if p.wipe || !ix.lost.Equal(st.lost) {
		b.Set([]byte(keyLost), ix.lost.AppendBinary(nil))
		st.lost = ix.lost
	}
	if p.wipe || p.announced {
		b.Set([]byte(keyState), ix.encodeState())
	}
	if p.wipe || p.half {
		ix.fillHalf(b)
	}
	ix.fillXA(b)
	for _, d := range p.defs {
		b.Set(append([]byte(keyStreamDef), d.Table[:]...), binary.LittleEndian.AppendUint64(nil, uint64(d.Version)))
	}
	for _, d := range p.tables {
		b.Set(definitionKey(d), d.AppendBinary(nil))
	}
	ix.fillOrdinals(b)
	ix.fillRecords(b)
	p.clear()
}

func definitionKey(d *event.TableDefinition) []byte {
	return append(append(append([]byte(keyDefinition), d.Schema...), 0), d.Table...)
}

func (ix *Index) fillXA(b *counted) {
	write := func(xid string) {
		k := append([]byte(keyXA), xid...)
		x := ix.open[xid]
		if x == nil {
			b.Delete(k)
			return
		}
		b.Set(k, event.EncodeItems([]event.Item{&event.Checkpoint{Open: []event.OpenXA{
			{XID: xid, GTID: x.gtid, Tables: x.tables, Scopes: x.scopes},
		}}}))
	}
	if ix.pending.wipe {
		for xid := range ix.open {
			write(xid)
		}
		return
	}
	for xid := range ix.pending.xids {
		write(xid)
	}
}

// fillOrdinals writes the blocks of runs that are not whole yet, or all.
func (ix *Index) fillOrdinals(b *counted) {
	st := &ix.stored
	if ix.pending.ordinals || ix.pending.wipe {
		b.DeleteRange([]byte(keyOrdinals), after(keyOrdinals))
		st.blocks = 0
	}
	for i := st.blocks; i*runsPerBlock < ix.ord.len(); i++ {
		k := binary.BigEndian.AppendUint32([]byte(keyOrdinals), uint32(i))
		b.Set(k, ix.ord.encode(i*runsPerBlock, min((i+1)*runsPerBlock, ix.ord.len())))
	}
	st.blocks = len(ix.ord.closed) / runsPerBlock
}

// fillRecords writes what was put since the last flush, and the segments whose
// turn it is.
func (ix *Index) fillRecords(b *counted) {
	p, st := &ix.pending, &ix.stored
	if len(p.records) == 0 {
		return
	}
	st.journal++
	buf := make([]byte, 0, len(p.records)*8)
	for _, w := range p.records {
		buf = binary.LittleEndian.AppendUint64(buf, w)
	}
	b.Set(binary.BigEndian.AppendUint64([]byte(keyJournal), st.journal), buf)

	budget := int(float64(len(buf)) * segmentsPerJournal)
	if st.next == 0 {
		st.round = st.journal
	}
	for first := true; first || budget > 0; first = false {
		buf = ix.tab.encode(st.next, buf[:0])
		k := segmentKey(len(ix.tab.segs), st.next)
		if len(buf) == 0 {
			b.Delete(k)
		} else {
			b.Set(k, buf)
		}
		budget -= len(buf) + recordBytes
		if st.next++; st.next == len(ix.tab.segs) {
			st.next = 0
			ix.endRound(b)
			return
		}
	}
}

// endRound drops what a whole round over the segments made needless.
func (ix *Index) endRound(b *counted) {
	st := &ix.stored
	b.DeleteRange(binary.BigEndian.AppendUint64([]byte(keyJournal), st.oldest),
		binary.BigEndian.AppendUint64([]byte(keyJournal), st.round+1))
	st.oldest = st.round + 1
	if st.foreign {
		st.foreign = false
		n := len(ix.tab.segs)
		b.DeleteRange([]byte(keySegment), segmentKey(n, 0))
		b.DeleteRange(segmentKey(n+1, 0), after(keySegment))
	}
}

func segmentKey(segments, i int) []byte {
	k := binary.BigEndian.AppendUint32([]byte(keySegment), uint32(segments))
	return binary.BigEndian.AppendUint32(k, uint32(i))
}

// after is the first key behind all that begin with prefix.
func after(prefix string) []byte {
	k := []byte(prefix)
	k[len(k)-1]++
	return k
}

// encode appends segment i's records.
func (t *table) encode(i int, buf []byte) []byte {
	s := t.segs[i].Load()
	if s == nil {
		return buf
	}
	s.each(func(a, b uint64, p int) {
		if v := s.words[p]; event.Version(v) > t.cut {
			buf = binary.LittleEndian.AppendUint64(buf, a)
			buf = binary.LittleEndian.AppendUint64(buf, b)
			buf = binary.LittleEndian.AppendUint64(buf, v)
		}
	})
	return buf
}
