package binlog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// streamOf stands in for the stream: it reads the primary's binlog with a real
// tailer and knows identity and tables of what it brought. Earlier GTIDs have
// no identity.
type streamOf struct {
	mu      sync.Mutex
	before  gtid.Set
	known   map[gtid.GTID]event.Known
	ever    gtid.Set
	loss    event.Version
	changed chan struct{}
}

func (s *streamOf) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *streamOf) Transaction(_ context.Context, t *event.Transaction, _ binlog.Position) error {
	s.update(func() {
		s.known[t.GTID] = event.Known{State: event.Identified, OriginalCommit: t.OriginalCommit, Flags: t.Flags, Tables: t.Tables}
	})
	return nil
}
func (s *streamOf) Hole(context.Context, *event.Hole) error                    { return nil }
func (s *streamOf) Definitions(context.Context, []event.TableDefinition) error { return nil }
func (s *streamOf) Progress(context.Context, binlog.Position) error            { return nil }
func (s *streamOf) Forget(gtid.GTID, event.Reading)                            {}

func (s *streamOf) LostIdentity(event.Identity) (bool, event.Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return false, s.readingLocked()
}

func (s *streamOf) readingLocked() event.Reading { return event.Reading{Starts: 1, Announced: s.loss} }

// Since vouches for everything: this stream never steps back.
func (s *streamOf) Since(v event.Version) event.Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn := event.Turn{History: 1, Announced: s.loss, Starts: 1, EverLost: s.ever, Vouched: s.before}
	for g := range s.known {
		turn.Vouched = turn.Vouched.Add(g)
	}
	if v < s.loss {
		turn.Lost = s.ever
	}
	return turn
}

func (s *streamOf) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *streamOf) Lookup(g gtid.GTID) event.Known {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.known[g]
	if !ok && s.before.Contains(g) {
		k.State = event.NoIdentity
	}
	k.At = s.readingLocked()
	return k
}

func tidegateConfig(s *testenv.Server) binlog.ServerConfig {
	return binlog.ServerConfig{Name: s.Name(), Addr: s.Addr(), User: testenv.TidegateUser, Password: testenv.TidegatePassword}
}

// startStream reads the primary from its present executed set on.
func startStream(t *testing.T, primary *testenv.Server, tee ...binlog.Handler) *streamOf {
	t.Helper()
	ctx := testenvtest.Context(t, hang)
	executed, err := primary.GTIDExecuted(ctx)
	if err != nil {
		t.Fatal(err)
	}
	set, err := gtid.Parse(executed)
	if err != nil {
		t.Fatal(err)
	}
	s := &streamOf{before: set, known: map[gtid.GTID]event.Known{}, changed: make(chan struct{})}
	tail := binlog.HintsTail(binlog.TailerOptions{Server: tidegateConfig(primary), Hasher: testHasher})
	background(t, "stream", func(ctx context.Context) error { return tail(ctx, set, s) })
	return s
}

// background runs f until the test ends.
func background(t *testing.T, what string, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// watched is a monitor of a real server with everything that it published.
type watched struct {
	t    *testing.T
	m    *binlog.Monitor
	stop func()
	mu   sync.Mutex
	seen []*event.ServerState
	// onState is called within Publish.
	onState atomic.Pointer[func(*event.ServerState)]
	accept  []binlog.Acceptance
	tick    atomic.Uint64
}

var epochs atomic.Uint64

func watch(t *testing.T, s *testenv.Server, ids event.Identities, change func(*binlog.MonitorOptions)) *watched {
	t.Helper()
	w := &watched{t: t}
	o := binlog.MonitorOptions{
		Server: tidegateConfig(s), Identities: ids, Hasher: testHasher,
		NextEpoch: func(context.Context) (event.Epoch, error) { return event.Epoch(epochs.Add(1)), nil },
		Ticks: func() []event.RouterTick {
			return []event.RouterTick{{Router: [16]byte{1}, Tick: w.tick.Load()}}
		},
		Publish: func(_ context.Context, st *event.ServerState) error {
			if f := w.onState.Load(); f != nil {
				(*f)(st)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.seen = append(w.seen, st)
			return nil
		},
		Accepted: func() []binlog.Acceptance { w.mu.Lock(); defer w.mu.Unlock(); return slices.Clone(w.accept) },
		// In the sandbox nothing is far away, and a probe that is late on a loaded
		// machine ends no session.
		RetryMax: 500 * time.Millisecond, ProbeTimeout: hang,
	}
	o.Tail = binlog.HintsTail(binlog.TailerOptions{Server: o.Server, Hasher: testHasher})
	if change != nil {
		change(&o)
	}
	m, err := binlog.NewMonitor(o)
	if err != nil {
		t.Fatal(err)
	}
	w.m = m
	stopTicks := background(t, "ticks", func(ctx context.Context) error {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				w.tick.Add(1)
				m.Tick()
			}
		}
	})
	stopMonitor := background(t, "monitor of "+s.Name(), m.Run)
	w.stop = func() { stopMonitor(); stopTicks() }
	return w
}

// wait waits until the latest state is as ok says.
func (w *watched) wait(what string, ok func(*event.ServerState) bool) *event.ServerState {
	w.t.Helper()
	var st *event.ServerState
	testenvtest.WaitUntil(w.t, hang, func() (bool, string) {
		st = w.m.State()
		if st == nil {
			return false, what + ": no state yet"
		}
		return ok(st), fmt.Sprintf("%s: alive %v (%s), role %d, executed %s, unproven %s, hinted %s, errant %s, taints %+v, excluded %q, filtered %q",
			what, st.Alive, st.Down, st.Role, st.Executed.OneLine(), st.Unproven.OneLine(), st.Hinted.OneLine(), st.Errant.OneLine(), st.Taints, st.Excluded, st.Filtered)
	})
	return st
}

func (w *watched) alive() *event.ServerState {
	w.t.Helper()
	return w.wait("alive", func(st *event.ServerState) bool { return st.Alive && st.Role != event.RoleUnknown })
}

// confirmed is C of a state as far as the tailer says.
func confirmed(st *event.ServerState) gtid.Set { return st.Executed.Subtract(st.Unproven) }

// waitConfirmed waits until everything that the server s has now is confirmed.
func (w *watched) waitConfirmed(s *testenv.Server) *event.ServerState {
	w.t.Helper()
	text, err := s.GTIDExecuted(testenvtest.Context(w.t, hang))
	if err != nil {
		w.t.Fatal(err)
	}
	set, err := gtid.Parse(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.wait("confirmed "+set.OneLine(), func(st *event.ServerState) bool {
		return st.Alive && confirmed(st).ContainsSet(set)
	})
}

// primaryE asks the primary as another monitor would be asked.
func primaryE(p *testenv.Server) func(context.Context) (gtid.Set, error) {
	return func(ctx context.Context) (gtid.Set, error) {
		text, err := p.GTIDExecuted(ctx)
		if err != nil {
			return gtid.Set{}, err
		}
		return gtid.Parse(text)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
