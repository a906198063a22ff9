package index_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/index"
)

// naive is the index in as few words as possible: a list of what was written.
type naive struct {
	written   []written       // in order
	rec       map[int]written // newest write of each row
	delivered map[gtid.GTID]bool
	horizon   map[gtid.GTID]bool // what must be in H; eviction may add delivered ones
	lost      map[gtid.GTID]bool
	open      map[string][]int
	max       event.Version
	seq, ord  uint64
	next      [3]int64
	start     event.Version
}

type written struct {
	gtid   gtid.GTID // zero: a hole or a failover
	v      event.Version
	isLost bool
}

func (n *naive) clone() *naive {
	c := *n
	c.written = slices.Clone(n.written)
	c.delivered, c.horizon, c.lost = maps.Clone(n.delivered), maps.Clone(n.horizon), maps.Clone(n.lost)
	c.open, c.rec = maps.Clone(n.open), maps.Clone(n.rec)
	return &c
}

const (
	modelRows       = 12
	everything      = -1
	modelFirst      = 10 // GTIDs of each source that the checkpoint has
	modelMaxRecords = 9
)

// machine runs the index beside the naive one.
type machine struct {
	w     *world
	n     *naive
	st    *index.Memory
	saved *naive // as of the last flush
	bound bool
}

func (m *machine) options() index.Options {
	o := index.Options{Store: m.st, FlushInterval: 1 << 40 * time.Nanosecond}
	if m.bound {
		o.MaxRecords, o.MaxRuns = modelMaxRecords, 6
	}
	return o
}

func (m *machine) init(t *rapid.T) {
	m.st = index.NewMemory()
	m.bound = rapid.Bool().Draw(t, "bound")
	m.w = newWorld(t, m.options())
	m.begin()
}

// begin starts the index at a checkpoint.
func (m *machine) begin() {
	all := fmt.Sprintf("a:1-%d,b:1-%d,c:1-%d", modelFirst, modelFirst, modelFirst)
	m.w.start(all)
	m.n = &naive{
		delivered: map[gtid.GTID]bool{}, horizon: map[gtid.GTID]bool{}, lost: map[gtid.GTID]bool{},
		open: map[string][]int{}, rec: map[int]written{}, max: m.w.lastVersion(), next: [3]int64{modelFirst, modelFirst, modelFirst},
	}
	m.n.start = m.n.max
	for _, src := range []gtid.UUID{uuidA, uuidB, uuidC} {
		for i := int64(1); i <= modelFirst; i++ {
			m.n.delivered[gtid.GTID{UUID: src, Seq: i}] = true
			m.n.horizon[gtid.GTID{UUID: src, Seq: i}] = true
		}
	}
	m.saved = nil
}

func (m *machine) record(v event.Version, g gtid.GTID, rows []int) {
	m.n.max = v
	m.n.written = append(m.n.written, written{gtid: g, v: v})
	for _, r := range rows {
		m.n.rec[r] = written{gtid: g, v: v}
	}
	if !g.IsZero() {
		m.n.delivered[g] = true
		delete(m.n.horizon, g)
		delete(m.n.lost, g)
	}
}

// newGTID takes the next number of a source, or leaves gaps, or fills one.
func (m *machine) newGTID(t *rapid.T) gtid.GTID {
	src := rapid.IntRange(0, 2).Draw(t, "source")
	u := []gtid.UUID{uuidA, uuidB, uuidC}[src]
	switch rapid.IntRange(0, 9).Draw(t, "how") {
	case 0:
		m.n.next[src] += 3
	case 1:
		for i := int64(modelFirst + 1); i <= m.n.next[src]; i++ {
			if g := (gtid.GTID{UUID: u, Seq: i}); !m.n.delivered[g] {
				return g
			}
		}
	}
	m.n.next[src]++
	return gtid.GTID{UUID: u, Seq: m.n.next[src]}
}

func drawRows(t *rapid.T) []int {
	return rapid.SliceOfNDistinct(rapid.IntRange(0, modelRows-1), 0, 3, rapid.ID[int]).Draw(t, "rows")
}

func (m *machine) tx(g gtid.GTID, rows []int) *event.Transaction {
	tr := &event.Transaction{GTID: g}
	for _, r := range rows {
		tr.Scopes = append(tr.Scopes, row(r))
	}
	return tr
}

func (m *machine) write(t *rapid.T) {
	var items []event.Item
	var applied []func(v event.Version)
	for range rapid.IntRange(1, 3).Draw(t, "transactions") {
		g, rows := m.newGTID(t), drawRows(t)
		tr := m.tx(g, rows)
		xid := rapid.SampledFrom([]string{"", "", "", "x", "y"}).Draw(t, "xid")
		if xid != "" {
			tr.XID = xid
			xa := rapid.IntRange(0, 2).Draw(t, "xa")
			if _, open := m.n.open[xid]; open && xa == 0 {
				xa = 1 // MySQL does not prepare what is prepared
			}
			switch xa {
			case 0:
				tr.Flags = event.XAPrepare
				m.n.open[xid] = rows
				rows = nil
			case 1:
				tr.Flags, tr.Scopes = event.XACommit, nil
				prepared, ok := m.n.open[xid]
				if rows = prepared; !ok {
					rows = []int{everything}
				}
				delete(m.n.open, xid)
			default:
				tr.Flags, tr.Scopes, rows = event.XARollback, nil, nil
				delete(m.n.open, xid)
			}
		}
		m.n.delivered[g] = true // so that the next one is another
		items = append(items, tr)
		applied = append(applied, func(v event.Version) { m.record(v, g, rows) })
	}
	last := m.w.write(items...)
	for i, f := range applied {
		f(last - event.Version(len(applied)-1-i))
	}
}

func (m *machine) hole(t *rapid.T) {
	g := m.newGTID(t)
	known := m.n.delivered[g]
	v := m.w.write(&event.Hole{GTIDs: gtid.Of(g)})
	m.record(v, gtid.GTID{}, []int{everything})
	m.n.horizon[g] = true
	clear(m.n.open)
	delete(m.n.lost, g)
	if known {
		m.n.delivered[g] = true
	}
}

// failover loses some of what was delivered, and begins a timeline.
func (m *machine) failover(t *rapid.T) {
	a := m.w.announcement(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "primary"), "")
	a.Epoch = event.Epoch(m.n.max)
	var lost gtid.Set
	for _, w := range m.n.written {
		if !w.gtid.IsZero() && !w.isLost && rapid.IntRange(0, 5).Draw(t, "lose") == 0 && m.n.delivered[w.gtid] {
			lost = lost.Add(w.gtid)
		}
	}
	a.NewlyLost = lost
	for g := range m.n.lost {
		lost = lost.Add(g)
	}
	a.Lost = lost
	m.w.timeline++
	m.w.ord = 0
	v := m.w.write(a)
	m.n.max = v
	for i := range m.n.written {
		w := &m.n.written[i]
		if !w.gtid.IsZero() && lost.Contains(w.gtid) && !w.isLost {
			w.isLost = true
			delete(m.n.delivered, w.gtid)
			delete(m.n.horizon, w.gtid)
			m.n.lost[w.gtid] = true
		}
	}
	for r, w := range m.n.rec {
		if !w.gtid.IsZero() && lost.Contains(w.gtid) {
			m.n.rec[r] = written{v: v}
		}
	}
}

func (m *machine) flush(t *rapid.T) {
	if err := m.w.ix.Flush(); err != nil {
		t.Fatal(err)
	}
	m.n.seq, m.n.ord = m.w.seq, m.w.ord
	m.saved = m.n.clone()
}

// crash goes back to the last flush.
func (m *machine) crash(t *rapid.T) {
	if m.saved == nil {
		m.flush(t) // there is nothing older to go back to
	}
	m.st = m.st.Clone()
	m.bound = m.bound && !rapid.Bool().Draw(t, "another bound")
	timeline := m.n.max.Timeline()
	m.n = m.saved.clone()
	m.w.seq = m.n.seq
	n := reopened(t, m.w, m.st, m.options())
	seq, _, _, ok := n.ix.Resume()
	if !ok || seq != m.n.seq {
		t.Fatalf("resume at %d, %v; want %d", seq, ok, m.n.seq)
	}
	n.timeline, n.ord = timeline+1, 0
	n.ix.CaughtUp(seq, true)
	m.w = n
}

func (m *machine) evict(t *rapid.T) {
	m.w.ix.Evict(rapid.IntRange(1, 5).Draw(t, "records"))
}

func (m *machine) restart(t *rapid.T) {
	m.w.timeline++
	m.begin()
}

// check holds the index against the naive one.
func (m *machine) check(t *rapid.T) {
	s := m.w.snap()
	d, h, lost := s.Delivered(), s.Horizon(), s.Lost()
	if want := setOf(m.n.delivered); !d.Equal(want) {
		t.Fatalf("D is %s, want %s", d.OneLine(), want.OneLine())
	}
	if want := setOf(m.n.lost); !lost.Equal(want) {
		t.Fatalf("lost is %s, want %s", lost.OneLine(), want.OneLine())
	}
	if must := setOf(m.n.horizon); !h.ContainsSet(must) {
		t.Fatalf("H is %s, and must have %s", h.OneLine(), must.OneLine())
	} else if !d.Union(must).ContainsSet(h) {
		t.Fatalf("H is %s, more than %s and D", h.OneLine(), must.OneLine())
	}
	for r := everything; r < modelRows; r++ {
		digest := hasher.Everything()
		if r != everything {
			digest = row(r)
		}
		got := m.w.newest(digest)
		want, ok := m.n.rec[r]
		switch {
		case got == 0 && ok && !h.Contains(want.gtid) && !want.gtid.IsZero():
			t.Fatalf("row %d: no record, and %v is not in H %s (P2)", r, want.gtid, h.OneLine())
		case got != 0 && (!ok || got != want.v):
			t.Fatalf("row %d: version %d, want %d", r, got, want.v)
		}
	}
	m.checkOrder(t)
	if n := m.w.ix.Counters(); m.bound && (n.Records > modelMaxRecords || n.Runs > 6) {
		t.Fatalf("%d records, %d runs", n.Records, n.Runs)
	}
}

// checkOrder checks prefix and GTIDAt.
func (m *machine) checkOrder(t *rapid.T) {
	all := slices.SortedFunc(maps.Keys(m.n.delivered), gtid.GTID.Compare)
	executed := gtid.Of(all...)
	for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(all)-1), 0, 3).Draw(t, "not executed") {
		executed = executed.Subtract(gtid.Of(all[i]))
	}
	m.w.state("b", "", func(st *event.ServerState) { st.Executed = executed })
	s := m.w.snap()
	prefix, want := s.Prefix(m.w.at("b")), m.n.max
	for _, w := range m.n.written {
		if w.gtid.IsZero() || w.isLost {
			continue
		}
		g, ok := s.GTIDAt(w.v)
		if ok && g != w.gtid {
			t.Fatalf("version %d is %v, want %v", w.v, g, w.gtid)
		}
		if !ok && !s.Horizon().Contains(w.gtid) && m.latest(w) {
			t.Fatalf("version %d of %v is not known, and not in H", w.v, w.gtid)
		}
		if ok && !executed.Contains(w.gtid) {
			want = min(want, w.v-1)
		}
	}
	if prefix > want {
		t.Fatalf("prefix is %d, want %d (P2)", prefix, want)
	}
	// It may end at any version before the gap that is no transaction's.
	for v := prefix + 1; v <= want && v < prefix+100; v++ {
		if _, ok := s.GTIDAt(v); ok {
			t.Fatalf("prefix is %d, want %d", prefix, want)
		}
	}
}

// latest tells whether w is the last time that its GTID was delivered.
func (m *machine) latest(w written) bool {
	for _, x := range m.n.written {
		if x.gtid == w.gtid && x.v > w.v {
			return false
		}
	}
	return true
}

func setOf(m map[gtid.GTID]bool) gtid.Set {
	return gtid.Of(slices.Collect(maps.Keys(m))...)
}

// TestModel runs random steps on the index and on a naive one: records,
// eviction, horizon, losses, XA, restarts from the store.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{}
		m.init(t)
		t.Repeat(map[string]func(*rapid.T){
			"write": m.write, "write more": m.write, "write again": m.write,
			"hole": m.hole, "failover": m.failover, "evict": m.evict,
			"flush": m.flush, "crash": m.crash, "": m.check,
		})
	})
}

// TestModelColdStarts is TestModel with starts at a checkpoint in between.
func TestModelColdStarts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{}
		m.init(t)
		t.Repeat(map[string]func(*rapid.T){
			"write": m.write, "write more": m.write, "failover": m.failover, "evict": m.evict,
			"flush": m.flush, "crash": m.crash, "start": m.restart, "": m.check,
		})
	})
}

// TestTableModel holds the table of records against a map, through growth and
// eviction with many records.
func TestTableModel(t *testing.T) {
	const rows = 20000
	w := started(t, index.Options{MaxRecords: 3 * rows / 4}, "a:1-10")
	newest := map[int]event.Version{}
	seq, rng := int64(10), rand.New(rand.NewPCG(1, 2))
	for range 40 {
		var items []event.Item
		var touched []int
		for range 1000 {
			seq++
			r := rng.IntN(rows)
			items = append(items, &event.Transaction{GTID: gtid.GTID{UUID: uuidA, Seq: seq}, Scopes: []key.Digest{row(r)}})
			touched = append(touched, r)
		}
		last := w.write(items...)
		for i, r := range touched {
			newest[r] = last - event.Version(len(touched)-1-i)
		}
		h := w.snap().Horizon()
		for r, v := range newest {
			g, _ := w.snap().GTIDAt(v)
			switch got := w.newest(row(r)); {
			case got == 0 && !g.IsZero() && !h.Contains(g):
				t.Fatalf("row %d: no record, and %v is not in H", r, g)
			case got != 0 && got != v:
				t.Fatalf("row %d: version %d, want %d", r, got, v)
			}
		}
	}
	if n := w.ix.Counters(); n.Evictions == 0 || n.Records > 3*rows/4 {
		t.Errorf("%d evictions, %d records", n.Evictions, n.Records)
	}
}
