package gtid

import (
	"iter"
	"math"
)

// Set is an immutable set of GTIDs. The zero value is the empty set. It is a
// small value that is passed by copy; all methods may be called by any number
// of goroutines at once; none blocks. Sets are compared with [Set.Equal].
type Set struct {
	_ [0]func() // == would compare identity, not content
	b *body     // nil: empty
}

// body is what a set refers to: runs[i] belongs to idx.src[i]. It is immutable
// and never empty.
type body struct {
	idx  *index
	runs []*run
}

// makeSet takes ownership of runs.
func makeSet(idx *index, runs []*run) Set {
	if len(runs) == 0 {
		return Set{}
	}
	return Set{b: &body{idx: idx, runs: runs}}
}

// Of returns the set of the given GTIDs, in any order. It panics when one is
// not valid (see [GTID.Validate]).
func Of(gs ...GTID) Set {
	var a assembly
	for _, g := range gs {
		checkInterval(Interval{g.Seq, g.Seq})
		checkTag(g.Tag)
		a.source(g.Source())
		a.add(Interval{g.Seq, g.Seq})
	}
	return a.set()
}

// IsEmpty reports whether s has no GTID.
func (s Set) IsEmpty() bool { return s.b == nil }

// Sources returns how many sources s has GTIDs of.
func (s Set) Sources() int {
	if s.b == nil {
		return 0
	}
	return len(s.b.runs)
}

// NumIntervals returns how many intervals s has, over all sources.
func (s Set) NumIntervals() int {
	n := 0
	if s.b != nil {
		for _, r := range s.b.runs {
			n += r.len()
		}
	}
	return n
}

// Count returns how many GTIDs s has, or [math.MaxUint64] when there are more.
func (s Set) Count() uint64 {
	var n uint64
	if s.b != nil {
		for _, r := range s.b.runs {
			if n > math.MaxUint64-r.count {
				return math.MaxUint64
			}
			n += r.count
		}
	}
	return n
}

// find returns the run of src, nil when s has none.
func (s Set) find(src *Source) *run {
	if s.b == nil {
		return nil
	}
	i, ok := s.b.idx.lookup(src)
	if !ok {
		return nil
	}
	return s.b.runs[i]
}

// Contains reports whether g is in s. An invalid g is in no set.
func (s Set) Contains(g GTID) bool {
	src := Source{UUID: g.UUID, Tag: g.Tag}
	r := s.find(&src)
	return r != nil && r.covers(Interval{g.Seq, g.Seq})
}

// Max returns the largest sequence number that s has of src, 0 when it has
// none.
func (s Set) Max(src Source) int64 {
	if r := s.find(&src); r != nil {
		return r.last.Last
	}
	return 0
}

// Intervals returns the intervals of src, ascending and not touching, nil when
// there are none. The slice is a copy; [Set.All] makes none.
func (s Set) Intervals(src Source) []Interval {
	r := s.find(&src)
	if r == nil {
		return nil
	}
	out := make([]Interval, 0, r.len())
	return append(append(out, r.head...), r.last)
}

// All iterates over all intervals, in the order in which MySQL prints them. It
// does not allocate.
func (s Set) All() iter.Seq2[Source, Interval] {
	return func(yield func(Source, Interval) bool) {
		if s.b == nil {
			return
		}
		for i, r := range s.b.runs {
			for k := range r.len() {
				if !yield(s.b.idx.src[i], r.at(k)) {
					return
				}
			}
		}
	}
}

// Limit returns a set of the first n intervals of s in the order of All, for
// answers that show only so many.
func (s Set) Limit(n int) Set {
	if n <= 0 || s.b == nil {
		return Set{}
	}
	for i, r := range s.b.runs {
		if r.len() < n {
			n -= r.len()
			continue
		}
		whole := r.len() == n
		if whole && i == len(s.b.runs)-1 {
			return s
		}
		runs := append([]*run(nil), s.b.runs[:i+1]...)
		if !whole {
			ivs := make([]Interval, n)
			for k := range ivs {
				ivs[k] = r.at(k)
			}
			runs[i] = newRun(ivs)
		}
		return makeSet(newIndex(s.b.idx.src[:i+1:i+1]), runs)
	}
	return s
}

// MarshalText implements [encoding.TextMarshaler] with the form of
// [Set.OneLine].
func (s Set) MarshalText() ([]byte, error) { return s.appendText(nil, ","), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] as [Parse].
func (s *Set) UnmarshalText(text []byte) error {
	v, err := Parse(string(text))
	if err != nil {
		return err
	}
	*s = v
	return nil
}
