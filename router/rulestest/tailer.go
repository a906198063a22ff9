package rulestest

import (
	"slices"

	"tidegate/cdc/event"
)

// posted is a state of a server in STATE, with what it says in the terms of this
// world.
type posted struct {
	ev              *event.ServerState
	owned, executed set
	received        set   // and not applied
	data            int   // the data set that it speaks of
	began           int64 // when its probe did
}

// tailer watches one server: it reads its binlog, compares each transaction with
// the stream's, and publishes what a probe then proves (rules §2).
type tailer struct {
	run   int // run of mysqld that its pinned connection belongs to; 0: none
	epoch event.Epoch
	data  int // data set, as far as the tailer can tell
	tracker
	ids   ledger // what it knows of the stream (Identities)
	idsOn bool

	ticks [numRouters]event.RouterTick // newest seen
	probe probe
	saved saved
}

// tracker is what the tailer holds of a data set.
type tracker struct {
	base     set // executed at first sight, and vetted
	unvetted set // executed at first sight: not known yet whether it is base
	doubted  set // executed at first sight, and compared instead
	gone     set // of doubted: purged before it was compared
	asked    bool
	shown    set // compared, and found to be the stream's
	everLost set
	judged   set // of everLost: compared, whatever came of it
	errant   set
	taints   []taint
	sightAt  int64 // when it was first seen
	read     int   // entries of the binlog that were read
	log      []entry
	pending  []int // places of those that wait for the stream
	executed set   // by the newest probe
	excluded string
	history  event.History
	lossSeen event.Version // newest announcement that was applied
	starts   int           // of its reader of the stream
}

// taint is one of the table, or of all.
type taint struct {
	all    bool
	gtid   int8
	errant bool
	// another: than the stream's is what the server has under the GTID; one of
	// them for each. It ends with what the stream had there.
	another bool
	reason  string
}

// saved is what the newest published state tells a tailer that starts anew.
type saved struct {
	tracker
	data int
	ok   bool
}

// probe is one statement: what it read so far.
type probe struct {
	stage           int
	began           int64
	owned, executed set
	ticks           [numRouters]event.RouterTick
	primary         bool
	undrained       bool
}

func (t *tailer) reset() {
	ids := t.ids
	*t = tailer{ids: ids}
	if ids.next == 0 {
		t.ids = newLedger()
	}
}

// connect begins a session with the server, or notices the end of one.
func (w *world) connect(x int) bool {
	s, t := &w.servers[x], &w.tailers[x]
	if s.up && t.run == s.run {
		return false
	}
	if t.run != 0 {
		t.run, t.probe = 0, probe{}
		st := &event.ServerState{Server: serverNames[x], UUID: s.uuid, Epoch: t.epoch, History: t.history, LossSeen: t.lossSeen, Down: "connection lost", Follow: w.follow(x)}
		w.post(x, posted{ev: st, data: t.data})
		w.say("tailer of %s: connection lost", serverNames[x])
		return true
	}
	if !s.up {
		return false
	}
	w.session(x)
	return true
}

func (w *world) follow(x int) string {
	if w.servers[x].followExecuted {
		return "executed"
	}
	return "binlog"
}

// session judges whether the data set is the one that was known (rules §1).
func (w *world) session(x int) {
	s, t := &w.servers[x], &w.tailers[x]
	w.kv.epoch++
	t.run, t.epoch, t.probe = s.run, w.kv.epoch, probe{}
	same := t.data == s.data && t.executed.within(s.executed) && t.continues(s.binlog)
	if same {
		// Resumes from its binlog after the confirmed set (rules §2.2).
		t.read, t.pending = 0, nil
		if s.relaxed && s.uncleanUnseen {
			t.excluded = "epoch_changed: restarted with relaxed durability"
		}
	} else {
		t.data = s.data
		t.tracker = tracker{everLost: t.ids.everLost, history: t.ids.history, lossSeen: t.ids.lossAt}
		t.executed = s.executed
		t.sightAt = w.now
		if t.unvetted = s.executed &^ t.everLost; s.followExecuted {
			t.base, t.unvetted = t.unvetted, 0
		}
		if t.idsOn {
			t.starts = t.ids.starts
			w.vouch(x)
		}
	}
	s.uncleanUnseen = false
	w.say("tailer of %s: epoch %d, same data set: %v, base %s, not vetted %s", serverNames[x], t.epoch, same, t.base.print("g"), t.unvetted.print("g"))
}

// continues tells whether a binlog goes on from what was read.
func (t *tracker) continues(binlog []entry) bool {
	if len(t.log) > len(binlog) {
		return false
	}
	for i := range t.log {
		if t.log[i] != binlog[i] {
			return false
		}
	}
	return true
}

// restartTailer kills the tailer's process. What it published is all that it
// finds again.
func (w *world) restartTailer(x int, b byte) bool {
	s, t := &w.servers[x], &w.tailers[x]
	if !t.saved.ok || !s.up || t.run != s.run {
		return false
	}
	keep := t.saved
	w.say("tailer of %s is restarted", serverNames[x])
	t.reset()
	t.idsOn, t.ids = false, newLedger()
	t.tracker, t.data, t.saved = keep.tracker, keep.data, keep
	t.starts = 0
	w.followStream(x, b)
	w.session(x)
	return true
}

// followStream lets the tailer read one message of WRITES; when its position is
// gone or the chain breaks it starts at a checkpoint.
func (w *world) followStream(x int, b byte) bool {
	t := &w.tailers[x]
	l := &t.ids
	str := &w.stream
	broken := !t.idsOn || l.at < str.first || l.at > len(str.messages)
	if b >= 250 && l.at > str.first && l.at <= len(str.messages) { // a reconnect: it compares (rules §5.4)
		broken = broken || str.messages[l.at-1].id != l.id
	}
	if !broken && l.at == len(str.messages) {
		return false
	}
	if broken || str.messages[l.at].prev != l.id {
		at := str.checkpoints()
		if len(at) == 0 {
			return false
		}
		ever := l.everLost
		l.startAt(w, at[t.pickStart(w, at, b)])
		l.everLost |= ever
		t.idsOn = true
		w.say("tailer of %s follows WRITES from message %d on", serverNames[x], l.at)
	} else {
		l.read(w, &str.messages[l.at])
	}
	w.applyLosses(x)
	return true
}

// pickStart picks a checkpoint of which the server has proven everything, against
// this very stream: behind an announcement that was not seen, or in another
// history, it may be of a stream that stepped back. Else any.
func (t *tailer) pickStart(w *world, at []int, b byte) int {
	var fit []int
	for i, m := range at {
		c := w.stream.messages[m].items[0].ledger
		have := t.base &^ c.everLost
		if c.history == t.history && c.lossAt <= t.lossSeen {
			have = t.base | t.executed&t.shown
		}
		if c.delivered.within(have) {
			fit = append(fit, i)
		}
	}
	if len(fit) == 0 {
		return pick(len(at), b)
	}
	return fit[pick(len(fit), b)]
}

// applyLosses takes in that identities were lost, before anything is compared
// with what came after (rules §1, §10).
func (w *world) applyLosses(x int) {
	t := &w.tailers[x]
	if t.starts != t.ids.starts {
		defer w.vouch(x)
		// What was compared with messages that are no more has to be compared with
		// what comes in their place: it may be another transaction (§5.4, §11.2).
		t.starts = t.ids.starts
		t.shown &= t.ids.vouched
		t.judged &= t.ids.vouched
		t.read, t.pending = 0, nil
	}
	if t.ids.history == t.history && t.ids.lossAt == t.lossSeen {
		return
	}
	again := t.ids.lostSince(t.lossSeen)
	t.everLost |= t.ids.everLost
	t.base &^= t.everLost
	t.unvetted &^= t.everLost
	t.doubted &^= t.everLost
	t.gone &^= t.everLost
	t.shown &^= again
	t.judged &^= again
	t.taints = slices.DeleteFunc(slices.Clone(t.taints), func(x taint) bool { return x.another && again.has(x.gtid) })
	if again != 0 { // its binlog has to be read again
		t.read, t.pending = 0, nil
	}
	t.history, t.lossSeen = t.ids.history, t.ids.lossAt
}

// hint reads one transaction of the server's own binlog.
func (w *world) hint(x int) bool {
	s, t := &w.servers[x], &w.tailers[x]
	if !s.up || t.run != s.run || s.followExecuted {
		return false
	}
	if t.read < s.purged { // joins base, and is reported (rules §2.2)
		gone := s.previousGTIDs(s.purged) & s.executed &^ t.everLost &^ t.errant &^ t.unvetted
		t.base |= gone &^ t.doubted
		t.gone |= gone & t.doubted
		t.read = s.purged
		if len(t.log) < t.read {
			t.log = append([]entry(nil), s.binlog[:t.read]...)
		}
	}
	if t.read >= len(s.binlog) {
		return false
	}
	at := t.read
	t.read++
	if len(t.log) < t.read {
		t.log = append(t.log, s.binlog[at])
	}
	if e := s.binlog[at]; !(t.base | t.unvetted | t.shown).has(e.slot) {
		t.pending = append(t.pending, at)
		w.say("tailer of %s reads t%d in its binlog, empty: %v", serverNames[x], e.tx, e.empty)
		w.compareAll(x)
	}
	return true
}

// compareAll settles what the stream has come to.
func (w *world) compareAll(x int) {
	s, t := &w.servers[x], &w.tailers[x]
	rest := t.pending[:0]
	for _, at := range t.pending {
		if at >= len(s.binlog) || !w.compareOne(x, &s.binlog[at]) {
			rest = append(rest, at)
		}
	}
	t.pending = rest
}

// compareOne holds one transaction of the server's binlog against the stream's
// (rules §2.2); false: the stream has not come to it.
func (w *world) compareOne(x int, e *entry) bool {
	s, t := &w.servers[x], &w.tailers[x]
	l := &t.ids
	g := e.slot
	if !t.idsOn || l.lost.has(g) || !l.delivered.has(g) {
		return false
	}
	id := l.ids[g]
	identified := id >= 0 && !l.holes.has(g)
	wasErrant := t.errant.has(g)
	if wasErrant { // the stream has it after all
		t.errant &^= one(g)
		t.forgive(g)
	}
	t.judged |= one(g) & t.everLost
	if !identified && !s.primary && w.isLost(l, e) {
		t.taint(taint{all: true, another: true, gtid: g, reason: "holds a transaction that was lost"})
		return true
	}
	switch {
	case id >= 0 && w.txs[id].commit != e.commit:
		s.dirty = s.dirty || !s.primary // tainted until it is rebuilt, also where it only was early
		if !s.primary {                 // there it is a reuse, which the writer handles (rules §11.2)
			t.taint(taint{all: true, another: true, gtid: g, reason: "another transaction under this GTID"})
		}
		return true
	case identified:
		t.shown |= one(g)
		if p := w.event(id); e.empty && p.Flags&event.Empty == 0 {
			switch {
			case len(p.Tables) > 0 && p.Flags&event.Statement == 0:
				t.taint(taint{gtid: g, reason: "rows are missing"})
			default:
				t.taint(taint{all: true, gtid: g, reason: "empty here"})
			}
		}
	case l.empty.has(g) && e.empty:
		t.shown |= one(g)
	case t.everLost.has(g) && id < 0:
		// Under this GTID something was lost, and nobody says what it names now.
		t.judged &^= one(g)
	case l.empty.has(g) && s.primary: // another transaction, a reuse too
	case l.empty.has(g):
		t.shown |= one(g)
		t.taint(taint{another: true, gtid: g, reason: "wrote where the primary's is empty"})
	case !e.empty:
		t.shown |= one(g)
	}
	return true
}

// isLost tells whether an entry is a transaction that is known to be lost.
func (w *world) isLost(l *ledger, e *entry) bool {
	found := false
	l.lostTxs.each(func(n int8) { found = found || w.txs[n].slot == e.slot && w.txs[n].commit == e.commit })
	return found
}

func (t *tracker) taint(x taint) {
	for _, have := range t.taints {
		if have.all == x.all && have.errant == x.errant && have.another == x.another && (!x.another || have.gtid == x.gtid) {
			return
		}
	}
	t.taints = append(t.taints[:len(t.taints):len(t.taints)], x)
}

// forgive takes back what an errant transaction tainted.
func (t *tracker) forgive(g int8) {
	var kept []taint
	for _, x := range t.taints {
		if !(x.errant && x.gtid == g) {
			kept = append(kept, x)
		}
	}
	t.taints = kept
}

// primaryE is owned ∪ executed of the announced primary, as the tailer of x asks
// for it.
func (w *world) primaryE(x int) (e set, ok bool) {
	s, t := &w.servers[x], &w.tailers[x]
	a, p := &t.ids.announced, w.primary()
	if !s.up || t.run != s.run || !t.idsOn || p < 0 || !w.servers[p].up ||
		a.server != p || a.epoch != w.tailers[p].epoch || w.tailers[p].run != w.servers[p].run {
		return 0, false
	}
	return w.servers[p].owned | w.servers[p].executed, true
}

// vouch makes base of what the tailer's reader of the stream began with. Of the
// rest of the first sight, what the binlog still has is compared (rules §2.2).
func (w *world) vouch(x int) {
	s, t := &w.servers[x], &w.tailers[x]
	t.base |= t.unvetted & t.ids.vouched
	t.unvetted &^= t.ids.vouched
	if readable := t.unvetted & s.readable(); readable != 0 {
		t.unvetted &^= readable
		t.doubted |= readable
		t.read, t.pending = 0, nil
	}
}

// vet asks the announced primary about the rest: what it lacks is errant, and no
// binlog shows it.
func (w *world) vet(x int) {
	s, t := &w.servers[x], &w.tailers[x]
	_, ok := w.primaryE(x)
	if !ok || t.unvetted == 0 && (t.asked || t.doubted == 0) {
		return
	}
	// A state in STATE, so that the next announcement knows of it (rules §10).
	last := w.states[w.primary()]
	p := &last[len(last)-1]
	if !p.ev.Alive || p.ev.Role != event.RolePrimary || p.ev.Epoch != t.ids.announced.epoch || p.began <= t.sightAt {
		return
	}
	e := p.owned | p.executed
	t.base |= (t.unvetted | t.gone) & e
	t.unvetted &^= e
	t.doubted &^= e
	t.gone &^= e
	if s.primary {
		return
	}
	if t.asked = true; t.unvetted == 0 {
		return
	}
	w.say("tailer of %s finds %s errant at first sight", serverNames[x], t.unvetted.print("g"))
	s.dirty = true // nobody makes it the primary
	t.errant |= t.unvetted
	t.unvetted.each(func(g int8) {
		t.taint(taint{all: true, gtid: g, errant: true, reason: "errant transaction that the binlog does not show"})
	})
	t.unvetted = 0
}

// judgeErrant names transactions that neither the stream nor the announced
// primary's later E has (rules §2.3).
func (w *world) judgeErrant(x int) bool {
	s, t := &w.servers[x], &w.tailers[x]
	l := &t.ids
	w.vet(x)
	e, ok := w.primaryE(x)
	if !ok || s.primary || s.followExecuted {
		return false
	}
	suspects := t.executed &^ t.base &^ t.unvetted &^ t.shown &^ t.errant &^ l.delivered &^ l.lost &^ e
	suspects.each(func(g int8) {
		for _, at := range t.pending {
			if e := &s.binlog[at]; e.slot == g {
				t.errant |= one(g)
				if !e.empty {
					t.taint(taint{gtid: g, errant: true, reason: "errant transaction"})
				}
				s.dirty = true // nobody makes it the primary
				w.say("tailer of %s finds g%d errant", serverNames[x], g)
				return
			}
		}
		if t.read == len(s.binlog) {
			s.dirty = true
			t.errant |= one(g)
			t.taint(taint{all: true, gtid: g, errant: true, reason: "errant transaction that the binlog does not show"})
		}
	})
	return suspects != 0
}
