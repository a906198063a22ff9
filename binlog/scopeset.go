package binlog

import (
	"encoding/binary"

	"tidegate/cdc/key"
)

// scopeSet is a set of digests that is filled and emptied once a transaction.
// It keeps its memory up to a bound.
type scopeSet struct {
	list  []key.Digest
	slots []uint32 // place in list plus one, by hash
	ready bool     // slots hold what list holds
}

const (
	linearScopes = 8
	keptScopes   = 1 << 16
)

// add reports whether d was missing.
func (s *scopeSet) add(d key.Digest) bool {
	if len(s.list) < linearScopes {
		for i := range s.list {
			if s.list[i] == d {
				return false
			}
		}
		s.list = append(s.list, d)
		return true
	}
	if !s.ready || len(s.list)*2 >= len(s.slots) {
		s.rehash()
	}
	// Digests are random already: their first bytes are a hash.
	mask := uint32(len(s.slots) - 1)
	for i := binary.LittleEndian.Uint32(d[:]) & mask; ; i = (i + 1) & mask {
		switch k := s.slots[i]; {
		case k == 0:
			s.list = append(s.list, d)
			s.slots[i] = uint32(len(s.list))
			return true
		case s.list[k-1] == d:
			return false
		}
	}
}

func (s *scopeSet) rehash() {
	n := 64
	for n < len(s.list)*4 {
		n *= 2
	}
	if n <= cap(s.slots) {
		s.slots = s.slots[:n]
		clear(s.slots)
	} else {
		s.slots = make([]uint32, n)
	}
	s.ready = true
	mask := uint32(n - 1)
	for k := range s.list {
		i := binary.LittleEndian.Uint32(s.list[k][:]) & mask
		for s.slots[i] != 0 {
			i = (i + 1) & mask
		}
		s.slots[i] = uint32(k + 1)
	}
}

func (s *scopeSet) reset() {
	if cap(s.list) > keptScopes {
		*s = scopeSet{}
		return
	}
	s.list, s.ready = s.list[:0], false
}
