package gtid

import "slices"

// index is the sorted list of a set's sources. It is immutable and shared by
// all sets that have the same sources, which makes two of them comparable
// position by position.
type index struct {
	// high holds the first eight bytes of each UUID: a binary search over
	// numbers in one short array costs a fraction of one over sources.
	high []uint64
	src  []Source
}

// newIndex takes ownership of src, which is strictly ascending.
func newIndex(src []Source) *index {
	high := make([]uint64, len(src))
	for i := range src {
		high[i] = src[i].UUID.high()
	}
	return &index{high: high, src: src}
}

// find returns the position of s at or after from, and whether it is there; if
// not, where it would be.
func (x *index) find(s *Source, from int) (int, bool) {
	key := s.UUID.high()
	n := len(x.high) - from
	if n <= 0 {
		return len(x.high), false
	}
	base := from
	// Lower bound without unpredictable branches (the compiler emits a
	// conditional move): base moves behind every key that is smaller.
	for n > 1 {
		half := n >> 1
		next := base + half
		if x.high[next-1] < key {
			base = next
		}
		n -= half
	}
	if x.high[base] < key {
		return base + 1, false
	}
	if x.high[base] != key {
		return base, false
	}
	if x.src[base] == *s {
		return base, true
	}
	// Tags of one UUID, or UUIDs that begin alike.
	off, ok := slices.BinarySearchFunc(x.src[base:], *s, Source.Compare)
	return base + off, ok
}

// with returns an index that has s at position i as well.
func (x *index) with(i int, s Source) *index {
	if x == nil {
		return newIndex([]Source{s})
	}
	src := make([]Source, 0, len(x.src)+1)
	src = append(src, x.src[:i]...)
	src = append(src, s)
	return newIndex(append(src, x.src[i:]...))
}
