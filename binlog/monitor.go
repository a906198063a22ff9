package binlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// Defaults of [MonitorOptions] that the configuration has too.
const (
	DefaultMinInterval  = time.Millisecond
	DefaultProbeTimeout = 2 * time.Second
)

// MonitorOptions say how one server is watched. Functions are called from the
// monitor's goroutines, several at once, and must not call back into it unless
// said so.
type MonitorOptions struct {
	Server ServerConfig
	// Resume is the last state that was published of this server; nil: none. It
	// carries what belongs to the data set over a restart of the tailer: base,
	// taints, what was shown (rules §2.2).
	Resume *event.ServerState
	// NextEpoch draws a number from the cluster's counter. It may block; its
	// errors are retried.
	NextEpoch func(ctx context.Context) (event.Epoch, error)
	// Ticks returns the newest tick of each live router. [Monitor.Tick] says
	// that they changed; without that they are looked at every IdleInterval.
	Ticks func() []event.RouterTick
	// Identities tells what the stream has; nil only with `follow: executed`.
	Identities event.Identities
	Hasher     key.Hasher
	// Publish hands a state over; the state is not modified any more. It may
	// block for as long as ctx; an error is counted, and the next state is sent
	// soon.
	Publish func(ctx context.Context, s *event.ServerState) error
	// Tail reads the server's own binlog in [Hints] mode from a set on and calls
	// h, until ctx ends. nil: the monitor is a Handler whose calls the caller
	// makes.
	Tail func(ctx context.Context, from gtid.Set, h Handler) error

	// Accepted lists what the operator accepted for this server; nil: nothing.
	Accepted func() []Acceptance
	// PrimaryE returns owned ∪ executed of the announced primary from a probe
	// that began after the call. It is what makes a GTID errant (rules §2.3), and
	// vets what a data set had at first sight and its binlog does not show (§2.2);
	// nil: both stay merely unproven.
	PrimaryE func(ctx context.Context) (gtid.Set, error)
	// Definitions are the primary's, to find tables that this server filters or
	// keeps in another engine; nil: the server's own tables alone are looked at.
	Definitions func() []event.TableDefinition
	// PrimaryNames is lower_case_table_names of the announced primary; nil or
	// !known: not compared, and names fold by the server's own.
	PrimaryNames func() (lowerCase int, known bool)
	// OtherPrimary tells whether another reachable server is a primary; nil: no.
	OtherPrimary func() bool

	MinInterval    time.Duration // between the beginnings of two probes, up to four of it under load and on a primary; 0: DefaultMinInterval
	WaitSlice      time.Duration // how long one proof waits in the server; 0: 5 ms
	ProbeTimeout   time.Duration // of one probe, beyond the wait; 0: DefaultProbeTimeout. Then the lease ends
	IdleInterval   time.Duration // between looks at the ticks; 0: 50 ms
	AliveInterval  time.Duration // between probes when no router ticks; 0: 1 s
	FactsInterval  time.Duration // between looks at channels and settings; 0: 250 ms
	TablesInterval time.Duration // between looks at tables and engines; 0: 15 s
	RetryMin       time.Duration // first pause before a new connection; 0: 20 ms
	RetryMax       time.Duration // last, where the server answers with an error; 0: 5 s
	MaxPending     int           // sightings that wait for the stream before the tail is paused; 0: 65536
	Log            *slog.Logger  // nil: discarded
	// Clock is a suspend-aware clock in nanoseconds: how long a server was out of
	// sight must count what this host slept through, or a restart of mysqld
	// meanwhile passes for the same run. Nil: the process's own, which stops then.
	Clock func() int64

	backend backend // tests script one; nil: the real server
}

func (o *MonitorOptions) defaults() error {
	var errs []error
	if err := o.Server.Validate(); err != nil {
		errs = append(errs, err)
	}
	if o.Server.Follow == "" {
		o.Server.Follow = FollowBinlog
	}
	if o.NextEpoch == nil {
		errs = append(errs, errors.New("no NextEpoch"))
	}
	if o.Publish == nil {
		errs = append(errs, errors.New("no Publish"))
	}
	if o.Identities == nil && o.Server.Follow == FollowBinlog {
		errs = append(errs, errors.New("no Identities, which only follow: executed can do without"))
	}
	if o.Clock == nil {
		began := time.Now()
		o.Clock = func() int64 { return 1 + int64(time.Since(began)) }
	}
	if o.Ticks == nil {
		o.Ticks = func() []event.RouterTick { return nil }
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&o.MinInterval, DefaultMinInterval},
		{&o.WaitSlice, 5 * time.Millisecond},
		{&o.ProbeTimeout, DefaultProbeTimeout},
		{&o.IdleInterval, 50 * time.Millisecond},
		{&o.AliveInterval, time.Second},
		{&o.FactsInterval, 250 * time.Millisecond},
		{&o.TablesInterval, 15 * time.Second},
		{&o.RetryMin, 20 * time.Millisecond},
		{&o.RetryMax, 5 * time.Second},
	} {
		if *d.v < 0 {
			errs = append(errs, errors.New("a negative duration"))
		}
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if o.MaxPending <= 0 {
		o.MaxPending = 1 << 16
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("monitor of %s: %w", o.Server.Name, err)
	}
	return nil
}

// Monitor watches one server: it turns hints into proofs, finds role, run and
// data set, and publishes all of it as one state (rules §1, §2, §6).
//
// Run owns the connections; every other method may be called by many at once.
type Monitor struct {
	o       MonitorOptions
	backend backend
	log     *slog.Logger

	state    atomic.Pointer[event.ServerState]
	counters counters
	stuck    stuckTail
	unmet    string // why the server was never met, as last logged; Run's alone

	wake chan struct{} // capacity 1: something for the owner to look at
	news chan struct{} // capacity 1: something for the slow lane to look at

	mu       sync.Mutex
	tr       *tracker
	session  *session  // the live one; nil between two
	told     gtid.Set  // hints without a binlog event of this server
	fresh    []request // callers that wait for a probe begun after they asked
	room     chan struct{}
	was      remembered
	position Position // newest place in the server's binlog that was seen
	marked   marked   // what of it is published
	// ends are where the binlog of this data set stood when earlier runs ended, as
	// far as it was seen, oldest first.
	ends []event.RunEnd
	// ranSince is the first epoch of the mysqld that runs now, as far as anything
	// tells: later ones of the same data set are the same mysqld, met anew. 0: not met.
	ranSince event.Epoch
}

// request waits for the next full probe.
type request struct {
	ctx    context.Context
	answer chan freshAnswer // capacity 1
}

type freshAnswer struct {
	state *event.ServerState
	facts *serverFacts
	err   error
}

// NewMonitor checks the options. It does not connect; Run does.
func NewMonitor(o MonitorOptions) (*Monitor, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	m := &Monitor{
		o: o, log: o.Log.With("server", o.Server.Name),
		wake: make(chan struct{}, 1), news: make(chan struct{}, 1),
		room: make(chan struct{}),
		tr:   newTracker(o.Server.Follow),
	}
	m.o.Tail = m.stuck.watch(o.Tail)
	if r := o.Resume; r != nil && r.Follow == o.Server.Follow {
		m.was.state = r
		m.position = Position{r.BinlogFile, r.BinlogPos}
		m.marked = marked{m.position, fileMark(r.BinlogMark)}
		m.ends = r.Ends
	}
	m.backend = o.backend
	if m.backend == nil {
		b, err := newSQLBackend(&m.o.Server)
		if err != nil {
			return nil, err
		}
		m.backend = b
	}
	return m, nil
}

// State is the latest state, published or about to be; nil before the first.
func (m *Monitor) State() *event.ServerState { return m.state.Load() }

// Tick says that a router's tick arrived: the next probe names it. It does not
// block.
func (m *Monitor) Tick() { poke(m.wake) }

// Hint says that a transaction is being committed on the server, seen
// elsewhere than in a binlog read for this monitor: by the primary's tailer, or,
// for `follow: executed`, in the stream. It is never more than a hint.
func (m *Monitor) Hint(g gtid.GTID) {
	m.mu.Lock()
	m.told = m.told.Add(g)
	if len(m.tr.hintAt) < maxHintTimes {
		m.tr.hintAt[g] = time.Now()
	}
	m.mu.Unlock()
	poke(m.wake)
}

// Fresh returns the state of a probe that began after the call (shared by all
// callers that wait at the same time), once it is published. It fails at once
// when the server is not connected.
func (m *Monitor) Fresh(ctx context.Context) (*event.ServerState, error) {
	a, err := m.ask(ctx)
	return a.state, err
}

func (m *Monitor) ask(ctx context.Context) (freshAnswer, error) {
	r := request{ctx, make(chan freshAnswer, 1)}
	m.mu.Lock()
	if m.session == nil {
		m.mu.Unlock()
		return freshAnswer{}, fmt.Errorf("probe %s: not connected", &m.o.Server)
	}
	m.fresh = append(m.fresh, r)
	m.mu.Unlock()
	poke(m.wake)
	select {
	case a := <-r.answer:
		return a, a.err
	case <-ctx.Done():
		return freshAnswer{}, fmt.Errorf("probe %s: %w", &m.o.Server, ctx.Err())
	}
}

// Run watches the server until ctx ends, through losses of its connection. It
// returns nil when ctx ended, and an error only when the server can not be
// followed as it is set up ([RefusedError], at the first meeting): later such
// refusals are published and retried. Run may be called once.
func (m *Monitor) Run(ctx context.Context) error {
	defer m.backend.close()
	pause, met := m.o.RetryMin, false
	for {
		began := time.Now()
		err := m.runSession(ctx, &met)
		if ctx.Err() != nil {
			m.publishStopped(ctx)
			return nil
		}
		var refused *RefusedError
		if errors.As(err, &refused) && !met {
			return err
		}
		m.counters.retries.Add(1)
		m.publishDown(ctx, err.Error())
		var again *changedError
		switch {
		case errors.As(err, &again):
			pause = max(m.o.RetryMin, changedPause)
		case time.Since(began) > m.o.RetryMax:
			pause = m.o.RetryMin
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-ctx.Done():
			timer.Stop()
			m.publishStopped(ctx)
			return nil
		case <-timer.C:
		}
		pause = min(2*pause, longestPause(err, m.o.RetryMax))
	}
}

// changedPause is the shortest pause where the address leads to another server
// than before, which may be so at each attempt.
const changedPause = 100 * time.Millisecond

// awayPause is the longest pause between attempts to reach a server that does
// not answer: one that comes back is met within it, and an attempt costs nobody
// anything.
const awayPause = 200 * time.Millisecond

// longestPause bounds the pause after err: most where the server has answered,
// and can be expected to answer the same again.
func longestPause(err error, most time.Duration) time.Duration {
	var refused *RefusedError
	var said *mysql.MySQLError
	if errors.As(err, &refused) || errors.As(err, &said) || dumpAnswered(err) {
		return most
	}
	return min(awayPause, most)
}

// changedError ends a session because the server is not what it was when the
// session began; the next one judges what it is.
type changedError struct{ what string }

func (e *changedError) Error() string { return e.what }

// downTimeout bounds the last word about a server.
const downTimeout = time.Second

// publishStopped says the last word of a monitor whose ctx has ended.
func (m *Monitor) publishStopped(ctx context.Context) {
	if m.state.Load() == nil && m.was.state == nil {
		return // nothing was said of the server before
	}
	m.publishDown(context.WithoutCancel(ctx), "the tailer has stopped")
}

// publishDown ends the lease at once (rules §6.3). Nothing is said of a server
// that was never met.
func (m *Monitor) publishDown(ctx context.Context, why string) {
	last := m.state.Load()
	if last == nil {
		if m.was.state == nil {
			if m.unmet != why && ctx.Err() == nil {
				m.unmet = why
				m.log.Warn("server not reached yet, trying again", "why", why)
			}
			return
		}
		last = m.was.state
	}
	if !last.Alive && last.Down == why {
		return
	}
	if last.Alive {
		m.log.Debug("server lost", "why", why) // whoever owns the monitor tells people
	}
	down := *last
	down.Alive, down.Down = false, why
	m.state.Store(&down)
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	if err := m.o.Publish(ctx, &down); err != nil {
		m.counters.publishErrors.Add(1)
	}
}

// poke leaves a note for the one goroutine that reads c.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// since is what became of the stream since an announcement was taken in.
func (m *Monitor) since(announced event.Version) event.Turn {
	if m.o.Identities == nil {
		return event.Turn{}
	}
	return m.o.Identities.Since(announced)
}

func (m *Monitor) lookup(g gtid.GTID) event.Known {
	if m.o.Identities == nil {
		return event.Known{}
	}
	return m.o.Identities.Lookup(g)
}

// streamLocked is what sightings are compared with, as far as the session has taken
// in what became of the stream.
func (s *session) streamLocked() stream {
	m := s.m
	if m.o.Identities == nil {
		return stream{known: m.lookup, lost: func(event.Identity) (bool, event.Reading) { return false, event.Reading{} }}
	}
	return stream{
		at: event.Reading{Starts: m.tr.starts, Announced: s.lossSeen}, known: m.o.Identities.Lookup, lost: m.o.Identities.LostIdentity,
	}
}

// forget tells the stream's reader what was compared where it stood at a reading.
func (m *Monitor) forget(gs []gtid.GTID, at event.Reading) {
	if m.o.Identities == nil {
		return
	}
	for _, g := range gs {
		m.o.Identities.Forget(g, at)
	}
}
