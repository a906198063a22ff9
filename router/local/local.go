package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tidegate/cdc"
	"tidegate/index"
	"tidegate/router"
)

// Options of [Open]. Zero values have the documented defaults.
type Options struct {
	// Cluster is the name of the cluster. Required unless Conn is given.
	Cluster string
	// NATS says where the streams are. Cluster, Log and Follow in it are set by
	// Open. Ignored when Conn is given.
	NATS cdc.Options
	// Conn is a connection that the caller has already and closes itself.
	Conn *cdc.Conn

	// DataDir is the folder of the index; empty: in memory only, and every
	// start is cold. One process uses it at a time.
	DataDir string
	// MaxRecords bounds the records in memory; 0: index.DefaultMaxRecords.
	MaxRecords int
	// PersistEvery is how often the index is written; 0: one second.
	PersistEvery time.Duration

	// Servers names the cluster's servers with their weights; one of weight 0 is
	// never chosen by Route. Others that are heard of join with weight 1, so that
	// none need be named.
	Servers []router.ServerOptions
	// Tick is how often the router sends its tick; default 50 ms. It bounds how
	// young a watermark and a lease can be.
	Tick time.Duration
	// Lease, WatermarkMaxAge, ProbeWait, Choice, PrimaryReadsPerSecond and the
	// canary are the router's: see [router.Options]. Lease defaults to 3 s,
	// WatermarkMaxAge to 1 s, ProbeWait to 200 ms.
	Lease, WatermarkMaxAge, ProbeWait time.Duration
	Choice                            router.Choice
	PrimaryReadsPerSecond             int
	Canary                            func(router.CanaryCheck)
	CanaryOneIn, CanaryPerSecond      int

	Log *slog.Logger // nil: nothing is logged
}

// Defaults of [Options].
const (
	DefaultTick            = 50 * time.Millisecond
	DefaultLease           = router.DefaultLease
	DefaultWatermarkMaxAge = router.DefaultWatermarkMaxAge
	DefaultProbeWait       = router.DefaultProbeWait
)

func (o *Options) setDefaults() {
	for _, d := range []struct {
		v   *time.Duration
		std time.Duration
	}{{&o.Tick, DefaultTick}, {&o.Lease, DefaultLease}, {&o.WatermarkMaxAge, DefaultWatermarkMaxAge}, {&o.ProbeWait, DefaultProbeWait}} {
		if *d.v == 0 {
			*d.v = d.std
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

func (o *Options) validate() error {
	var errs []error
	if o.Conn == nil && o.Cluster == "" {
		errs = append(errs, errors.New("options Cluster or Conn: one is required"))
	}
	if o.Tick < 0 || o.Lease <= 2*o.Tick || o.WatermarkMaxAge <= 2*o.Tick {
		errs = append(errs, fmt.Errorf("options Lease (%v) and WatermarkMaxAge (%v) must be more than two ticks (%v)", o.Lease, o.WatermarkMaxAge, o.Tick))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("local router: %w", err)
	}
	return nil
}

// Local is a router with its own index. Serve and Route may be called at once
// by many, from Open on; until Run has caught up they answer catching_up.
type Local struct {
	o        Options
	conn     *cdc.Conn
	ownsConn bool
	store    *index.Pebble // nil: memory only
	index    *index.Index
	router   *router.Router
	follower *cdc.Follower
	ticks    *cdc.Ticks
	news     news
	// caught is set once an answer was given by an index that had caught up.
	caught atomic.Bool
	ended  atomic.Bool // Run was told to end

	close sync.Once
	err   error // of close
}

// Open connects to the stream and reads the index's folder. It starts nothing;
// Run does. The caller closes what Open returned.
func Open(ctx context.Context, o Options) (*Local, error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	l := &Local{o: o, conn: o.Conn}
	if l.conn == nil {
		nats := o.NATS
		nats.Cluster, nats.Log, nats.Follow = o.Cluster, o.Log, true
		conn, err := cdc.Open(ctx, nats)
		if err != nil {
			return nil, fmt.Errorf("local router: %w", err)
		}
		l.conn, l.ownsConn = conn, true
	}
	if err := l.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("local router: %w", err), l.Close())
	}
	return l, nil
}

func (l *Local) open() error {
	o := &l.o
	io := index.Options{
		Clock: Clock, Secret: l.conn.Secret(), Cluster: l.conn.Cluster(), Lease: o.Lease,
		MaxRecords: o.MaxRecords, FlushInterval: o.PersistEvery, Log: o.Log,
	}
	rand.Read(io.Router[:])
	for _, s := range o.Servers {
		io.Servers = append(io.Servers, s.Name)
	}
	if o.DataDir != "" {
		store, err := index.OpenPebble(index.PebbleOptions{Dir: filepath.Join(o.DataDir, "index"), Log: o.Log})
		if err != nil {
			return err
		}
		l.store, io.Store = store, store
	}
	var err error
	if l.index, err = index.Open(io); err != nil {
		return err
	}
	l.router, err = router.New(router.Options{
		View: l.view, Clock: NewDecisionClock().Now, Changed: l.news.changed, Servers: o.Servers, Choice: o.Choice,
		Lease: o.Lease, WatermarkMaxAge: o.WatermarkMaxAge, ProbeWait: o.ProbeWait,
		PrimaryReadsPerSecond: o.PrimaryReadsPerSecond,
		Canary:                o.Canary, CanaryOneIn: o.CanaryOneIn, CanaryPerSecond: o.CanaryPerSecond,
	})
	if err != nil {
		return err
	}
	l.follower = cdc.NewFollower(l.conn, cdc.FollowerOptions{Sink: &sink{l.index, &l.news, &l.ended}})
	l.ticks = cdc.NewTicks(l.conn, cdc.TickOptions{Incarnation: io.Router, Interval: o.Tick, Clock: Clock, Sent: l.index.TickSent})
	return nil
}

// view is the index's snapshot as the router wants it; nothing is copied.
func (l *Local) view() router.Snapshot { return l.index.Snapshot() }

// Run follows the stream until ctx ends, and returns nil then. An error means
// that what is known is uncertain (the folder can not be written, the stream is
// of a newer version): answers are no, and the process should restart.
func (l *Local) Run(ctx context.Context) error {
	following, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	// The follower sees the end only once the sink knows of it.
	defer context.AfterFunc(ctx, func() { l.ended.Store(true); end() })()
	g, gctx := errgroup.WithContext(following)
	g.Go(func() error { return l.follower.Run(gctx) })
	g.Go(func() error { return l.ticks.Run(gctx) })
	g.Go(func() error { return l.index.Run(gctx) })
	err := g.Wait()
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		return nil
	}
	return err
}

// Serve answers whether req.Server may serve; see [router.Router.Serve].
func (l *Local) Serve(req *router.Request, ans *router.Answer) error {
	early, why := l.early()
	err := l.router.Serve(req, ans)
	if early && err == nil {
		sayEarly(ans, why)
	}
	return err
}

// Route chooses a server; see [router.Router.Route]. Until Run has caught up for
// the first time the reason is catching_up where it would be no_primary.
func (l *Local) Route(ctx context.Context, req *router.Request, ans *router.Answer) error {
	early, why := l.early()
	err := l.router.Route(ctx, req, ans)
	if early && err == nil {
		sayEarly(ans, why)
	}
	return err
}

// early tells that the index has not caught up since Open, and why not.
func (l *Local) early() (bool, string) {
	if l.caught.Load() {
		return false, ""
	}
	ok, why := l.index.Snapshot().Ready()
	if ok {
		l.caught.Store(true)
	}
	return !ok, why
}

// sayEarly puts catching_up in place of reasons that state as a fact what is only
// not known yet. What to do instead stays.
func sayEarly(ans *router.Answer, why string) {
	switch ans.Reason {
	case router.ReasonUnknownServer, router.ReasonNoPrimary, router.ReasonBlind:
		if !ans.Yes {
			ans.Reason, ans.Detail = router.ReasonCatchingUp, why
		}
	}
}

// Router is the deciding part, for who serves it.
func (l *Local) Router() *router.Router { return l.router }

// Index is what is known, for metrics and inspection.
func (l *Local) Index() *index.Index { return l.index }

// Follower is what feeds the index, for metrics.
func (l *Local) Follower() *cdc.Follower { return l.follower }

// Close releases what Open took; Run must have ended. It may be called twice.
func (l *Local) Close() error {
	l.close.Do(func() {
		if l.store != nil {
			l.err = l.store.Close()
		}
		if l.ownsConn {
			l.err = errors.Join(l.err, l.conn.Close())
		}
	})
	return l.err
}
