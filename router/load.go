package router

import (
	"sync"
	"sync/atomic"
)

const (
	loadSlots     = 8
	loadSlotNanos = 125_000_000
)

// meter counts the decisions that were given for one server in the last second,
// in eighths of a second. Safe for many at once, without a lock; what a race at
// the turn of a slot loses is a few counts.
type meter struct {
	slots [loadSlots]atomic.Uint64 // number of the slot << 32 | count
}

func (m *meter) add(now int64) {
	slot := uint64(now/loadSlotNanos) & 0xffffffff
	s := &m.slots[slot%loadSlots]
	for {
		v := s.Load()
		next := v + 1
		if v>>32 != slot {
			next = slot<<32 | 1
		}
		if s.CompareAndSwap(v, next) {
			return
		}
	}
}

func (m *meter) lastSecond(now int64) (n uint64) {
	slot := uint64(now/loadSlotNanos) & 0xffffffff
	for i := range m.slots {
		v := m.slots[i].Load()
		if slot-v>>32 < loadSlots {
			n += v & 0xffffffff
		}
	}
	return n
}

// peer is what the router keeps of one server beside the snapshot.
type peer struct {
	name   string
	weight uint32
	load   meter
}

// peers finds the peer of a server by its place in the snapshot. Places are
// stable within a snapshot only, so the name decides; the table is rebuilt,
// rarely, when places move.
type peers struct {
	weights map[string]uint32
	table   atomic.Pointer[[]*peer] // by place
	mu      sync.Mutex              // guards byName
	byName  map[string]*peer
}

func (p *peers) at(s Snapshot, i int, name string) *peer {
	if t := p.table.Load(); t != nil && i < len(*t) && (*t)[i] != nil && (*t)[i].name == name {
		return (*t)[i]
	}
	return p.rebuild(s, i, name)
}

func (p *peers) rebuild(s Snapshot, i int, name string) *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := make([]*peer, s.NumServers())
	for k := range t {
		if st := s.Server(k); st != nil {
			t[k] = p.namedLocked(st.Server)
		}
	}
	p.table.Store(&t)
	if i < len(t) && t[i] != nil && t[i].name == name {
		return t[i]
	}
	return p.namedLocked(name)
}

func (p *peers) namedLocked(name string) *peer {
	if x := p.byName[name]; x != nil {
		return x
	}
	w, ok := p.weights[name]
	if !ok {
		w = 1
	}
	x := &peer{name: name, weight: w}
	p.byName[name] = x
	return x
}
