package index

import (
	"slices"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// run is a stretch of the stream in which versions and sequence numbers of one
// source advance together: the transaction at version first+i is seq+i.
type run struct {
	first event.Version
	n     uint64
	seq   int64
	src   uint32
}

func (r *run) last() event.Version { return r.first + event.Version(r.n) - 1 }

func (r *run) interval() gtid.Interval {
	return gtid.Interval{First: r.seq, Last: r.seq + int64(r.n) - 1}
}

// ordinals is which transaction has which version, in stream order, for every
// delivered transaction that is newer than the newest eviction. A primary's
// numbers follow each other, so that it stays short.
//
// Entries of closed never change once they are there: snapshots hold a prefix
// of the slice. Only open grows, and snapshots copy it.
type ordinals struct {
	closed  []run
	open    run // n 0: nothing yet
	sources []gtid.Source
	ids     map[gtid.Source]uint32
}

// ordinalView is what a snapshot holds of it.
type ordinalView struct {
	closed  []run
	open    run
	sources []gtid.Source
}

func (o *ordinals) view() ordinalView {
	return ordinalView{o.closed[:len(o.closed):len(o.closed)], o.open, o.sources[:len(o.sources):len(o.sources)]}
}

func (o *ordinals) source(s gtid.Source) uint32 {
	if id, ok := o.ids[s]; ok {
		return id
	}
	if o.ids == nil {
		o.ids = map[gtid.Source]uint32{}
	}
	id := uint32(len(o.sources))
	o.sources = append(o.sources, s)
	o.ids[s] = id
	return id
}

// add appends a transaction. v is newer than all that is there.
func (o *ordinals) add(g gtid.GTID, v event.Version) {
	r := &o.open
	if r.n > 0 && v == r.first+event.Version(r.n) && g.Seq == r.seq+int64(r.n) {
		if s := &o.sources[r.src]; s.UUID == g.UUID && s.Tag == g.Tag {
			r.n++
			return
		}
	}
	if r.n > 0 {
		o.closed = append(o.closed, *r)
	}
	o.open = run{first: v, n: 1, seq: g.Seq, src: o.source(g.Source())}
}

// len is how many runs there are.
func (o *ordinals) len() int {
	if o.open.n == 0 {
		return len(o.closed)
	}
	return len(o.closed) + 1
}

func (o *ordinals) at(i int) *run {
	if i < len(o.closed) {
		return &o.closed[i]
	}
	return &o.open
}

// replaceAll takes ownership of runs.
func (o *ordinals) replaceAll(runs []run) {
	o.closed, o.open = nil, run{}
	if n := len(runs); n > 0 {
		o.closed, o.open = runs[:n-1:n-1], runs[n-1]
	}
}

// forget drops everything up to cut and adds its GTIDs to into.
func (o *ordinals) forget(cut event.Version, into *gtid.Builder) {
	n := o.len()
	i := 0
	for ; i < n && o.at(i).last() <= cut; i++ {
		r := o.at(i)
		into.AddInterval(o.sources[r.src], r.interval())
	}
	if i == n {
		o.replaceAll(nil)
		return
	}
	if i == 0 && o.at(0).first > cut {
		return
	}
	kept := make([]run, 0, n-i+1)
	for k := i; k < n; k++ {
		kept = append(kept, *o.at(k))
	}
	if r := &kept[0]; r.first <= cut {
		gone := uint64(cut-r.first) + 1
		into.AddInterval(o.sources[r.src], gtid.Interval{First: r.seq, Last: r.seq + int64(gone) - 1})
		*r = run{first: r.first + event.Version(gone), n: r.n - gone, seq: r.seq + int64(gone), src: r.src}
	}
	o.replaceAll(kept)
}

// remove drops the transactions of lost and returns the versions that they had,
// ascending.
func (o *ordinals) remove(lost gtid.Set) []versionRange {
	var gone []versionRange
	var kept []run
	cuts := map[uint32][]gtid.Interval{}
	for i := range o.len() {
		r := *o.at(i)
		ivs, ok := cuts[r.src]
		if !ok {
			ivs = lost.Intervals(o.sources[r.src])
			cuts[r.src] = ivs
		}
		k, _ := slices.BinarySearchFunc(ivs, r.seq, func(iv gtid.Interval, seq int64) int {
			if iv.Last < seq {
				return -1
			}
			return 1
		})
		for ; k < len(ivs) && r.n > 0 && ivs[k].First <= r.seq+int64(r.n)-1; k++ {
			before := uint64(max(ivs[k].First-r.seq, 0))
			upto := uint64(min(ivs[k].Last, r.seq+int64(r.n)-1) - r.seq + 1)
			if before > 0 {
				kept = append(kept, run{first: r.first, n: before, seq: r.seq, src: r.src})
			}
			gone = append(gone, versionRange{r.first + event.Version(before), r.first + event.Version(upto) - 1})
			r = run{first: r.first + event.Version(upto), n: r.n - upto, seq: r.seq + int64(upto), src: r.src}
		}
		if r.n > 0 {
			kept = append(kept, r)
		}
	}
	if len(gone) > 0 {
		o.replaceAll(kept)
	}
	return gone
}

// gtidAt returns the transaction at a version.
func (w *ordinalView) gtidAt(v event.Version) (gtid.GTID, bool) {
	r := &w.open
	if r.n == 0 || v < r.first {
		i, ok := slices.BinarySearchFunc(w.closed, v, func(r run, v event.Version) int {
			switch {
			case r.first > v:
				return 1
			case r.first+event.Version(r.n) <= v:
				return -1
			}
			return 0
		})
		if !ok {
			return gtid.GTID{}, false
		}
		r = &w.closed[i]
	} else if v-r.first >= event.Version(r.n) {
		return gtid.GTID{}, false
	}
	s := &w.sources[r.src]
	return gtid.GTID{UUID: s.UUID, Tag: s.Tag, Seq: r.seq + int64(v-r.first)}, true
}

// mark is how far one server's prefix reaches: everything before place (i, off)
// is proven. It stays valid while the server's proven set and the ordinals only
// grow.
type mark struct {
	i   int
	off uint64
}

// advance moves m over what proven contains. It returns the newest version
// before the first gap, and whether there is none, in which case the prefix is
// as new as the stream.
func (o *ordinals) advance(m *mark, proven gtid.Set) (event.Version, bool) {
	for n := o.len(); m.i < n; {
		r := o.at(m.i)
		m.off += o.provenFrom(r, m.off, proven)
		if m.off < r.n {
			return r.first + event.Version(m.off) - 1, false
		}
		if m.i == len(o.closed) { // open may grow
			break
		}
		m.i, m.off = m.i+1, 0
	}
	return 0, true
}

// provenFrom returns how many of r's transactions from off on are in proven
// without a gap.
func (o *ordinals) provenFrom(r *run, off uint64, proven gtid.Set) uint64 {
	const single = 4 // so few are asked one by one, which needs no set
	s := o.sources[r.src]
	left := r.n - off
	for n := uint64(0); n < min(left, single); n++ {
		if !proven.Contains(gtid.GTID{UUID: s.UUID, Tag: s.Tag, Seq: r.seq + int64(off+n)}) {
			return n
		}
	}
	if left <= single {
		return left
	}
	rest := gtid.Set{}.AddInterval(s, gtid.Interval{First: r.seq + int64(off+single), Last: r.seq + int64(r.n) - 1})
	if g, missing := proven.FirstMissing(rest); missing {
		return uint64(g.Seq-r.seq) - off
	}
	return left
}
