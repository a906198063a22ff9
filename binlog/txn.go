package binlog

import (
	"slices"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// txn is the transaction that is being read. Its memory is used again for the
// next one and bounded by the key cap.
type txn struct {
	open bool
	// begun: BEGIN or XA START was seen, so that a statement does not end it.
	begun bool
	// skip: it was delivered before; nothing comes of it.
	skip bool
	// bad: an event of it was not understood.
	bad bool

	number uint64 // running number, for marks on tables
	head   gtidEvent
	seen   uint64 // bytes so far
	flags  event.Flags
	change bool // something was changed
	// unlogged: a rows event leaves it open whether foreign keys changed other
	// tables without rows events.
	unlogged bool
	// outside: a statement of it may have changed what [registry.onlyInnoDB] does
	// not speak of.
	outside bool
	xid     string

	everything bool
	capped     bool
	narrow     scopeSet // rows and group values
	wide       scopeSet
	tables     scopeSet // any-row scopes
	touched    []*tableState
	refs       []event.DefRef // definitions, when more than one table's
	ref        []event.DefRef // of the only table, shared with its plan
}

// reset begins a transaction.
func (t *txn) reset(head gtidEvent) {
	t.narrow.reset()
	t.wide.reset()
	t.tables.reset()
	clear(t.touched)
	*t = txn{
		open: true, number: t.number + 1, head: head,
		narrow: t.narrow, wide: t.wide, tables: t.tables,
		touched: t.touched[:0], refs: t.refs[:0],
	}
}

// touch notes a row event of a table.
func (t *txn) touch(s *tableState) {
	t.change = true
	if s.touched == t.number {
		return
	}
	s.touched = t.number
	t.touched = append(t.touched, s)
	t.tables.add(s.scopes.AnyRow)
}

// define notes the definition with which rows are folded.
func (t *txn) define(ref []event.DefRef) {
	switch {
	case len(t.refs) > 0:
		t.refs = addRef(t.refs, ref[0])
	case t.ref == nil:
		t.ref = ref
	case t.ref[0] != ref[0]:
		t.refs = addRef(append(t.refs, t.ref[0]), ref[0])
	}
}

// defs returns the references for the transaction that is handed over.
func (t *txn) defs() []event.DefRef {
	if len(t.refs) == 0 {
		return t.ref
	}
	if t.ref != nil {
		t.refs = addRefs(t.ref, t.refs)
	}
	return slices.Clone(t.refs)
}

// addRefs puts first in front of refs, which win where both name a table.
func addRefs(first, refs []event.DefRef) []event.DefRef {
	for _, r := range first {
		if !slices.ContainsFunc(refs, func(o event.DefRef) bool { return o.Table == r.Table }) {
			refs = append(refs, r)
		}
	}
	return refs
}

// arena hands out memory for what is given away, in pieces, so that the number
// of allocations does not grow with the number of transactions.
type arena struct {
	digests []key.Digest
	txns    []event.Transaction
}

const (
	arenaDigests = 1024
	arenaTxns    = 64
)

func (a *arena) copyDigests(n int, parts ...[]key.Digest) []key.Digest {
	if n == 0 {
		return nil
	}
	if n > cap(a.digests)-len(a.digests) {
		a.digests = make([]key.Digest, 0, max(arenaDigests, n))
	}
	start := len(a.digests)
	for _, p := range parts {
		a.digests = append(a.digests, p...)
	}
	return a.digests[start:len(a.digests):len(a.digests)]
}

func (a *arena) transaction() *event.Transaction {
	if len(a.txns) == 0 {
		a.txns = make([]event.Transaction, arenaTxns)
	}
	t := &a.txns[0]
	a.txns = a.txns[1:]
	return t
}

func (e *gtidEvent) identity() event.Identity {
	return event.Identity{GTID: e.id, OriginalCommit: e.original}
}
