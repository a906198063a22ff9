package rulestest

import "tidegate/binlog/gtid"

// Stages of a commit. Each is a step of its own: what another server or a probe
// can see between two of them is what the rules are about.
const (
	stageOwned    int8 = iota + 1 // the GTID is owned
	stageLogged                   // in the binlog: others can read it
	stageVisible                  // in the engine: readers see it
	stageExecuted                 // in gtid_executed; the client is told from now on
)

// flight is a commit that has begun.
type flight struct {
	tx, stage int8
	applied   bool // from the relay log: no client of the server can roll it back
}

// entry is one transaction of a binlog.
type entry struct {
	tx     int8
	slot   int8
	commit int64 // the identity under which it is logged
	empty  bool
}

// nothing is what a server holds under a GTID that it has not executed;
// foreign: a transaction that nobody else has.
const (
	nothing int8 = -1
	foreign int8 = -2
)

// runEnd tells how long the binlog was when a run of mysqld ended: a new file
// begins there.
type runEnd struct{ run, at int }

// server is one mysqld with its data.
type server struct {
	up, primary      bool
	ordered          bool // replica_preserve_commit_order
	groupCommitOrder bool // binlog_order_commits
	followExecuted   bool // its binlog is not read
	relaxed          bool // innodb_flush_log_at_trx_commit=0
	undrained        bool // became primary before its relay log was applied

	uuid  gtid.UUID
	run   int  // of mysqld
	data  int  // data set
	lossy bool // the newest stop lost something
	// uncleanUnseen: some stop since its tailer's newest session was a crash.
	uncleanUnseen bool

	owned, executed set                   // GTIDs
	visible         set                   // transactions
	holds           [maxTransactions]int8 // by GTID: the transaction, nothing or foreign
	binlog          []entry
	purged          int // so many entries at its beginning are not there any more
	ends            []runEnd
	inFlight        []flight
	relay           []int8
	downAt          int64
	demotedAt       int64 // when it stopped being the primary
	// dirty: something was done to it that excludes it for good, or may.
	dirty bool
}

// locked tells whether a commit that is not visible yet has one of the rows.
func (w *world) locked(s *server, rows uint8) bool {
	for _, f := range s.inFlight {
		t := &w.txs[f.tx]
		if f.stage < stageVisible && (t.changed()&rows != 0 || t.ddl) {
			return true
		}
	}
	return false
}

// openXA is what is prepared on a server and not decided.
func (w *world) openXA(s *server) []int8 {
	var open []int8
	for _, e := range s.binlog {
		if w.txs[e.tx].xa != xaPrepare || e.empty || !s.executed.has(e.slot) || s.holds[e.slot] != e.tx {
			continue
		}
		decided := false
		for u := range w.txs {
			d := &w.txs[u]
			if d.xa == e.tx && !d.lost && (s.holds[d.slot] == int8(u) || s.owned.has(d.slot)) {
				decided = true
			}
		}
		if !decided {
			open = append(open, e.tx)
		}
	}
	return open
}

// nextSlot is the GTID that a server gives next: the lowest free number of its
// UUID.
func (w *world) nextSlot(s *server) int8 {
	for n := int64(1); ; n++ {
		i := w.slot(gtid.GTID{UUID: s.uuid, Seq: n})
		if i < 0 || !(s.executed | s.owned).has(i) {
			return i
		}
	}
}

// awaitsSight tells whether a server has a lost transaction under a GTID, of
// which its tailer could not tell the primary yet. What is given again before that
// is known to nobody, and counts as base (rules §2.2).
func (w *world) awaitsSight(g int8) bool {
	for x := range w.servers {
		s, t := &w.servers[x], &w.tailers[x]
		if n := s.holds[g]; n >= 0 && w.txs[n].lost && s.executed.has(g) && (t.data != s.data || t.unvetted.has(g) || !t.asked && t.doubted.has(g)) {
			return true
		}
	}
	return false
}

// write begins a commit on the primary.
func (w *world) write(a, b, c byte) bool {
	p := w.primary()
	if p < 0 || !w.servers[p].up || len(w.txs) >= freshWrites {
		return false
	}
	s := &w.servers[p]
	t := w.draft(s, a, b, c)
	if w.locked(s, t.changed()) {
		return false
	}
	for _, x := range w.openXA(s) {
		if t.xa != x && w.txs[x].locks&t.changed() != 0 {
			return false
		}
	}
	if t.slot = w.nextSlot(s); t.slot < 0 || w.awaitsSight(t.slot) {
		return false
	}
	for n := range w.txs {
		if w.txs[n].slot == t.slot {
			w.lose(int8(n)) // it waited in a relay log, and will not be applied any more
		}
	}
	w.commits++
	t.commit = w.commits
	if t.xa != xaPrepare && !t.undo {
		for _, part := range t.parts {
			if part.used {
				w.groupOf[part.row] = part.to
			}
		}
	}
	if t.ddl {
		w.def = t.def
	}
	n := int8(len(w.txs))
	w.txs = append(w.txs, t)
	s.owned |= one(t.slot)
	s.inFlight = append(s.inFlight, flight{tx: n, stage: stageOwned})
	w.say("t%d (GTID g%d) begins its commit on primary %s: %s", n, t.slot, name(p), t.describe())
	return true
}

// draft makes up a transaction.
func (w *world) draft(s *server, a, b, c byte) transaction {
	row, group := int8(pick(numRows, a)), int8(pick(numGroups, b))
	t := transaction{xa: ordinary, session: int8(pick(numSessions+1, c)) - 1, def: w.def}
	change := func(p int, row int8) { t.wrote(p, row, w.groupOf[row], group) }
	f := w.features
	open := w.openXA(s)
	kind := pick(8, a/numRows)
	switch {
	case c > 200 && f.has(FeatureEmpty):
		t.empty = true
	case c > 180 && f.has(FeatureDefinitions) && w.def == 0 && !s.undrained && len(s.inFlight)+len(open) == 0: // it waits for all
		t.ddl, t.def = true, 1
	case kind == 4 && f.has(FeatureBig):
		change(0, row)
		change(1, (row+1)%numRows)
		t.big = true
	case kind == 5 && f.has(FeatureWide):
		change(0, row)
		t.image = imageStatement
	case kind == 6 && f.has(FeatureMinimal):
		change(0, row)
		t.image = imageMinimal
		t.parts[0].to = t.parts[0].from // an untouched column
		t.groups = 1 << uint(t.parts[0].from)
	case kind == 7 && f.has(FeatureXA) && len(open) == 0:
		change(0, row)
		t.locks, t.rows, t.xa = t.rows, 0, xaPrepare
	case kind >= 2 && len(open) > 0:
		x := &w.txs[open[0]]
		t.xa, t.undo = open[0], kind == 3
		if t.undo {
			break
		}
		t.rows, t.groups, t.parts = x.locks, x.groups, x.parts
	default:
		change(0, row)
	}
	return t
}

// advance moves one commit of a server by one stage.
func (w *world) advance(x int, b byte) bool {
	s := &w.servers[x]
	if !s.up || len(s.inFlight) == 0 {
		return false
	}
	i := pick(len(s.inFlight), b)
	f := &s.inFlight[i]
	for _, before := range s.inFlight[:i] {
		// The flush stage keeps the order on a primary, the commit stage with
		// binlog_order_commits, everything with replica_preserve_commit_order.
		ordered := s.primary && (f.stage == stageOwned || s.groupCommitOrder && f.stage == stageLogged) ||
			!s.primary && s.ordered && f.stage < stageVisible
		if ordered && before.stage <= f.stage {
			return false
		}
	}
	t := &w.txs[f.tx]
	f.stage++
	switch f.stage {
	case stageLogged:
		s.log(f.tx, t)
		w.say("t%d is in the binlog of %s", f.tx, serverNames[x])
	case stageVisible:
		s.visible |= one(f.tx)
		w.say("t%d is visible on %s", f.tx, serverNames[x])
	case stageExecuted:
		s.executed |= one(t.slot)
		s.owned &^= one(t.slot)
		w.say("t%d (g%d) is executed on %s", f.tx, t.slot, serverNames[x])
		s.inFlight = append(s.inFlight[:i:i], s.inFlight[i+1:]...)
	}
	return true
}

func (s *server) log(n int8, t *transaction) {
	s.binlog = append(s.binlog, entry{tx: n, slot: t.slot, commit: t.commit, empty: t.empty})
	s.holds[t.slot] = n
}

// finish ends a commit at once.
func (w *world) finish(s *server, f flight) {
	t := &w.txs[f.tx]
	if f.stage < stageLogged {
		s.log(f.tx, t)
	}
	s.visible |= one(f.tx)
	s.executed |= one(t.slot)
	s.owned &^= one(t.slot)
}

// acknowledge tells a client that its transaction is committed.
func (w *world) acknowledge(b byte) bool {
	p := w.primary()
	if p < 0 || !w.servers[p].up {
		return false
	}
	s := &w.servers[p]
	var due []int8
	for i := range w.txs {
		t := &w.txs[i]
		if t.acked == 0 && !t.lost && !t.errant && s.executed.has(t.slot) && s.holds[t.slot] == int8(i) {
			due = append(due, int8(i))
		}
	}
	if len(due) == 0 {
		return false
	}
	n := due[pick(len(due), b)]
	w.txs[n].acked = w.now
	w.say("t%d is acknowledged", n)
	return true
}

// describe says what a transaction does, for a trace.
func (t *transaction) describe() string {
	switch {
	case t.empty:
		return "empty"
	case t.ddl:
		return "another primary key (DDL)"
	case t.undo:
		return "XA ROLLBACK of t" + digits(t.xa)
	case t.xa >= 0:
		return "XA COMMIT of t" + digits(t.xa)
	}
	out := ""
	for _, p := range t.parts {
		if p.used {
			out += " row " + digits(p.row) + " (group " + digits(p.from) + " to " + digits(p.to) + ")"
		}
	}
	switch {
	case t.xa == xaPrepare:
		out += ", XA PREPARE"
	case t.image == imageMinimal:
		out += ", MINIMAL image"
	case t.image == imageStatement:
		out += ", as a statement"
	case t.big:
		out += ", in two chunks"
	}
	return out[1:]
}

func digits(n int8) string { return string([]byte{'0' + byte(n/10), '0' + byte(n%10)}) }
