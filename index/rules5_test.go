package index_test

import (
	"math"
	"testing"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/index"
)

// TestRule5Eviction: forgetting takes the oldest versions first and is always
// into H: every delivered GTID up to the cut, also those whose records were
// superseded (rules §5.2).
func TestRule5Eviction(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.write(tx("a:11", 1), tx("a:12", 2), tx("a:13", 1), tx("a:14", 3))
	old := w.snap()
	w.ix.Evict(1)
	// a:11 wrote nothing that is not superseded; the oldest record is row 2's.
	w.wantSet("H", w.snap().Horizon(), "a:1-12")
	w.wantSet("D", w.snap().Delivered(), "a:1-14")
	if v := w.newest(row(2)); v != 0 {
		t.Errorf("row 2 has version %d, want none", v)
	}
	if v := w.newest(row(1)); v == 0 {
		t.Error("row 1 is gone")
	}
	var out [1]event.Version
	if old.Newest([]key.Digest{row(1)}, out[:]) {
		t.Error("a snapshot from before the eviction does not notice it")
	}
	w.ix.Evict(100)
	w.wantSet("H", w.snap().Horizon(), "a:1-14")
	if n := w.ix.Counters(); n.Records != 0 || n.Evictions != 2 {
		t.Errorf("%d records, %d evictions; want 0, 2", n.Records, n.Evictions)
	}
}

// TestRule5Bound: the bound holds at every moment, and what it costs is in H.
func TestRule5Bound(t *testing.T) {
	for _, bound := range []int{1, 2, 10, 100, 5000} {
		w := started(t, index.Options{MaxRecords: bound}, "a:1-10")
		written := map[int]event.Version{}
		for i := range 3 * bound {
			name := tx("a:11", i)
			name.GTID.Seq = int64(11 + i)
			name.Tables = nil
			written[i] = w.write(name)
			if n := w.ix.Counters().Records; n > bound {
				t.Fatalf("bound %d: %d records", bound, n)
			}
		}
		s := w.snap()
		for i, v := range written {
			g := g("a:11")
			g.Seq = int64(11 + i)
			switch got := w.newest(row(i)); {
			case got == 0 && !s.Horizon().Contains(g):
				t.Fatalf("bound %d: record of %v is gone and not in H", bound, g)
			case got != 0 && got != v:
				t.Fatalf("bound %d: record of %v is %d, want %d", bound, g, got, v)
			}
		}
		if n := w.ix.Counters(); n.Records < bound/2 && bound > 2 {
			t.Errorf("bound %d: only %d records are left", bound, n.Records)
		}
	}
}

// TestRule5Runs: the list of versions is bounded likewise.
func TestRule5Runs(t *testing.T) {
	w := started(t, index.Options{MaxRuns: 10}, "a:1-10")
	for i := range 100 {
		a, b := tx("a:11", 1), tx("b:1", 2)
		a.GTID.Seq, b.GTID.Seq = int64(11+i), int64(1+i)
		w.write(a, b)
		if n := w.ix.Counters().Runs; n > 10 {
			t.Fatalf("%d runs", n)
		}
	}
	w.wantSet("D", w.snap().Delivered(), "a:1-110,b:1-100")
	if h := w.snap().Horizon(); h.Count() < 150 {
		t.Errorf("H has only %d transactions", h.Count())
	}
}

// TestRule5Start: an index starts at a checkpoint with H = its delivered set,
// holes included, and what the checkpoint carries (rules §5.3).
func TestRule5Start(t *testing.T) {
	w := newWorld(t, index.Options{})
	if ok, detail := w.snap().Ready(); ok || detail == "" {
		t.Errorf("ready before anything was read: %v (%s)", ok, detail)
	}
	if _, _, _, ok := w.ix.Resume(); ok {
		t.Error("something to resume from before anything was read")
	}
	cp := &event.Checkpoint{
		History: 3, Delivered: set(t, "a:1-20"), Holes: set(t, "a:7"), Lost: set(t, "b:5"), LossAt: event.MakeVersion(2, 3),
		Announced: event.Announcement{Server: "a", ServerUUID: uuidA, Epoch: 4, History: 3, FoldNames: true},
		Defs:      []event.DefRef{{Table: posts.AnyRow, Version: 77}},
		Groups:    []event.GroupColumn{{Schema: "App", Table: "Posts", Column: "Author_ID", Before: set(t, "a:1-9")}},
	}
	v := event.MakeVersion(5, 100)
	if err := w.ix.Start(cp, 50, event.Header{Count: 50, Timeline: 5}, v); err != nil {
		t.Fatal(err)
	}
	s := w.snap()
	w.wantSet("D", s.Delivered(), "a:1-20")
	w.wantSet("H", s.Horizon(), "a:1-20")
	w.wantSet("lost", s.Lost(), "b:5")
	if d, ok := s.StreamDef(posts.AnyRow); !ok || d != 77 {
		t.Errorf("definition of posts is %d, %v; want 77", d, ok)
	}
	if _, ok := s.StreamDef(key.Digest{1}); ok {
		t.Error("a table that was never named has a definition")
	}
	before, ok := s.GroupHorizon(author.AllRows)
	if !ok {
		t.Error("the group column is not known")
	}
	w.wantSet("before the group column", before, "a:1-9")
	if !s.FoldNames() {
		t.Error("names do not fold")
	}
	if ok, detail := s.Ready(); ok {
		t.Errorf("ready before the stream's end is known (%s)", detail)
	}
	w.ix.CaughtUp(51, true)
	if ok, detail := w.snap().Ready(); ok || detail != "behind the stream by 1 messages" {
		t.Errorf("ready: %v (%s)", ok, detail)
	}
	w.seq, w.timeline, w.ord = 50, 5, 100
	w.write(tx("a:21", 1))
	if ok, detail := w.snap().Ready(); !ok {
		t.Errorf("not ready: %s", detail)
	}
	w.newTick()
	w.state("b", "a:1-21", func(s *event.ServerState) { s.History = 3; s.LossSeen = event.MakeVersion(2, 2) })
	w.wantIneligible("b", "catching_up", "compared")
	w.state("b", "a:1-21", func(s *event.ServerState) { s.History = 3; s.LossSeen = event.MakeVersion(2, 3) })
	w.wantIneligible("b", "", "")
}

// TestRule5NewHistory: a checkpoint of another history in the stream starts the
// index anew (rules §5.3); one of the same history changes nothing.
func TestRule5NewHistory(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	w.write(tx("a:11", 1))
	w.write(&event.Checkpoint{History: 1, Delivered: set(t, "a:1-11")})
	if v := w.newest(row(1)); v == 0 {
		t.Error("a checkpoint of the same history dropped a record")
	}
	w.wantSet("H", w.snap().Horizon(), "a:1-10")

	old := w.snap()
	a := w.announcement("a", "a:1-9")
	a.History, a.Epoch = 2, 2
	w.write(&event.Checkpoint{History: 2, Delivered: set(t, "a:1-9")})
	if ok, _ := w.snap().Ready(); ok {
		t.Error("ready before the announcement of the new history")
	}
	v := w.write(a, tx("a:10", 2))
	w.wantSet("D", w.snap().Delivered(), "a:1-10")
	w.wantSet("H", w.snap().Horizon(), "a:1-9")
	if got := w.newest(row(1)); got != 0 {
		t.Errorf("a record of the old history is left: %d", got)
	}
	if got := w.newest(row(2)); got != v {
		t.Errorf("row 2 has version %d, want %d", got, v)
	}
	var out [1]event.Version
	if old.Newest([]key.Digest{row(1)}, out[:]) {
		t.Error("an old snapshot does not notice the rebuild")
	}
	if ok, detail := w.snap().Ready(); !ok {
		t.Errorf("not ready: %s", detail)
	}
	w.newTick()
	w.state("b", "a:1-10")
	w.wantIneligible("b", "catching_up", "history 1")
}

// TestGTIDAt: which transaction has a version, as long as it is known.
func TestGTIDAt(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	want := map[event.Version]string{}
	for _, name := range []string{"a:11", "a:12", "b:1", "a:13", "a:20", "b:2", "b:3"} {
		want[w.write(tx(name, 1))] = name
	}
	hole := w.write(&event.Hole{GTIDs: set(t, "c:1")})
	want[w.write(tx("b:4", 1))] = "b:4"
	check := func(v event.Version, name string) {
		t.Helper()
		got, ok := w.snap().GTIDAt(v)
		if name == "" && ok || name != "" && (!ok || got != g(name)) {
			t.Errorf("version %d is %v, %v; want %q", v, got, ok, name)
		}
	}
	for v, name := range want {
		check(v, name)
	}
	for _, v := range []event.Version{0, 1, hole, w.lastVersion() + 1, math.MaxUint64} {
		check(v, "")
	}
	lost := w.announcement("b", "a:1-12,b:1-4")
	lost.Lost, lost.NewlyLost = set(t, "a:13,a:20"), set(t, "a:13,a:20")
	w.write(lost)
	for v, name := range want {
		if name == "a:13" || name == "a:20" {
			name = ""
		}
		check(v, name)
	}
	w.ix.Evict(1000)
	for v := range want {
		check(v, "")
	}
}

func (w *world) lastVersion() event.Version { return event.MakeVersion(w.timeline, w.ord) }

// TestPrefix: the newest version up to which every delivered transaction is
// confirmed, with gaps, commits out of order and servers far behind or ahead.
func TestPrefix(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	first := w.lastVersion()
	names := []string{"a:11", "a:12", "b:1", "a:14", "a:13", "a:15", "a:16", "a:17", "a:18", "a:19", "a:20"}
	for _, name := range names {
		w.write(tx(name, 1))
	}
	tests := []struct {
		executed string
		upTo     int // transactions
	}{
		{"", 0},
		{"a:1-10", 0},
		{"a:11", 1},
		{"a:1-12", 2},
		{"a:1-14", 2},
		{"a:1-12,b:1", 3},
		{"a:1-12,a:14,b:1", 4},
		{"a:1-13,b:1", 3},
		{"a:1-14,b:1", 5},
		{"a:1-18,b:1", 9},
		{"a:1-16,a:18-20,b:1", 7},
		{"a:1-20", 2},
		{"a:1-20,b:1", len(names)},
		{"a:1-100,b:1-100", len(names)},
		{"a:1-15,b:1", 6}, // and back
	}
	for _, tt := range tests {
		w.state("b", tt.executed)
		want := first + event.Version(tt.upTo)
		if got := w.snap().Prefix(w.at("b")); got != want {
			t.Errorf("executed %s: prefix is %d transactions, want %d", tt.executed, int(got)-int(first), tt.upTo)
		}
	}
	// Items that are no transactions belong to a prefix that nothing limits.
	w.state("b", "a:1-20,b:1")
	w.write(&event.Definitions{})
	if got := w.snap().Prefix(w.at("b")); got != w.lastVersion() {
		t.Errorf("prefix is %d, want %d", got, w.lastVersion())
	}
	w.write(tx("a:21", 1))
	if got := w.snap().Prefix(w.at("b")); got != w.lastVersion()-1 {
		t.Errorf("prefix is %d, want %d", got, w.lastVersion()-1)
	}
	// Eviction: what the horizon covers does not limit a prefix.
	w.state("c", "a:1-11")
	w.ix.Evict(1000)
	w.write(tx("a:22", 1))
	if got := w.snap().Prefix(w.at("c")); got != w.lastVersion()-1 {
		t.Errorf("prefix after eviction is %d, want %d", got, w.lastVersion()-1)
	}
}

// TestDefinitions: the newest definition by folded names, dropped ones aside.
func TestDefinitions(t *testing.T) {
	w := newWorld(t, index.Options{})
	def := func(table string, v key.DefVersion, dropped bool) {
		err := w.ix.Definition(&event.TableDefinition{Definition: key.Definition{Schema: "app", Table: table, Version: v}, Dropped: dropped})
		if err != nil {
			t.Fatal(err)
		}
	}
	def("posts", 1, false)
	def("users", 1, false)
	before := w.snap()
	def("posts", 2, false)
	def("users", 2, true)
	if d, ok := w.snap().Definition("app", "posts"); !ok || d.Version != 2 {
		t.Errorf("posts: %v, %v; want version 2", d, ok)
	}
	if d, ok := w.snap().Definition("app", "users"); ok {
		t.Errorf("users was dropped and is %v", d)
	}
	if _, ok := w.snap().Definition("ap", "pposts"); ok {
		t.Error("another name finds posts")
	}
	if d, ok := before.Definition("app", "users"); !ok || d.Version != 1 {
		t.Errorf("an older snapshot sees users %v, %v; want version 1", d, ok)
	}
}

// TestRedefinition: a definition that changes without DDL in the stream (a
// schema change rolled out server by server, then a failover) folds the same
// rows to other keys: everything waits for what was written before.
func TestRedefinition(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	everything := hasher.Everything()
	defs := func(v key.DefVersion) []event.DefRef { return []event.DefRef{{Table: posts.AnyRow, Version: v}} }
	w.write(&event.Definitions{Defs: defs(5)})
	one := tx("a:11", 1)
	one.Defs = defs(5)
	w.write(one)
	if v := w.newest(everything); v != 0 {
		t.Errorf("the first definition wrote everything at %d", v)
	}
	if got, want := w.newest(everything), w.write(&event.Definitions{Defs: defs(6)}); w.newest(everything) != want {
		t.Errorf("another definition: everything was %d and is %d, want %d", got, w.newest(everything), want)
	}
	two := tx("a:12", 1)
	two.Defs = defs(7)
	v := w.write(two)
	if got := w.newest(everything); got != v {
		t.Errorf("another definition in a transaction: everything is %d, want %d", got, v)
	}
	ddl := tx("a:13")
	ddl.Flags, ddl.Defs = event.DDL, defs(0)
	w.write(ddl)
	w.write(&event.Definitions{Defs: defs(8)})
	if got := w.newest(everything); got != v {
		t.Errorf("DDL, which writes all-rows by itself, moved everything from %d to %d", v, got)
	}
	if v := w.write(&event.Definitions{Defs: defs(0)}); w.newest(everything) != v {
		t.Errorf("a table gone without DDL: everything is %d, want %d", w.newest(everything), v)
	}
}

// TestStreamDefs: rules §5.4: a router knows the version with which the stream
// folds, also that it is none after DDL.
func TestStreamDefs(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	one := tx("a:11", 1)
	one.Defs = []event.DefRef{{Table: posts.AnyRow, Version: 5}}
	w.write(one)
	before := w.snap()
	ddl := tx("a:12")
	ddl.Flags, ddl.Defs = event.DDL, []event.DefRef{{Table: posts.AnyRow}}
	w.write(ddl)
	if v, ok := w.snap().StreamDef(posts.AnyRow); !ok || v != 0 {
		t.Errorf("after DDL: %d, %v; want 0, true", v, ok)
	}
	w.write(&event.Definitions{Defs: []event.DefRef{{Table: posts.AnyRow, Version: 6}}})
	if v, ok := w.snap().StreamDef(posts.AnyRow); !ok || v != 6 {
		t.Errorf("after a look-up: %d, %v; want 6, true", v, ok)
	}
	if v, ok := before.StreamDef(posts.AnyRow); !ok || v != 5 {
		t.Errorf("an older snapshot: %d, %v; want 5, true", v, ok)
	}
}
