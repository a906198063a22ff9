package tailing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cdc/event"
)

// server is one mysqld that this process watches, or stands by to watch.
type server struct {
	t   *Tailing
	cfg binlog.ServerConfig
	// monitor is nil while another process watches the server.
	monitor atomic.Pointer[binlog.Monitor]
	latest  atomic.Pointer[event.ServerState] // nil with monitor
	// relaxed counts the states that show a gtid_mode other than ON.
	relaxed atomic.Uint64
	lost    losses
}

// store keeps the newest state.
func (s *server) store(state *event.ServerState) {
	if state.GTIDMode != "" && state.GTIDMode != "ON" {
		s.relaxed.Add(1)
	}
	s.latest.Store(state)
}

// mostReasons bounds how many reasons are logged of one loss: an error may hold
// what changes from try to try.
const mostReasons = 8

// losses logs why a server is not watched: each reason of a loss once, since the
// first one seldom tells more than that a connection broke.
type losses struct {
	mu   sync.Mutex
	said []string
}

// observe takes the next state in. It may be called at once by many.
func (l *losses) observe(log *slog.Logger, state *event.ServerState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if state.Alive {
		if len(l.said) > 0 {
			log.Info("server is back", "server", state.Server)
		}
		l.said = nil
		return
	}
	if len(l.said) < mostReasons && !slices.Contains(l.said, state.Down) {
		l.said = append(l.said, state.Down)
		log.Warn("server can not be watched: nothing is proven of it until it can", "server", state.Server, "why", state.Down)
	}
}

// newMonitor makes the monitor of a server that this process has just begun to
// watch: it goes on from the last state that anybody published.
func (s *server) newMonitor(ctx context.Context) (*binlog.Monitor, *cdc.Identities, error) {
	t, watching := s.t, ctx
	last, err := t.o.Conn.LastState(ctx, s.cfg.Name) // NATS may be away as long as it likes
	if err != nil {
		return nil, nil, fmt.Errorf("read the last state of %s: %w", s.cfg.Name, err)
	}
	o := binlog.MonitorOptions{
		Server: s.cfg, Resume: last, NextEpoch: t.o.Conn.NextEpoch, Hasher: t.hasher,
		Ticks:    func() []event.RouterTick { return t.ticks.Live() },
		Tail:     s.hints,
		Accepted: func() []binlog.Acceptance { return t.accepts.of(s.cfg.Name) },
		PrimaryE: t.view.primaryE, Definitions: t.view.definitions, PrimaryNames: t.view.primaryNames,
		OtherPrimary: func() bool { return t.view.otherPrimary(s.cfg.Name) },
		MinInterval:  t.o.MinInterval, ProbeTimeout: t.o.ProbeTimeout, Clock: t.o.Clock, Log: t.o.Log,
	}
	var before gtid.UUID
	if last != nil {
		before = last.UUID
	}
	var known *cdc.Identities
	if s.cfg.Follow != binlog.FollowExecuted {
		known = cdc.NewIdentities(t.o.Conn, cdc.IdentitiesOptions{Server: s.cfg.Name})
		o.Identities = known
	}
	// Where each state of the server passes: to whoever compares with the
	// stream, to the election of the writer, and to STATE.
	o.Publish = func(ctx context.Context, state *event.ServerState) error {
		s.store(state)
		if watching.Err() == nil { // the last word of a tailer that stops is no loss
			s.lost.observe(t.o.Log, state)
			t.others.met(t.o.Log, before, state)
		}
		if known != nil {
			known.Observe(state)
		}
		t.lead.look()
		return t.states.Publish(ctx, state)
	}
	m, err := binlog.NewMonitor(o)
	return m, known, err
}

// hints reads the server's own binlog from a set on.
func (s *server) hints(ctx context.Context, from gtid.Set, h binlog.Handler) error {
	t, err := binlog.NewTailer(s.t.tailerOptions(s.cfg, binlog.Hints, from))
	if err != nil {
		return err
	}
	return t.Run(ctx, h)
}

func (t *Tailing) tailerOptions(cfg binlog.ServerConfig, mode binlog.Mode, from gtid.Set) binlog.TailerOptions {
	return binlog.TailerOptions{
		Server: cfg, Mode: mode, From: from, Hasher: t.hasher, Groups: t.o.Groups, KeyCap: t.o.KeyCap,
		Heartbeat: t.o.Heartbeat, ReadTimeout: t.o.ReadTimeout, BusyPause: t.o.BusyPause, Log: t.o.Log,
		// A hole is an event of its own, never a silent gap (P5).
		OnPurged: func(_ context.Context, e *binlog.PurgedError) bool {
			t.o.Log.Warn("binlog purged before it was read; it becomes a hole", "server", e.Server, "missing", e.Missing.Brief(16))
			return true
		},
	}
}

// run watches the server whenever no other process does, until ctx ends.
func (s *server) run(ctx context.Context) error {
	for {
		w, err := cdc.OpenWatch(ctx, s.t.o.Conn, s.cfg.Name, s.t.o.Name)
		switch {
		case err == nil && ctx.Err() != nil: // taken at the very end
			w.Close()
			return nil
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("watch server %s: %w", s.cfg.Name, err)
		}
		err = s.watch(ctx, w)
		w.Close()
		switch {
		case ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)):
			return nil
		case errors.Is(err, errWatchLost):
			s.t.o.Log.Warn("another process watches the server now", "server", s.cfg.Name)
		default:
			return err
		}
	}
}

// errWatchLost: another process has taken the watch of a server.
var errWatchLost = errors.New("another process watches the server")

// watch runs the server's monitor while the watch is held.
func (s *server) watch(ctx context.Context, w *cdc.Watch) error {
	m, known, err := s.newMonitor(ctx)
	if err != nil {
		return err
	}
	s.monitor.Store(m)
	defer func() {
		s.latest.Store(nil)
		s.monitor.Store(nil)
		s.t.lead.look()
	}()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := m.Run(ctx); err != nil {
			return fmt.Errorf("watch server %s: %w", s.cfg.Name, err)
		}
		return nil
	})
	if known != nil {
		g.Go(func() error { return ended(known.Run(ctx)) })
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.Lost():
			return errWatchLost
		}
	})
	return g.Wait()
}
