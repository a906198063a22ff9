package tailing

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cdc/event"
)

// server is one mysqld that this process watches.
type server struct {
	t       *Tailing
	cfg     binlog.ServerConfig
	monitor *binlog.Monitor
	known   *cdc.Identities // nil with follow: executed
	latest  atomic.Pointer[event.ServerState]
}

// resumeTimeout bounds reading a server's last state at the start.
const resumeTimeout = 10 * time.Second

func (t *Tailing) newServer(ctx context.Context, cfg binlog.ServerConfig) (*server, error) {
	s := &server{t: t, cfg: cfg}
	read, cancel := context.WithTimeout(ctx, resumeTimeout)
	defer cancel()
	last, err := t.o.Conn.LastState(read, cfg.Name)
	if err != nil {
		return nil, fmt.Errorf("read the last state of %s: %w", cfg.Name, err)
	}
	o := binlog.MonitorOptions{
		Server: cfg, Resume: last, NextEpoch: t.o.Conn.NextEpoch, Hasher: t.hasher,
		Ticks:    func() []event.RouterTick { return t.ticks.Live() },
		Publish:  s.publish,
		Tail:     s.hints,
		Accepted: func() []binlog.Acceptance { return t.accepts.of(cfg.Name) },
		PrimaryE: t.view.primaryE, Definitions: t.view.definitions, PrimaryNames: t.view.primaryNames,
		OtherPrimary: func() bool { return t.view.otherPrimary(cfg.Name) },
		MinInterval:  t.o.MinInterval, ProbeTimeout: t.o.ProbeTimeout, Log: t.o.Log,
	}
	if cfg.Follow != binlog.FollowExecuted {
		s.known = cdc.NewIdentities(t.o.Conn, cdc.IdentitiesOptions{Server: cfg.Name})
		o.Identities = s.known
	}
	if s.monitor, err = binlog.NewMonitor(o); err != nil {
		return nil, err
	}
	return s, nil
}

// publish is where each state of the server passes: to STATE, to whoever
// compares with the stream, and to the election of the writer.
func (s *server) publish(ctx context.Context, state *event.ServerState) error {
	s.latest.Store(state)
	if s.known != nil {
		s.known.Observe(state)
	}
	s.t.lead.look()
	return s.t.states.Publish(ctx, state)
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
		Heartbeat: t.o.Heartbeat, ReadTimeout: t.o.ReadTimeout, Log: t.o.Log,
		// A hole is an event of its own, never a silent gap (P5).
		OnPurged: func(_ context.Context, e *binlog.PurgedError) bool {
			t.o.Log.Warn("binlog purged before it was read; it becomes a hole", "server", e.Server, "missing", e.Missing.Limit(16).OneLine())
			return true
		},
	}
}

func (s *server) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.monitor.Run(ctx); err != nil {
			return fmt.Errorf("watch server %s: %w", s.cfg.Name, err)
		}
		return nil
	})
	if s.known != nil {
		g.Go(func() error { return ended(s.known.Run(ctx)) })
	}
	return g.Wait()
}
