package index

import (
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// Store keeps an index across restarts.
type Store interface {
	// Close releases the store.
	Close() error
}

// pending is what the store does not have yet.
type pending struct {
	records   []uint64
	defs      []event.DefRef
	xids      map[string]struct{}
	moved     bool
	half      bool
	announced bool
	ordinals  bool
	horizon   bool
}

func (p *pending) record(d *key.Digest, v event.Version) {
	a, b := split(d)
	p.words(a, b, v)
}

func (p *pending) words(a, b uint64, v event.Version) { p.records = append(p.records, a, b, uint64(v)) }
func (p *pending) reset()                             { *p = pending{} }
func (p *pending) xa(xid string)                      {}
func (p *pending) size() int                          { return len(p.records) * 8 }

func (ix *Index) load() error       { return nil }
func (ix *Index) flushIfDue() error { return nil }
