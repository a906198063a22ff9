package index

import (
	"slices"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// openXA is a prepared transaction whose outcome is not known. Its scopes are
// no records yet: nobody can see the rows (rules §3.1). Eviction never drops it.
type openXA struct {
	gtid           gtid.GTID
	tables, scopes []key.Digest
}

// prepare keeps the scopes of an XA PREPARE. An XID that is open already was
// prepared by a transaction that is lost, or is prepared once more after one:
// what it may make visible is then both.
func (ix *Index) prepare(t *event.Transaction) {
	x := &openXA{gtid: t.GTID, tables: slices.Clone(t.Tables), scopes: slices.Clone(t.Scopes)}
	if old := ix.open[t.XID]; old != nil && old.gtid != t.GTID && ix.dh.Contains(old.gtid) {
		x.tables = append(x.tables, old.tables...)
		x.scopes = append(x.scopes, old.scopes...)
	}
	ix.open[t.XID] = x
	ix.pending.xa(t.XID)
}

// commitXA writes what was prepared under an XID; false: nothing is known of it.
func (ix *Index) commitXA(xid string, v event.Version) bool {
	x := ix.open[xid]
	if x == nil {
		return false
	}
	for i := range x.tables {
		ix.put(&x.tables[i], v)
	}
	for i := range x.scopes {
		ix.put(&x.scopes[i], v)
	}
	ix.dropXA(xid)
	return true
}

func (ix *Index) dropXA(xid string) {
	if _, ok := ix.open[xid]; ok {
		delete(ix.open, xid)
		ix.pending.xa(xid)
	}
}

// forgetOpen drops every open XID. What is missing from the stream may have ended
// one and prepared another transaction under it: its commit finds nothing now and
// writes everything (rules §3.1, §3.3).
func (ix *Index) forgetOpen() {
	for xid := range ix.open {
		ix.dropXA(xid)
	}
}

// widenOpen adds a group column to what XA transactions write that were prepared
// before it was announced: their values of it were not recorded, and their commit
// comes behind everything that is known to lack them (rules §3.1, §5.1).
func (ix *Index) widenOpen(column key.Digest, before gtid.Set) {
	for xid, x := range ix.open {
		if before.Contains(x.gtid) && !slices.Contains(x.scopes, column) {
			x.scopes = append(slices.Clip(x.scopes), column)
			ix.pending.xa(xid)
		}
	}
}
