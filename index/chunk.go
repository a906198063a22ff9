package index

import (
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// maxHalfScopes bounds what is kept of a transaction that comes in chunks. A
// tailer's key cap is far below it; a larger one becomes a hole.
const maxHalfScopes = 4 << 20

// halfTransaction is a transaction of which chunks were read and not yet the
// last. It is not delivered, and its scopes are no records.
type halfTransaction struct {
	on      bool
	broken  bool // a chunk is missing
	gtid    gtid.GTID
	version event.Version
	next    uint32
	scopes  []key.Digest
}

// chunk takes a part of a large transaction. One whose parts do not add up is a
// hole (rules §3.3).
func (ix *Index) chunk(c *event.Chunk, v event.Version) {
	h := &ix.half
	if !h.on || h.gtid != c.GTID || h.version != v {
		*h = halfTransaction{on: true, gtid: c.GTID, version: v}
	}
	ix.pending.half = true
	if c.Number != h.next || len(h.scopes)+len(c.Scopes) > maxHalfScopes {
		h.broken, h.scopes = true, nil
	}
	h.next = c.Number + 1
	if !h.broken {
		h.scopes = append(h.scopes, c.Scopes...)
	}
	if c.Last == nil {
		return
	}
	t := *c.Last
	t.Scopes = append(h.scopes, t.Scopes...)
	sum := event.NewScopesDigest()
	sum.Add(t.Scopes)
	whole := !h.broken && h.next == c.Total && t.GTID == c.GTID && sum.Sum() == c.Digest
	*h = halfTransaction{}
	if whole || !rule(ruleChunksWhole) {
		ix.transaction(&t, v)
		return
	}
	ix.n.BrokenChunks++
	ix.setDefs(t.Defs)
	ix.hole(&event.Hole{GTIDs: gtid.Of(c.GTID)}, v)
}
