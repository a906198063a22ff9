package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/tailing"
	"tidegate/router"
	"tidegate/router/local"
	"tidegate/router/serve"
)

// Parts say what of the program runs.
type Parts struct {
	Tail  bool // watch servers and write the stream
	Serve bool // follow the stream and answer
	// Only limits Tail to the servers of these names; empty: all.
	Only []string
}

// Options of [Open] beyond the configuration.
type Options struct {
	Parts    Parts
	Log      *slog.Logger
	Version  string
	Observer serve.Observer // nil: /v1/observe is not found
	// Metrics makes the /metrics handler once everything is wired; nil: none.
	Metrics func(*Daemon) http.Handler
	// TailClock is what the tail half measures by, in nanoseconds; nil: [local.Clock].
	// No decision reads a host's wall clock (BADDAYS.md).
	TailClock func() int64
}

// Daemon is a wired program. Tailing, Router and Server are nil when their part
// does not run.
type Daemon struct {
	Config  *config.Config
	Conn    *cdc.Conn
	Tailing *tailing.Tailing
	Router  *local.Local
	Server  *serve.Server

	log    *slog.Logger
	canary *canary
	sides  []*side
}

// Open connects and listens; nothing runs before Run. The caller closes it.
func Open(ctx context.Context, cfg *config.Config, o Options) (*Daemon, error) {
	d := &Daemon{Config: cfg, log: o.Log}
	if err := d.open(ctx, o); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Daemon) open(ctx context.Context, o Options) error {
	p, err := newPlan(d.Config, o.Parts, o.Log)
	if err != nil {
		return err
	}
	if d.Conn, err = cdc.Open(ctx, p.nats); err != nil {
		return err
	}
	if o.Parts.Tail {
		if err := d.openTail(p, o); err != nil {
			return err
		}
	}
	if o.Parts.Serve {
		if err := d.openServe(ctx, p, o); err != nil {
			return err
		}
	}
	return d.openSides(o)
}

func (d *Daemon) openTail(p *plan, o Options) error {
	cfg := d.Config
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	clock := o.TailClock
	if clock == nil {
		clock = local.Clock
	}
	d.Tailing, err = tailing.New(tailing.Options{
		Conn: d.Conn, Servers: p.servers, Name: fmt.Sprintf("%s:%d", host, os.Getpid()), Groups: cfg.Keys,
		KeyCap: cfg.Tail.KeyCap, Heartbeat: cfg.Tail.Heartbeat, ReadTimeout: cfg.Tail.ReadTimeout, BusyPause: cfg.Tail.BusyPause,
		CheckpointAge: cfg.Tail.CheckpointEvery, MinInterval: cfg.Confirm.MinInterval, ProbeTimeout: cfg.Confirm.ProbeTimeout,
		Lease: cfg.Router.Lease, Log: d.log,
		Clock: clock,
	})
	return err
}

func (d *Daemon) openServe(ctx context.Context, p *plan, o Options) error {
	cfg := d.Config
	lo := local.Options{
		Conn: d.Conn, DataDir: cfg.DataDir, MaxRecords: cfg.Index.MaxRecords, PersistEvery: cfg.Index.PersistEvery,
		Tick: cfg.Router.Tick, Lease: cfg.Router.Lease, WatermarkMaxAge: cfg.Router.WatermarkMaxAge, ProbeWait: cfg.Router.ProbeWait,
		PrimaryReadsPerSecond: cfg.Budget.ReadsPerSecond, Log: d.log,
	}
	if lo.PrimaryReadsPerSecond == 0 {
		lo.PrimaryReadsPerSecond = -1
	}
	if cfg.Router.Choice == "freshest" {
		lo.Choice = router.ChooseFreshest
	}
	for _, s := range cfg.Servers {
		lo.Servers = append(lo.Servers, router.ServerOptions{Name: s.Name, Weight: uint32(s.Weight)})
	}
	if cfg.Canary.OneIn > 0 && cfg.Canary.PerSecond > 0 {
		var err error
		if d.canary, err = newCanary(d); err != nil {
			return err
		}
		lo.Canary, lo.CanaryOneIn, lo.CanaryPerSecond = d.canary.check, cfg.Canary.OneIn, cfg.Canary.PerSecond
	}
	var err error
	if d.Router, err = local.Open(ctx, lo); err != nil {
		return err
	}
	if cfg.Listen.HTTP == "off" && cfg.Listen.RESP == "off" {
		return nil
	}
	so := serve.Options{
		Router: d.Router.Router(), HTTPAddr: listenAddr(cfg.Listen.HTTP), RESPAddr: listenAddr(cfg.Listen.RESP),
		Acceptor: d.Accept, Oldest: d.oldest,
		Auth: p.auth, TLS: p.tls, Observer: o.Observer, Version: o.Version, Limits: serve.Limits{Conns: cfg.Listen.MaxConn}, Log: d.log,
	}
	if o.Metrics != nil {
		so.Metrics = o.Metrics(d)
	}
	d.Server, err = serve.Open(ctx, so)
	return err
}

// oldest is the oldest transaction in WRITES, and when it was committed.
func (d *Daemon) oldest() (gtid.GTID, time.Time) {
	c := d.Router.Follower().Counters()
	return c.Oldest, time.UnixMicro(c.OldestAt)
}

func listenAddr(s string) string {
	if s == "off" {
		return ""
	}
	return s
}

// Run runs everything until ctx ends, and returns nil then: first the listeners
// stop, then the router, then the tailing. Any other return is an error after
// which the process should end; a restart recovers.
func (d *Daemon) Run(ctx context.Context) error {
	var listening, answering, watching []part
	if d.Server != nil {
		listening = append(listening, func(ctx context.Context) error { return named("serve", d.Server.Run(ctx)) })
	}
	if d.canary != nil {
		listening = append(listening, d.canary.run)
	}
	for _, s := range d.sides {
		listening = append(listening, s.run)
	}
	if d.Router != nil {
		answering = append(answering, func(ctx context.Context) error { return named("follow", d.Router.Run(ctx)) })
	}
	watching = append(watching, func(ctx context.Context) error { return named("streams", d.Conn.Guard(ctx)) })
	if d.Tailing != nil {
		watching = append(watching, func(ctx context.Context) error { return named("tail", d.Tailing.Run(ctx)) })
	}
	return runInOrder(ctx, listening, answering, watching)
}

// part is one loop of the program: it runs until its context ends.
type part func(ctx context.Context) error

// runInOrder runs all parts at once. When ctx ends, or a part fails, the parts
// of each stage are told to end once those of the stage before it have: what is
// still being answered is answered from a router that lives. It returns
// the error of the earliest stage that has one.
func runInOrder(ctx context.Context, stages ...[]part) error {
	told, tell := context.WithCancel(ctx)
	defer tell()
	var all errgroup.Group
	for _, parts := range stages {
		this := told
		next, tellNext := context.WithCancel(context.WithoutCancel(ctx))
		all.Go(func() error {
			defer tellNext()
			var stage errgroup.Group
			for _, run := range parts {
				stage.Go(func() error {
					err := run(this)
					if err != nil {
						tell()
					}
					return err
				})
			}
			err := stage.Wait()
			<-this.Done()
			return err
		})
		told = next
	}
	return all.Wait()
}

func named(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Ready waits until the router has caught up and has a live primary, and
// returns why not when ctx ends before.
func (d *Daemon) Ready(ctx context.Context) error {
	for {
		snap := d.Router.Index().Snapshot()
		ok, why := snap.Ready()
		if ok {
			var reason, detail string
			if _, ok, reason, detail = snap.Primary(); !ok {
				why = reason + ": " + detail
			} else if snap.WatermarkAt() == 0 {
				ok, why = false, "no watermark yet"
			}
		}
		if ok {
			return nil
		}
		timer := time.NewTimer(5 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("not ready: %s", why)
		case <-timer.C:
		}
	}
}

// Close frees what Open took; Run must have ended. It may be called twice.
func (d *Daemon) Close() error {
	var errs []error
	if d.Server != nil {
		errs = append(errs, d.Server.Close())
	}
	for _, s := range d.sides {
		errs = append(errs, s.close())
	}
	if d.canary != nil {
		d.canary.close()
	}
	if d.Router != nil {
		errs = append(errs, d.Router.Close())
	}
	if d.Conn != nil {
		errs = append(errs, d.Conn.Close())
	}
	return errors.Join(errs...)
}
