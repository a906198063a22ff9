package binlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// Defaults of [TailerOptions].
const (
	DefaultKeyCap        = 100_000
	DefaultHeartbeat     = time.Second
	DefaultReadTimeout   = 5 * time.Second
	DefaultMaxEventBytes = 64 << 20
)

// Bounds of the pause between attempts to connect, and how often something may
// go wrong at one place before it is no accident any more.
const (
	minPause       = 50 * time.Millisecond
	maxPause       = 5 * time.Second
	attemptsToStop = 5
)

// TailerOptions says what to tail and how.
type TailerOptions struct {
	Server ServerConfig
	Mode   Mode
	// From is what is not wanted any more: the dump brings everything else.
	From   gtid.Set
	Hasher key.Hasher
	// Groups are the group columns, by table (schema.table as keys print it).
	// Keys mode only.
	Groups map[string][]string
	// KeyCap bounds the keys of one transaction; 0: DefaultKeyCap.
	KeyCap int
	// Heartbeat is how often an idle server says that it lives; 0:
	// DefaultHeartbeat. ReadTimeout is how long the connection may be silent; 0:
	// DefaultReadTimeout, or three heartbeats when those are longer.
	Heartbeat, ReadTimeout time.Duration
	// BusyPause lies between two looks at a binlog that brings something at nearly
	// every look: what is read comes later by as much, and costs less
	// (decisions/paced-reads.md). 0: each event is read as it comes.
	BusyPause time.Duration
	// MaxEventBytes bounds the event that is kept in memory as a whole; larger
	// ones write all-rows of their table. 0: DefaultMaxEventBytes.
	MaxEventBytes int
	// OnPurged is asked when the server has purged what the tailer needs. True:
	// the handler gets a hole for what is missing, and the tail goes on behind
	// it. Nil, or false: Run returns the error.
	OnPurged func(ctx context.Context, e *PurgedError) bool
	// SameRun is asked once a connection is there, before anything is read from
	// it: whether the server is, now, in the run that is to be read. False ends Run
	// with an [OtherRunError]; after an error the tailer connects again. Nil: any
	// run will do.
	SameRun func(ctx context.Context) (bool, error)
	// Dial opens sessions; nil: the server.
	Dial func(ctx context.Context, from gtid.Set) (*Session, error)
	Log  *slog.Logger // nil: discards
}

// validate reports everything that is wrong at once and fills in defaults.
func (o *TailerOptions) validate() error {
	var errs []error
	if o.Dial == nil {
		errs = append(errs, o.Server.Validate())
	}
	for printed := range o.Groups {
		if _, _, err := key.ParseTable(printed); err != nil {
			errs = append(errs, fmt.Errorf("keys: %q: %w", printed, err))
		}
	}
	if o.KeyCap < 0 || o.MaxEventBytes < 0 || o.Heartbeat < 0 || o.ReadTimeout < 0 || o.BusyPause < 0 {
		errs = append(errs, errors.New("tailer: a negative bound"))
	}
	setDefault(&o.KeyCap, DefaultKeyCap)
	setDefault(&o.MaxEventBytes, DefaultMaxEventBytes)
	setDefault(&o.Heartbeat, DefaultHeartbeat)
	setDefault(&o.ReadTimeout, max(DefaultReadTimeout, 3*o.Heartbeat))
	if o.ReadTimeout <= o.Heartbeat {
		errs = append(errs, fmt.Errorf("tailer: read timeout %s is not longer than the heartbeat %s", o.ReadTimeout, o.Heartbeat))
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Handler takes what a tailer reads. All methods are called from the tailer's
// one goroutine, in commit order; one that blocks slows the server's dump, and
// nothing is dropped. An error ends Run.
type Handler interface {
	// Transaction takes one transaction. The values belong to the handler.
	Transaction(ctx context.Context, t *event.Transaction, at Position) error
	// Hole takes changes that can't be had.
	Hole(ctx context.Context, h *event.Hole) error
	// Definitions takes definitions that hold for the rows of later transactions,
	// to be published and, as references, to be named in WRITES. Keys mode only.
	Definitions(ctx context.Context, defs []event.TableDefinition) error
	// Progress tells that the server has nothing more at the moment, or went on
	// to another file; nothing was committed.
	Progress(ctx context.Context, at Position) error
}

// Tailer reads the binlog of one server.
type Tailer struct {
	o    TailerOptions
	uuid gtid.UUID // as whom it registers at the server

	// What follows belongs to Run's goroutine.
	executed *gtid.Builder
	counts   Counters
	reg      *registry
	asm      *assembler
	defs     definer
	trouble  trouble
	ready    bool // a session was up once
	proven   bool // the server has sent something that counts

	mu  sync.Mutex
	pub published // guarded by mu
}

// published is what others may ask for while Run runs.
type published struct {
	counts   Counters
	executed gtid.Set
	at       Position
	up       bool
	lastErr  error
}

// NewTailer checks the options; it does not connect.
func NewTailer(o TailerOptions) (*Tailer, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	t := &Tailer{o: o, executed: gtid.NewBuilder(o.From), uuid: randomUUID()}
	groups := o.Groups
	if o.Mode == Hints {
		groups = nil
	}
	t.reg = newRegistry(o.Hasher, groups)
	t.asm = newAssembler(o.Mode, o.KeyCap, o.MaxEventBytes, t.reg, &t.counts, t.executed.Contains)
	t.pub.executed = o.From
	return t, nil
}

// Counters may be called by many.
func (t *Tailer) Counters() Counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pub.counts
}

// Executed is the set of everything delivered, as of the newest heartbeat, or of
// Run's end. It may be called by many.
func (t *Tailer) Executed() gtid.Set {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pub.executed
}

// Status tells whether a session is up, where it reads, and what went wrong
// last. It may be called by many.
func (t *Tailer) Status() (up bool, at Position, lastErr error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pub.up, t.pub.at, t.pub.lastErr
}

// publish shows the counters; with the set, which costs a snapshot, when idle.
func (t *Tailer) publish(set bool) {
	var s gtid.Set
	if set {
		s = t.executed.Set()
	}
	t.mu.Lock()
	t.pub.counts = t.counts
	t.pub.at = t.asm.at
	if set {
		t.pub.executed = s
	}
	t.mu.Unlock()
}

func (t *Tailer) publishState(up bool, err error) {
	t.mu.Lock()
	t.pub.up = up
	if err != nil {
		t.pub.lastErr = err
	}
	t.mu.Unlock()
}

// Run reads until ctx ends (it returns ctx's error then), the handler fails, or
// something happens that only others can mend ([ClassOf]). Broken connections
// are tried again for ever. Run joins everything that it started. It may be
// called once.
func (t *Tailer) Run(ctx context.Context, h Handler) error {
	defer t.asm.close()
	if err := t.defs.open(t); err != nil {
		return err
	}
	defer t.defs.end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { t.publish(true) }()
	pause := minPause
	for {
		err := t.session(ctx, h, func() { pause, t.proven = minPause, true })
		t.publishState(false, err)
		if cause := ctx.Err(); cause != nil {
			return cause
		}
		var again *retryError
		if !errors.As(err, &again) {
			return err
		}
		t.o.Log.Info("binlog connection lost, trying again", "server", t.o.Server.Name, "error", again.err, "pause", pause)
		if err := sleep(ctx, jitter(pause)); err != nil {
			return err
		}
		pause = min(2*pause, longestPause(err, maxPause))
	}
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// retryError is what another connection may mend.
type retryError struct{ err error }

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

func retry(err error) error { return &retryError{err} }

// session is one connection. came is called when it has brought something.
func (t *Tailer) session(ctx context.Context, h Handler, came func()) error {
	s, err := t.connect(ctx, h)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	t.asm.restart()
	if err := t.reg.begin(&s.Facts, t.o.Server.Name); err != nil {
		return err
	}
	if t.ready {
		t.counts.Reconnects++
	}
	t.ready = true
	t.publishState(true, nil)
	t.o.Log.Info("binlog connected", "server", t.o.Server.Name, "version", s.Facts.Version)
	t.defs.begin(ctx, t, s.Facts.ServerUUID)
	if err := t.defs.settle(ctx, t, h); err != nil {
		return err
	}
	for {
		raw, err := s.Next(t.defs.waiting())
		if err == nil {
			err = t.take(ctx, h, raw, came)
		} else if ctx.Err() == nil && t.defs.woken() {
			err = t.defs.settle(ctx, t, h)
		} else {
			err = t.readFailed(ctx, h, err)
		}
		if err != nil {
			return err
		}
	}
}

// take hands one event to the assembler and what it completes to the handler.
func (t *Tailer) take(ctx context.Context, h Handler, raw Raw, came func()) error {
	out, err := t.asm.event(raw)
	if err != nil {
		if err = t.eventFailed(err); err != nil {
			return err
		}
	}
	switch {
	case out.txn != nil:
		if err := h.Transaction(ctx, out.txn, t.asm.at); err != nil {
			return fmt.Errorf("hand over transaction %s: %w", out.txn.GTID, err)
		}
		// P5: only now is it delivered; a cut before this line brings it again.
		t.executed.Add(out.txn.GTID)
		if out.txn.Flags&event.NotUnderstood != 0 {
			t.defs.unread(t)
		}
		t.trouble.reset()
		came()
	case out.hole != nil:
		if err := t.hole(ctx, h, out.hole); err != nil {
			return err
		}
		came()
	case out.progress:
		came()
		if err := h.Progress(ctx, t.asm.at); err != nil {
			return fmt.Errorf("hand over progress: %w", err)
		}
		t.publish(true)
		return t.defs.settle(ctx, t, h)
	default:
		return nil
	}
	t.publish(false)
	if len(out.ddl) > 0 {
		t.defs.ddl(t, out.ddl)
	}
	return t.defs.settle(ctx, t, h)
}

func (t *Tailer) hole(ctx context.Context, h Handler, hole *event.Hole) error {
	if err := h.Hole(ctx, hole); err != nil {
		return fmt.Errorf("hand over hole: %w", err)
	}
	t.executed.AddSet(hole.GTIDs)
	t.defs.unread(t)
	return nil
}

// trouble counts what goes wrong at one place of the binlog.
type trouble struct {
	at    gtid.GTID
	count int
}

func (c *trouble) reset() { c.count = 0 }

// again counts one more failure inside the transaction g, or outside of any.
func (c *trouble) again(g gtid.GTID) int {
	if c.at != g {
		c.at, c.count = g, 0
	}
	c.count++
	return c.count
}

// eventFailed decides about an event that can't be read. A wrong checksum is
// read again once; the second time the transaction becomes a write of
// everything, or, outside of any, the tail stops after some attempts: what it
// would skip has no name.
func (t *Tailer) eventFailed(err error) error {
	var g gtid.GTID
	if t.asm.txn.open {
		g = t.asm.txn.head.id
	}
	n := t.trouble.again(g)
	switch {
	case t.asm.txn.open && n > 1:
		t.o.Log.Warn("unreadable event: the transaction is taken for a write of everything", "server", t.o.Server.Name, "gtid", g, "error", err)
		t.asm.poison()
		return nil
	case n >= attemptsToStop:
		return &CorruptError{Server: t.o.Server.Name, At: t.asm.at, Err: err}
	}
	return retry(err)
}

// readFailed sorts what Next returned.
func (t *Tailer) readFailed(ctx context.Context, h Handler, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, io.EOF) {
		return retry(errors.New("the server ended the dump"))
	}
	if words, lacks := lacksPrivilege(err); lacks && !t.proven {
		return t.noPrivilege(words)
	}
	words, refused := dumpRefused(err)
	if !refused {
		return retry(err)
	}
	if isAnonymousRefusal(words) {
		hole := &event.Hole{Anonymous: true, Reason: words}
		t.counts.Holes++
		if err := t.hole(ctx, h, hole); err != nil {
			return err
		}
		return &AnonymousError{Server: t.o.Server.Name, Reason: words}
	}
	// Purged or diverged: the next connection finds out from the server's sets.
	if t.trouble.again(gtid.GTID{}) >= attemptsToStop {
		return &CorruptError{Server: t.o.Server.Name, At: t.asm.at, Err: err}
	}
	return retry(err)
}
