package index

import (
	"errors"
	"fmt"
	"slices"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// Start builds the index anew from a checkpoint: everything that it calls
// delivered is the horizon (rules §5.3). seq is the sequence of the message
// that carried it, version its version, h that message's header. Items behind
// the checkpoint in the same message may follow with [Index.Writes] under the
// same sequence. The index is not ready until [Index.CaughtUp] tells where the
// stream ends.
func (ix *Index) Start(cp *event.Checkpoint, seq uint64, h event.Header, version event.Version) error {
	if err := ix.start(cp, seq, h, version); err != nil {
		return err
	}
	return ix.flushIfDue()
}

func (ix *Index) start(cp *event.Checkpoint, seq uint64, h event.Header, version event.Version) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.failed != nil {
		return ix.failed
	}
	old := ix.begin(cp, version)
	ix.seq, ix.header, ix.digest = seq, h, [16]byte{}
	ix.started, ix.cold = true, ""
	ix.caught, ix.targeted = false, false
	ix.opt.Log.Info("index starts at a checkpoint", "seq", seq, "version", uint64(version),
		"history", uint64(cp.History), "horizon", cp.Delivered.Count())
	ix.publish()
	old.retire()
	return nil
}

// begin replaces everything that belongs to a history by what a checkpoint
// says. It returns the table that nobody may use any more once the next
// snapshot is published.
func (ix *Index) begin(cp *event.Checkpoint, version event.Version) (old *table) {
	old = ix.renew()
	ix.n.Rebuilds++
	ix.arrived = arrivals{}
	// Of the same announcement, what was seen of its run holds.
	anonymous := ix.clk.anonymous && cp.LossAt == ix.lossAt
	ix.history, ix.lossAt = cp.History, cp.LossAt
	ix.max, ix.failover = version, version
	ix.announced, ix.left = nil, gtid.Set{}
	ix.d.Reset(cp.Delivered)
	ix.h.Reset(cp.Delivered)
	if !rule(ruleStartHorizon) {
		ix.h.Reset(gtid.Set{})
	}
	ix.dh.Reset(cp.Delivered)
	ix.lost = cp.Lost
	ix.account(gtid.Set{}, gtid.Set{})
	ix.ord = ordinals{}
	ix.half = halfTransaction{}
	ix.open = map[string]*openXA{}
	for i := range cp.Open {
		if !rule(ruleXAOpen) {
			break
		}
		o := &cp.Open[i]
		ix.open[o.XID] = &openXA{gtid: o.GTID, tables: slices.Clone(o.Tables), scopes: slices.Clone(o.Scopes)}
	}
	ix.streamDefs = shared[key.Digest, key.DefVersion]{}
	ix.pending.reset()
	ix.setDefs(cp.Defs)
	ix.clk = clock{anonymous: anonymous}
	if cp.Announced.Epoch != 0 && cp.Announced.History == cp.History {
		a := cp.Announced
		ix.announced = &a
		ix.account(a.Executed, gtid.Set{})
		ix.left, ix.reigned = a.Executed, true // what reigned since it was said is not known
	}
	ix.setGroups(cp.Groups)
	ix.reassess()
	return old
}

// Writes applies one message. Sequences grow; items that the index has already
// (under the sequence of its position) are skipped. After an error the index
// answers no until it is started anew.
func (ix *Index) Writes(seq uint64, m *event.Message) error {
	if err := ix.writes(seq, m); err != nil {
		if errors.Is(err, ErrDiscontinuity) {
			// So that a restart does not come back to the same place.
			err = errors.Join(err, ix.Flush())
		}
		return err
	}
	return ix.flushIfDue()
}

func (ix *Index) writes(seq uint64, m *event.Message) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	switch {
	case ix.failed != nil:
		return ix.failed
	case !ix.started || ix.cold != "":
		return fmt.Errorf("apply message %d: no checkpoint was read: %w", seq, ErrDiscontinuity)
	case seq < ix.seq:
		return ix.broken(fmt.Errorf("apply message %d: at %d already: %w", seq, ix.seq, ErrDiscontinuity))
	}
	var retired []*table
	if len(m.Items) > 0 {
		ix.arrived.note(event.MakeVersion(m.Timeline, m.First), ix.opt.Clock())
	}
	ord := m.First
	for _, it := range m.Items {
		v := event.MakeVersion(m.Timeline, ord)
		part := false
		if c, ok := it.(*event.Chunk); ok {
			part = c.Last == nil
		}
		if !part {
			ord++
		}
		if v <= ix.max {
			if seq == ix.seq {
				continue
			}
			return ix.broken(fmt.Errorf("apply message %d: version %d is not newer than %d: %w", seq, v, ix.max, ErrDiscontinuity))
		}
		old, err := ix.item(it, v)
		if err != nil {
			return ix.broken(fmt.Errorf("apply message %d: %w", seq, err))
		}
		if old != nil {
			retired = append(retired, old)
		}
		if !part {
			ix.max = v
		}
	}
	ix.seq, ix.header, ix.digest = seq, m.Header, m.Digest
	ix.n.Messages++
	ix.pending.moved = true
	ix.checkCaught()
	ix.grown()
	ix.publish()
	for _, t := range retired {
		t.retire()
	}
	ix.evictIfDue()
	return nil
}

// broken makes the index answer no until it is started anew (P3).
func (ix *Index) broken(err error) error {
	ix.cold = "the stream broke off: " + err.Error()
	ix.caught, ix.targeted = false, false
	ix.pending.reset() // nor is the store's content good for a start
	ix.opt.Log.Warn("the index must be built anew", "err", err)
	ix.publish()
	return err
}

// item applies one item. It returns a table that has to be retired.
func (ix *Index) item(it event.Item, v event.Version) (*table, error) {
	if _, ok := it.(*event.Chunk); !ok {
		// The writer began something else: what it left half is not delivered.
		if ix.half.on {
			ix.half, ix.pending.half = halfTransaction{}, true
		}
	}
	switch it := it.(type) {
	case *event.Transaction:
		ix.transaction(it, v)
	case *event.Chunk:
		ix.chunk(it, v)
	case *event.Hole:
		ix.hole(it, v)
	case *event.Announcement:
		return nil, ix.announce(it, v)
	case *event.Checkpoint:
		if it.History != ix.history { // a new history begins (rules §5.3)
			return ix.begin(it, v), nil
		}
	case *event.Definitions:
		if ix.redefines(it.Defs, true) {
			ix.putEverything(v)
		}
		ix.setDefs(it.Defs)
	default:
		return nil, fmt.Errorf("item %T is not known: %w", it, ErrDiscontinuity)
	}
	return nil, nil
}

// transaction puts the records of a whole transaction and counts it as
// delivered (rules §3.1).
func (ix *Index) transaction(t *event.Transaction, v event.Version) {
	ix.n.Transactions++
	switch {
	case t.Flags&event.XAPrepare != 0 && rule(ruleXAAtCommit):
		ix.prepare(t)
	case t.Flags&event.XACommit != 0:
		if !ix.commitXA(t.XID, v) && rule(ruleXAUnknown) {
			everything := ix.hasher.Everything()
			ix.put(&everything, v)
			ix.n.UnknownXIDs++
		}
		ix.putAll(t, v)
	case t.Flags&event.XARollback != 0:
		ix.dropXA(t.XID)
		ix.putAll(t, v)
	default:
		ix.putAll(t, v)
	}
	if len(t.Defs) > 0 {
		if ix.redefines(t.Defs, false) {
			ix.putEverything(v)
		}
		ix.setDefs(t.Defs)
	}
	ix.deliver(t.GTID, v)
}

func (ix *Index) putEverything(v event.Version) {
	everything := ix.hasher.Everything()
	ix.put(&everything, v)
}

func (ix *Index) putAll(t *event.Transaction, v event.Version) {
	for i := range t.Tables {
		ix.put(&t.Tables[i], v)
	}
	for i := range t.Scopes {
		ix.put(&t.Scopes[i], v)
	}
}

// put raises a record. It comes before the snapshot that calls v's transaction
// delivered (P2).
func (ix *Index) put(d *key.Digest, v event.Version) {
	if ix.tab.put(d, v) {
		ix.n.RecordsPut++
		if ix.pending.on {
			ix.pending.record(d, v)
		}
		if ix.tab.left > 0 {
			ix.sweepSome()
		}
	}
}

// deliver counts a transaction, of which every key is in the table now.
func (ix *Index) deliver(g gtid.GTID, v event.Version) {
	ix.d.Add(g)
	ix.dh.Add(g)
	ix.ord.add(g, v)
	if !ix.h.IsEmpty() && ix.h.Contains(g) { // delivered again: its records are here now
		ix.h.Remove(gtid.Of(g))
	}
	if ix.lost.Contains(g) { // given again
		ix.lost = ix.lost.Subtract(gtid.Of(g))
		ix.lossChanged()
	}
}

// hole notes GTIDs whose changes the stream can not give (rules §3.3).
func (ix *Index) hole(h *event.Hole, v event.Version) {
	ix.n.Holes++
	if everything := ix.hasher.Everything(); rule(ruleHoleWide) {
		ix.put(&everything, v)
	}
	ix.horizon(h.GTIDs)
	if rule(ruleHoleXA) {
		ix.forgetOpen()
	}
	if h.Anonymous {
		// E's of before and of after say nothing of what has no GTID.
		ix.clk.anonymous = true
		ix.clk.probes = nil
	}
}

// horizon adds to H what the stream did not give.
func (ix *Index) horizon(s gtid.Set) {
	if rule(ruleHoleHorizon) {
		ix.h.AddSet(s)
	}
	ix.dh.AddSet(s)
	if ix.lost.Overlaps(s) {
		ix.lost = ix.lost.Subtract(s)
		ix.lossChanged()
	}
}
