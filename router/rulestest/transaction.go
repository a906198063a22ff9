package rulestest

import (
	"crypto/sha256"
	"fmt"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// What a transaction has in place of an XA transaction that it decides.
const (
	ordinary  int8 = -1
	xaPrepare int8 = -2
)

// transaction is what really happened, and what is true of it. Its place in
// world.txs tells in which order rows were changed.
type transaction struct {
	slot   int8  // of its GTID
	commit int64 // original commit time: with the GTID its identity
	rows   uint8 // rows that it makes visible
	locks  uint8 // rows that it keeps locked: XA PREPARE
	groups uint8 // values of the group column that they had and got
	xa     int8  // ordinary, xaPrepare, or the prepare that it decides
	undo   bool  // XA ROLLBACK
	big    bool
	ddl    bool
	empty  bool // on the primary too
	errant bool // made on a replica
	image  rowImage
	parts  [2]part // what it wrote, by chunk
	def    int8    // the definition in force

	acked   int64 // when its client was told; 0: not yet
	lost    bool  // by a failover or a crash, or it never happened
	lostAt  int64
	revived int64 // when a server that still had it became primary; 0: never
	session int8  // that made it; -1: somebody
	told    bool  // that session has been told

	cached [2]*event.Transaction // as the tailer gives it, without and with the group column
}

// rowImage is how its rows are in the binlog.
type rowImage uint8

const (
	imageFull      rowImage = iota
	imageMinimal            // without the group column
	imageStatement          // no rows at all
)

// part is one row of a transaction with its old and new group value.
type part struct {
	used     bool
	row      int8
	from, to int8
}

func (t *transaction) wrote(p int, row, from, to int8) {
	t.parts[p] = part{used: true, row: row, from: from, to: to}
	t.rows |= 1 << uint(row)
	t.groups |= 1<<uint(from) | 1<<uint(to)
}

// touches tells whether the transaction changed something that a key names.
func (t *transaction) touches(k int8) bool {
	switch {
	case t.rows == 0:
		return false
	case k < firstGroup:
		return t.rows>>uint(k)&1 == 1
	case k < anyRow:
		return t.groups>>uint(k-firstGroup)&1 == 1
	}
	return true
}

// changed is the rows that the transaction changes or is going to.
func (t *transaction) changed() uint8 { return t.rows | t.locks }

func (w *world) gtid(t *transaction) gtid.GTID { return w.slots[t.slot] }

func (w *world) identity(n int8) event.Identity {
	t := &w.txs[n]
	return event.Identity{GTID: w.gtid(t), OriginalCommit: t.commit}
}

// event is the transaction as the primary's tailer reads it (rules §3).
func (w *world) event(n int8) *event.Transaction {
	t := &w.txs[n]
	c := 0
	if w.groupsOn {
		c = 1
	}
	if t.cached[c] == nil {
		t.cached[c] = w.compose(t, n, w.groupsOn)
	}
	return t.cached[c]
}

func (w *world) compose(t *transaction, n int8, groups bool) *event.Transaction {
	e := &event.Transaction{GTID: w.gtid(t), OriginalCommit: t.commit, ImmediateCommit: t.commit, SizeBytes: 100}
	switch {
	case t.empty:
		e.Flags |= event.Empty
	case t.ddl:
		e.Flags |= event.DDL | event.Statement
		e.Scopes = []key.Digest{w.v.allRows}
		e.Defs = []event.DefRef{{Table: w.v.any, Version: w.v.defs[t.def].Version}}
	case t.xa >= 0:
		e.XID = xid(t.xa)
		e.Flags |= event.XACommit
		if t.undo {
			e.Flags ^= event.XACommit | event.XARollback
		}
	case t.image == imageStatement:
		e.Flags |= event.Statement
		e.Scopes = []key.Digest{w.v.allRows}
	default:
		e.Tables = []key.Digest{w.v.any}
		e.Defs = []event.DefRef{{Table: w.v.any, Version: w.v.defs[t.def].Version}}
		e.Scopes = append(w.scopes(t, 0, groups), w.scopes(t, 1, groups)...)
		if t.xa == xaPrepare {
			e.XID = xid(n)
			e.Flags |= event.XAPrepare
		}
	}
	return e
}

func xid(prepare int8) string { return fmt.Sprintf("X'%02d',X'',1", prepare) }

// scopes is what one chunk of the transaction writes.
func (w *world) scopes(t *transaction, p int, groups bool) []key.Digest {
	part := &t.parts[p]
	if !part.used {
		return nil
	}
	out := []key.Digest{w.v.row[t.def][part.row]}
	switch {
	case !groups:
	case t.image == imageMinimal:
		out = append(out, w.v.allGroup)
	case part.from == part.to:
		out = append(out, w.v.group[part.to])
	default:
		out = append(out, w.v.group[part.from], w.v.group[part.to])
	}
	return out
}

// chunks is a big transaction as it travels.
func (w *world) chunks(n int8) (first, last *event.Chunk) {
	t := &w.txs[n]
	whole := *w.event(n)
	first = &event.Chunk{GTID: whole.GTID, Scopes: w.scopes(t, 0, w.groupsOn)}
	h := sha256.New()
	for i := range whole.Scopes {
		h.Write(whole.Scopes[i][:])
	}
	whole.Scopes = w.scopes(t, 1, w.groupsOn)
	last = &event.Chunk{GTID: whole.GTID, Number: 1, Last: &whole, Total: 2}
	copy(last.Digest[:], h.Sum(nil))
	return first, last
}
