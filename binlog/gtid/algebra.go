package gtid

import "slices"

// ContainsSet reports whether every GTID of sub is in s: the question of every
// decision (P1, P4). It does not allocate; its cost grows with the intervals
// of sub and the logarithm of those of s, and parts that both sets share cost
// nothing.
func (s Set) ContainsSet(sub Set) bool {
	if sub.b == nil || s.b == sub.b {
		return true
	}
	if s.b == nil {
		return false
	}
	a, o := s.b, sub.b
	if a.idx == o.idx {
		for i, r := range o.runs {
			if !a.runs[i].contains(r) {
				return false
			}
		}
		return true
	}
	if len(o.runs) > len(a.runs) {
		return false
	}
	if len(o.runs)*sparse <= len(a.runs) {
		for i, r := range o.runs {
			k, ok := a.idx.lookup(&o.idx.src[i])
			if !ok || !a.runs[k].contains(r) {
				return false
			}
		}
		return true
	}
	from := 0
	for i, r := range o.runs {
		k, ok := a.idx.find(&o.idx.src[i], from)
		if !ok || !a.runs[k].contains(r) {
			return false
		}
		from = k + 1
	}
	return true
}

// FirstMissing returns the first GTID of sub, in the order in which MySQL
// prints, that is not in s; false when s contains all of sub. It does not
// allocate.
func (s Set) FirstMissing(sub Set) (GTID, bool) {
	if sub.b == nil || s.b == sub.b {
		return GTID{}, false
	}
	from := 0
	for i, r := range sub.b.runs {
		src := &sub.b.idx.src[i]
		seq, missing := r.first(), true
		if s.b != nil {
			k, ok := s.b.idx.find(src, from)
			from = k
			if ok {
				seq, missing = s.b.runs[k].firstMissing(r)
			}
		}
		if missing {
			return GTID{UUID: src.UUID, Tag: src.Tag, Seq: seq}, true
		}
	}
	return GTID{}, false
}

// Overlaps reports whether s and o have a GTID in common. It does not
// allocate.
func (s Set) Overlaps(o Set) bool {
	if s.b == nil || o.b == nil {
		return false
	}
	if s.b == o.b {
		return true
	}
	a, b := s.b, o.b
	if len(a.runs) < len(b.runs) {
		a, b = b, a
	}
	from := 0
	for i, r := range b.runs {
		k, ok := a.idx.find(&b.idx.src[i], from)
		if ok && a.runs[k].overlaps(r) {
			return true
		}
		from = k
	}
	return false
}

// Equal reports whether s and o have the same GTIDs. It does not allocate.
func (s Set) Equal(o Set) bool {
	if s.b == o.b {
		return true
	}
	if s.b == nil || o.b == nil || len(s.b.runs) != len(o.b.runs) {
		return false
	}
	same := s.b.idx == o.b.idx
	for i, r := range s.b.runs {
		if !same && s.b.idx.src[i] != o.b.idx.src[i] || !r.equal(o.b.runs[i]) {
			return false
		}
	}
	return true
}

// Union returns the GTIDs that are in s or in o.
func (s Set) Union(o Set) Set {
	switch {
	case o.b == nil || s.b == o.b:
		return s
	case s.b == nil:
		return o
	case s.b.idx == o.b.idx:
		return s.unionAligned(o)
	}
	a, b := s.b, o.b
	m := merge{size: len(a.runs) + len(b.runs)}
	i, k := 0, 0
	for i < len(a.runs) || k < len(b.runs) {
		switch order(a, i, b, k) {
		case -1:
			m.keep(a, i)
			i++
		case +1:
			m.keep(b, k)
			k++
		default:
			m.put(a.idx.src[i], a.runs[i].union(b.runs[k]))
			i, k = i+1, k+1
		}
	}
	return m.set(a, b)
}

// unionAligned is Union of sets with one index.
func (s Set) unionAligned(o Set) Set {
	var runs []*run
	for i, r := range s.b.runs {
		u := r.union(o.b.runs[i])
		if u != r && runs == nil {
			runs = slices.Clone(s.b.runs)
		}
		if runs != nil {
			runs[i] = u
		}
	}
	switch {
	case runs == nil:
		return s
	case slices.Equal(runs, o.b.runs):
		return o
	}
	return makeSet(s.b.idx, runs)
}

// Subtract returns the GTIDs of s that are not in o.
func (s Set) Subtract(o Set) Set {
	switch {
	case s.b == o.b:
		return Set{}
	case s.b == nil || o.b == nil:
		return s
	}
	var m merge
	if len(o.b.runs) < len(s.b.runs)/2 {
		m.size = len(s.b.runs) // most of s stays; else often little does
	}
	from := 0
	for i, r := range s.b.runs {
		k, ok := o.b.idx.find(&s.b.idx.src[i], from)
		from = k
		if ok {
			r = r.subtract(o.b.runs[k])
		}
		m.put(s.b.idx.src[i], r)
	}
	return m.set(s.b, nil)
}

// Intersect returns the GTIDs that are in both s and o.
func (s Set) Intersect(o Set) Set {
	switch {
	case s.b == o.b:
		return s
	case s.b == nil || o.b == nil:
		return Set{}
	}
	a, b := s.b, o.b
	if len(a.runs) > len(b.runs) {
		a, b = b, a
	}
	m := merge{size: len(a.runs)}
	from := 0
	for i, r := range a.runs {
		k, ok := b.idx.find(&a.idx.src[i], from)
		from = k
		if ok {
			m.put(a.idx.src[i], r.intersect(b.runs[k]))
		}
	}
	return m.set(a, b)
}

// Add returns s with g as well. It panics when g is not valid (see
// [GTID.Validate]). Where one transaction follows another, a [Builder] is
// cheaper.
func (s Set) Add(g GTID) Set {
	return s.AddInterval(g.Source(), Interval{g.Seq, g.Seq})
}

// AddInterval returns s with all of iv of src as well. It panics when the
// interval or the tag is not valid.
func (s Set) AddInterval(src Source, iv Interval) Set {
	checkInterval(iv)
	if s.b == nil {
		checkTag(src.Tag)
		return makeSet(newIndex([]Source{src}), []*run{single(iv)})
	}
	i, ok := s.b.idx.find(&src, 0)
	if !ok {
		checkTag(src.Tag)
		runs := make([]*run, 0, len(s.b.runs)+1)
		runs = append(append(append(runs, s.b.runs[:i]...), single(iv)), s.b.runs[i:]...)
		return makeSet(s.b.idx.with(i, src), runs)
	}
	r := s.b.runs[i].add(iv)
	if r == s.b.runs[i] {
		return s
	}
	runs := slices.Clone(s.b.runs)
	runs[i] = r
	return makeSet(s.b.idx, runs)
}

// order compares the next source of a with that of b; a list that has ended
// comes last.
func order(a *body, i int, b *body, k int) int {
	switch {
	case i == len(a.runs):
		return +1
	case k == len(b.runs):
		return -1
	case a.idx == b.idx && i == k:
		return 0
	}
	return a.idx.src[i].Compare(b.idx.src[k])
}

// merge collects the runs of a result in order. It keeps the operands' bodies
// and indexes where the result is theirs, so that later operations on it find
// shared parts.
type merge struct {
	size int
	src  []Source
	runs []*run
}

func (m *merge) keep(b *body, i int) { m.put(b.idx.src[i], b.runs[i]) }

// put appends a source; nil is no run.
func (m *merge) put(src Source, r *run) {
	if r == nil {
		return
	}
	if m.src == nil {
		m.src = make([]Source, 0, m.size)
		m.runs = make([]*run, 0, m.size)
	}
	m.src = append(m.src, src)
	m.runs = append(m.runs, r)
}

func (m *merge) set(a, b *body) Set {
	if len(m.runs) == 0 {
		return Set{}
	}
	for _, x := range [2]*body{a, b} {
		if x == nil || len(x.runs) != len(m.runs) || !slices.Equal(x.idx.src, m.src) {
			continue
		}
		if slices.Equal(x.runs, m.runs) {
			return Set{b: x}
		}
		return makeSet(x.idx, m.runs)
	}
	return makeSet(newIndex(m.src), m.runs)
}
