package gtid_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tidegate/binlog/gtid"
)

// model is a set as a map: slow, obvious, and sharing nothing with the package.
type model map[gtid.GTID]bool

// modelMax keeps numbers in a range that a map can hold and random intervals
// fill densely, so that they touch, overlap and leave gaps.
const modelMax = 40

func (m model) clone() model {
	c := model{}
	for g := range m {
		c[g] = true
	}
	return c
}

func (m model) sorted() []gtid.GTID {
	gs := make([]gtid.GTID, 0, len(m))
	for g := range m {
		gs = append(gs, g)
	}
	slices.SortFunc(gs, gtid.GTID.Compare)
	return gs
}

// text prints m as MySQL would, written independently of the package's
// printer.
func (m model) text() string {
	var parts []string
	var uuid, tag string
	gs := m.sorted()
	for i := 0; i < len(gs); {
		g := gs[i]
		k := i
		for k+1 < len(gs) && gs[k+1] == (gtid.GTID{UUID: g.UUID, Tag: g.Tag, Seq: gs[k].Seq + 1}) {
			k++
		}
		if u := fmt.Sprintf("%x-%x-%x-%x-%x", g.UUID[:4], g.UUID[4:6], g.UUID[6:8], g.UUID[8:10], g.UUID[10:]); u != uuid {
			parts = append(parts, u)
			uuid, tag = u, ""
		}
		last := &parts[len(parts)-1]
		if g.Tag != tag {
			*last += ":" + g.Tag
			tag = g.Tag
		}
		*last += fmt.Sprintf(":%d", g.Seq)
		if k > i {
			*last += fmt.Sprintf("-%d", gs[k].Seq)
		}
		i = k + 1
	}
	return strings.Join(parts, ",\n")
}

// pool has UUIDs that differ early, late, and only in the second half (the
// index compares the first half alone), and several tags.
var pool = func() []gtid.Source {
	var src []gtid.Source
	for _, u := range []string{
		"00000000-0000-0000-0000-000000000000",
		"3e11fa47-71ca-11e1-9e33-c80aa9429561",
		"3e11fa47-71ca-11e1-9e33-c80aa9429562",
		"3e11fa47-71ca-11e1-ffff-c80aa9429562",
		"ffffffff-ffff-ffff-ffff-ffffffffffff",
	} {
		id, err := gtid.ParseUUID(u)
		if err != nil {
			panic(err)
		}
		for _, tag := range []string{"", "_", "a", "a_", "b"} {
			src = append(src, gtid.Source{UUID: id, Tag: tag})
		}
	}
	return src
}()

func drawSource(t *rapid.T) gtid.Source { return rapid.SampledFrom(pool).Draw(t, "source") }

func drawInterval(t *rapid.T) gtid.Interval {
	first := rapid.Int64Range(1, modelMax).Draw(t, "first")
	return gtid.Interval{First: first, Last: min(modelMax, first+rapid.Int64Range(0, 6).Draw(t, "more"))}
}

// drawSet returns a random set, made in one of several ways, and its model.
func drawSet(t *rapid.T) (gtid.Set, model) {
	m := model{}
	var b gtid.Builder
	var text []string
	for range rapid.IntRange(0, 25).Draw(t, "pieces") {
		src, iv := drawSource(t), drawInterval(t)
		for seq := iv.First; seq <= iv.Last; seq++ {
			m[gtid.GTID{UUID: src.UUID, Tag: src.Tag, Seq: seq}] = true
		}
		b.AddInterval(src, iv)
		text = append(text, fmt.Sprintf("%v:%d-%d", src, iv.First, iv.Last))
	}
	switch rapid.IntRange(0, 2).Draw(t, "made by") {
	case 0:
		return b.Set(), m
	case 1:
		return gtid.MustParse(strings.Join(text, ",")), m
	}
	return gtid.Of(m.sorted()...), m
}

// check fails unless s and its model are the same in all that can be asked.
func check(t *rapid.T, what string, s gtid.Set, m model) {
	t.Helper()
	if got, want := s.String(), m.text(); got != want {
		t.Fatalf("%s: String is\n%s\nwant\n%s", what, got, want)
	}
	if got, want := s.Count(), uint64(len(m)); got != want {
		t.Fatalf("%s: Count is %d, want %d of\n%v", what, got, want, s)
	}
	if got, want := s.IsEmpty(), len(m) == 0; got != want {
		t.Fatalf("%s: IsEmpty is %v, want %v", what, got, want)
	}
	n, sources, last := 0, 0, gtid.Source{}
	for src, iv := range s.All() {
		if n == 0 || src != last {
			sources++
		}
		last = src
		n++
		if got := s.Intervals(src); !slices.Contains(got, iv) {
			t.Fatalf("%s: Intervals(%v) is %v, without %v", what, src, got, iv)
		}
	}
	if s.NumIntervals() != n || s.Sources() != sources {
		t.Fatalf("%s: %d intervals of %d sources, All had %d of %d", what, s.NumIntervals(), s.Sources(), n, sources)
	}
	for _, src := range pool {
		var top int64
		for seq := int64(0); seq <= modelMax+1; seq++ {
			g := gtid.GTID{UUID: src.UUID, Tag: src.Tag, Seq: seq}
			if got, want := s.Contains(g), m[g]; got != want {
				t.Fatalf("%s: Contains(%v) is %v, want %v in\n%v", what, g, got, want, s)
			}
			if m[g] {
				top = seq
			}
		}
		if got := s.Max(src); got != top {
			t.Fatalf("%s: Max(%v) is %d, want %d", what, src, got, top)
		}
	}
}

func TestAlgebraModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, ma := drawSet(t)
		b, mb := drawSet(t)
		// Operands that share parts take the fast paths.
		if rapid.Bool().Draw(t, "related") {
			b = a.Union(b)
			mb = union(ma, mb)
		}
		if rapid.Bool().Draw(t, "swapped") {
			a, ma, b, mb = b, mb, a, ma
		}
		check(t, "a", a, ma)
		check(t, "union", a.Union(b), union(ma, mb))
		minus, both := model{}, model{}
		var missing gtid.GTID
		for _, g := range ma.sorted() {
			if mb[g] {
				both[g] = true
			} else {
				minus[g] = true
				if missing.IsZero() {
					missing = g
				}
			}
		}
		check(t, "subtract", a.Subtract(b), minus)
		check(t, "intersect", a.Intersect(b), both)
		if got, want := b.ContainsSet(a), len(minus) == 0; got != want {
			t.Fatalf("ContainsSet is %v, want %v of\n%v in\n%v", got, want, a, b)
		}
		if got, want := a.Overlaps(b), len(both) > 0; got != want {
			t.Fatalf("Overlaps is %v, want %v of\n%v and\n%v", got, want, a, b)
		}
		if got, want := a.Equal(b), a.String() == b.String(); got != want {
			t.Fatalf("Equal is %v, want %v of\n%v and\n%v", got, want, a, b)
		}
		if got, ok := b.FirstMissing(a); ok != (len(minus) > 0) || got != missing {
			t.Fatalf("FirstMissing is %v, %v, want %v of\n%v in\n%v", got, ok, missing, a, b)
		}
		n := rapid.IntRange(-1, a.NumIntervals()+1).Draw(t, "limit")
		limited := model{}
		k := 0
		for src, iv := range a.All() {
			if k++; k > n {
				break
			}
			for seq := iv.First; seq <= iv.Last; seq++ {
				limited[gtid.GTID{UUID: src.UUID, Tag: src.Tag, Seq: seq}] = true
			}
		}
		check(t, "limit", a.Limit(n), limited)
		src, iv := drawSource(t), drawInterval(t)
		more := ma.clone()
		for seq := iv.First; seq <= iv.Last; seq++ {
			more[gtid.GTID{UUID: src.UUID, Tag: src.Tag, Seq: seq}] = true
		}
		check(t, "add interval", a.AddInterval(src, iv), more)
		one := gtid.GTID{UUID: src.UUID, Tag: src.Tag, Seq: iv.First}
		check(t, "add", a.Add(one), union(ma, model{one: true}))
		check(t, "a afterwards", a, ma)
		check(t, "b afterwards", b, mb)
	})
}

func union(a, b model) model {
	m := a.clone()
	for g := range b {
		m[g] = true
	}
	return m
}

func TestFormsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, m := drawSet(t)
		for _, text := range []string{s.String(), s.OneLine(), strings.ToUpper(s.String())} {
			again, err := gtid.Parse(text)
			if err != nil {
				t.Fatalf("parse %q: %v", text, err)
			}
			check(t, "parsed", again, m)
			if !again.Equal(s) {
				t.Fatalf("parsed %q is not equal", text)
			}
		}
		tail := []byte("tail")
		wire := s.AppendBinary(nil)
		again, rest, err := gtid.DecodeBinary(append(wire, tail...))
		if err != nil || string(rest) != "tail" {
			t.Fatalf("decode %x: %v, rest %q", wire, err, rest)
		}
		check(t, "decoded", again, m)
		// Like itself, like something near, like anything else.
		near := s
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			if src, iv := drawSource(t), drawInterval(t); rapid.Bool().Draw(t, "more") {
				near = near.AddInterval(src, iv)
			} else {
				near = near.Subtract(gtid.Set{}.AddInterval(src, iv))
			}
		}
		other, _ := drawSet(t)
		for _, like := range []gtid.Set{s, near, other} {
			before := like.String()
			again, rest, err := gtid.DecodeBinaryLike(append(wire, tail...), like)
			if err != nil || string(rest) != "tail" {
				t.Fatalf("decode %x like %v: %v, rest %q", wire, like, err, rest)
			}
			check(t, "decoded like "+before, again, m)
			if after := like.String(); after != before {
				t.Fatalf("%s became %s", before, after)
			}
		}
		again, rest, err = gtid.DecodeSIDBlock(append(s.EncodeSIDBlock(nil), tail...))
		if err != nil || string(rest) != "tail" {
			t.Fatalf("decode SID block: %v, rest %q", err, rest)
		}
		check(t, "decoded SID block", again, m)
	})
}

// TestBuilderModel drives builders and keeps every snapshot: none may change
// afterwards, whatever is done to the builder it came from or to a builder that
// began with it.
func TestBuilderModel(t *testing.T) {
	type snapshot struct {
		set gtid.Set
		m   model
	}
	type owner struct {
		b *gtid.Builder
		m model
	}
	rapid.Check(t, func(t *rapid.T) {
		owners := []*owner{{new(gtid.Builder), model{}}}
		var snaps []snapshot
		pick := func() *owner { return rapid.SampledFrom(owners).Draw(t, "builder") }
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			o := pick()
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2, 3:
				src := drawSource(t)
				// Few sources, so that one's intervals really grow.
				src = pool[slices.Index(pool, src)%3]
				g := gtid.GTID{UUID: src.UUID, Tag: src.Tag, Seq: rapid.Int64Range(1, modelMax).Draw(t, "seq")}
				if o.b.Contains(g) != o.m[g] {
					t.Fatalf("Contains(%v) is %v", g, o.b.Contains(g))
				}
				if added := o.b.Add(g); added == o.m[g] {
					t.Fatalf("Add(%v) is %v, it was there: %v", g, added, o.m[g])
				}
				o.m[g] = true
			case 4:
				src, iv := drawSource(t), drawInterval(t)
				o.b.AddInterval(src, iv)
				for seq := iv.First; seq <= iv.Last; seq++ {
					o.m[gtid.GTID{UUID: src.UUID, Tag: src.Tag, Seq: seq}] = true
				}
			case 5:
				if len(snaps) > 0 {
					s := rapid.SampledFrom(snaps).Draw(t, "other")
					o.b.AddSet(s.set)
					o.m = union(o.m, s.m)
				}
			case 6:
				s, m := drawSet(t)
				if rapid.Bool().Draw(t, "remove") {
					o.b.Remove(s)
					for g := range m {
						delete(o.m, g)
					}
				} else {
					o.b.AddSet(s)
					o.m = union(o.m, m)
				}
			case 7:
				if len(snaps) > 0 {
					s := rapid.SampledFrom(snaps).Draw(t, "from")
					if rapid.Bool().Draw(t, "with one more") {
						// The set's own addition shares with the snapshot, too.
						src := pool[rapid.IntRange(0, 2).Draw(t, "of")]
						g := gtid.GTID{UUID: src.UUID, Tag: src.Tag, Seq: rapid.Int64Range(1, modelMax).Draw(t, "seq")}
						s = snapshot{s.set.Add(g), union(s.m, model{g: true})}
						snaps = append(snaps, s)
					}
					owners = append(owners, &owner{gtid.NewBuilder(s.set), s.m.clone()})
				}
			default:
				s := snapshot{o.b.Set(), o.m.clone()}
				check(t, "snapshot", s.set, s.m)
				snaps = append(snaps, s)
			}
		}
		for i, s := range snaps {
			check(t, fmt.Sprintf("snapshot %d at the end", i), s.set, s.m)
		}
		for _, o := range owners {
			check(t, "builder at the end", o.b.Set(), o.m)
		}
	})
}
