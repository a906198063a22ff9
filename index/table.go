package index

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync/atomic"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// The records: scope -> version of its newest write, as a hash table that one
// owner changes while any number of readers look up without a lock.
//
// The table is cut into segments by the digest, which is a keyed hash and
// needs no other one. A segment is an array of groups of eight slots, with one
// control word a group. A control byte is 0 for an empty slot, else the high bit
// and seven bits of the digest. The control words of a segment stand together,
// behind its slots: they are a megabyte for a million records and are mostly in
// the caches, and the slots of a group are three whole cache lines. So a look-up
// waits for memory once, where it used to wait for the control word and then for
// the slot that it named.
//
// An array changes in two ways only: a slot that was empty is filled (its words
// first, then the control word that makes it visible), and a version is raised.
// Nothing leaves an array. Growth and eviction build a new one and swap the
// segment's pointer, so a reader sees every record that was put before it
// loaded the pointer, and never a torn slot. An array that was replaced lacks
// what is put later, which is no concern of the snapshot for which it was
// loaded: that snapshot's D lacks it as well (P2).
const (
	groupSlots = 8
	slotWords  = 3                      // two of the digest, one of the version
	slotsWords = groupSlots * slotWords // the slots of one group
	groupWords = 1 + slotsWords

	controlFull = 0x8080808080808080
	controlOnes = 0x0101010101010101

	// Of 32 slots so many may be filled: on average 1.4 groups are visited for a
	// scope that has no record.
	maxLoad32 = 29

	// segmentRecords is how many records a segment has when the table is full:
	// few enough that a new array takes some ten
	// microseconds, and enough that the allocator gives it pages of its own.
	segmentRecords = 8192
	minSegments    = 64
	maxSegments    = 1 << 18
)

type table struct {
	// gen counts the evictions. It moves after the snapshot with the grown
	// horizon is published and before the first record leaves, so that a reader
	// of an older snapshot, who checks it after his look-ups, can't take a
	// forgotten record for none.
	gen  atomic.Uint64
	segs []atomic.Pointer[segment]
	mask uint64

	// What follows belongs to the owner.
	count int
	bytes int
	cut   event.Version // records up to here are covered by the horizon
	next  int           // the segment that sweep looks at next
	left  int           // how many segments sweep has still to look at
}

type segment struct {
	words  []uint64 // the slots, then the control words
	groups uint64
	used   int // owner only
	limit  int
}

func newTable(maxRecords int) *table {
	n := minSegments
	for n < maxSegments && n*segmentRecords < maxRecords {
		n *= 2
	}
	return &table{segs: make([]atomic.Pointer[segment], n), mask: uint64(n - 1)}
}

// newSegment makes room for at least n records.
func newSegment(n int) *segment {
	groups := (n*32/maxLoad32 + groupSlots) / groupSlots
	// What the allocator would round up to is used.
	words := slices.Grow([]uint64(nil), groups*groupWords)
	groups = cap(words) / groupWords
	words = words[:groups*groupWords]
	clear(words)
	return &segment{words: words, groups: uint64(groups), limit: groups * groupSlots * maxLoad32 / 32}
}

func split(d *key.Digest) (a, b uint64) {
	return binary.LittleEndian.Uint64(d[:8]), binary.LittleEndian.Uint64(d[8:])
}

func control(b uint64) uint64 { return b&0x7f | 0x80 }

// slots returns the place of the first slot of group g, control that of its
// control word.
func (s *segment) slots(g uint64) int   { return int(g) * slotsWords }
func (s *segment) control(g uint64) int { return int(s.groups*slotsWords + g) }

// home is the group where the search for a begins.
func (s *segment) home(a uint64) uint64 { return (a >> 32) * s.groups >> 32 }

// find returns the place of the version word, 0 when there is none. It may be
// called at once with the owner's changes.
func (s *segment) find(a, b uint64) int {
	tag := control(b) * controlOnes
	g := s.home(a)
	// The three cache lines of the home group's slots are asked for together with
	// its control word, not after it; the values do not matter.
	p := s.slots(g)
	_ = atomic.LoadUint64(&s.words[p])
	_ = atomic.LoadUint64(&s.words[p+3*slotWords])
	_ = atomic.LoadUint64(&s.words[p+6*slotWords])
	for range s.groups {
		ctrl := atomic.LoadUint64(&s.words[s.control(g)])
		x := ctrl ^ tag
		// A byte above a true match may match falsely; it is a filled slot too.
		for m := (x - controlOnes) &^ x & controlFull; m != 0; m &= m - 1 {
			p := s.slots(g) + bits.TrailingZeros64(m)/8*slotWords
			if s.words[p] == a && s.words[p+1] == b {
				return p + 2
			}
		}
		if ctrl&controlFull != controlFull {
			return 0
		}
		if g++; g == s.groups {
			g = 0
		}
	}
	return 0
}

// insert fills an empty slot. The record is not there and there is room.
func (s *segment) insert(a, b, v uint64) {
	g := s.home(a)
	for {
		ctrl := s.words[s.control(g)]
		if free := ^ctrl & controlFull; free != 0 {
			i := bits.TrailingZeros64(free) / 8
			p := s.slots(g) + i*slotWords
			atomic.StoreUint64(&s.words[p], a) // find may load it to no purpose
			s.words[p+1], s.words[p+2] = b, v
			atomic.StoreUint64(&s.words[s.control(g)], ctrl|control(b)<<(8*i))
			s.used++
			return
		}
		if g++; g == s.groups {
			g = 0
		}
	}
}

// each calls fn with the digest and the place of the version word of each record.
func (s *segment) each(fn func(a, b uint64, p int)) {
	for g := range s.groups {
		for m := s.words[s.control(g)] & controlFull; m != 0; m &= m - 1 {
			p := s.slots(g) + bits.TrailingZeros64(m)/8*slotWords
			fn(s.words[p], s.words[p+1], p+2)
		}
	}
}

// get returns the version of a scope's newest write, 0 when there is no record.
func (t *table) get(d *key.Digest) event.Version {
	a, b := split(d)
	s := t.segs[a&t.mask].Load()
	if s == nil {
		return 0
	}
	if p := s.find(a, b); p != 0 {
		return event.Version(atomic.LoadUint64(&s.words[p]))
	}
	return 0
}

// put raises the record of a scope to v and reports whether that changed it.
func (t *table) put(d *key.Digest, v event.Version) bool {
	a, b := split(d)
	return t.putWords(a, b, uint64(v))
}

func (t *table) putWords(a, b, v uint64) bool {
	at := &t.segs[a&t.mask]
	s := at.Load()
	if s == nil {
		s = newSegment(groupSlots)
		t.bytes += len(s.words) * 8
		at.Store(s)
	}
	if p := s.find(a, b); p != 0 {
		if s.words[p] >= v {
			return false
		}
		atomic.StoreUint64(&s.words[p], v)
		return true
	}
	if s.used >= s.limit {
		s = t.replace(int(a&t.mask), s, true)
	}
	s.insert(a, b, v)
	t.count++
	return true
}

// replace builds segment i anew without what the horizon covers, with room for
// more when grow is set, and swaps it in.
func (t *table) replace(i int, old *segment, grow bool) *segment {
	keep := 0
	old.each(func(_, _ uint64, p int) {
		if event.Version(old.words[p]) > t.cut {
			keep++
		}
	})
	room := keep + keep/16 + groupSlots/2
	if full := keep+keep/32 >= old.limit; !(grow && full) && keep+keep/4 > old.limit {
		room = old.limit // as large as it was
	}
	s := newSegment(room)
	old.each(func(a, b uint64, p int) {
		if v := old.words[p]; event.Version(v) > t.cut {
			s.insert(a, b, v)
		}
	})
	t.count -= old.used - s.used
	t.bytes += (len(s.words) - len(old.words)) * 8
	t.segs[i].Store(s)
	return s
}

// forget sets the cut below which sweep removes records. The horizon that
// covers them is published, and gen has moved.
func (t *table) forget(cut event.Version) {
	t.cut = max(t.cut, cut)
	t.left = len(t.segs)
}

// sweep looks at up to n segments and removes what was forgotten. It reports
// whether more is left.
func (t *table) sweep(n int) bool {
	for ; n > 0 && t.left > 0; n-- {
		i := t.next
		t.next = (t.next + 1) & (len(t.segs) - 1)
		t.left--
		s := t.segs[i].Load()
		if s == nil {
			continue
		}
		old := false
		s.each(func(_, _ uint64, p int) { old = old || event.Version(s.words[p]) <= t.cut })
		if old {
			t.replace(i, s, false)
		}
	}
	return t.left > 0
}

// quantile returns a version at or below which are at least n of the records
// (by a sample, so about), and one at least; 0 when the table is empty.
func (t *table) quantile(n int) event.Version {
	const sample = 1 << 14
	var vs []event.Version
	seen := 0
	for i := range t.segs {
		s := t.segs[i].Load()
		if s == nil {
			continue
		}
		seen += s.used
		s.each(func(_, _ uint64, p int) {
			if v := event.Version(s.words[p]); v > t.cut {
				vs = append(vs, v)
			}
		})
		if len(vs) >= sample {
			break
		}
	}
	if len(vs) == 0 {
		return 0
	}
	slices.Sort(vs)
	k := int(float64(n)*float64(seen)/float64(max(t.count, 1))+0.999) - 1
	return vs[min(max(k, 0), len(vs)-1)]
}

// versionRange is a range of versions, both ends included.
type versionRange struct{ first, last event.Version }

// move raises every record whose version lies in one of the ranges (ascending)
// to v and calls moved for each.
func (t *table) move(ranges []versionRange, v event.Version, moved func(a, b uint64)) {
	for i := range t.segs {
		s := t.segs[i].Load()
		if s == nil {
			continue
		}
		s.each(func(a, b uint64, p int) {
			old := event.Version(s.words[p])
			k, _ := slices.BinarySearchFunc(ranges, old, func(r versionRange, v event.Version) int {
				switch {
				case r.last < v:
					return -1
				case r.first > v:
					return +1
				}
				return 0
			})
			if k < len(ranges) && ranges[k].first <= old && old <= ranges[k].last && old < v {
				atomic.StoreUint64(&s.words[p], uint64(v))
				moved(a, b)
			}
		})
	}
}
