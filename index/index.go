package index

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

const gtidModeOn = "ON"

// ErrDiscontinuity is wrapped when a message does not follow what the index
// holds: the stream stepped back, was replaced, or goes on in a history of which
// no checkpoint was read. The index answers no until the next [Index.Start], and
// [Index.Resume] tells nothing to resume from.
var ErrDiscontinuity = errors.New("the stream does not continue what the index holds")

// Index holds what is known: which scopes were written when, what every server
// is proven to show, and how far that knowledge goes.
//
// Its methods may be called from several goroutines; changes take turns. Only
// [Index.Snapshot] is free of any lock.
type Index struct {
	opt    Options
	hasher key.Hasher
	snap   atomic.Pointer[Snapshot]

	mu sync.Mutex // guards everything below

	// The stream.
	started  bool   // Start was called, or a store was loaded
	cold     string // why there is nothing to resume from; empty: there is
	seq      uint64
	header   event.Header
	digest   [16]byte
	caught   bool   // caught up since the last start
	target   uint64 // the stream's last sequence, as of the newest check
	targeted bool
	blind    int64

	// History: records, D, H and what belongs to them.
	history    event.History
	max        event.Version // newest version of an item
	lossAt     event.Version // newest announcement
	failover   event.Version
	announced  *event.Announcement // nil: none
	tab        *table
	gen        uint64
	sweepDebt  int // puts not yet paid for by sweeping, in segments times MaxRecords
	ord        ordinals
	d, h, dh   gtid.Builder // delivered, horizon, and both
	lost       gtid.Set
	explained  gtid.Set // what the announced primary is known to have: newest counted E
	passing    gtid.Set // of explained: what it only owned then, and may give back by a rollback
	firm       gtid.Set // the rest of explained
	left       gtid.Set // what failovers left, see Snapshot.FailoverLeft
	reigned    bool     // the announced run was seen as no writable primary: another may have reigned
	open       map[string]*openXA
	half       halfTransaction
	groups     map[key.Digest]gtid.Set // never modified, replaced
	groupList  []event.GroupColumn     // as announced
	streamDefs shared[key.Digest, key.DefVersion]
	defs       shared[nameKey, *event.TableDefinition]

	// Servers and time.
	servers []*server
	names   map[string]int // never modified, replaced
	primary primaryView
	ticks   ticks
	arrived arrivals
	clk     clock

	pending pending // what the store does not have yet
	stored  stored
	failed  error // of the store: nothing is applied any more
	n       Counters

	flush flushing
}

// Counters are the index's plain counters. Times are readings of its clock.
type Counters struct {
	Messages, Transactions, Holes, Announcements uint64
	UnknownXIDs, BrokenChunks                    uint64

	Records       int    // in memory, those about to leave included
	RecordBytes   int    // of the table that holds them
	RecordsPut    uint64 // new ones and raised ones
	RecordsMoved  uint64 // from lost transactions to a failover
	Evictions     uint64 // times that the horizon was moved for room
	Evicted       event.Version
	Runs          int // entries of the list of versions
	OpenXIDs      int
	HorizonGTIDs  uint64
	HorizonRuns   int // intervals
	Lost          uint64
	Snapshots     uint64
	Rebuilds      uint64 // starts at a checkpoint
	ProbesCounted uint64
	ProbesRefused uint64
	ProbeRefused  string // why the newest state of a primary did not count; empty: it did

	WatermarkAt int64 // when W's tick was sent; 0: none
	Seq         uint64
	Behind      uint64 // messages of the stream not yet applied, as of its newest check

	Flushes      uint64
	FlushedBytes uint64
	PendingBytes int
}

// Open returns an index: empty without a store or with an empty one, else as
// the store's last flush left it. It reads the store. Errors of a store that
// belongs to another cluster or that a newer program wrote say so; one of
// another digest secret, fold version or format is emptied instead, and
// [Index.Resume] then asks for a cold start.
func Open(o Options) (*Index, error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	ix := &Index{opt: o, hasher: key.NewHasher(o.Secret), names: map[string]int{}}
	for _, name := range o.Servers {
		ix.addServer(name)
	}
	ix.tab = newTable(o.MaxRecords)
	ix.open = map[string]*openXA{}
	ix.cold = "no checkpoint was read yet"
	ix.blind = max(o.Clock(), 1)
	if o.Store != nil {
		if err := ix.load(); err != nil {
			return nil, fmt.Errorf("load index: %w", err)
		}
	}
	ix.reassess()
	ix.publish()
	return ix, nil
}

// Snapshot returns the newest state. It never blocks.
func (ix *Index) Snapshot() *Snapshot { return ix.snap.Load() }

// Counters returns a copy of the counters.
func (ix *Index) Counters() Counters {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	n := ix.n
	n.Records, n.RecordBytes = ix.tab.count, ix.tab.bytes
	n.Evicted = ix.tab.cut
	n.Runs, n.OpenXIDs = ix.ord.len(), len(ix.open)
	h := ix.h.Set()
	n.HorizonGTIDs, n.HorizonRuns, n.Lost = h.Count(), h.NumIntervals(), ix.lost.Count()
	n.ProbeRefused = ix.clk.refused
	n.WatermarkAt = ix.clk.mark.sentAt()
	n.Seq = ix.seq
	if ix.targeted && ix.target > ix.seq {
		n.Behind = ix.target - ix.seq
	}
	n.PendingBytes = ix.pending.size()
	return n
}

// Resume tells where the index stands: the sequence of the last message whose
// items it holds, that message's header and digest. ok is false when it holds
// nothing that a follower could go on from: start cold.
func (ix *Index) Resume() (seq uint64, last event.Header, lastDigest [16]byte, ok bool) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return ix.seq, ix.header, ix.digest, ix.started && ix.cold == ""
}

// TickSent notes that this router sent a tick, and when. Ticks grow; zero is no
// tick.
func (ix *Index) TickSent(tick uint64, at int64) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.ticks.sent(tick, at)
	ix.evaluate() // leases end with time
	ix.publish()
}

// CaughtUp tells the stream's last sequence as of the newest check, made after
// the last [Index.Start]. connected false: the router is cut off from the
// stream.
func (ix *Index) CaughtUp(seq uint64, connected bool) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if !connected {
		if ix.blind == 0 {
			ix.blind = max(ix.opt.Clock(), 1)
			ix.opt.Log.Warn("cut off from the stream", "seq", ix.seq)
		}
		ix.publish()
		return
	}
	ix.blind = 0
	ix.target, ix.targeted = seq, true
	ix.checkCaught()
	ix.publish()
}

func (ix *Index) checkCaught() {
	if !ix.caught && ix.targeted && ix.started && ix.cold == "" && ix.seq >= ix.target {
		ix.caught = true
		ix.opt.Log.Info("caught up with the stream", "seq", ix.seq, "records", ix.tab.count)
	}
}

// ready tells whether answers may be given at all (P3).
func (ix *Index) ready() (bool, string) {
	switch {
	case ix.failed != nil:
		return false, "the store failed: " + ix.failed.Error()
	case ix.cold != "":
		return false, ix.cold
	case !ix.caught && !ix.targeted:
		return false, "the stream's end is not known yet"
	case !ix.caught:
		return false, fmt.Sprintf("behind the stream by %d messages", ix.target-min(ix.seq, ix.target))
	case ix.announced == nil:
		return false, "no primary is announced yet"
	}
	return true, ""
}

// publish makes the newest state visible to readers. Records of everything that
// it calls delivered are in the table already.
func (ix *Index) publish() {
	s := &Snapshot{
		tab: ix.tab, gen: ix.gen, blindSince: ix.blind,
		names: ix.names, primary: ix.primary, markAt: ix.clk.mark.sentAt(), newest: ix.clk.newest,
		markRefused: ix.clk.refused, arrived: ix.arrived.list,
		delivered: ix.d.Set(), horizon: ix.h.Set(), lost: ix.lost,
		failover: ix.failover, ordinals: ix.ord.view(),
		defs: ix.defs.view(), streamDefs: ix.streamDefs.view(), groups: ix.groups, hasher: ix.hasher,
	}
	s.ready, s.detail = ix.ready()
	if ix.announced != nil {
		s.left = ix.left
		s.foldNames = ix.announced.FoldNames
	}
	s.servers = make([]serverView, len(ix.servers))
	for i, sv := range ix.servers {
		ix.setHorizon(sv, s.horizon)
		s.servers[i] = sv.view
	}
	ix.snap.Store(s)
	ix.n.Snapshots++
}

// renew swaps in a new table. Readers of older snapshots notice.
func (ix *Index) renew() (old *table) {
	old = ix.tab
	ix.gen++
	ix.tab = newTable(ix.opt.MaxRecords)
	ix.tab.gen.Store(ix.gen)
	return old
}

// retire ends a table's use, once a snapshot with its successor is published.
func (t *table) retire() { t.gen.Store(math.MaxUint64) }

// Definition takes the newest definition of a table (STATE).
func (ix *Index) Definition(d *event.TableDefinition) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	k := nameKey{d.Schema, d.Table}
	prepared := *d
	prepared.Prepare(ix.hasher)
	ix.defs.set(k.shard(), k, &prepared)
	if ix.pending.on {
		ix.pending.tables = append(ix.pending.tables, d)
	}
	ix.publish()
	return nil
}
