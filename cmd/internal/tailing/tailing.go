package tailing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"tidegate/binlog"
	"tidegate/cdc"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// Options of [New].
type Options struct {
	Conn    *cdc.Conn             // the streams; the caller closes it
	Servers []binlog.ServerConfig // the servers that this process watches
	// Name tells people who writes the stream: host and process.
	Name string
	// Groups are the group columns by schema.table, the same in every process
	// of the cluster.
	Groups map[string][]string
	// KeyCap, Heartbeat, ReadTimeout, BusyPause as in [binlog.TailerOptions].
	KeyCap                            int
	Heartbeat, ReadTimeout, BusyPause time.Duration
	// CheckpointAge as in [cdc.WriterOptions].
	CheckpointAge time.Duration
	// MinInterval and ProbeTimeout as in [binlog.MonitorOptions].
	MinInterval, ProbeTimeout time.Duration
	// Lease is how long a router counts as live after its newest tick.
	Lease time.Duration
	// Clock is a suspend-aware clock in nanoseconds.
	Clock func() int64
	Log   *slog.Logger
}

func (o *Options) validate() error {
	var errs []error
	if o.Conn == nil || o.Clock == nil || o.Log == nil {
		errs = append(errs, errors.New("tailing: Conn, Clock and Log are required"))
	}
	if len(o.Servers) == 0 {
		errs = append(errs, errors.New("tailing: no servers"))
	}
	if o.Lease <= 0 {
		errs = append(errs, errors.New("tailing: Lease must be positive"))
	}
	for i := range o.Servers {
		errs = append(errs, o.Servers[i].Validate())
	}
	return errors.Join(errs...)
}

// Tailing watches servers and writes the stream of the primary among them.
type Tailing struct {
	o       Options
	hasher  key.Hasher
	groups  []event.GroupColumn
	view    *view
	states  *cdc.StatePublisher
	ticks   *cdc.TickCollector
	own     *cdc.Ticks // ticks of this process, to ask for probes begun after now
	accepts *accepts
	servers []*server
	lead    *lead
	others  others
}

// New wires everything; nothing runs before Run.
func New(o Options) (*Tailing, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	t := &Tailing{o: o, hasher: o.Conn.Hasher(), states: cdc.NewStatePublisher(o.Conn), accepts: &accepts{conn: o.Conn, hasher: o.Conn.Hasher(), log: o.Log}}
	for printed, columns := range o.Groups {
		schema, table, err := key.ParseTable(printed)
		if err != nil {
			return nil, fmt.Errorf("keys: %q: %w", printed, err)
		}
		for _, c := range columns {
			t.groups = append(t.groups, event.GroupColumn{Schema: schema, Table: table, Column: c})
		}
	}
	t.lead = &lead{t: t, log: o.Log, wake: make(chan struct{}, 1), leader: cdc.NewLeaderObserver(o.Conn)}
	t.view = newView(t)
	t.accepts.folds = func() bool { fold, _ := t.view.primaryNames(); return fold != 0 }
	t.own = cdc.NewTicks(o.Conn, cdc.TickOptions{Interval: ownTick, Clock: o.Clock, Sent: t.view.ticked})
	t.view.incarnation = t.own.Incarnation()
	t.others.servers = len(o.Servers)
	for _, cfg := range o.Servers {
		t.servers = append(t.servers, &server{t: t, cfg: cfg})
	}
	return t, nil
}

// ownTick is how often this process asks for news of the primary. It bounds how
// soon a suspect GTID is found to be errant, and nothing else.
const ownTick = 250 * time.Millisecond

// Run watches and writes until ctx ends; it returns nil then. Any other return
// is an error that a restart or an operator has to mend.
func (t *Tailing) Run(ctx context.Context) (err error) {
	if t.ticks, err = cdc.OpenTickCollector(t.o.Conn, t.o.Lease, t.o.Clock); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.ticks.Close()) }()
	// The states' last words come after the monitors have ended.
	said, stopSaying := context.WithCancel(context.WithoutCancel(ctx))
	saying := make(chan error, 1)
	go func() { saying <- ended(t.states.Run(said)) }()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return ended(t.own.Run(gctx)) })
	g.Go(func() error { return t.view.run(gctx) })
	g.Go(func() error { return t.accepts.run(gctx) })
	g.Go(func() error { return ended(t.lead.leader.Run(gctx)) })
	g.Go(func() error { return t.lead.run(gctx) })
	for _, s := range t.servers {
		g.Go(func() error { return s.run(gctx) })
	}
	err = g.Wait()
	stopSaying()
	if saidErr := <-saying; err == nil {
		err = saidErr
	}
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return nil
	}
	return err
}

// ended drops the error of a loop that ended because it was told to.
func ended(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
