package checker

import (
	"cmp"
	"slices"
)

// order knows the commits of every key: what was acknowledged when, and what a
// failover took back.
//
// A version is compared in the coordinates of an era, the number of failovers
// that count for the reader: a version that one of them lost stands for what
// that failover left of the key.
type order struct {
	forks  []Fork // forks[i] ends line i
	writes map[int64]*Write
	all    map[Key]*acks
	own    map[ownKey]*acks
}

type ownKey struct {
	session int
	key     Key
}

// acks are acknowledgements of one key, by line.
type acks struct{ lines map[int][]ack }

type ack struct {
	at    Moment
	v     int64 // the greatest version acknowledged until then
	group int   // that it put the row into
}

func newOrder() *order {
	return &order{writes: map[int64]*Write{}, all: map[Key]*acks{}, own: map[ownKey]*acks{}}
}

func (o *order) add(w *Write) {
	o.writes[w.ID] = w
	if w.Err != "" {
		return
	}
	for _, r := range w.Rows {
		a := ack{at: w.End, v: r.V, group: r.Group}
		push(o.all, r.Key, w.Line, a)
		push(o.own, ownKey{w.Session, r.Key}, w.Line, a)
	}
}

func push[K comparable](m map[K]*acks, k K, line int, a ack) {
	s := m[k]
	if s == nil {
		s = &acks{lines: map[int][]ack{}}
		m[k] = s
	}
	s.lines[line] = append(s.lines[line], a)
}

// seal sorts everything; add must not be called afterwards.
func (o *order) seal() {
	slices.SortFunc(o.forks, func(a, b Fork) int { return cmp.Compare(a.Line, b.Line) })
	for _, s := range o.all {
		s.seal()
	}
	for _, s := range o.own {
		s.seal()
	}
}

func (s *acks) seal() {
	for _, l := range s.lines {
		slices.SortFunc(l, func(a, b ack) int { return cmp.Compare(a.at, b.at) })
		for i := 1; i < len(l); i++ {
			if l[i].v < l[i-1].v {
				l[i].v, l[i].group = l[i-1].v, l[i-1].group
			}
		}
	}
}

// era is how many failovers count for a read that ended at end: those that had
// begun, since from then on it may show what is left as well as what was.
func (o *order) era(end Moment) int {
	n := 0
	for n < len(o.forks) && o.forks[n].Begin < end {
		n++
	}
	return n
}

// in translates version v of key k, written in a line, into an era. lost tells
// that a failover took it back.
func (o *order) in(era int, k Key, line int, v int64) (version int64, lost bool) {
	era = min(era, len(o.forks))
	for _, f := range o.forks[min(line, era):era] {
		if v > f.Base[k] {
			v, lost = f.Base[k], true
		}
	}
	return v, lost
}

// need is what a read must show of a key: a version at least, 0 when nothing.
type need struct {
	v     int64
	group int // that the version put the row into; -1: not known
}

// before is the newest commit among s that was acknowledged before t.
func (o *order) before(s *acks, k Key, t Moment, era int) need {
	n := need{group: -1}
	if s == nil {
		return n
	}
	for line, l := range s.lines {
		i, _ := slices.BinarySearchFunc(l, t, func(a ack, t Moment) int { return cmp.Compare(a.at, t) })
		if i == 0 {
			continue
		}
		v, lost := o.in(era, k, line, l[i-1].v)
		group := l[i-1].group
		if lost {
			group = -1
		}
		if v > n.v || v == n.v && n.group < 0 {
			n = need{v: v, group: group}
		}
	}
	return o.placed(n, k, era)
}

// placed adds to a need whose version is what a failover left the group that the
// write of that version put the row into.
func (o *order) placed(n need, k Key, era int) need {
	s := o.all[k]
	if n.v == 0 || n.group >= 0 || s == nil {
		return n
	}
	for line, l := range s.lines {
		for _, a := range l {
			if v, lost := o.in(era, k, line, a.v); v == n.v && !lost {
				n.group = a.group
				return n
			}
		}
	}
	return n
}
