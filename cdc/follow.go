package cdc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nats-io/nats.go/jetstream"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// Sink is what a [Follower] feeds: an index. The follower calls all methods from
// one goroutine. An error ends the follower, unless Resume says afterwards that
// the sink has to start cold: then the follower starts it at a checkpoint.
type Sink interface {
	// Start begins anew at a checkpoint: everything earlier is horizon, records
	// are dropped. seq, h and version belong to the checkpoint. The message that
	// carries it follows through Writes.
	Start(cp *event.Checkpoint, seq uint64, h event.Header, version event.Version) error
	// Writes takes the next message in. m.Digest is what Resume has to return
	// for it. A checkpoint of another history begins that history; the follower
	// calls Start before it where it knows, and it does not know what a resumed
	// sink held: the sink compares too. Items of an ignored writer (a lower generation, rules §11.3) are
	// left out. Parts are put together; Count may therefore skip.
	Writes(seq uint64, m *event.Message) error
	// State and Definition take the newest value of a subject of STATE; the
	// same one may come again.
	State(s *event.ServerState) error
	Definition(d *event.TableDefinition) error
	// CaughtUp tells the stream's last sequence as of the newest look at it;
	// connected false: the follower is cut off, seq is the last one known.
	CaughtUp(seq uint64, connected bool)
	// Resume tells where the sink stands; ok false: it starts cold.
	Resume() (seq uint64, last event.Header, lastDigest [16]byte, ok bool)
}

// FollowerOptions of [NewFollower].
type FollowerOptions struct {
	Sink Sink // required
	// WritesOnly leaves STATE out.
	WritesOnly bool
	// StartAt picks the checkpoint to start cold at: the newest one that it
	// accepts, or the oldest that is left. Nil: the newest.
	StartAt func(cp *event.Checkpoint) bool
	// CheckEvery is how often the stream's end is compared with the position,
	// besides at each reconnect. Default 1 s.
	CheckEvery time.Duration
}

// FollowerCounters are totals since NewFollower; Seq, LastSeq, LagMessages and
// Oldest describe the newest look.
type FollowerCounters struct {
	Messages, Transactions, Bytes uint64
	Rebuilds                      uint64 // times it had to start at a checkpoint
	Reopened                      uint64 // times it opened a consumer
	Ignored                       uint64 // messages of a lower generation
	Seq, LastSeq, LagMessages     uint64
	Connected                     bool
	// Oldest is the first GTID that the stream still holds as a message, and
	// OldestAt when it was committed, in microseconds since 1970; zero: none.
	Oldest   gtid.GTID
	OldestAt int64
}

// Follower reads WRITES and STATE for one sink, verifies the chain (rules
// §5.4), resumes where the sink stands, and starts anew at a checkpoint when
// the stream stepped back, was purged or replaced.
type Follower struct {
	conn *Conn
	o    FollowerOptions
	log  *slog.Logger

	// Owned by Run.
	at         position
	generation event.Generation // the highest seen since the start
	history    event.History    // 0: not known since the start
	cold       bool
	retried    uint64 // sequence at which the chain broke last; a second time is no transport loss
	join       assembler
	leader     string
	created    time.Time

	n struct {
		messages, transactions, bytes, rebuilds, reopened, ignored atomic.Uint64
		seq, lastSeq                                               atomic.Uint64
		connected                                                  atomic.Bool
		oldest                                                     atomic.Pointer[event.Identity]
		oldestSeq                                                  uint64
	}
}

// NewFollower returns a follower whose Run has to be started.
func NewFollower(c *Conn, o FollowerOptions) *Follower {
	setDefault(&o.CheckEvery, time.Second)
	return &Follower{conn: c, o: o, log: c.log}
}

// Counters may be called at any time.
func (f *Follower) Counters() FollowerCounters {
	c := FollowerCounters{
		Messages: f.n.messages.Load(), Transactions: f.n.transactions.Load(), Bytes: f.n.bytes.Load(),
		Rebuilds: f.n.rebuilds.Load(), Reopened: f.n.reopened.Load(), Ignored: f.n.ignored.Load(),
		Seq: f.n.seq.Load(), LastSeq: f.n.lastSeq.Load(), Connected: f.n.connected.Load(),
	}
	c.LagMessages = c.LastSeq - min(c.Seq, c.LastSeq)
	if id := f.n.oldest.Load(); id != nil {
		c.Oldest, c.OldestAt = id.GTID, id.OriginalCommit
	}
	return c
}

// errRebuild: the sink's position is not in the stream any more.
var errRebuild = errors.New("the stream is not the one that was followed")

// errWait: nothing to follow yet.
var errWait = errors.New("no usable checkpoint yet")

// Run follows until ctx ends. It returns the cause of ctx, an error of the
// sink, [event.ErrNewerFormat] or [ErrSecret]; everything else is retried.
func (f *Follower) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	states := make(chan decoded, feedAhead)
	if !f.o.WritesOnly {
		g.Go(func() error { return f.followState(ctx, states) })
	}
	g.Go(func() error { return f.run(ctx, states) })
	return g.Wait()
}

func (f *Follower) run(ctx context.Context, states <-chan decoded) error {
	defer f.cutOff()
	seq, header, digest, ok := f.o.Sink.Resume()
	f.at, f.cold = position{seq: seq, header: header, digest: digest}, !ok
	f.generation = header.Generation
	var pause backoff
	said := "" // the reason that was logged last: each is, once
	for {
		before, cold := f.n.messages.Load(), f.cold
		err := f.session(ctx, states)
		// A start at a checkpoint that leads to another start is no progress.
		if f.n.messages.Load() > before && (!cold || !errors.Is(err, errRebuild)) {
			pause, said = backoff{}, ""
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errRebuild):
			if err.Error() != said {
				said = err.Error()
				f.log.Warn("follower starts again at a checkpoint", "error", err, "seq", f.at.seq)
			}
			f.cold = true
			f.n.rebuilds.Add(1)
		case errors.Is(err, errSink), errors.Is(err, event.ErrNewerFormat), errors.Is(err, ErrSecret):
			return err
		case err.Error() != said && !errors.Is(err, errWait):
			said = err.Error()
			f.log.Info("follower opens WRITES again", "error", err, "seq", f.at.seq)
		}
		if !errors.Is(err, errWait) {
			f.cutOff()
		}
		// What comes in STATE goes on while WRITES waits.
		if err := f.rest(ctx, &pause, states); err != nil {
			return err
		}
	}
}

// rest waits a little, or until the connection changes.
func (f *Follower) rest(ctx context.Context, pause *backoff, states <-chan decoded) error {
	_, changed := f.conn.Connected()
	timer := time.NewTimer(min(minBackoff<<min(pause.attempts, 10), f.o.CheckEvery))
	defer timer.Stop()
	pause.attempts++
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case d := <-states:
			if err := f.takeState(d); err != nil {
				return err
			}
		case <-changed:
			return nil
		case <-timer.C:
			return nil
		}
	}
}

func (f *Follower) cutOff() {
	f.n.connected.Store(false)
	f.o.Sink.CaughtUp(f.n.lastSeq.Load(), false)
}

// errSink wraps what the sink returned.
var errSink = errors.New("sink")

// session opens the stream where the sink stands and follows it until the first
// trouble.
func (f *Follower) session(ctx context.Context, states <-chan decoded) error {
	info, err := f.info(ctx)
	if err != nil {
		return err
	}
	first := f.at.seq + 1
	if f.cold {
		if first, err = f.findStart(ctx, info); err != nil {
			return err
		}
		// What is before a newer writer's messages is of an older one, and no less
		// true: of a stream that stepped back only that may be left, and who starts
		// at an old checkpoint reads it first. From here on generations only rise.
		f.at, f.join, f.generation = position{}, assembler{}, 0
	} else if err := f.verify(ctx, info); err != nil {
		return err
	}
	f.created, f.leader = info.Created, leaderOf(info)
	feed, err := f.conn.openFeed(ctx, f.conn.names.writes, from(first))
	if err != nil {
		return err
	}
	f.n.reopened.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	messages := make(chan decoded, feedAhead)
	done := make(chan struct{})
	go func() {
		defer close(done)
		feed.decode(ctx, messages, f.decodeWrites)
	}()
	defer func() {
		cancel()
		feed.close()
		<-done
	}()
	f.caughtUp(info.State.LastSeq)
	return f.follow(ctx, messages, states)
}

// lookedAt is what the stream was like when a look at it began.
type lookedAt struct {
	seq  uint64 // how far it had been read then
	info *jetstream.StreamInfo
	err  error
}

func (f *Follower) follow(ctx context.Context, messages, states <-chan decoded) error {
	check := time.NewTicker(f.o.CheckEvery)
	defer check.Stop()
	_, changed := f.conn.Connected()
	// A look takes as long as JetStream likes, and what comes does not wait for it.
	var looks sync.WaitGroup
	defer looks.Wait()
	looked, looking := make(chan lookedAt, 1), false
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case d := <-messages:
			if d.err != nil {
				return d.err
			}
			if err := f.take(d); err != nil {
				return err
			}
		case d := <-states:
			if err := f.takeState(d); err != nil {
				return err
			}
		case <-changed:
			// Compared by the next session, on each reconnect.
			return errDisconnected
		case <-check.C:
			if looking {
				continue
			}
			looking = true
			at := f.at.seq
			looks.Go(func() {
				info, err := f.info(ctx)
				looked <- lookedAt{at, info, err}
			})
		case l := <-looked:
			looking = false
			if l.err != nil {
				return l.err
			}
			if !l.info.Created.Equal(f.created) || leaderOf(l.info) != f.leader || l.info.State.LastSeq < l.seq || l.info.State.Msgs == 0 {
				return fmt.Errorf("stream has another leader, is shorter or empty: %w", errDisconnected)
			}
			f.caughtUp(l.info.State.LastSeq)
		}
	}
}

func (f *Follower) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	var info *jetstream.StreamInfo
	err := f.conn.bounded(ctx, func(ctx context.Context) error {
		s, err := f.conn.js.Stream(ctx, f.conn.names.writes)
		if err != nil {
			return err
		}
		info = s.CachedInfo()
		return f.lookOldest(ctx, s, info.State.FirstSeq)
	})
	if err != nil {
		return nil, fmt.Errorf("look at WRITES: %w", err)
	}
	return info, nil
}

// lookOldest finds the oldest GTID that the stream still holds: who needs an
// older one has to be told.
func (f *Follower) lookOldest(ctx context.Context, s jetstream.Stream, first uint64) error {
	if first == f.n.oldestSeq || s.CachedInfo().State.Msgs == 0 {
		return nil
	}
	for seq := first; seq < first+oldestReach && seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // gone meanwhile
		}
		if err != nil {
			return err
		}
		id, ok := firstIdentity(m.Data)
		if ok {
			f.n.oldest.Store(&id)
			f.n.oldestSeq = first
			return nil
		}
	}
	return nil
}

// oldestReach is how many messages are looked at for the oldest GTID: the
// first ones may be checkpoints or announcements.
const oldestReach = 8

func firstIdentity(data []byte) (event.Identity, bool) {
	m, err := event.DecodeMessage(data)
	if err != nil {
		return event.Identity{}, false // who reads it there complains
	}
	for _, it := range m.Items {
		switch v := it.(type) {
		case *event.Transaction:
			return v.Identity(), true
		case *event.Chunk:
			if v.Last != nil {
				return v.Last.Identity(), true
			}
		}
	}
	return event.Identity{}, false
}

func leaderOf(info *jetstream.StreamInfo) string {
	if info.Cluster == nil {
		return ""
	}
	return info.Cluster.Leader
}

// caughtUp tells the sink how far the stream goes. Before a rebuild has begun it
// does not: what the sink knows is then not of this stream, and its position
// must not be compared with the stream's end (P3).
func (f *Follower) caughtUp(last uint64) {
	f.n.lastSeq.Store(last)
	if !f.cold {
		f.n.connected.Store(true)
		f.o.Sink.CaughtUp(last, true)
	}
}

// verify holds the sink's position against the stream: it must lie in it, with
// the same message there.
func (f *Follower) verify(ctx context.Context, info *jetstream.StreamInfo) error {
	st := &info.State
	switch {
	case st.LastSeq < f.at.seq:
		return fmt.Errorf("it ends at %d, read up to %d: %w", st.LastSeq, f.at.seq, errRebuild)
	case st.FirstSeq > f.at.seq+1 || st.Msgs == 0:
		return fmt.Errorf("it begins at %d, read up to %d: %w", st.FirstSeq, f.at.seq, errRebuild)
	case st.FirstSeq == f.at.seq+1:
		return nil // the next message proves it, by its Prev
	}
	var data []byte
	err := f.conn.bounded(ctx, func(ctx context.Context) error {
		s, err := f.conn.js.Stream(ctx, f.conn.names.writes)
		if err != nil {
			return err
		}
		m, err := s.GetMsg(ctx, f.at.seq)
		if err != nil {
			return err
		}
		data = m.Data
		return nil
	})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return fmt.Errorf("message %d is gone: %w", f.at.seq, errRebuild)
	case err != nil:
		return fmt.Errorf("look at message %d of WRITES: %w", f.at.seq, err)
	case event.DigestOf(data) != f.at.digest:
		return fmt.Errorf("message %d is another one: %w", f.at.seq, errRebuild)
	}
	return nil
}

// take verifies a message and hands it on.
func (f *Follower) take(d decoded) error {
	m := d.message
	switch {
	case f.at.header.Count == 0 && f.at.seq == 0:
		// The checkpoint of a cold start.
	case m.Incarnation != f.at.header.Incarnation:
		return fmt.Errorf("message %d is of another incarnation: %w", d.seq, errRebuild)
	case !f.at.follows(m):
		if f.retried != d.seq {
			// Perhaps messages were lost on the way here: read again from the
			// position.
			f.retried = d.seq
			return fmt.Errorf("message %d does not follow %d: %w", d.seq, f.at.seq, errDisconnected)
		}
		return fmt.Errorf("message %d does not follow %d: %w", d.seq, f.at.seq, errRebuild)
	}
	if m.SecretPrint != f.conn.secret.Print() {
		return fmt.Errorf("message %d: %w", d.seq, ErrSecret)
	}
	if m.Fold != key.FoldVersion {
		return fmt.Errorf("message %d is folded by version %d, this program folds by %d: %w", d.seq, m.Fold, key.FoldVersion, errRebuild)
	}
	f.at = position{seq: d.seq, header: m.Header, digest: m.Digest}
	f.n.messages.Add(1)
	f.n.bytes.Add(uint64(d.bytes))
	if m.Generation < f.generation {
		f.n.ignored.Add(1)
		out := *m
		// Who resumes behind it has to know the highest.
		out.Items, out.Generation = nil, f.generation
		m = &out
	}
	f.generation = max(f.generation, m.Generation)
	whole, err := f.join.add(m)
	if err != nil {
		return fmt.Errorf("message %d: %w (%w)", d.seq, errRebuild, err)
	}
	if whole != nil {
		if err := f.deliver(d.seq, whole); err != nil {
			return err
		}
		f.n.seq.Store(d.seq)
	}
	return nil
}

func (f *Follower) deliver(seq uint64, m *event.Message) error {
	if cp, ok := one[*event.Checkpoint](m); ok {
		if f.cold || cp.History != f.history && f.history != 0 {
			// A new history drops records, D and H (rules §1): it begins with
			// its checkpoint, here as after a cold start.
			if err := f.o.Sink.Start(cp, seq, m.Header, event.MakeVersion(m.Timeline, m.First)); err != nil {
				return fmt.Errorf("%w: start at checkpoint %d: %w", errSink, seq, err)
			}
			f.cold = false
			f.caughtUp(f.n.lastSeq.Load())
		}
		f.history = cp.History
	} else if f.cold {
		return fmt.Errorf("message %d is no checkpoint: %w", seq, errRebuild)
	} else if a, ok := one[*event.Announcement](m); ok {
		f.history = a.History
	}
	if err := f.o.Sink.Writes(seq, m); err != nil {
		if _, _, _, ok := f.o.Sink.Resume(); !ok {
			return fmt.Errorf("%w: message %d of WRITES: %w", errRebuild, seq, err)
		}
		return fmt.Errorf("%w: message %d of WRITES: %w", errSink, seq, err)
	}
	for _, it := range m.Items {
		switch v := it.(type) {
		case *event.Transaction:
			f.n.transactions.Add(1)
		case *event.Chunk:
			if v.Last != nil {
				f.n.transactions.Add(1)
			}
		}
	}
	return nil
}

// one returns a message's only item if it is of this kind.
func one[T event.Item](m *event.Message) (T, bool) {
	if len(m.Items) == 1 {
		v, ok := m.Items[0].(T)
		return v, ok
	}
	var none T
	return none, false
}

func (f *Follower) takeState(d decoded) error {
	if d.err != nil {
		return d.err
	}
	var err error
	if d.state != nil {
		err = f.o.Sink.State(d.state)
	} else {
		err = f.o.Sink.Definition(d.definition)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errSink, d.subject, err)
	}
	return nil
}
