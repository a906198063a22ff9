package gtid

import (
	"math"
	"math/bits"
	"slices"
	"sort"
)

// index is the sorted list of a set's sources. It is immutable and shared by
// all sets that have the same sources, which makes two of them comparable
// position by position.
type index struct {
	// high holds the first eight bytes of each UUID: numbers in one short array
	// are searched at a fraction of what a search over sources costs.
	high []uint64
	src  []Source
	// slots is a hash table from a number in high to one more than its first
	// position; 0 is a free slot. Its length is a power of two. Nil where there
	// are few sources.
	slots []uint32
	shift uint8 // 64 less the logarithm of the length of slots
}

const (
	// hashFrom is how many sources make a hash table worth its memory.
	hashFrom = 8
	// maxProbes bounds a look-up: UUIDs chosen to collide cost a binary search.
	maxProbes = 8
	// spread is 2 to the 64th over the golden ratio: neighbours land apart.
	spread = 0x9e3779b97f4a7c15
)

// newIndex takes ownership of src, which is strictly ascending.
func newIndex(src []Source) *index {
	x := &index{high: make([]uint64, len(src)), src: src}
	for i := range src {
		x.high[i] = src[i].UUID.high()
	}
	if len(src) < hashFrom || len(src) > math.MaxInt32 {
		return x
	}
	log := bits.Len(uint(len(src))) + 1 // a quarter to a half full
	x.slots = make([]uint32, 1<<log)
	x.shift = uint8(64 - log)
	for i, key := range x.high {
		if i > 0 && key == x.high[i-1] {
			continue
		}
		slot := key * spread >> x.shift
		for range maxProbes {
			if x.slots[slot] == 0 {
				x.slots[slot] = uint32(i + 1)
				break
			}
			slot = (slot + 1) & uint64(len(x.slots)-1)
		}
	}
	return x
}

// first returns the position of the first source whose UUID begins with key;
// when there is none, that of any other or the end.
func (x *index) first(key uint64) int {
	if x.slots == nil {
		return lowerBound(x.high, key)
	}
	slot := key * spread >> x.shift
	for range maxProbes {
		i := x.slots[slot]
		if i == 0 {
			return len(x.high)
		}
		if x.high[i-1] == key {
			return int(i - 1)
		}
		slot = (slot + 1) & uint64(len(x.slots)-1)
	}
	return lowerBound(x.high, key)
}

// lookup returns the position of s, if it is there.
func (x *index) lookup(s *Source) (int, bool) {
	key := s.UUID.high()
	i := x.first(key)
	if i == len(x.src) || x.high[i] != key {
		return 0, false
	}
	if x.src[i] == *s {
		return i, true
	}
	// Tags of one UUID, or UUIDs that begin alike.
	off, ok := slices.BinarySearchFunc(x.src[i:i+alike(x.high[i:], key)], *s, Source.Compare)
	return i + off, ok
}

// find is lookup for sources that are asked in order: it begins at from, is
// quickest when s is there, and returns where s would be when it is not in the
// index.
func (x *index) find(s *Source, from int) (int, bool) {
	if from < len(x.src) && x.src[from] == *s {
		return from, true
	}
	i := from + lowerBound(x.high[from:], s.UUID.high())
	off, ok := slices.BinarySearchFunc(x.src[i:i+alike(x.high[i:], s.UUID.high())], *s, Source.Compare)
	return i + off, ok
}

// lowerBound returns how many of the sorted numbers are below key. No branch of
// its loop depends on the data: which way a search goes is a coin toss, and a
// wrong guess costs a processor more than the step itself.
func lowerBound(sorted []uint64, key uint64) int {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	base := 0
	for n > 1 {
		half := n >> 1
		// The borrow is 1 where the number is below key.
		_, below := bits.Sub64(sorted[base+half-1], key, 0)
		base += half & -int(below)
		n -= half
	}
	_, below := bits.Sub64(sorted[base], key, 0)
	return base + int(below)
}

// alike returns how many of the sorted numbers, none below key, equal it.
func alike(sorted []uint64, key uint64) int {
	if len(sorted) == 0 || sorted[0] != key {
		return 0
	}
	return sort.Search(len(sorted), func(i int) bool { return sorted[i] > key })
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
