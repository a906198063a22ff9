package gtid

import (
	"cmp"
	"slices"
)

// assembly builds a set from intervals in any order in O(n log n), whatever
// the order: text and bytes from elsewhere must not make it quadratic. Input
// in a set's own order is taken as it comes.
type assembly struct {
	ivs  []Interval // of all segments, one after another
	segs []segment
}

// segment is the intervals that followed one mention of a source.
type segment struct {
	src      Source
	from, to int
}

// source says whose intervals follow.
func (a *assembly) source(src Source) {
	if n := len(a.segs); n > 0 {
		last := &a.segs[n-1]
		if last.src == src {
			return
		}
		if last.from == last.to { // nothing followed it
			last.src = src
			return
		}
	}
	a.segs = append(a.segs, segment{src: src, from: len(a.ivs), to: len(a.ivs)})
}

// add appends a valid interval of the current source.
func (a *assembly) add(iv Interval) {
	last := &a.segs[len(a.segs)-1]
	if n := len(a.ivs); last.from < n && iv.First >= a.ivs[n-1].First && iv.First <= a.ivs[n-1].Last+1 {
		a.ivs[n-1].Last = max(a.ivs[n-1].Last, iv.Last)
		return
	}
	a.ivs = append(a.ivs, iv)
	last.to = len(a.ivs)
}

// set returns the result; a is not to be used afterwards.
func (a *assembly) set() Set {
	segs := a.segs
	if n := len(segs); n > 0 && segs[n-1].from == segs[n-1].to {
		segs = segs[:n-1]
	}
	bySource := func(x, y segment) int { return x.src.Compare(y.src) }
	if !slices.IsSortedFunc(segs, bySource) {
		slices.SortStableFunc(segs, bySource)
	}
	src := make([]Source, 0, len(segs))
	runs := make([]*run, 0, len(segs))
	for i := 0; i < len(segs); {
		k := i + 1
		for k < len(segs) && segs[k].src == segs[i].src {
			k++
		}
		ivs := a.ivs[segs[i].from:segs[i].to]
		if k > i+1 {
			ivs = slices.Clone(ivs)
			for _, s := range segs[i+1 : k] {
				ivs = append(ivs, a.ivs[s.from:s.to]...)
			}
		}
		src = append(src, segs[i].src)
		runs = append(runs, newRun(canonical(ivs)))
		i = k
	}
	if len(runs) == 0 {
		return Set{}
	}
	return makeSet(newIndex(src), runs)
}

// canonical sorts and joins ivs in place.
func canonical(ivs []Interval) []Interval {
	byFirst := func(x, y Interval) int { return cmp.Compare(x.First, y.First) }
	if !slices.IsSortedFunc(ivs, byFirst) {
		slices.SortFunc(ivs, byFirst)
	}
	out := ivs[:0]
	for _, iv := range ivs {
		out = pushInterval(out, iv)
	}
	return out
}
