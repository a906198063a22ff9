package gtid

import "slices"

// Builder accumulates GTIDs: what a tailer or an index holds while one
// transaction follows another. It belongs to one goroutine; the sets that it
// returns belong to everybody. The zero value is ready for use and empty.
//
// Adding the next number of the source that was added to last is O(1); another
// source costs a look-up. A snapshot copies one pointer a source, and, where a
// gap below the newest interval changed since the last snapshot, the intervals
// of that source.
type Builder struct {
	idx  *index
	runs []*run
	own  []ownership // of runs, by position
	// private are the positions whose run no snapshot has seen.
	private []int
	hit     int // position of the source used last
	changed bool
	snap    Set // what Set returned last; valid while !changed
}

// ownership says what of a run the builder may change in place.
type ownership struct {
	// private: no set refers to the run itself.
	private bool
	// capacity: the builder allocated the array under head, so that only it
	// appends there.
	capacity bool
	// frozen is how many leading entries of that array a set may see. They
	// never change; what stands behind them is the builder's.
	frozen int
}

// NewBuilder returns a builder that begins with the GTIDs of from.
func NewBuilder(from Set) *Builder {
	b := &Builder{}
	b.Reset(from)
	return b
}

// Reset makes the builder hold the GTIDs of from and no others.
func (b *Builder) Reset(from Set) {
	*b = Builder{snap: from}
	if from.b != nil {
		b.idx = from.b.idx
		b.runs = slices.Clone(from.b.runs)
		b.own = make([]ownership, len(b.runs))
	}
}

// Set returns a snapshot. It costs nothing when nothing changed since the
// last.
func (b *Builder) Set() Set {
	if !b.changed {
		return b.snap
	}
	for _, i := range b.private {
		b.own[i].private = false
		b.own[i].frozen = len(b.runs[i].head)
	}
	b.private = b.private[:0]
	b.changed = false
	b.snap = Set{}
	if len(b.runs) > 0 {
		b.snap = makeSet(b.idx, slices.Clone(b.runs))
	}
	return b.snap
}

// IsEmpty reports whether the builder holds no GTID.
func (b *Builder) IsEmpty() bool { return len(b.runs) == 0 }

// Contains reports whether g was added.
func (b *Builder) Contains(g GTID) bool {
	src := Source{UUID: g.UUID, Tag: g.Tag}
	i, ok := b.find(&src)
	return ok && b.runs[i].covers(Interval{g.Seq, g.Seq})
}

// Add adds g and reports whether it was missing. It panics when g is not valid
// (see [GTID.Validate]).
func (b *Builder) Add(g GTID) bool {
	checkInterval(Interval{g.Seq, g.Seq})
	src := Source{UUID: g.UUID, Tag: g.Tag}
	i, ok := b.find(&src)
	if !ok {
		b.insert(i, src, single(Interval{g.Seq, g.Seq}))
		return true
	}
	switch r := b.runs[i]; {
	case g.Seq > r.last.Last:
		b.extend(i, Interval{g.Seq, g.Seq})
	case r.covers(Interval{g.Seq, g.Seq}):
		return false
	default:
		b.fill(i, g.Seq)
	}
	return true
}

// AddInterval adds all of iv of src. It panics when the interval or the tag is
// not valid.
func (b *Builder) AddInterval(src Source, iv Interval) {
	checkInterval(iv)
	i, ok := b.find(&src)
	if !ok {
		b.insert(i, src, single(iv))
		return
	}
	r := b.runs[i]
	if iv.First >= r.last.First {
		if iv.Last > r.last.Last {
			b.extend(i, iv)
		}
		return
	}
	b.replace(i, r.union(single(iv)))
}

// AddSet adds all of s.
func (b *Builder) AddSet(s Set) {
	if s.b == nil {
		return
	}
	if len(b.runs) == 0 {
		b.Reset(s)
		return
	}
	if s.b.idx != b.idx && !b.hasSources(s.b.idx) {
		// New sources: one merge instead of an insertion for each.
		b.Reset(b.Set().Union(s))
		return
	}
	for k, r := range s.b.runs {
		if len(r.head) == 0 {
			// One interval: most often the next, which a union would copy for.
			b.AddInterval(s.b.idx.src[k], r.last)
			continue
		}
		i, _ := b.find(&s.b.idx.src[k])
		b.replace(i, b.runs[i].union(r))
	}
}

// Remove takes all of s out.
func (b *Builder) Remove(s Set) {
	if s.b == nil || len(b.runs) == 0 {
		return
	}
	gone := false
	for k, r := range s.b.runs {
		if i, ok := b.find(&s.b.idx.src[k]); ok {
			left := b.runs[i].subtract(r)
			if left == nil {
				gone = true
				continue
			}
			b.replace(i, left)
		}
	}
	if gone {
		// Sources that end: let the set's algebra rebuild the list.
		b.Reset(b.Set().Subtract(s))
	}
}

func (b *Builder) hasSources(x *index) bool {
	for k := range x.src {
		if _, ok := b.find(&x.src[k]); !ok {
			return false
		}
	}
	return true
}

// find returns the position of src, or where it would be.
func (b *Builder) find(src *Source) (int, bool) {
	if b.idx == nil {
		return 0, false
	}
	if b.hit < len(b.idx.src) && b.idx.src[b.hit] == *src {
		return b.hit, true
	}
	i, ok := b.idx.find(src, 0)
	if ok {
		b.hit = i
	}
	return i, ok
}

// insert puts a new source at position i.
func (b *Builder) insert(i int, src Source, r *run) {
	checkTag(src.Tag)
	b.idx = b.idx.with(i, src)
	b.runs = slices.Insert(b.runs, i, r)
	b.own = slices.Insert(b.own, i, ownership{private: true, capacity: true})
	for k := range b.private {
		if b.private[k] >= i {
			b.private[k]++
		}
	}
	b.private = append(b.private, i)
	b.hit = i
	b.changed = true
}

// replace puts a run that sets may refer to at position i.
func (b *Builder) replace(i int, r *run) {
	if b.runs[i] == r {
		return
	}
	b.runs[i] = r
	// The position may stay in b.private: freezing what is frozen is harmless.
	b.own[i] = ownership{}
	b.changed = true
}

// writable returns the run at position i for a change of last, count, or the
// entries of head that are not frozen.
func (b *Builder) writable(i int) *run {
	b.changed = true
	o := &b.own[i]
	if o.private {
		return b.runs[i]
	}
	r := *b.runs[i]
	if !o.capacity {
		// Somebody else may append behind these entries: the first append
		// here moves them.
		r.head = r.head[:len(r.head):len(r.head)]
		o.capacity, o.frozen = true, len(r.head)
	}
	b.runs[i] = &r
	o.private = true
	b.private = append(b.private, i)
	return &r
}

// extend adds iv, which ends behind all that the run has and begins no earlier
// than its last interval.
func (b *Builder) extend(i int, iv Interval) {
	r := b.writable(i)
	if iv.First <= r.last.Last+1 {
		r.count += uint64(iv.Last - r.last.Last)
		r.last.Last = iv.Last
		return
	}
	b.push(i, r, r.last)
	r.last = iv
	r.count += iv.Len()
}

// push appends iv to head.
func (b *Builder) push(i int, r *run, iv Interval) {
	if len(r.head) == cap(r.head) {
		b.move(i, r)
	}
	r.head = append(r.head, iv)
}

// move gives head an array of its own with room for more.
func (b *Builder) move(i int, r *run) {
	const room = 4
	n := len(r.head)
	r.head = append(make([]Interval, 0, n+n/4+room), r.head...)
	b.own[i].frozen = 0
}

// thaw makes the entries of head from k on changeable.
func (b *Builder) thaw(i int, r *run, k int) {
	if k < b.own[i].frozen {
		b.move(i, r)
	}
}

// pop removes the last entry of head.
func (b *Builder) pop(i int, r *run) {
	n := len(r.head) - 1
	if n < b.own[i].frozen {
		// A set sees this place: the next push must not write there.
		r.head = r.head[:n:n]
		b.own[i].frozen = n
		return
	}
	r.head = r.head[:n]
}

// fill adds seq, which is missing and below the end of the last interval.
func (b *Builder) fill(i int, seq int64) {
	r := b.writable(i)
	r.count++
	n := len(r.head)
	k := before(r.head, seq) // head[k-1] < seq < head[k], or < last
	left := k > 0 && r.head[k-1].Last+1 == seq
	if k == n {
		right := r.last.First == seq+1
		switch {
		case left && right:
			r.last.First = r.head[n-1].First
			b.pop(i, r)
		case right:
			r.last.First = seq
		case left:
			b.thaw(i, r, n-1)
			r.head[n-1].Last = seq
		default:
			b.push(i, r, Interval{seq, seq})
		}
		return
	}
	right := r.head[k].First == seq+1
	b.thaw(i, r, max(k-1, 0))
	switch {
	case left && right:
		r.head[k-1].Last = r.head[k].Last
		r.head = append(r.head[:k], r.head[k+1:]...)
	case right:
		r.head[k].First = seq
	case left:
		r.head[k-1].Last = seq
	default:
		if len(r.head) == cap(r.head) {
			b.move(i, r)
		}
		r.head = slices.Insert(r.head, k, Interval{seq, seq})
	}
}
