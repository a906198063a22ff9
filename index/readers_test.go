package index_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/index"
)

// TestReaders looks records up while they are put, evicted and rebuilt. For
// what a snapshot calls delivered, a record is there or the horizon covers it
// (P2), whatever the owner does meanwhile.
func TestReaders(t *testing.T) {
	const (
		rows     = 3000
		each     = 20
		messages = 3000
		readers  = 3
	)
	w := started(t, index.Options{MaxRecords: 1000}, "a:1-10")
	var base atomic.Int64 // version of a:n is base + n within the timeline
	base.Store(int64(w.lastVersion()) - 10)
	source := gtid.Source{UUID: uuidA}
	rowOf := func(n int64) int { return int(n % rows) }

	var done atomic.Bool
	var looked, moved, covered atomic.Int64
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			scopes, out := make([]key.Digest, 2), make([]event.Version, 2)
			for !done.Load() {
				s := w.ix.Snapshot()
				top := s.Delivered().Max(source)
				n := top - rng.Int64N(min(top, 2*rows)) // some transaction that is delivered
				scopes[0], scopes[1] = row(rowOf(n)), posts.AllRows
				if !s.Newest(scopes, out) {
					moved.Add(1)
					continue
				}
				looked.Add(1)
				if s.Horizon().Contains(gtid.GTID{UUID: uuidA, Seq: n}) {
					covered.Add(1)
					continue
				}
				g, ok := s.GTIDAt(out[0])
				switch {
				case out[0] == 0:
					t.Errorf("a:%d is delivered, not in H, and has no record", n)
					done.Store(true)
				case out[1] != 0:
					t.Errorf("a scope that nobody wrote has version %d", out[1])
					done.Store(true)
				case ok && g.Seq < n:
					t.Errorf("the newest write of a:%d's row is %v", n, g)
					done.Store(true)
				}
			}
		})
	}
	seq := int64(10)
	for i := 0; i < messages && !done.Load(); i++ {
		items := make([]event.Item, each)
		for k := range items {
			seq++
			items[k] = &event.Transaction{GTID: gtid.GTID{UUID: uuidA, Seq: seq}, Scopes: []key.Digest{row(rowOf(seq))}}
		}
		w.write(items...)
		if i%500 == 499 {
			w.seq++
			w.ord++
			d := gtid.Set{}.AddInterval(source, gtid.Interval{First: 1, Last: seq})
			if err := w.ix.Start(&event.Checkpoint{History: 1, Delivered: d}, w.seq, event.Header{}, w.lastVersion()); err != nil {
				t.Error(err)
			}
		}
		if i%100 == 0 {
			w.newTick()
			w.state("b", "a:1-10")
		}
	}
	done.Store(true)
	wg.Wait()
	n := w.ix.Counters()
	if looked.Load() == 0 || covered.Load() == looked.Load() || n.Evictions < 10 || n.Rebuilds < 5 {
		t.Errorf("%d look-ups, %d covered, %d moved on, %d evictions, %d rebuilds: the test shows nothing",
			looked.Load(), covered.Load(), moved.Load(), n.Evictions, n.Rebuilds)
	}
}

// TestNoAllocations: nothing that a decision asks of a snapshot allocates.
func TestNoAllocations(t *testing.T) {
	w := filled(t, 10_000, index.Options{})
	w.newTick()
	w.state("a", "a:1-10010")
	w.state("b", "a:1-9000", func(s *event.ServerState) { s.FilteredTables = []key.Digest{posts.AnyRow} })
	if err := w.ix.Definition(&event.TableDefinition{Definition: key.Definition{Schema: "app", Table: "posts"}}); err != nil {
		t.Fatal(err)
	}
	s, b := w.snap(), w.at("b")
	scopes := []key.Digest{row(5), posts.AllRows, posts.Schema, posts.Everything}
	out := make([]event.Version, len(scopes))
	v := w.lastVersion() - 5000
	calls := map[string]func(){
		"Snapshot":      func() { w.ix.Snapshot() },
		"Ready":         func() { s.Ready() },
		"BlindSince":    func() { s.BlindSince() },
		"NumServers":    func() { s.NumServers() },
		"ServerIndex":   func() { s.ServerIndex("b") },
		"Server":        func() { s.Server(b) },
		"Confirmed":     func() { s.Confirmed(b) },
		"Prefix":        func() { s.Prefix(b) },
		"LeaseAt":       func() { s.LeaseAt(b) },
		"FreshAt":       func() { s.FreshAt(b) },
		"Ineligible":    func() { s.Ineligible(b) },
		"TableExcluded": func() { s.TableExcluded(b, posts.AnyRow) },
		"Primary":       func() { s.Primary() },
		"WatermarkAt":   func() { s.WatermarkAt() },
		"Refused":       func() { s.WatermarkRefused() },
		"LearntAt":      func() { s.LearntAt(v) },
		"Delivered":     func() { s.Delivered() },
		"Horizon":       func() { s.Horizon() },
		"Lost":          func() { s.Lost() },
		"LastFailover":  func() { s.LastFailover() },
		"FailoverLeft":  func() { s.FailoverLeft() },
		"CountedE":      func() { s.CountedE() },
		"Definition":    func() { s.Definition("app", "posts") },
		"FoldNames":     func() { s.FoldNames() },
		"StreamDef":     func() { s.StreamDef(posts.AnyRow) },
		"GroupHorizon":  func() { s.GroupHorizon(author.AllRows) },
		"Hasher":        func() { s.Hasher() },
		"Newest":        func() { s.Newest(scopes, out) },
		"GTIDAt":        func() { s.GTIDAt(v) },
	}
	for name, f := range calls {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
