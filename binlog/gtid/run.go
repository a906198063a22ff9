package gtid

import "unsafe"

// sparse is how many times longer a list must be than what is looked up in it
// for a search of the whole to be cheaper than a walk.
const sparse = 8

// run is the intervals of one source: ascending, not touching, at least one.
// A run that a set refers to is immutable. The newest interval stands apart
// because almost every addition extends it: a new run then shares head.
type run struct {
	head  []Interval // all but the last
	last  Interval
	count uint64 // how many numbers; at most MaxSeq, so it can't overflow
}

// newRun takes ownership of ivs: canonical, not empty.
func newRun(ivs []Interval) *run {
	n := len(ivs) - 1
	r := &run{last: ivs[n]}
	if n > 0 {
		// The capacity is cut: nobody may append into a shared array.
		r.head = ivs[:n:n]
	}
	for _, iv := range ivs {
		r.count += iv.Len()
	}
	return r
}

// single returns a run of one interval.
func single(iv Interval) *run { return &run{last: iv, count: iv.Len()} }

func (r *run) len() int { return len(r.head) + 1 }

func (r *run) at(i int) Interval {
	if i < len(r.head) {
		return r.head[i]
	}
	return r.last
}

func (r *run) first() int64 {
	if len(r.head) > 0 {
		return r.head[0].First
	}
	return r.last.First
}

// before returns how many of ivs begin at or before seq. As in lowerBound, no
// branch of the loops depends on the data; three independent comparisons a step
// halve the chain of loads that each wait for the one before.
func before(ivs []Interval, seq int64) int {
	n := len(ivs)
	if n == 0 || ivs[0].First > seq {
		return 0
	}
	base := 0 // ivs[base].First <= seq always, and the n from base hold the result
	for n >= 4 {
		q := n >> 2
		base += q * (reached(&ivs[base+q], seq) + reached(&ivs[base+2*q], seq) + reached(&ivs[base+3*q], seq))
		n -= 3 * q
	}
	for n > 1 {
		half := n >> 1
		base += half * reached(&ivs[base+half], seq)
		n -= half
	}
	return base + 1
}

// reached returns 1 if iv begins at or before seq, else 0. Both are positive.
func reached(iv *Interval, seq int64) int {
	return int(uint64(iv.First-seq-1) >> 63)
}

// advance is before for a list that is walked in order: its cost grows with
// the logarithm of the result.
func advance(ivs []Interval, seq int64) int {
	step := 1
	for step < len(ivs) && ivs[step].First <= seq {
		step <<= 1
	}
	// ivs[step] is behind; ivs[step/2] is not, unless nothing is.
	return step>>1 + before(ivs[step>>1:min(step, len(ivs))], seq)
}

// covers reports whether one interval of r holds all of iv.
func (r *run) covers(iv Interval) bool {
	if iv.First >= r.last.First {
		return iv.Last <= r.last.Last
	}
	i := before(r.head, iv.First)
	return i > 0 && iv.Last <= r.head[i-1].Last
}

// sameStart reports whether b is a prefix of a in the same memory. Entries
// that a set can see never change, so equal memory is equal content.
func sameStart(a, b []Interval) bool {
	return len(b) <= len(a) && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// contains reports whether every number of o is in r.
func (r *run) contains(o *run) bool {
	if r == o {
		return true
	}
	if o.count > r.count || o.last.Last > r.last.Last || !r.covers(o.last) {
		return false
	}
	if len(o.head) == 0 || sameStart(r.head, o.head) {
		return true
	}
	_, missing := r.missing(o.head)
	return !missing
}

// missing returns the first number of ivs that is not in r.
func (r *run) missing(ivs []Interval) (int64, bool) {
	head := r.head
	search := before
	if len(ivs)*sparse > len(head) {
		search = advance
	}
	for _, iv := range ivs {
		if iv.First >= r.last.First {
			// r.last is the only one left that can hold it.
			if iv.First > r.last.Last {
				return iv.First, true
			}
			if iv.Last > r.last.Last {
				return r.last.Last + 1, true
			}
			continue
		}
		i := search(head, iv.First)
		if i == 0 || head[i-1].Last < iv.First {
			return iv.First, true
		}
		if iv.Last > head[i-1].Last {
			return head[i-1].Last + 1, true
		}
		// What follows is not below the one just used.
		head = head[i-1:]
	}
	return 0, false
}

// firstMissing returns the first number of o that is not in r.
func (r *run) firstMissing(o *run) (int64, bool) {
	if r == o {
		return 0, false
	}
	if !sameStart(r.head, o.head) {
		if seq, ok := r.missing(o.head); ok {
			return seq, true
		}
	}
	last := [1]Interval{o.last}
	return r.missing(last[:])
}

// equal reports whether r and o hold the same numbers.
func (r *run) equal(o *run) bool {
	if r == o {
		return true
	}
	if r.count != o.count || r.last != o.last || len(r.head) != len(o.head) {
		return false
	}
	if sameStart(r.head, o.head) {
		return true
	}
	for i := range r.head {
		if r.head[i] != o.head[i] {
			return false
		}
	}
	return true
}

// overlaps reports whether r and o have a number in common.
func (r *run) overlaps(o *run) bool {
	if r == o {
		return true
	}
	if o.len() > r.len() {
		r, o = o, r
	}
	for i := range o.len() {
		if r.touches(o.at(i)) {
			return true
		}
	}
	return false
}

// touches reports whether r and iv have a number in common.
func (r *run) touches(iv Interval) bool {
	if iv.Last >= r.last.First {
		if iv.First <= r.last.Last {
			return true
		}
		return false // iv lies behind all of r
	}
	i := before(r.head, iv.Last)
	return i > 0 && r.head[i-1].Last >= iv.First
}

// pushInterval appends iv to the canonical list out; iv.First is not below
// the First of the last one.
func pushInterval(out []Interval, iv Interval) []Interval {
	if n := len(out); n > 0 && iv.First <= out[n-1].Last+1 {
		out[n-1].Last = max(out[n-1].Last, iv.Last)
		return out
	}
	return append(out, iv)
}

// union returns a run with the numbers of both, r or o itself when that is it.
func (r *run) union(o *run) *run {
	if r.contains(o) {
		return r
	}
	if o.contains(r) {
		return o
	}
	out := make([]Interval, 0, r.len()+o.len())
	i, j := 0, 0
	for i < r.len() || j < o.len() {
		if j == o.len() || i < r.len() && r.at(i).First <= o.at(j).First {
			out = pushInterval(out, r.at(i))
			i++
		} else {
			out = pushInterval(out, o.at(j))
			j++
		}
	}
	return newRun(out)
}

// add returns a run with the numbers of iv as well, r itself when it has them.
func (r *run) add(iv Interval) *run {
	if iv.First < r.last.First || iv.First > r.last.Last+1 {
		return r.union(single(iv))
	}
	if iv.Last <= r.last.Last {
		return r
	}
	return &run{
		head:  r.head,
		last:  Interval{r.last.First, iv.Last},
		count: r.count + uint64(iv.Last-r.last.Last),
	}
}

// subtract returns a run without the numbers of o: nil when nothing is left, r
// itself when they have none in common.
func (r *run) subtract(o *run) *run {
	if o.contains(r) {
		return nil
	}
	if !r.overlaps(o) {
		return r
	}
	out := make([]Interval, 0, r.len()+1)
	j := max(before(o.head, r.first())-1, 0)
	for i := range r.len() {
		iv := r.at(i)
		for j < o.len() && o.at(j).Last < iv.First {
			j++
		}
		// k and not j: the last one that cuts iv may reach into the next.
		for k := j; k < o.len() && o.at(k).First <= iv.Last; k++ {
			cut := o.at(k)
			if cut.First > iv.First {
				out = append(out, Interval{iv.First, cut.First - 1})
			}
			iv.First = cut.Last + 1
			j = k
		}
		if iv.First <= iv.Last {
			out = append(out, iv)
		}
	}
	return newRun(out)
}

// intersect returns a run with the numbers that both have, nil when there are
// none, r or o itself when that is it.
func (r *run) intersect(o *run) *run {
	if o.contains(r) {
		return r
	}
	if r.contains(o) {
		return o
	}
	var out []Interval
	i := max(before(r.head, o.first())-1, 0)
	j := max(before(o.head, r.first())-1, 0)
	for i < r.len() && j < o.len() {
		a, b := r.at(i), o.at(j)
		if lo, hi := max(a.First, b.First), min(a.Last, b.Last); lo <= hi {
			out = append(out, Interval{lo, hi})
		}
		if a.Last < b.Last {
			i++
		} else {
			j++
		}
	}
	if len(out) == 0 {
		return nil
	}
	return newRun(out)
}
