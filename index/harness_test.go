package index_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/index"
)

// Everything below is driven by one goroutine, with a clock of its own and
// without a stream.

var (
	uuidA = gtid.UUID{0xa}
	uuidB = gtid.UUID{0xb}
	uuidC = gtid.UUID{0xc}

	secret = key.Secret{1, 2, 3}
	hasher = key.NewHasher(secret)
	posts  = hasher.Table("app", "posts")
	author = posts.Group("author_id")

	router = [16]byte{7}
)

func row(n int) key.Digest {
	return posts.Row(binary.BigEndian.AppendUint64(nil, uint64(n)))
}

// set parses a set in which a, b and c stand for the servers' UUIDs: "a:1-5,b:3".
func set(tb tester, s string) gtid.Set {
	tb.Helper()
	var out gtid.Set
	for _, part := range strings.Split(s, ",") {
		if part == "" {
			continue
		}
		v, err := gtid.Parse(uuidOf(part[0]).String() + part[1:])
		if err != nil {
			tb.Fatalf("set %q: %v", s, err)
		}
		out = out.Union(v)
	}
	return out
}

func uuidOf(b byte) gtid.UUID { return gtid.UUID{b - 'a' + 0xa} }

func g(name string) gtid.GTID {
	var seq int64
	if _, err := fmt.Sscanf(name[2:], "%d", &seq); err != nil {
		panic(err)
	}
	return gtid.GTID{UUID: uuidOf(name[0]), Seq: seq}
}

// tester is what tests, benchmarks and rapid's checks have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Error(args ...any)
	Errorf(format string, args ...any)
}

// world drives one index.
type world struct {
	tb       tester
	ix       *index.Index
	now      int64
	tick     uint64
	seq      uint64
	timeline uint32
	ord      uint64
	states   map[string]*event.ServerState
	// announced is the newest announcement without losses: tailers have read it,
	// unless a test says otherwise.
	announced event.Version
}

const second = int64(time.Second)

func newWorld(tb tester, o index.Options) *world {
	tb.Helper()
	w := &world{tb: tb, now: 1000 * second, timeline: 1, states: map[string]*event.ServerState{}}
	o.Clock = func() int64 { return w.now }
	o.Router, o.Secret, o.Cluster = router, secret, "shop"
	if o.Servers == nil {
		o.Servers = []string{"a", "b", "c"}
	}
	ix, err := index.Open(o)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	w.ix = ix
	return w
}

// started is a world whose index has read a checkpoint with the given delivered
// set and the announcement of server a, and has caught up.
func started(tb tester, o index.Options, delivered string) *world {
	tb.Helper()
	w := newWorld(tb, o)
	w.start(delivered)
	return w
}

func (w *world) start(delivered string) {
	w.tb.Helper()
	w.seq++
	w.ord++
	d := set(w.tb, delivered)
	err := w.ix.Start(&event.Checkpoint{History: 1, Delivered: d}, w.seq, event.Header{Timeline: w.timeline, Count: w.seq}, event.MakeVersion(w.timeline, w.ord))
	if err != nil {
		w.tb.Fatalf("start: %v", err)
	}
	w.write(w.announcement("a", delivered))
	w.ix.CaughtUp(w.seq, true)
}

func (w *world) announcement(server, executed string) *event.Announcement {
	return &event.Announcement{Server: server, ServerUUID: uuidOf(server[0]), Epoch: 1, History: 1, Executed: set(w.tb, executed)}
}

// write applies one message with the items and returns the version of the last.
func (w *world) write(items ...event.Item) event.Version {
	w.tb.Helper()
	v, err := w.tryWrite(items...)
	if err != nil {
		w.tb.Fatalf("write: %v", err)
	}
	return v
}

func (w *world) tryWrite(items ...event.Item) (event.Version, error) {
	w.seq++
	m := &event.Message{
		Header: event.Header{Timeline: w.timeline, Count: w.seq, Fold: key.FoldVersion},
		First:  w.ord + 1, Items: items, Digest: [16]byte{byte(w.seq), 0xd},
	}
	for _, it := range items {
		if c, ok := it.(*event.Chunk); !ok || c.Last != nil {
			w.ord++
		}
		if a, ok := it.(*event.Announcement); ok && a.NewlyLost.IsEmpty() {
			w.announced = event.MakeVersion(w.timeline, w.ord)
		}
	}
	return event.MakeVersion(w.timeline, w.ord), w.ix.Writes(w.seq, m)
}

// tx is a transaction that wrote rows of app.posts.
func tx(name string, rows ...int) *event.Transaction {
	t := &event.Transaction{GTID: g(name), OriginalCommit: 1, Tables: []key.Digest{posts.AnyRow}}
	for _, n := range rows {
		t.Scopes = append(t.Scopes, row(n))
	}
	return t
}

// newTick sends a tick one second after the last.
func (w *world) newTick() uint64 {
	w.now += second
	w.tick++
	w.ix.TickSent(w.tick, w.now)
	return w.tick
}

// state is the state of a server that executed a set and names the newest tick.
// a is the primary unless change says otherwise.
func (w *world) state(server, executed string, change ...func(*event.ServerState)) {
	w.tb.Helper()
	s := &event.ServerState{
		Server: server, UUID: uuidOf(server[0]), Epoch: 1, History: 1, LossSeen: w.announced, Alive: true,
		Role: event.RoleReplica, Drained: true, GTIDMode: "ON", Follow: "binlog",
		Executed: set(w.tb, executed),
		Ticks:    []event.RouterTick{{Router: [16]byte{9}, Tick: 1 << 40}, {Router: router, Tick: w.tick}},
	}
	if server == "a" {
		s.Role, s.Writable = event.RolePrimary, true
	}
	for _, f := range change {
		f(s)
	}
	w.states[server] = s
	if err := w.ix.State(s); err != nil {
		w.tb.Fatalf("state: %v", err)
	}
}

func (w *world) snap() *index.Snapshot { return w.ix.Snapshot() }

func (w *world) at(server string) int {
	w.tb.Helper()
	i, ok := w.snap().ServerIndex(server)
	if !ok {
		w.tb.Fatalf("server %q is not known", server)
	}
	return i
}

// newest is the version of the newest write of a scope.
func (w *world) newest(d key.Digest) event.Version {
	w.tb.Helper()
	var out [1]event.Version
	if !w.snap().Newest([]key.Digest{d}, out[:]) {
		w.tb.Fatal("the newest snapshot says that its records have moved on")
	}
	return out[0]
}

func (w *world) wantSet(what string, got gtid.Set, want string) {
	w.tb.Helper()
	if !got.Equal(set(w.tb, want)) {
		w.tb.Errorf("%s is %q, want %q", what, got.OneLine(), set(w.tb, want).OneLine())
	}
}

func (w *world) wantIneligible(server, reason, detail string) {
	w.tb.Helper()
	r, d := w.snap().Ineligible(w.at(server))
	if r != reason || !strings.Contains(d, detail) {
		w.tb.Errorf("server %s is ineligible for %q (%s), want %q (%s)", server, r, d, reason, detail)
	}
}

func (w *world) wantPrimary(reason, detail string) {
	w.tb.Helper()
	_, ok, r, d := w.snap().Primary()
	if ok != (reason == "") || r != reason || !strings.Contains(d, detail) {
		w.tb.Errorf("primary is ok=%v %q (%s), want %q (%s)", ok, r, d, reason, detail)
	}
}
