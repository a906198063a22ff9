package cdc

import (
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// identityRing remembers the identities of the newest transactions, so many
// and no more. It is written for each transaction and read when a GTID comes
// twice, or when a writer starts. The zero value remembers none.
type identityRing struct {
	slots   []identitySlot
	n       uint64 // how many were ever pushed
	mark    uint64 // n at the newest announcement
	sources []gtid.Source
	last    uint32 // index of the source pushed last
}

type identitySlot struct {
	source uint32
	gone   bool // lost
	seq    int64
	commit int64
	at     int64 // when the server whose binlog was read committed it; 0: not known
}

// maxRingSources: with more sources than this (tags are chosen by sessions)
// the ring forgets all and begins anew.
const maxRingSources = 1 << 16

func newRing(size int) identityRing { return identityRing{slots: make([]identitySlot, 0, size)} }

func (r *identityRing) push(id event.Identity, at int64) {
	if cap(r.slots) == 0 {
		return
	}
	src := id.GTID.Source()
	if len(r.sources) == 0 || r.sources[r.last] != src {
		r.last = r.source(src)
	}
	s := identitySlot{source: r.last, seq: id.GTID.Seq, commit: id.OriginalCommit, at: at}
	if len(r.slots) < cap(r.slots) {
		r.slots = append(r.slots, s)
	} else {
		r.slots[r.n%uint64(cap(r.slots))] = s
	}
	r.n++
}

func (r *identityRing) source(src gtid.Source) uint32 {
	for i, s := range r.sources {
		if s == src {
			return uint32(i)
		}
	}
	if len(r.sources) >= maxRingSources {
		*r = newRing(cap(r.slots))
	}
	r.sources = append(r.sources, src)
	return uint32(len(r.sources) - 1)
}

// find returns the newest identity known of a GTID.
func (r *identityRing) find(g gtid.GTID) (event.Identity, bool) {
	for k := range uint64(len(r.slots)) {
		s := &r.slots[(r.n-1-k)%uint64(cap(r.slots))]
		if s.seq == g.Seq && r.sources[s.source] == g.Source() {
			if s.gone {
				return event.Identity{}, false
			}
			return event.Identity{GTID: g, OriginalCommit: s.commit}, true
		}
	}
	return event.Identity{}, false
}

// since is how many of what is remembered came after the newest announcement: the
// last ones of all.
func (r *identityRing) since() int { return int(min(r.n-r.mark, uint64(len(r.slots)))) }

// forget drops the identities of a set.
func (r *identityRing) forget(set gtid.Set) {
	if set.IsEmpty() {
		return
	}
	for i := range r.slots {
		s := &r.slots[i]
		src := r.sources[s.source]
		if set.Contains(gtid.GTID{UUID: src.UUID, Tag: src.Tag, Seq: s.seq}) {
			s.gone = true
		}
	}
}

// all returns what is remembered, oldest first.
func (r *identityRing) all() []Commit {
	out := make([]Commit, 0, len(r.slots))
	for k := range uint64(len(r.slots)) {
		s := &r.slots[(r.n-uint64(len(r.slots))+k)%uint64(cap(r.slots))]
		if src := r.sources[s.source]; !s.gone {
			id := event.Identity{GTID: gtid.GTID{UUID: src.UUID, Tag: src.Tag, Seq: s.seq}, OriginalCommit: s.commit}
			out = append(out, Commit{Identity: id, At: s.at})
		}
	}
	return out
}
