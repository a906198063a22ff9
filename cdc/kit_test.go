package cdc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// The servers of the tests.
var (
	uuidA = gtid.UUID{0xaa, 15: 1}
	uuidB = gtid.UUID{0xbb, 15: 2}
)

func ga(seq int64) gtid.GTID { return gtid.GTID{UUID: uuidA, Seq: seq} }
func gb(seq int64) gtid.GTID { return gtid.GTID{UUID: uuidB, Seq: seq} }

// upTo is the set A:1-n.
func upTo(n int64) gtid.Set {
	if n == 0 {
		return gtid.Set{}
	}
	return gtid.Set{}.AddInterval(ga(1).Source(), gtid.Interval{First: 1, Last: n})
}

// commitOf is the original commit time that the tests give to transaction n.
func commitOf(n int64) int64 { return 1_700_000_000_000_000 + n*1000 }

// tx is the single-row transaction A:n.
func tx(n int64) *event.Transaction { return txOf(ga(n), commitOf(n)) }

func txOf(g gtid.GTID, commit int64) *event.Transaction {
	return &event.Transaction{
		GTID: g, OriginalCommit: commit, ImmediateCommit: commit + 10, SizeBytes: 300,
		Tables: []key.Digest{{1}}, Scopes: []key.Digest{scope(g)}, Defs: []event.DefRef{{Table: key.Digest{1}, Version: 7}},
	}
}

func scope(g gtid.GTID) key.Digest {
	return key.Digest{2, byte(g.Seq), byte(g.Seq >> 8), byte(g.Seq >> 16), g.UUID[0]}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// logger writes to the test's log.
func logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func options(t testing.TB, dir string) cdc.Options {
	return cdc.Options{Cluster: "shop", DataDir: dir, Log: logger(t)}
}

func open(t testing.TB, o cdc.Options) *cdc.Conn {
	t.Helper()
	c, err := cdc.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// facts of a primary A in its first run.
func facts(executed gtid.Set) cdc.PrimaryFacts {
	return cdc.PrimaryFacts{Server: "a", UUID: uuidA, Epoch: 1, Executed: executed, GTIDMode: "ON", Drained: true}
}

// whileStopped does something to the store while its server is down.
func whileStopped(t testing.TB, c *cdc.Conn, do func(dir string) error, dir string) {
	t.Helper()
	c.StopServer()
	if err := do(dir); err != nil {
		t.Fatal(err)
	}
	if err := c.StartServer(); err != nil {
		t.Fatal(err)
	}
}

// hang is when a test gives up waiting. It only stops a test that hangs, and says
// nothing of how long anything may take.
const hang = 2 * time.Minute

// running is a part that runs beside the test.
type running struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// start runs fn until stop, or until the test ends.
func start(t testing.TB, fn func(context.Context) error) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = fn(ctx)
	}()
	t.Cleanup(func() { r.stop() })
	return r
}

// stop ends it and returns how it ended; ended by stop is no error.
func (r *running) stop() error {
	r.cancel()
	<-r.done
	if errors.Is(r.err, context.Canceled) {
		return nil
	}
	return r.err
}

// wait returns how it ended by itself.
func (r *running) wait(t testing.TB) error {
	t.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(hang):
		t.Fatal("still running after ", hang)
		return nil
	}
}

// eventually waits until check returns an empty reason.
func eventually(t testing.TB, check func() string) {
	t.Helper()
	deadline := time.Now().Add(hang)
	for {
		reason := check()
		if reason == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %s", hang, reason)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// writing is a writer that was begun and runs.
type writing struct {
	*cdc.Writer
	tail *cdc.Tail
	from gtid.Set
	run  *running
}

func write(t testing.TB, c *cdc.Conn, o cdc.WriterOptions, f cdc.PrimaryFacts) *writing {
	t.Helper()
	w, tail, err := cdc.OpenWriter(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	from, err := w.Begin(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return &writing{Writer: w, tail: tail, from: from, run: start(t, w.Run)}
}

// end closes the writer as a stopping process does.
func (w *writing) end(t testing.TB) {
	t.Helper()
	if err := w.run.stop(); err != nil {
		t.Errorf("writer: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("close writer: %v", err)
	}
}

func (w *writing) append(t testing.TB, txs ...*event.Transaction) {
	t.Helper()
	for _, x := range txs {
		if err := w.Append(t.Context(), x); err != nil {
			t.Fatalf("append %v: %v", x.GTID, err)
		}
	}
}

// numbered appends A:first to A:last.
func (w *writing) numbered(t testing.TB, first, last int64) {
	t.Helper()
	for n := first; n <= last; n++ {
		w.append(t, tx(n))
	}
}

func (w *writing) stored(t testing.TB, n uint64) {
	t.Helper()
	eventually(t, func() string {
		if c := w.Counters(); c.Transactions < n {
			return fmt.Sprintf("%d of %d transactions are stored: %+v", c.Transactions, n, c)
		}
		return ""
	})
}

// recorder is a sink that remembers everything.
type recorder struct {
	mu        sync.Mutex
	starts    []*event.Checkpoint
	txs       []*event.Transaction // since the newest start
	items     []event.Item
	versions  []event.Version
	states    map[string]*event.ServerState
	defs      map[string]*event.TableDefinition
	seq       uint64
	last      event.Header
	digest    [16]byte
	has       bool
	end       uint64
	connected bool
	cuts      int
}

func newRecorder() *recorder {
	return &recorder{states: map[string]*event.ServerState{}, defs: map[string]*event.TableDefinition{}}
}

func (r *recorder) Start(cp *event.Checkpoint, seq uint64, h event.Header, v event.Version) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starts = append(r.starts, cp)
	r.txs, r.items, r.versions = nil, nil, nil
	r.seq, r.last, r.has = seq, h, true
	return nil
}

func (r *recorder) Writes(seq uint64, m *event.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := m.First
	for _, it := range m.Items {
		v := event.MakeVersion(m.Timeline, at)
		if n := len(r.versions); n > 0 && v < r.versions[n-1] {
			return fmt.Errorf("version %x after %x", v, r.versions[n-1])
		}
		r.items, r.versions = append(r.items, it), append(r.versions, v)
		switch x := it.(type) {
		case *event.Transaction:
			r.txs = append(r.txs, x)
		case *event.Part:
			return errors.New("a part was delivered")
		case *event.Chunk:
			if x.Last == nil {
				at--
			}
		}
		at++
	}
	r.seq, r.last, r.digest, r.has = seq, m.Header, m.Digest, true
	return nil
}

func (r *recorder) State(s *event.ServerState) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states[s.Server] = s
	return nil
}

func (r *recorder) Definition(d *event.TableDefinition) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.defs[d.Schema+"."+d.Table] = d
	return nil
}

func (r *recorder) CaughtUp(seq uint64, connected bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connected && !connected {
		r.cuts++
	}
	r.end, r.connected = seq, connected
}

func (r *recorder) Resume() (uint64, event.Header, [16]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq, r.last, r.digest, r.has
}

func (r *recorder) do(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn()
}

// gtids returns the GTIDs of the transactions since the newest start, in order.
func (r *recorder) gtids() []gtid.GTID {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]gtid.GTID, len(r.txs))
	for i, x := range r.txs {
		out[i] = x.GTID
	}
	return out
}

// wantNumbered waits for A:first to A:last, in order, each once.
func (r *recorder) wantNumbered(t testing.TB, first, last int64) {
	t.Helper()
	eventually(t, func() string {
		got := r.gtids()
		for i, g := range got {
			if g != ga(first+int64(i)) {
				t.Fatalf("transaction %d is %v, want %v", i, g, ga(first+int64(i)))
			}
		}
		if want := int(last - first + 1); len(got) != want {
			return fmt.Sprintf("%d of %d transactions came", len(got), want)
		}
		return ""
	})
}

func (r *recorder) wantCaughtUp(t testing.TB) {
	t.Helper()
	eventually(t, func() (reason string) {
		r.do(func() {
			if !r.connected || !r.has || r.seq < r.end {
				reason = fmt.Sprintf("connected %v, at %d of %d", r.connected, r.seq, r.end)
			}
		})
		return reason
	})
}

// wantStarted waits until the recorder has a checkpoint.
func (r *recorder) wantStarted(t testing.TB) {
	t.Helper()
	eventually(t, func() (reason string) {
		r.do(func() {
			if !r.has {
				reason = "no checkpoint came"
			}
		})
		return reason
	})
}

// wantStarts waits for the start number n.
func (r *recorder) wantStarts(t testing.TB, n int) {
	t.Helper()
	eventually(t, func() (reason string) {
		r.do(func() {
			if len(r.starts) < n {
				reason = fmt.Sprintf("%d starts, waiting for %d", len(r.starts), n)
			}
		})
		return reason
	})
}

// wantAll waits until the recorder has everything that the writer stored.
func (r *recorder) wantAll(t testing.TB, w *writing) {
	t.Helper()
	eventually(t, func() (reason string) {
		r.do(func() {
			if !r.connected || r.seq < w.Counters().AckedSeq {
				reason = fmt.Sprintf("connected %v, at %d of %d", r.connected, r.seq, w.Counters().AckedSeq)
			}
		})
		return reason
	})
}

func follow(t testing.TB, c *cdc.Conn, r *recorder) (*cdc.Follower, *running) {
	t.Helper()
	f := cdc.NewFollower(c, cdc.FollowerOptions{Sink: r, CheckEvery: 50 * time.Millisecond})
	return f, start(t, f.Run)
}

func itemsOf[T event.Item](r *recorder) []T {
	var out []T
	r.do(func() {
		for _, it := range r.items {
			if v, ok := it.(T); ok {
				out = append(out, v)
			}
		}
	})
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// counting keeps the position alone.
type counting struct{ *recorder }

func (c *counting) Writes(seq uint64, m *event.Message) error {
	c.do(func() { c.seq, c.last, c.digest = seq, m.Header, m.Digest })
	return nil
}
