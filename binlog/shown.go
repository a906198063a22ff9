package binlog

import (
	"fmt"
	"slices"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// sighting is a transaction as the server's own binlog carries it.
type sighting struct {
	id     event.Identity
	flags  event.Flags
	tables []key.Digest
	at     time.Time // when the hint came
	errant bool      // known to be errant; kept to take that back should the stream carry it later
}

// verdict is what the comparison of one sighting with the stream gave.
type verdict struct {
	// decided is false while the stream has not come to the transaction.
	decided bool
	// shown tells that the server's binlog showed the transaction, so that
	// executed proves its data (rules §2.2).
	shown bool
	// unnamed: a transaction was lost under the GTID, and nothing tells whether
	// the server has that one or the one that was given the GTID since.
	unnamed bool
	taints  []event.Taint
}

// compare holds a sighting against what the stream says of its GTID (rules
// §2.2). primary is set while the server is the primary: another identity there
// is a reuse, which the writer handles (rules §11.2), not a taint. filtered
// tells that the server's configuration filters tables: then a statement that
// came out empty is explained by it, and those tables are excluded anyway.
// everLost tells that a transaction was lost under the GTID: then nothing but an
// identity, or emptiness on both sides, tells that the server has the other one
// (rules §11.2).
func compare(s *sighting, k event.Known, primary, filtered, everLost bool) verdict {
	mismatch := k.OriginalCommit != s.id.OriginalCommit
	empty := s.flags&event.Empty != 0
	taintAll := func(reason string) verdict {
		if primary {
			return verdict{decided: true}
		}
		return verdict{decided: true, taints: []event.Taint{{All: true, GTID: s.id.GTID, Reason: reason}}}
	}
	switch k.State {
	case event.NotYet, event.IsLost:
		return verdict{}
	case event.NoIdentity:
		return verdict{decided: true, shown: !empty && !everLost, unnamed: everLost}
	case event.EmptyOnPrimary:
		switch {
		case empty:
			return verdict{decided: true, shown: true}
		case everLost:
			return verdict{decided: true, unnamed: true}
		case primary: // another transaction, a reuse too
			return verdict{decided: true}
		}
		return verdict{decided: true, shown: true, taints: wroteTaints(s, wroteReason)}
	case event.HeaderOnly:
		switch {
		case mismatch:
			return taintAll(identityReason)
		case k.Flags&event.Empty != 0:
			return verdict{decided: true, shown: true, taints: wroteTaints(s, wroteReason)}
		}
		return verdict{decided: true, shown: !empty}
	case event.Identified:
		if mismatch {
			return taintAll(identityReason)
		}
		return compareTables(s, k, empty, filtered, taintAll)
	}
	return verdict{}
}

const (
	identityReason = "carries this GTID with another original commit time than the primary's: it is another transaction"
	lostReason     = "holds a transaction that was lost"
	wroteReason    = "wrote where the primary has an empty transaction"
	cascadedReason = "rows were changed here that the primary's transaction did not change (a foreign key's cascade, as by REPLACE?)"
)

// ofAnother tells of a taint that it stands for another transaction than the
// stream's under the GTID: one such taint says nothing of another GTID, and it
// ends with what the stream had there.
func ofAnother(x *event.Taint) bool {
	return x.Reason == identityReason || x.Reason == lostReason || x.Reason == wroteReason
}

// compareTables compares what two transactions of one identity wrote. Tables
// that the server wrote and the primary did not are in order where the primary
// may have changed them without a rows event, by a foreign key. Where it logs
// that ([event.CascadesLogged]), the server changed rows that the primary has: it
// cascades at each rows event, and the primary not at each delete of a REPLACE.
func compareTables(s *sighting, k event.Known, empty, filtered bool, taintAll func(string) verdict) verdict {
	if (k.Flags|s.flags)&event.Statement != 0 {
		if empty && k.Flags&(event.Empty|event.Unchanged) == 0 && !filtered {
			return taintAll("the primary's statement is an empty transaction here; if it changed only temporary tables, or nothing, accept --gtids")
		}
		return verdict{decided: true, shown: true}
	}
	v := verdict{decided: true, shown: true}
	for _, t := range k.Tables {
		if !slices.Contains(s.tables, t) {
			v.taints = append(v.taints, event.Taint{
				Table: t, GTID: s.id.GTID, Reason: "rows of the primary's transaction are missing here",
			})
		}
	}
	if k.Flags&event.CascadesLogged != 0 {
		for _, t := range s.tables {
			if !slices.Contains(k.Tables, t) {
				v.taints = append(v.taints, event.Taint{Table: t, GTID: s.id.GTID, Reason: cascadedReason})
			}
		}
	}
	if len(v.taints) == 0 && empty && k.Flags&event.Empty == 0 && !filtered {
		// Nothing to name, and yet the primary's transaction did something.
		return taintAll("the primary's transaction is empty here")
	}
	return v
}

// wroteTaints taints what a transaction wrote that nobody else has.
func wroteTaints(s *sighting, reason string) []event.Taint {
	if s.flags&event.Empty != 0 {
		return nil
	}
	if s.flags&(event.Statement|event.NotUnderstood|event.DDL|event.Capped) != 0 || len(s.tables) == 0 {
		return []event.Taint{{All: true, GTID: s.id.GTID, Reason: reason}}
	}
	taints := make([]event.Taint, 0, len(s.tables))
	for _, t := range s.tables {
		taints = append(taints, event.Taint{Table: t, GTID: s.id.GTID, Reason: reason})
	}
	return taints
}

// errantReason begins the reason of every taint that an errant transaction
// made, so that it can be taken back when the stream brings that transaction.
const errantReason = "errant transaction"

// unseenReason taints a server as a whole.
const unseenReason = errantReason + " that the server's binlog does not show"

// tracker knows what one server's binlog has shown, against the stream. It is
// pure: no clock, no I/O, one owner at a time (the monitor's lock).
type tracker struct {
	follow  string
	base    gtid.Set      // executed at first sight of the data set, and vetted
	first   firstSight    // what is not vetted yet
	shown   *gtid.Builder // compared and found to be the stream's transaction
	seen    *gtid.Builder // everything that the binlog carried in this data set
	pending map[gtid.GTID]*sighting
	order   []gtid.GTID // of pending, as the binlog has them; may hold decided ones
	waiting int         // pending ones that are not errant
	taints  []event.Taint
	errant  gtid.Set
	// accepted holds what the operator vouched for, less what was lost since; it
	// counts as shown.
	accepted gtid.Set
	// everLost has every GTID under which some transaction was lost: never in
	// base (rules §1), to be shown again under its identity.
	everLost gtid.Set
	// unnamed are those of them of which nothing tells any more which
	// transaction the server has.
	unnamed gtid.Set
	// judged are those of them that were compared, whatever came of it.
	judged gtid.Set
	// refused were compared and not found to be the stream's, so that they prove
	// nothing when they are purged later. No state carries them: after a restart of
	// the tailer those are taken for refused that a shown one has overtaken.
	refused gtid.Set
	// starts is the newest start of the stream's reader that was taken in; 0:
	// none yet, and nobody vouches for what was shown before.
	starts uint64

	primary  bool
	filtered bool

	// Of comparisons, for counters.
	tainted, emptied, compared uint64
	// hintAt is when hints came that are not proven yet, to measure the delay.
	hintAt map[gtid.GTID]time.Time
}

// maxHintTimes bounds the hints whose delay to the proof is measured.
const maxHintTimes = 4096

func newTracker(follow string) *tracker {
	return &tracker{
		follow: follow, shown: gtid.NewBuilder(gtid.Set{}), seen: gtid.NewBuilder(gtid.Set{}),
		pending: map[gtid.GTID]*sighting{}, hintAt: map[gtid.GTID]time.Time{},
	}
}

// begin starts a data set whose executed set is executed at first sight.
func (t *tracker) begin(executed, everLost gtid.Set) {
	*t = *newTracker(t.follow)
	t.everLost = everLost
	if t.follow == FollowExecuted {
		t.base = executed.Subtract(everLost)
		return
	}
	t.first.see(executed.Subtract(everLost))
}

// resume goes on with a data set of which st is the last published state.
func (t *tracker) resume(st *event.ServerState, everLost gtid.Set) {
	*t = *newTracker(t.follow)
	t.everLost = everLost
	t.base = st.Base.Subtract(everLost)
	if t.follow == FollowBinlog {
		t.first.see(t.base.Intersect(st.Unproven)) // had not been vetted
		t.base = t.base.Subtract(st.Unproven)
	}
	// What was lost since that state leaves with turned.
	t.shown.Reset(st.Executed.Subtract(st.Unproven).Subtract(st.Base))
	t.taints = slices.Clone(st.Taints)
	t.errant = st.Errant
	t.refused = overtaken(st.Unproven.Subtract(st.Base), t.shown.Set())
}

// overtaken are the waiting GTIDs that have a later one of their source in shown:
// comparison goes in the binlog's order, so that theirs was made.
func overtaken(waiting, shown gtid.Set) gtid.Set {
	b := gtid.NewBuilder(gtid.Set{})
	for src, iv := range waiting.All() {
		if last := min(iv.Last, shown.Max(src)); last >= iv.First {
			b.AddInterval(src, gtid.Interval{First: iv.First, Last: last})
		}
	}
	return b.Set()
}

// restart forgets what was seen and not yet executed: after a new connection
// the binlog says it again.
func (t *tracker) restart() {
	t.seen.Reset(gtid.Set{})
	clear(t.pending)
	clear(t.hintAt)
	t.order, t.waiting = nil, 0
}

// unproven is the part of executed that is neither base nor shown.
func (t *tracker) unproven(executed gtid.Set) gtid.Set {
	if t.follow == FollowExecuted {
		return gtid.Set{}
	}
	return executed.Subtract(t.base).Subtract(t.shown.Set()).Subtract(t.accepted)
}

// hinted is what the binlog showed and executed does not have yet.
func (t *tracker) hinted(executed gtid.Set) gtid.Set { return t.seen.Set().Subtract(executed) }

// stream is what the tracker asks of the stream. What its reader says from
// elsewhere than at decides nothing: the turn from there is not taken in yet, which
// would take back what came before it, and of what comes after it too little is
// known (rules §10, §11.2).
type stream struct {
	at    event.Reading
	known func(gtid.GTID) event.Known
	lost  func(event.Identity) (bool, event.Reading)
}

// sight takes in one transaction of the server's binlog and compares it when
// the stream has it already. executed is the newest known set, which tells a
// hint from a transaction that is sent again. It returns whether it was decided.
func (t *tracker) sight(s *sighting, executed gtid.Set, ask stream) bool {
	g := s.id.GTID
	t.seen.Add(g)
	if len(t.hintAt) < maxHintTimes && !executed.Contains(g) {
		t.hintAt[g] = s.at
	}
	if t.base.Contains(g) || t.shown.Contains(g) {
		return true // sent again after a reconnect
	}
	// A known errant one waits apart, so that a crowd of them never fills the
	// room for the others.
	s.errant = t.errant.Contains(g)
	if _, again := t.pending[g]; !again && !s.errant {
		t.waiting++
		t.order = append(t.order, g)
	}
	t.pending[g] = s
	return t.settle(s, ask)
}

// settle compares one pending sighting. The caller forgets it at the stream
// when it is decided.
func (t *tracker) settle(s *sighting, ask stream) bool {
	g := s.id.GTID
	k := ask.known(g)
	v := compare(s, k, t.primary, t.filtered, t.everLost.Contains(g))
	if !v.decided || k.At != ask.at {
		return false
	}
	if !t.primary && k.State != event.Identified {
		lost, at := ask.lost(s.id)
		if at != ask.at {
			return false
		}
		if lost {
			// The stream has no identity for this GTID any more, but knows that the
			// transaction which the server holds is a lost one (rules §10).
			v = verdict{decided: true, taints: []event.Taint{{All: true, GTID: g, Reason: lostReason}}}
		}
	}
	if s.errant {
		t.unerrant(g)
	} else {
		t.waiting--
	}
	delete(t.pending, g)
	t.compared++
	if t.everLost.Contains(g) {
		t.judged = t.judged.Add(g)
	}
	if v.shown {
		t.shown.Add(g)
		t.refused = t.refused.Subtract(gtid.Of(g))
	} else {
		t.emptied++
		t.refused = t.refused.Add(g)
	}
	if v.unnamed && !v.shown {
		t.unnamed = t.unnamed.Add(g)
	}
	for _, taint := range v.taints {
		t.taint(taint)
	}
	return true
}

// unerrant takes back that g is errant: the stream has it after all, or an
// announced primary brought it.
func (t *tracker) unerrant(g gtid.GTID) {
	t.errant = t.errant.Subtract(gtid.Of(g))
	t.taints = slices.DeleteFunc(t.taints, func(x event.Taint) bool {
		return x.GTID == g && isErrant(&x)
	})
}

func isErrant(x *event.Taint) bool {
	return len(x.Reason) >= len(errantReason) && x.Reason[:len(errantReason)] == errantReason
}

// settleSome compares what waits, in the binlog's order, which is nearly the
// stream's: after misses that the stream does not have yet it stops. With misses
// 0 everything is compared, errant ones too. It returns what was decided.
func (t *tracker) settleSome(ask stream, misses int) (decided []gtid.GTID) {
	var missed []gtid.GTID
	i := 0
	for ; i < len(t.order) && (misses == 0 || len(missed) < misses); i++ {
		s, ok := t.pending[t.order[i]]
		switch {
		case !ok || s.errant:
		case t.settle(s, ask):
			decided = append(decided, s.id.GTID)
		default:
			missed = append(missed, s.id.GTID)
		}
	}
	if i > 0 {
		// The undecided go back to the front, in place.
		i -= len(missed)
		copy(t.order[i:], missed)
		t.order = t.order[i:]
	}
	if misses == 0 {
		for g, s := range t.pending {
			if s.errant && t.settle(s, ask) {
				decided = append(decided, g)
			}
		}
	}
	return decided
}

// maxTaints is how many tables are named one by one; beyond that the server is
// tainted as a whole.
const maxTaints = 1024

// taint adds a taint unless it is there; the first transaction that showed it
// stays named.
func (t *tracker) taint(x event.Taint) {
	for i := range t.taints {
		have := &t.taints[i]
		if have.All == x.All && have.Table == x.Table && isErrant(have) == isErrant(&x) &&
			(have.GTID == x.GTID || !ofAnother(have) && !ofAnother(&x)) {
			return
		}
	}
	if ofAnother(&x) && len(t.taints) >= maxTaints {
		x = event.Taint{All: true, GTID: x.GTID, Reason: "carries other transactions than the primary's under many GTIDs"}
		t.taint(x)
		return
	}
	if !x.All && len(t.taints) >= maxTaints {
		x = event.Taint{All: true, GTID: x.GTID, Reason: fmt.Sprintf("more than %d tables are tainted", maxTaints)}
		t.taint(x)
		return
	}
	t.tainted++
	// States that were published share the old slice.
	t.taints = append(slices.Clone(t.taints), x)
}

// joinPurged puts what the server's binlog carried and does not any more into
// base, and returns what was new (rules §2.2: it joins base and is reported).
// What was lost once does not join it: see purge; nor what was there at first
// sight and did not become base then, nor what was compared and refused.
func (t *tracker) joinPurged(purged, executed gtid.Set) gtid.Set {
	gone := purged.Intersect(t.unproven(executed)).Subtract(t.everLost).Subtract(t.errant).Subtract(t.first.unvetted).Subtract(t.refused)
	t.first.gone = t.first.gone.Union(gone.Intersect(t.first.doubted))
	gone = gone.Subtract(t.first.doubted)
	if !gone.IsEmpty() {
		t.base = t.base.Union(gone)
	}
	return gone
}

// turned takes in what became of the stream, before anything is compared with
// what came after it. A GTID under which a transaction was lost is not in base
// (rules §1), and not shown until the binlog says it again under an identity of
// the stream (§10, §11.2); what was compared with messages that are no more is
// compared again (§5.4). It returns whether the binlog must be read again for it:
// also what it has said already, and was not found to be the stream's then, may
// be what the stream brings now.
func (t *tracker) turned(turn *event.Turn) bool {
	t.everLost = t.everLost.Union(turn.EverLost)
	seen := t.seen.Set()
	again := t.everLost.Overlaps(t.base) || turn.Lost.Overlaps(t.shown.Set()) || turn.Lost.Overlaps(seen)
	t.base = t.base.Subtract(t.everLost)
	again = t.first.lose(t.everLost) || again
	// What was compared with a transaction that is lost is compared again with the
	// one that has its GTID now, which may be the server's own, lost before and
	// brought back by a failover.
	t.taints = slices.DeleteFunc(slices.Clone(t.taints), func(x event.Taint) bool {
		return ofAnother(&x) && turn.Lost.Contains(x.GTID)
	})
	t.shown.Remove(turn.Lost)
	t.seen.Remove(turn.Lost)
	t.judged = t.judged.Subtract(turn.Lost)
	if turn.Starts != t.starts {
		t.starts = turn.Starts
		again = t.vouched(turn.Vouched) || again
		shown := t.shown.Set()
		again = again || !turn.Vouched.ContainsSet(shown) || !turn.Vouched.Union(t.base).ContainsSet(seen)
		t.shown.Reset(shown.Intersect(turn.Vouched))
		t.judged = t.judged.Intersect(turn.Vouched)
	}
	return again
}

// purge notes what the server's binlog can not say any more, or never said: of
// what was lost once, nothing will tell which transaction it is.
func (t *tracker) purge(purged gtid.Set) {
	t.unnamed = t.unnamed.Union(purged.Intersect(t.everLost))
}

// mute are the executed GTIDs of which nothing will tell which transaction the
// server has: they wait for the operator.
func (t *tracker) mute(executed gtid.Set) gtid.Set {
	if t.unnamed.IsEmpty() || t.primary {
		return gtid.Set{}
	}
	return t.unnamed.Intersect(t.unproven(executed))
}

// doubtful are GTIDs under which a transaction was lost, which the server has, is
// committing or has received, while it has not been compared
// whether that is the lost one or the one that was given the GTID since. Nothing
// newer tells of it: what the lost one wrote may be old rows in every other respect
// (rules §10, §11.2), and it can be read from its commit on, before it is compared.
func (t *tracker) doubtful(executed, owned, received gtid.Set) gtid.Set {
	if t.everLost.IsEmpty() || t.primary || t.follow == FollowExecuted {
		return gtid.Set{}
	}
	return t.unproven(executed.Union(owned).Union(received)).Intersect(t.everLost).Subtract(t.judged)
}

// suspects are executed GTIDs that nothing accounts for yet.
func (t *tracker) suspects(executed gtid.Set) gtid.Set {
	return t.unproven(executed).Subtract(t.errant).Subtract(t.first.unvetted)
}

// markErrant records that GTIDs of the server are nobody else's (rules §2.3):
// what they wrote is tainted; one that its binlog does not show taints all.
// tailPassed tells that the binlog has been read to where it stood when they
// were executed. It returns those that could be judged.
func (t *tracker) markErrant(g gtid.GTID, tailPassed bool) bool {
	s, ok := t.pending[g]
	if !ok {
		if !tailPassed {
			return false
		}
		t.errant = t.errant.Add(g)
		t.taint(event.Taint{All: true, GTID: g, Reason: unseenReason})
		return true
	}
	if s.errant {
		return true
	}
	s.errant = true
	t.waiting--
	t.errant = t.errant.Add(g)
	for _, x := range wroteTaints(s, errantReason+" wrote here what no other server has") {
		t.taint(x)
	}
	return true
}

// acceptances applies what the operator accepted for this data set, of which
// list has everything. lostSince tells under which GTIDs a transaction was lost
// after an announcement: the server may hold that one, and the operator vouched
// for it, not for the one that is given its GTID later (rules §11.2).
func (t *tracker) acceptances(list []Acceptance, dataSet uint64, lostSince func(event.Version) gtid.Set) {
	t.accepted = gtid.Set{}
	for i := range list {
		a := &list[i]
		if a.DataSet != dataSet {
			continue
		}
		vouched := a.GTIDs
		if a.Copy {
			vouched = t.unnamed.Intersect(a.Executed)
		}
		if vouched.IsEmpty() && len(t.taints) == 0 {
			continue
		}
		lost := lostSince(a.LossSeen)
		vouched = vouched.Subtract(lost)
		t.accepted = t.accepted.Union(vouched)
		t.errant = t.errant.Subtract(vouched)
		covers := func(x event.Taint) bool { return !lost.Contains(x.GTID) && a.covers(x) }
		if slices.ContainsFunc(t.taints, covers) {
			t.taints = slices.DeleteFunc(slices.Clone(t.taints), covers)
		}
	}
}

// accountedFor are those of the server's GTIDs that need nothing else to account
// for them: the errant ones, which are in its taints, and those that the operator
// accepted, which may be older than the data set's first sight (rules §2.3). An
// accepted one that left this set would exclude the server for ever.
func (t *tracker) accountedFor(has gtid.Set) gtid.Set {
	return t.errant.Union(t.accepted.Intersect(has))
}

// Acceptance is what the operator accepted for one data set of a server, with
// `tidegate accept`. It covers what was known when it was given, and ends with
// the data set (rules §1).
type Acceptance struct {
	DataSet uint64
	// Table is the any-row scope of a table whose taint is accepted; zero: none.
	Table key.Digest
	// Everything accepts the taints of the server as a whole.
	Everything bool
	// GTIDs are accepted one by one: errant ones, and those whose data the
	// operator vouches for.
	GTIDs gtid.Set
	// Copy accepts that the server has the stream's transactions under those
	// GTIDs of Executed of which nothing tells: its data is a copy of a server
	// that is right.
	Copy bool
	// Restart accepts an unclean restart with relaxed durability, as seen at
	// Epoch or before.
	Restart bool
	Epoch   event.Epoch
	// Executed is the server's executed set as the operator saw it. Table and
	// Everything cover taints that its transactions made: a later one is new.
	Executed gtid.Set
	// LossSeen is the newest announcement that the server's tailer had applied
	// then: a GTID under which a transaction is lost later is not accepted any
	// more.
	LossSeen event.Version
}

func (a *Acceptance) covers(x event.Taint) bool {
	if a.GTIDs.Contains(x.GTID) {
		return true
	}
	if x.All && !a.Everything || !x.All && (x.Table != a.Table || a.Table == key.Digest{}) {
		return false
	}
	return x.GTID.IsZero() || a.Executed.Contains(x.GTID)
}
