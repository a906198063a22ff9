package gtid_test

import (
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"tidegate/binlog/gtid"
)

func TestCompareOrders(t *testing.T) {
	ordered := []gtid.GTID{
		{},
		single("V:1"), single("V:2"), single("V:_:1"), single("V:a:1"), single("V:a1:1"),
		single("U:1"), single("U:a:3"), single("U:b:2"),
	}
	for i, a := range ordered {
		for k, b := range ordered {
			want := max(-1, min(1, i-k))
			if got := a.Compare(b); got != want {
				t.Errorf("%v against %v: %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestZeroValues(t *testing.T) {
	var s gtid.Set
	other := gtid.MustParse(expand("U:1-5"))
	if !s.IsEmpty() || s.String() != "" || s.Count() != 0 || s.Sources() != 0 || s.NumIntervals() != 0 {
		t.Error("the zero set is not empty")
	}
	if !other.ContainsSet(s) || s.ContainsSet(other) || !s.ContainsSet(s) || s.Overlaps(other) || other.Overlaps(s) {
		t.Error("the zero set is not contained in every set")
	}
	if !s.Union(other).Equal(other) || !other.Union(s).Equal(other) || !other.Subtract(s).Equal(other) || !s.Subtract(other).IsEmpty() {
		t.Error("the zero set is not neutral")
	}
	if g, ok := s.FirstMissing(other); !ok || g != single("U:1") {
		t.Errorf("first missing in the zero set: %v, %v", g, ok)
	}
	if s.Intervals(gtid.Source{}) != nil || s.Max(gtid.Source{}) != 0 || s.Contains(gtid.GTID{}) {
		t.Error("the zero set has something")
	}
	var g gtid.GTID
	if !g.IsZero() || g.String() != "" || g.Validate() == nil {
		t.Error("the zero GTID is not zero")
	}
	var b gtid.Builder
	if !b.IsEmpty() || b.Contains(single("U:1")) || !b.Set().IsEmpty() {
		t.Error("the zero builder is not empty")
	}
}

func TestCountSaturates(t *testing.T) {
	s := gtid.MustParse(expand("U:1-9223372036854775806"))
	if got := s.Count(); got != math.MaxInt64-1 {
		t.Errorf("one whole source has %d", got)
	}
	s = s.Union(gtid.MustParse(expand("U:a:1-9223372036854775806")))
	if got := s.Count(); got != math.MaxUint64-3 {
		t.Errorf("two whole sources have %d", got)
	}
	s = s.Union(gtid.MustParse(expand("V:1-9223372036854775806")))
	if got := s.Count(); got != math.MaxUint64 {
		t.Errorf("three whole sources have %d", got)
	}
}

// TestEnds walks the algebra along the largest number, where a careless "+1"
// overflows.
func TestEnds(t *testing.T) {
	whole := gtid.MustParse(expand("U:1-9223372036854775806"))
	top := gtid.Of(gtid.GTID{UUID: single("U:1").UUID, Seq: gtid.MaxSeq})
	rest := whole.Subtract(top)
	if got, want := rest.String(), expand("u:1-9223372036854775805"); got != want {
		t.Errorf("less the top: %s, want %s", got, want)
	}
	if !rest.Union(top).Equal(whole) || !top.Union(rest).Equal(whole) || !whole.Intersect(top).Equal(top) || rest.Overlaps(top) {
		t.Error("the parts do not make the whole")
	}
	if g, ok := rest.FirstMissing(whole); !ok || g.Seq != gtid.MaxSeq {
		t.Errorf("missing %v, %v", g, ok)
	}
	b := gtid.NewBuilder(rest)
	if !b.Add(gtid.GTID{UUID: single("U:1").UUID, Seq: gtid.MaxSeq}) || !b.Set().Equal(whole) {
		t.Errorf("built %v", b.Set())
	}
	b.AddInterval(single("U:1").Source(), gtid.Interval{First: 1, Last: gtid.MaxSeq})
	if !b.Set().Equal(whole) {
		t.Errorf("built %v", b.Set())
	}
}

func TestInvalidPanics(t *testing.T) {
	src := single("U:1").Source()
	for name, f := range map[string]func(){
		"Of zero":                 func() { gtid.Of(gtid.GTID{}) },
		"Of upper-case tag":       func() { gtid.Of(gtid.GTID{UUID: src.UUID, Tag: "A", Seq: 1}) },
		"Add negative":            func() { gtid.Set{}.Add(gtid.GTID{UUID: src.UUID, Seq: -1}) },
		"Add beyond the end":      func() { gtid.Set{}.Add(gtid.GTID{UUID: src.UUID, Seq: math.MaxInt64}) },
		"AddInterval reversed":    func() { gtid.Set{}.AddInterval(src, gtid.Interval{First: 2, Last: 1}) },
		"Builder.Add zero":        func() { new(gtid.Builder).Add(gtid.GTID{UUID: src.UUID}) },
		"Builder.Add long tag":    func() { new(gtid.Builder).Add(gtid.GTID{Tag: string(make([]byte, 33)), Seq: 1}) },
		"Builder.Add digit first": func() { new(gtid.Builder).Add(gtid.GTID{Tag: "1a", Seq: 1}) },
		"MustParse":               func() { gtid.MustParse("x") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// TestSharing holds the promise that operations share what they did not touch:
// an operation that changes nothing returns what it was given, and comparing
// relatives costs next to nothing.
func TestSharing(t *testing.T) {
	s, src := wide(100)
	sub := floorOf(src, 8, 37_500_000)
	for name, f := range map[string]func(){
		"union with a part": func() { s.Union(sub) },
		"subtract nothing":  func() { s.Subtract(gtid.MustParse("")) },
		"add what is there": func() { s.Add(gtid.GTID{UUID: src[9].UUID, Seq: 5}) },
		"unchanged builder": func() { gtid.NewBuilder(gtid.Set{}).Set() },
	} {
		// A union builds two lists to find out; nothing may grow with the runs.
		if n := testing.AllocsPerRun(10, f); n > 2 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if got := s.Limit(s.NumIntervals()); got.NumIntervals() != s.NumIntervals() {
		t.Errorf("limited to %d of %d", got.NumIntervals(), s.NumIntervals())
	}
}

// TestDecisionsDoNotAllocate: what is asked for each answer leaves no garbage.
func TestDecisionsDoNotAllocate(t *testing.T) {
	s, src := wide(100)
	again := gtid.MustParse(s.String())
	sub := floorOf(src, 8, 37_500_000)
	gap := floorOf(src, 8, 37_950_000)
	g := gtid.GTID{UUID: src[42].UUID, Seq: 42_000_123}
	b := gtid.NewBuilder(s)
	for name, f := range map[string]func() bool{
		"ContainsSet":         func() bool { return s.ContainsSet(sub) && !s.ContainsSet(gap) },
		"ContainsSet, parsed": func() bool { return s.ContainsSet(again) },
		"Contains":            func() bool { return s.Contains(g) },
		"Overlaps":            func() bool { return s.Overlaps(sub) && !s.Overlaps(gap) },
		"Equal":               func() bool { return s.Equal(again) },
		"FirstMissing":        func() bool { _, ok := s.FirstMissing(gap); return ok },
		"Max":                 func() bool { return s.Max(src[3]) == 99_900_001 },
		"Count":               func() bool { return s.Count() == 100*100*900_001 },
		"All": func() bool {
			n := 0
			for _, iv := range s.All() {
				n += int(iv.Len())
			}
			return n == 100*100*900_001
		},
		"Builder.Contains":  func() bool { return b.Contains(g) },
		"Builder.Add again": func() bool { return !b.Add(g) },
	} {
		if !f() {
			t.Errorf("%s: wrong answer", name)
		}
		if n := testing.AllocsPerRun(100, func() { f() }); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

// TestSnapshotCost bounds what a snapshot after one addition copies: one
// pointer a source, not the intervals.
func TestSnapshotCost(t *testing.T) {
	s, src := wide(100)
	b := gtid.NewBuilder(s)
	g := gtid.GTID{UUID: src[50].UUID, Seq: s.Max(src[50])}
	const rounds = 1000
	before := allocated()
	for range rounds {
		g.Seq++
		b.Add(g)
		b.Set()
	}
	if each := (allocated() - before) / rounds; each > 1200 {
		t.Errorf("%d bytes for an addition and its snapshot, want at most 1200 (the intervals have 160,000)", each)
	}
}

func TestAllStops(t *testing.T) {
	s := gtid.MustParse(expand("U:1:3:tag:5,V:7-9"))
	var seen []int64
	for src, iv := range s.All() {
		seen = append(seen, iv.First)
		if src.Tag == "" && iv.First == 3 {
			break
		}
	}
	if want := []int64{7, 1, 3}; !slices.Equal(seen, want) {
		t.Errorf("seen %v, want %v", seen, want)
	}
}

// TestSnapshotsUnderReaders lets readers check published snapshots while their
// builder goes on, out of order and over several sources: the race detector
// sees any write to what a set shares.
func TestSnapshotsUnderReaders(t *testing.T) {
	const adds, readers = 4000, 3
	src := []gtid.Source{single("U:1").Source(), single("U:tag:1").Source(), single("V:1").Source()}
	var published atomic.Pointer[gtid.Set]
	published.Store(new(gtid.Set))
	done := make(chan struct{})
	failed := make(chan string, readers)
	for range readers {
		go func() {
			var last gtid.Set
			for {
				s := *published.Load()
				if !s.ContainsSet(last) || !gtid.MustParse(s.String()).Equal(s) {
					failed <- "a snapshot changed, or does not hold the one before"
					return
				}
				last = s
				select {
				case <-done:
					failed <- ""
					return
				default:
				}
			}
		}()
	}
	var b gtid.Builder
	for i := range int64(adds) {
		// Blocks of eight in scrambled order, every 50th left out for good.
		seq := i/int64(len(src)) ^ 5
		if from := src[i%int64(len(src))]; seq > 0 && seq%50 != 0 {
			b.Add(gtid.GTID{UUID: from.UUID, Tag: from.Tag, Seq: seq})
		}
		s := b.Set()
		published.Store(&s)
	}
	close(done)
	for range readers {
		if why := <-failed; why != "" {
			t.Error(why)
		}
	}
}

func TestBrief(t *testing.T) {
	const a, b = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
	s := gtid.MustParse(a + ":1-3:5:7-9," + b + ":1")
	for n, want := range map[int]string{
		1: a + ":1-3 and 3 more",
		3: a + ":1-3:5:7-9 and 1 more",
		4: s.OneLine(),
		9: s.OneLine(),
	} {
		if got := s.Brief(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if got := gtid.MustParse("").Brief(4); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}
