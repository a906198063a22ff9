package index

import (
	"maps"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// shards is how many maps stand behind one name space: a change copies one of
// them, snapshots share the rest.
const shards = 256

// nameKey names a table by its folded names.
type nameKey struct{ schema, table string }

func (k nameKey) shard() int {
	const prime = 16777619 // FNV-1a
	h := uint32(2166136261)
	for i := 0; i < len(k.schema); i++ {
		h = (h ^ uint32(k.schema[i])) * prime
	}
	h *= prime
	for i := 0; i < len(k.table); i++ {
		h = (h ^ uint32(k.table[i])) * prime
	}
	return int(h>>24^h) % shards
}

// shared is a map whose versions snapshots hold. The zero value is empty.
type shared[K comparable, V any] struct {
	maps  *[shards]map[K]V // nil: empty
	fresh [shards]bool     // no snapshot has seen this map
	own   bool             // no snapshot has seen the array
}

func (s *shared[K, V]) get(shard int, k K) (V, bool) {
	if s.maps == nil {
		var v V
		return v, false
	}
	v, ok := s.maps[shard][k]
	return v, ok
}

// set changes the owner's version; views that were taken do not see it.
func (s *shared[K, V]) set(shard int, k K, v V) {
	if !s.own {
		next := &[shards]map[K]V{}
		if s.maps != nil {
			*next = *s.maps
		}
		s.maps, s.own = next, true
	}
	if !s.fresh[shard] {
		m := maps.Clone(s.maps[shard])
		if m == nil {
			m = map[K]V{}
		}
		s.maps[shard], s.fresh[shard] = m, true
	}
	s.maps[shard][k] = v
}

// view returns what snapshots may hold from now on.
func (s *shared[K, V]) view() *[shards]map[K]V {
	if s.own {
		s.own, s.fresh = false, [shards]bool{}
	}
	return s.maps
}

// each calls fn with all entries.
func (s *shared[K, V]) each(fn func(K, V)) {
	if s.maps == nil {
		return
	}
	for _, m := range s.maps {
		for k, v := range m {
			fn(k, v)
		}
	}
}

func digestShard(d key.Digest) int { return int(d[15]) % shards }

// setDefs notes the definition versions with which the stream folds from here
// on (rules §5.4).
func (ix *Index) setDefs(defs []event.DefRef) {
	for _, d := range defs {
		shard := digestShard(d.Table)
		if v, ok := ix.streamDefs.get(shard, d.Table); !ok || v != d.Version {
			ix.streamDefs.set(shard, d.Table, d.Version)
			if ix.pending.on {
				ix.pending.defs = append(ix.pending.defs, d)
			}
		}
	}
}

// redefines tells whether a table is folded otherwise from here on without DDL
// in the stream, which would have written all-rows: the new primary has another
// definition (a schema change that was rolled out server by server), or the
// group columns changed. Keys of callers do not find the older records then, so
// that everything has to wait for them once (P2). That a table has no definition
// from here on is what DDL says itself; gone counts it as well.
func (ix *Index) redefines(defs []event.DefRef, gone bool) bool {
	for _, d := range defs {
		old, ok := ix.streamDefs.get(digestShard(d.Table), d.Table)
		if ok && old != 0 && old != d.Version && (d.Version != 0 || gone) {
			return true
		}
	}
	return false
}
