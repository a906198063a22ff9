package cdc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// defaultIdentityEntries bounds what one replica's tailer keeps of the stream
// ahead of the replica.
const defaultIdentityEntries = 200_000

// IdentitiesOptions of [NewIdentities].
type IdentitiesOptions struct {
	// Server is the replica's configured name. Required.
	Server string
	// Entries bounds the window. Default 200,000. A full window pauses the
	// follower until Forget or Observe makes room.
	Entries int
}

// Identities implements [event.Identities] for one replica: it follows WRITES
// and keeps identity and tables of what the replica's binlog has not shown yet
// (rules §2.2). All methods may be called at once by many; Run once.
//
// It begins at the newest checkpoint of which the replica has proven
// everything, so that nothing that is still to be compared lies before it. What
// the replica has proven it learns from the states that the replica's monitor
// publishes: whoever wires both calls Observe with each of them.
type Identities struct {
	conn *Conn
	o    IdentitiesOptions

	mu     sync.Mutex
	window map[gtid.GTID]event.Known
	// nameless are delivered GTIDs of which nothing gives an identity: before
	// the first message, or in a hole without a header. What was forgotten is
	// not among them: should it be asked for again, for another data set, it is
	// NotYet until the window begins anew, never waved through (P3).
	nameless *gtid.Builder
	empty    *gtid.Builder // of nameless: known to be empty on the primary
	lost     gtid.Set
	everLost gtid.Set
	lostIDs  map[event.Identity]struct{}
	history  event.History
	at       event.Version // of the newest announcement
	// losses are those of the announcements behind known, oldest first.
	losses  []loss
	known   event.Version
	starts  uint64   // how often a checkpoint was begun at
	vouched gtid.Set // delivered at the newest start
	changed chan struct{}
	room    chan struct{}      // closed when the window got room
	state   *event.ServerState // newest observed
	anew    chan struct{}      // closed when state belongs to another data set
	skip    gtid.Set           // needs no comparison
	pruned  time.Time          // when the window was held against skip
	waiting bool               // the follower waits for room
}

// loss is what an announcement lost.
type loss struct {
	at    event.Version
	gtids gtid.Set
}

// NewIdentities returns an Identities whose Run has to be started. Until it has
// read a checkpoint every GTID is [event.NotYet].
func NewIdentities(c *Conn, o IdentitiesOptions) *Identities {
	setDefault(&o.Entries, defaultIdentityEntries)
	i := &Identities{conn: c, o: o, changed: make(chan struct{}), room: make(chan struct{}), anew: make(chan struct{})}
	i.clear()
	return i
}

// clear forgets what the next checkpoint says. everLost stays: that a GTID once
// named a lost transaction does not end, and a data set that is met while the
// stream is read again must not take it into its base.
func (i *Identities) clear() {
	i.window = map[gtid.GTID]event.Known{}
	i.nameless, i.empty = &gtid.Builder{}, &gtid.Builder{}
	i.lost, i.lostIDs = gtid.Set{}, map[event.Identity]struct{}{}
}

// Observe tells the newest state of the replica: what it has proven needs no
// comparison any more; a new data set makes the identities begin anew, from an
// older checkpoint if it was rebuilt from a backup.
func (i *Identities) Observe(s *event.ServerState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.state == nil || i.state.DataSet != s.DataSet {
		close(i.anew)
		i.anew = make(chan struct{})
	}
	i.state = s
	i.pruneLocked()
}

// base of a state, as far as it is vetted: what is not is published as unproven, and
// may have to be compared.
func base(s *event.ServerState) gtid.Set { return s.Base.Subtract(s.Unproven) }

// proven is base, and what was shown.
func proven(s *event.ServerState) gtid.Set {
	return base(s).Union(s.Executed.Subtract(s.Unproven))
}

// skipLocked is what needs no comparison: base, and what was shown as far as
// the checkpoint vouches that it is of this stream (rules §5.4). What was shown
// since is forgotten one by one.
func (i *Identities) skipLocked() gtid.Set {
	return base(i.state).Union(proven(i.state).Intersect(i.vouched)).Subtract(i.everLost)
}

// passed tells whether nothing that has to be compared lies before a checkpoint:
// all of it is base, or was shown as what this very stream says. Behind an
// announcement that the replica's tailer has not seen, or in another history, it
// may have been another stream that stepped back (rules §5.4).
func (i *Identities) passed(cp *event.Checkpoint) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.state
	have := s.Base.Subtract(cp.EverLost())
	if cp.History == s.History && cp.LossAt <= s.LossSeen {
		have = s.Base.Union(proven(s))
	}
	return have.ContainsSet(cp.Delivered)
}

// pruneEvery bounds how often a full window is gone through: Forget makes room
// at once, this is for what nobody will compare.
const pruneEvery = time.Second

// pruneLocked drops from a full window what the newest state proves.
func (i *Identities) pruneLocked() {
	if i.state == nil || len(i.window) < i.o.Entries || time.Since(i.pruned) < pruneEvery {
		return
	}
	i.pruned = time.Now()
	i.skip = i.skipLocked()
	for g := range i.window {
		if i.skip.Contains(g) {
			delete(i.window, g)
		}
	}
	i.makeRoomLocked()
}

// makeRoomLocked lets the follower go on once a tenth of the window is free, so
// that it does not wake for each entry.
func (i *Identities) makeRoomLocked() {
	if len(i.window) < i.o.Entries-i.o.Entries/10 || len(i.window) == 0 {
		close(i.room)
		i.room = make(chan struct{})
	}
}

// Run follows WRITES until ctx ends; see [Follower.Run] for errors.
func (i *Identities) Run(ctx context.Context) error {
	if err := i.firstState(ctx); err != nil {
		return err
	}
	for {
		i.mu.Lock()
		i.clear()
		anew := i.anew
		i.mu.Unlock()
		run, cancel := context.WithCancelCause(ctx)
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			select {
			case <-anew:
				cancel(errOtherDataSet)
			case <-run.Done():
			}
		}()
		f := NewFollower(i.conn, FollowerOptions{
			Sink: &identitySink{i, run}, WritesOnly: true,
			StartAt: i.passed,
		})
		err := f.Run(run)
		cancel(nil)
		<-stop
		if !errors.Is(err, errOtherDataSet) {
			return err
		}
	}
}

// errOtherDataSet: what was proven belongs to a data set that is no more.
var errOtherDataSet = errors.New("the replica has another data set")

// firstState waits until there is a state of the replica: the last one in
// STATE, or the first that is observed.
func (i *Identities) firstState(ctx context.Context) error {
	last, err := i.conn.LastState(ctx, i.o.Server)
	if err != nil {
		return fmt.Errorf("follow identities for %s: %w", i.o.Server, err)
	}
	for {
		i.mu.Lock()
		if i.state == nil {
			i.state = last
		}
		known, anew := i.state != nil, i.anew
		i.mu.Unlock()
		if known {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-anew:
		}
	}
}

// Lookup implements [event.Identities].
func (i *Identities) Lookup(g gtid.GTID) event.Known {
	i.mu.Lock()
	defer i.mu.Unlock()
	k, ok := i.window[g]
	switch {
	case ok:
	case i.lost.Contains(g):
		k.State = event.IsLost
	case !i.nameless.Contains(g):
		k.State = event.NotYet
	case i.empty.Contains(g):
		k.State, k.Flags = event.EmptyOnPrimary, event.Empty
	default:
		k.State = event.NoIdentity
	}
	k.At = i.readingLocked()
	return k
}

func (i *Identities) readingLocked() event.Reading {
	return event.Reading{Starts: i.starts, Announced: i.at}
}

// Since implements [event.Identities].
func (i *Identities) Since(announced event.Version) event.Turn {
	i.mu.Lock()
	defer i.mu.Unlock()
	t := event.Turn{History: i.history, Announced: i.at, Starts: i.starts, Vouched: i.vouched, EverLost: i.everLost}
	if announced < i.known {
		t.Lost = i.everLost
		return t
	}
	for k := len(i.losses) - 1; k >= 0 && i.losses[k].at > announced; k-- {
		t.Lost = t.Lost.Union(i.losses[k].gtids)
	}
	return t
}

// LostIdentity implements [event.Identities].
func (i *Identities) LostIdentity(id event.Identity) (lost bool, at event.Reading) {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, lost = i.lostIDs[id]
	return lost, i.readingLocked()
}

// Changed implements [event.Identities].
func (i *Identities) Changed() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.changed
}

// Forget implements [event.Identities].
func (i *Identities) Forget(g gtid.GTID, at event.Reading) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.window[g]; ok && at == i.readingLocked() {
		delete(i.window, g)
		if i.waiting {
			i.makeRoomLocked()
		}
	}
}

// Len is how many entries the window holds.
func (i *Identities) Len() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.window)
}

func (i *Identities) newsLocked() {
	close(i.changed)
	i.changed = make(chan struct{})
}

// identitySink is the follower's side of Identities.
type identitySink struct {
	*Identities
	ctx context.Context // of the follower: ends a wait for room
}

func (s *identitySink) Resume() (uint64, event.Header, [16]byte, bool) {
	return 0, event.Header{}, [16]byte{}, false
}
func (s *identitySink) State(*event.ServerState) error          { return nil }
func (s *identitySink) Definition(*event.TableDefinition) error { return nil }
func (s *identitySink) CaughtUp(uint64, bool)                   {}

func (s *identitySink) Start(cp *event.Checkpoint, _ uint64, _ event.Header, _ event.Version) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	if s.starts == 0 || s.at != cp.LossAt {
		// Not where it stood: what was lost before is told as a whole.
		s.losses, s.known = nil, cp.LossAt
	}
	s.history, s.at = cp.History, cp.LossAt
	s.starts++
	s.vouched = cp.Delivered
	s.nameless.Reset(cp.Delivered)
	s.empty.Reset(cp.KnownEmpty)
	s.everLost = s.everLost.Union(cp.EverLost())
	s.lose(cp.Lost, cp.LostIDs)
	s.skip = s.skipLocked()
	s.newsLocked()
	return nil
}

// lose takes over the complete lists of what is lost.
func (s *identitySink) lose(lost gtid.Set, ids []event.Identity) {
	s.lost = lost
	clear(s.lostIDs)
	for _, id := range ids {
		s.lostIDs[id] = struct{}{}
	}
}

func (s *identitySink) Writes(_ uint64, m *event.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := m.First
	for _, it := range m.Items {
		v := event.MakeVersion(m.Timeline, at)
		at += ordinals(it)
		switch x := it.(type) {
		case *event.Transaction:
			if err := s.transaction(x); err != nil {
				return err
			}
		case *event.Chunk:
			if x.Last != nil {
				if err := s.transaction(x.Last); err != nil {
					return err
				}
			}
		case *event.Hole:
			if err := s.hole(x); err != nil {
				return err
			}
		case *event.Announcement:
			s.announcement(x, v)
		}
	}
	s.newsLocked()
	return nil
}

func (s *identitySink) transaction(t *event.Transaction) error {
	if !s.lost.IsEmpty() {
		s.lost = s.lost.Subtract(gtid.Of(t.GTID))
	}
	// A server that still had a lost one is the primary now.
	delete(s.lostIDs, t.Identity())
	s.named(t.GTID)
	return s.keep(t.GTID, event.Known{State: event.Identified, OriginalCommit: t.OriginalCommit, Flags: t.Flags, Tables: t.Tables})
}

// named takes a GTID out of those without identity.
func (s *identitySink) named(g gtid.GTID) {
	if s.nameless.Contains(g) {
		s.nameless.Remove(gtid.Of(g))
		s.empty.Remove(gtid.Of(g))
	}
}

func (s *identitySink) hole(h *event.Hole) error {
	s.nameless.AddSet(h.GTIDs)
	s.lost = s.lost.Subtract(h.GTIDs)
	s.empty.Remove(h.GTIDs)
	for i := range h.Headers {
		k := event.Known{State: event.HeaderOnly, OriginalCommit: h.Headers[i].OriginalCommit}
		if h.Headers[i].Empty {
			k.Flags = event.Empty
		}
		delete(s.lostIDs, h.Headers[i].Identity)
		s.named(h.Headers[i].GTID)
		if err := s.keep(h.Headers[i].GTID, k); err != nil {
			return err
		}
	}
	return nil
}

// keep puts an entry into the window; it waits for room with the lock released.
func (s *identitySink) keep(g gtid.GTID, k event.Known) error {
	if s.skip.Contains(g) {
		return nil
	}
	for len(s.window) >= s.o.Entries {
		if s.pruneLocked(); len(s.window) < s.o.Entries {
			break
		}
		s.newsLocked() // what is in the window has to be seen to be forgotten
		room := s.room
		s.waiting = true
		s.mu.Unlock()
		select {
		case <-room:
		case <-s.ctx.Done():
		}
		s.mu.Lock()
		s.waiting = false
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
	}
	if !s.skip.Contains(g) {
		s.window[g] = k
	}
	return nil
}

func (s *identitySink) announcement(a *event.Announcement, v event.Version) {
	s.history, s.at = a.History, v
	newly := a.NewlyLost.Union(a.Lost.Subtract(s.lost))
	if !newly.IsEmpty() {
		s.losses = append(s.losses, loss{v, newly})
		s.everLost = s.everLost.Union(newly)
		// Whatever comes under the GTID of a lost transaction is kept: that the
		// replica has proven the lost one proves nothing of it.
		s.skip = s.skip.Subtract(s.everLost)
	}
	s.lose(a.Lost, a.LostIDs)
	s.nameless.Remove(a.Lost)
	s.empty.Remove(a.Lost)
	for g := range s.window {
		if a.Lost.Contains(g) {
			delete(s.window, g)
		}
	}
}
