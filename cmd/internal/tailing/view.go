package tailing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cdc/event"
)

// view is what this process knows of the rest of the cluster: it follows WRITES
// and STATE as a router does, and keeps states, definitions and the
// announcement. It is the follower's Sink.
type view struct {
	t           *Tailing
	incarnation [16]byte // of this process's own ticks

	mu        sync.Mutex
	states    map[string]*event.ServerState
	heard     map[string]int64 // when a new probe of a server was heard of, by the clock
	defs      map[[2]string]event.TableDefinition
	announced event.Announcement
	known     bool // announced was read from the stream
	sent      uint64
	changed   chan struct{} // closed at news of a state
	executed  []*server     // follow: executed servers, to be hinted
}

func newView(t *Tailing) *view {
	return &view{t: t, states: map[string]*event.ServerState{}, heard: map[string]int64{}, defs: map[[2]string]event.TableDefinition{}, changed: make(chan struct{})}
}

func (v *view) run(ctx context.Context) error {
	for _, s := range v.t.servers {
		if s.cfg.Follow == binlog.FollowExecuted {
			v.executed = append(v.executed, s)
		}
	}
	err := cdc.NewFollower(v.t.o.Conn, cdc.FollowerOptions{Sink: v}).Run(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("follow the stream: %w", err)
}

// Start is the follower's: a checkpoint names the announcement in force.
func (v *view) Start(cp *event.Checkpoint, _ uint64, _ event.Header, _ event.Version) error {
	v.take(cp.Announced)
	return nil
}

// Writes is the follower's: announcements are kept, and transactions are hints
// for servers whose own binlog is not read.
func (v *view) Writes(_ uint64, m *event.Message) error {
	for _, it := range m.Items {
		switch it := it.(type) {
		case *event.Announcement:
			v.take(*it)
		case *event.Checkpoint:
			v.take(it.Announced)
		case *event.Transaction:
			v.hint(it.GTID)
		case *event.Chunk:
			if it.Last != nil {
				v.hint(it.GTID)
			}
		}
	}
	return nil
}

// hint tells the monitors of servers whose own binlog is not read.
func (v *view) hint(g gtid.GTID) {
	for _, s := range v.executed {
		if m := s.monitor.Load(); m != nil {
			m.Hint(g)
		}
	}
}

func (v *view) take(a event.Announcement) {
	v.mu.Lock()
	v.announced, v.known = a, a.Epoch != 0
	v.mu.Unlock()
}

// State is the follower's.
func (v *view) State(s *event.ServerState) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.states[s.Server]
	if old != nil && old.Epoch > s.Epoch {
		return nil
	}
	if old == nil || old.Epoch != s.Epoch || old.ProbedUnixMicro != s.ProbedUnixMicro || s.ProbedUnixMicro == 0 && moved(old, s) {
		v.heard[s.Server] = v.t.o.Clock()
	}
	v.states[s.Server] = s
	close(v.changed)
	v.changed = make(chan struct{})
	return nil
}

// moved tells that a state of a format that names no time of its probe is of a later
// one than another.
func moved(old, s *event.ServerState) bool {
	return !old.Executed.Equal(s.Executed) || !slices.Equal(old.Ticks, s.Ticks)
}

// Definition is the follower's.
func (v *view) Definition(d *event.TableDefinition) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.defs[[2]string{d.Schema, d.Table}] = *d
	return nil
}

// CaughtUp is the follower's.
func (v *view) CaughtUp(uint64, bool) {}

// Resume is the follower's: a view always starts cold.
func (v *view) Resume() (uint64, event.Header, [16]byte, bool) {
	return 0, event.Header{}, [16]byte{}, false
}

func (v *view) ticked(tick uint64, _ int64) {
	v.mu.Lock()
	v.sent = tick
	v.mu.Unlock()
}

// primaryE waits for a state of the announced primary whose probe began after
// the call: one that names a tick of this process which is sent later.
func (v *view) primaryE(ctx context.Context) (gtid.Set, error) {
	v.mu.Lock()
	after := v.sent + 1
	v.mu.Unlock()
	for {
		v.mu.Lock()
		s, changed := v.states[v.announced.Server], v.changed
		if v.known && s != nil && s.Alive && s.Epoch == v.announced.Epoch && s.Role == event.RolePrimary && v.names(s, after) {
			v.mu.Unlock()
			return s.Owned.Union(s.Executed), nil
		}
		v.mu.Unlock()
		select {
		case <-ctx.Done():
			return gtid.Set{}, fmt.Errorf("wait for a probe of the primary: %w", ctx.Err())
		case <-changed:
		}
	}
}

func (v *view) names(s *event.ServerState, tick uint64) bool {
	return slices.ContainsFunc(s.Ticks, func(t event.RouterTick) bool { return t.Router == v.incarnation && t.Tick >= tick })
}

func (v *view) definitions() []event.TableDefinition {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Values(v.defs))
}

// primaryNames is how the announced primary compares names.
func (v *view) primaryNames() (lowerCase int, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.announced.FoldNames {
		return 1, v.known
	}
	return 0, v.known
}

// otherPrimary tells whether a server other than this one is a primary, as far
// as is known: by this process's own monitors, and by STATE for the others, as
// long as their probes go on: the last word of a tailer that died with its host
// must not keep another primary from being announced for ever. What was just
// read counts as heard now.
func (v *view) otherPrimary(name string) bool {
	own := map[string]bool{}
	for _, s := range v.t.servers {
		own[s.cfg.Name] = true
		if st := s.latest.Load(); s.cfg.Name != name && isPrimary(st) {
			return true
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.t.o.Clock()
	for other, st := range v.states {
		if other != name && !own[other] && isPrimary(st) && now-v.heard[other] <= int64(v.t.o.Lease) {
			return true
		}
	}
	return false
}

func isPrimary(s *event.ServerState) bool {
	return s != nil && s.Alive && s.Role == event.RolePrimary
}
