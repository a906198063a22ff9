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

	"tidegate/cdc/event"
)

// WriterOptions of [OpenWriter]. Zero values have the documented defaults.
type WriterOptions struct {
	// Name tells people who writes (host and server). It has no other use.
	Name string
	// Groups are the columns whose values the tailer records; Before is not
	// looked at.
	Groups []event.GroupColumn
	// CheckpointEvery and CheckpointAge say after how many items, and after how
	// long if anything was written, a checkpoint comes. Defaults 131,072 and
	// [DefaultCheckpointAge]. A third of the stream's max_age and max_bytes bound both.
	CheckpointEvery uint64
	CheckpointAge   time.Duration
	// IdentityWindow is how many identities are kept for comparison. Default
	// 262,144.
	IdentityWindow int
	// QueueBytes bounds what waits to be published; a full queue blocks Append.
	// Default 4 MiB.
	QueueBytes int
	// BatchBytes is how large a message grows by group commit. Default 128 KiB.
	BatchBytes int
	// InFlight is how many messages may be unacknowledged. Default 4. With a
	// replicated stream it is 1: there the server refuses to check an
	// expectation while another is in process.
	InFlight int
	// AckTimeout is how long an ack may take. Default 5 s.
	AckTimeout time.Duration
	// Leader is what a standby has seen of the leader key, so that its wait is
	// not counted from OpenWriter on. Nil: nothing.
	Leader *LeaderObserver
	// Kept lets writers that one process opens one after another go on from what
	// the one before knew of the stream. Nil: each reads the tail.
	Kept *KeptTail

	// For tests: faults, and the bytes of a message.
	publisher  func(publisher) publisher
	leaseStore func(store) store
	limit      int
}

func (o *WriterOptions) setDefaults(replicas int) {
	setDefault(&o.CheckpointEvery, 1<<17)
	setDefault(&o.CheckpointAge, DefaultCheckpointAge)
	setDefault(&o.IdentityWindow, 1<<18)
	setDefault(&o.QueueBytes, 4<<20)
	setDefault(&o.BatchBytes, 128<<10)
	setDefault(&o.InFlight, 4)
	setDefault(&o.AckTimeout, 5*time.Second)
	if replicas > 1 {
		o.InFlight = 1
	}
}

// payloadReserve is kept free of a server's payload limit for headers.
const payloadReserve = 4 << 10

// maxPayload is the largest message that is written, whatever the server takes.
const maxPayload = 1 << 20

// Writer is the one writer of a WRITES stream. [OpenWriter] wins the leader
// key, [Writer.Begin] announces the primary, then [Writer.Run] publishes what
// Append and its like hand over. Append, Hole, Definitions, Checkpoint and
// Counters may be called at once by many; the others once each, in order.
type Writer struct {
	conn  *Conn
	o     WriterOptions
	log   *slog.Logger
	pub   publisher
	nats  *natsPublisher
	defs  *StatePublisher
	limit int // bytes of a message

	lease     *lease
	leaseStop context.CancelFunc
	leaseDone chan struct{}
	leaseLost chan struct{} // closed with leaseErr set
	leaseErr  error
	closed    sync.Once

	// Owned by Begin, then by Run.
	tail         *Tail
	led          *ledger
	header       event.Header // what each message repeats
	base         position     // the newest message known to be stored
	subjectEmpty bool         // the stream holds nothing: expect sequence 0
	inflight     []*outgoing
	unanswered   int
	doubt        error           // something failed: look at the stream before going on
	torn         bool            // the ledger has items that are in no message
	changed      <-chan struct{} // closed when the connection changes after the newest look
	pause        backoff
	results      chan result
	items        []queued // taken from the queue
	special      []*draft // to come before them: chunks, parts
	since        checkpointClock
	opened       *outgoing // the first message of the newest checkpoint
	spare        [][]byte

	mu      sync.Mutex
	queue   []queued
	bytes   int
	room    chan struct{}      // closed when the queue was taken
	err     error              // why nothing is taken any more
	refs    []storedCheckpoint // to be named in KV
	wake    chan struct{}
	refWake chan struct{}

	counters writerCounters
}

type queued struct {
	item  event.Item
	bytes int
}

// storedCheckpoint is a checkpoint that readers can not find yet.
type storedCheckpoint struct {
	ref     checkpointRef
	waiters []chan struct{}
}

type writerCounters struct {
	messages, transactions, bytes, skipped, resyncs, checkpoints atomic.Uint64
	tailMessages                                                 atomic.Uint64
	ackedSeq                                                     atomic.Uint64
	queueBytes                                                   atomic.Int64
}

// WriterCounters are running totals since OpenWriter.
type WriterCounters struct {
	Messages, Transactions, Bytes uint64 // acknowledged
	Skipped                       uint64 // came twice, by identity
	Resyncs                       uint64 // times the stream was asked what is in it
	Checkpoints                   uint64
	AckedSeq                      uint64 // newest sequence known to be stored
	TailMessages                  uint64 // read to know the tail
	QueueBytes                    uint64 // appended, and in no message yet: now
	TooLarge                      uint64 // definitions that NATS does not take
}

// OpenWriter waits until this process is the stream's writer (a standby of a
// pair stays here), takes a writer generation and reads the tail. The leader
// key is renewed until Close.
func OpenWriter(ctx context.Context, c *Conn, o WriterOptions) (*Writer, *Tail, error) {
	o.setDefaults(c.o.Replicas)
	w := &Writer{
		conn: c, o: o, log: c.log.With("writer", o.Name), results: make(chan result, o.InFlight),
		room: make(chan struct{}), wake: make(chan struct{}, 1), refWake: make(chan struct{}, 1),
		leaseDone: make(chan struct{}), leaseLost: make(chan struct{}),
	}
	var err error
	if w.lease, err = acquireLease(ctx, c, keyLeader, o.Name, o.Leader.seen()); err != nil {
		return nil, nil, fmt.Errorf("open writer: %w", err)
	}
	if o.leaseStore != nil {
		w.lease.kv = o.leaseStore(w.lease.kv)
	}
	leaseCtx, stop := context.WithCancel(context.Background())
	w.leaseStop = stop
	go w.keepLease(leaseCtx)
	if w.nats, err = newPublisher(c, c.names.writes); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open writer: %w", err), w.Close())
	}
	w.pub = w.nats
	if o.publisher != nil {
		w.pub = o.publisher(w.nats)
	}
	w.defs = NewStatePublisher(c)
	w.defs.held = true
	w.limit = min(maxPayload, int(c.nc.MaxPayload())-payloadReserve)
	if o.limit > 0 {
		w.limit = o.limit
	}
	if err := w.readTail(ctx); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open writer: %w", err), w.Close())
	}
	return w, w.tail, nil
}

// Generation is the writer's generation (rules §11.3).
func (w *Writer) Generation() event.Generation { return w.lease.record.Generation }

// keepLease renews the leader key until Close, which releases it.
func (w *Writer) keepLease(ctx context.Context) {
	defer close(w.leaseDone)
	if err := w.lease.keep(ctx, w.log); err != nil {
		w.leaseErr = err
		close(w.leaseLost)
	}
}

// Close gives the leader key back, so that a standby takes over at once. What
// Append took and Run did not publish is not lost: the next writer's dump
// brings it again. It may be called twice, also while Run runs, which then ends
// with ErrClosed.
func (w *Writer) Close() error {
	var err error
	w.closed.Do(func() {
		w.fail(ErrClosed)
		w.leaseStop()
		<-w.leaseDone
		if w.nats != nil {
			err = w.nats.close()
		}
	})
	return err
}

// fail makes every further Append fail.
func (w *Writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
		close(w.room)
		w.signal()
	}
}

func (w *Writer) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Append hands a committed transaction over, in commit order. It blocks while
// the queue is full and returns before the transaction is stored. The writer
// owns t from now on. After the writer ended it returns why.
func (w *Writer) Append(ctx context.Context, t *event.Transaction) error {
	if err := t.GTID.Validate(); err != nil {
		return fmt.Errorf("append transaction: %w", err)
	}
	return w.enqueue(ctx, t)
}

// Hole hands a hole over, in its place among the transactions.
func (w *Writer) Hole(ctx context.Context, h *event.Hole) error { return w.enqueue(ctx, h) }

// Definitions publishes definitions in STATE, latest wins, and names their
// versions in WRITES, in their place among the transactions. A dropped table
// has version 0. A definition that is larger than a message makes its table
// unknown to readers; it is logged and counted.
func (w *Writer) Definitions(ctx context.Context, defs []event.TableDefinition) error {
	if len(defs) == 0 {
		return nil
	}
	hasher := w.conn.Hasher()
	it := &event.Definitions{Defs: make([]event.DefRef, len(defs))}
	for i := range defs {
		scopes := hasher.Table(defs[i].Schema, defs[i].Table)
		it.Defs[i] = event.DefRef{Table: scopes.AnyRow, Version: defs[i].Version}
		if err := w.defs.PublishDefinition(&defs[i]); err != nil {
			// The stream goes on: one table that nobody may ask for is no reason to
			// withhold all others.
			w.log.Warn("a table can't be answered for", "table", defs[i].Schema+"."+defs[i].Table, "error", err)
		}
	}
	return w.enqueue(ctx, it)
}

func (w *Writer) enqueue(ctx context.Context, it event.Item) error {
	n := event.SizeBound(it)
	for {
		w.mu.Lock()
		if w.err != nil {
			defer w.mu.Unlock()
			return w.err
		}
		if w.bytes < w.o.QueueBytes {
			w.queue = append(w.queue, queued{it, n})
			w.bytes += n
			w.counters.queueBytes.Add(int64(n))
			if len(w.queue) == 1 {
				w.signal()
			}
			w.mu.Unlock()
			return nil
		}
		room := w.room
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return fmt.Errorf("append: %w", context.Cause(ctx))
		case <-room:
		}
	}
}

// Checkpoint asks for a checkpoint behind everything appended so far and waits
// until it is stored and readers find it.
func (w *Writer) Checkpoint(ctx context.Context) error {
	done := make(chan struct{})
	if err := w.enqueue(ctx, &wantCheckpoint{done: done}); err != nil {
		return err
	}
	for {
		w.mu.Lock()
		err, room := w.err, w.room
		w.mu.Unlock()
		select {
		case <-done:
			return nil
		default:
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for checkpoint: %w", context.Cause(ctx))
		case <-done:
			return nil
		case <-room: // also closed when the writer fails
		}
	}
}

// wantCheckpoint is a queued wish, not an item of the stream.
type wantCheckpoint struct {
	event.Definitions
	done chan struct{}
}

// Counters may be called at any time.
func (w *Writer) Counters() WriterCounters {
	c := &w.counters
	return WriterCounters{
		Messages: c.messages.Load(), Transactions: c.transactions.Load(), Bytes: c.bytes.Load(), Skipped: c.skipped.Load(),
		Resyncs: c.resyncs.Load(), Checkpoints: c.checkpoints.Load(), AckedSeq: c.ackedSeq.Load(), TailMessages: c.tailMessages.Load(), QueueBytes: uint64(c.queueBytes.Load()),
		TooLarge: w.defs.Counters().TooLarge,
	}
}

// Run publishes until ctx ends or the writer has to stop: [ErrFenced],
// [ErrSteppedBack], [ErrReused], [ErrClosed]. NATS being away is waited out.
func (w *Writer) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.defs.Run(ctx) })
	g.Go(func() error { return w.nameCheckpoints(ctx) })
	g.Go(func() error { return w.loop(ctx) })
	err := g.Wait()
	w.fail(err)
	w.keep()
	return err
}
