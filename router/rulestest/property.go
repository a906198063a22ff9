package rulestest

import "fmt"

// Property is something that must hold in every run.
type Property string

// The properties. Each is about what a server really shows when somebody reads
// it after a yes.
const (
	// PropertyKey: at level key a write of the key that was acknowledged before
	// the answer's watermark is shown (P2).
	PropertyKey Property = "a write of the key, acknowledged before the watermark, is not shown"
	// PropertyFloor: what the reader's floor names, because it wrote or saw it,
	// is shown (P2, P4).
	PropertyFloor Property = "a write of the reader's floor is not shown"
	// PropertyEpoch: a yes never speaks of data that were replaced (rules §6.3).
	PropertyEpoch Property = "a yes for a server that was rebuilt meanwhile"
	// PropertyLease: a yes speaks of a server that was there within the lease (P3).
	PropertyLease Property = "a yes for a server that has been down for longer than the lease"
	// PropertyWatermark: at level key the watermark is within its bound (P3).
	PropertyWatermark Property = "the watermark is too old"
	// PropertyReady: a router that has not read what the stream had when it began
	// answers nothing that promises something (P3).
	PropertyReady Property = "a promise of a router that is not caught up"
	// PropertyPrimary: nothing is promised when no primary was there within the
	// lease (rules §7).
	PropertyPrimary Property = "a promise although there has been no primary for longer than the lease"
	// PropertyBound: within the staleness that the answer tells nothing older is
	// missing, and the staleness is within the bound.
	PropertyBound Property = "the server is staler than the answer says"
	// PropertyLost: at level key a transaction that was lost before the watermark,
	// and that the server is known to hold, is not what a row of the key shows.
	PropertyLost Property = "a row shows what was lost before the watermark"
	// PropertyStrong: strong is answered for a server that was the primary within
	// the lease.
	PropertyStrong Property = "strong is answered for a server that is no primary"
	// PropertyStream: the index takes everything that a correct writer sends.
	PropertyStream Property = "the index refuses the stream"
	// PropertyLive: when nothing goes wrong any more, each question becomes a yes
	// on every server that has what the primary has.
	PropertyLive Property = "no yes although everything is healthy"
)

// Violation is a property that did not hold, and where.
type Violation struct {
	Property Property
	Detail   string
}

func (v *Violation) String() string { return string(v.Property) + ": " + v.Detail }

// fail notes the run's first violation.
func (w *world) fail(p Property, format string, args ...any) {
	if w.violation == nil {
		w.violation = &Violation{p, fmt.Sprintf(format, args...)}
		w.say("VIOLATION %s", w.violation)
	}
}

// shows tells whether each row of transaction n that the key names shows n or
// something newer of the one history. What was lost or never happened elsewhere
// does not stand for it.
func (w *world) shows(visible set, n, k int8) bool {
	for r := range int8(numRows) {
		if w.txs[n].rows>>uint(r)&1 == 0 || k < firstGroup && k != r {
			continue
		}
		if v := w.newest(visible, r); v < n {
			return false
		}
	}
	return true
}

// newest is the newest transaction of the one history that a row shows.
func (w *world) newest(visible set, r int8) int8 {
	for n := int8(len(w.txs)) - 1; n >= 0; n-- {
		t := &w.txs[n]
		if visible.has(n) && !t.lost && t.rows>>uint(r)&1 == 1 {
			return n
		}
	}
	return nothing
}

// check holds a yes against what the server shows now.
func (w *world) check(q *ask, visible set) {
	s := &w.servers[q.server]
	if s.followExecuted && w.holdsLost(s) {
		return // without its binlog nobody can tell (rules §2.2)
	}
	for n := range int8(len(w.txs)) {
		t := &w.txs[n]
		if t.lost || t.rows == 0 {
			continue
		}
		acked := t.acked > 0 && !t.errant
		switch {
		case q.keyed && acked && t.acked <= q.mark && t.revived <= q.mark && t.touches(q.key) && !w.shows(visible, n, q.key):
			w.fail(PropertyKey, "%s lacks t%d, acknowledged at %d, watermark %d; %s", serverNames[q.server], n, t.acked, q.mark, q)
		case q.told.has(n) && (!q.keyed || t.touches(q.key)) && !w.shows(visible, n, q.floorKey()):
			w.fail(PropertyFloor, "%s lacks t%d; %s", serverNames[q.server], n, q)
		case q.bounded && acked && t.acked <= q.freshAt && t.revived <= q.freshAt && !w.shows(visible, n, anyRow):
			w.fail(PropertyBound, "%s lacks t%d, acknowledged at %d, fresh at %d; %s", serverNames[q.server], n, t.acked, q.freshAt, q)
		}
	}
	w.checkLost(q, visible)
}

// givenAgain tells whether the primary has given the GTID of a lost transaction
// to another. Until the stream brings that one, sets can't tell the two apart
// (rules §11.2).
func (w *world) givenAgain(t *transaction) bool {
	p := w.primary()
	return p >= 0 && (w.servers[p].owned | w.servers[p].executed).has(t.slot)
}

// mistaken is the part of txs whose GTID a router knows as another transaction
// that was lost with the tail of a binlog (sync_binlog=0), and that it has not
// read yet. A floor of GTIDs can't name the newer one until then; every server
// that can become primary needs sync_binlog=1 (rules §11.2).
func (w *world) mistaken(r *node, txs set) set {
	var out set
	if !w.features.has(FeatureTailLost) {
		return 0
	}
	s := r.ix.Snapshot()
	txs.each(func(n int8) {
		g := w.gtid(&w.txs[n])
		again := false
		for m := range w.txs {
			again = again || int8(m) != n && w.txs[m].slot == w.txs[n].slot
		}
		if again && (s.Delivered().Contains(g) || s.Horizon().Contains(g)) && !w.stream.carried(n, r.at) {
			out |= one(n)
		}
	})
	return out
}

// carried tells whether the messages before a position bring a transaction.
func (s *stream) carried(n int8, before int) bool {
	for i := range s.messages[:min(before, len(s.messages))] {
		for k := range s.messages[i].items {
			if it := &s.messages[i].items[k]; it.tx == n && (it.kind == itemTransaction || it.kind == itemLastChunk) {
				return true
			}
		}
	}
	return false
}

// checkLost looks for rows of the key that show what is no more.
func (w *world) checkLost(q *ask, visible set) {
	if !q.keyed {
		return
	}
	for n := range int8(len(w.txs)) {
		t := &w.txs[n]
		if !t.lost || t.lostAt == 0 || t.lostAt > q.mark || !t.touches(q.key) || !visible.has(n) || !q.executed.has(t.slot) || w.givenAgain(t) {
			continue
		}
		if w.servers[q.server].holds[t.slot] == n && w.onTop(visible, n, q.key) {
			w.fail(PropertyLost, "%s shows t%d, lost at %d, watermark %d; %s", serverNames[q.server], n, t.lostAt, q.mark, q)
		}
	}
}

// onTop tells whether a row of the key shows transaction n itself.
func (w *world) onTop(visible set, n, k int8) bool {
	for r := range int8(numRows) {
		if w.txs[n].rows>>uint(r)&1 == 0 || k < firstGroup && k != r {
			continue
		}
		top := true
		for m := n + 1; int(m) < len(w.txs); m++ {
			top = top && !(visible.has(m) && w.txs[m].rows>>uint(r)&1 == 1)
		}
		if top {
			return true
		}
	}
	return false
}

// holdsLost tells whether a server holds a transaction that is no more, or lacks
// one under whose GTID it holds another.
func (w *world) holdsLost(s *server) bool {
	for g, n := range s.holds {
		if n == foreign || n >= 0 && w.txs[n].lost && s.executed.has(int8(g)) {
			return true
		}
	}
	return false
}
