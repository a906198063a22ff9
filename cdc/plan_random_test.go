package cdc

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

var planWorlds = flag.Int("plan.worlds", 8_000, "how many random worlds TestPlanRandom tries")

// TestPlanRandom holds plan against servers whose every transaction is known, over
// crashes that cut the binlog, restored data, GTIDs that are given again, purged
// files, failovers and errant transactions: a delivered GTID under which the primary
// has another transaction than the stream, or none, is announced as lost, and a
// replica that has another one than the primary does not count with it.
func TestPlanRandom(t *testing.T) {
	worlds := *planWorlds
	var total planTally
	for seed := range worlds {
		w := newPlanWorld(uint64(seed), false)
		if err := w.run(); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, w.trace)
		}
		total.add(w.tally)
	}
	t.Logf("%+v", total)
	for what, n := range map[string]int{
		"announcements after GTIDs were given again": total.reused, "of these, proven by the newest commits": total.newestReused,
		"restarts proven by the newest commits": total.newest, "restarts that doubt nothing": total.quiet,
		"doubts of what the stream does not name": total.unnamed, "announcements by the whole binlog": total.whole,
		"failovers": total.failovers,
	} {
		if n < worlds/100 {
			t.Errorf("%s: %d in %d worlds, too few to show anything", what, n, worlds)
		}
	}
}

// TestPlanRandomNeedsTheAnnouncement: that a commit lies behind the announcement is
// what makes it a proof of what is older in the stream. The same worlds find it out
// where each common commit counts.
func TestPlanRandomNeedsTheAnnouncement(t *testing.T) {
	for seed := range 50_000 {
		w := newPlanWorld(uint64(seed), true)
		if err := w.run(); err != nil {
			t.Logf("seed %d: %v\n%s", seed, err, w.trace)
			return
		}
	}
	t.Error("no world shows why a commit from before the announcement proves nothing")
}

type planTally struct {
	reused, newestReused, newest, quiet, unnamed, whole, failovers int
}

func (t *planTally) add(o planTally) {
	t.reused += o.reused
	t.newestReused += o.newestReused
	t.newest += o.newest
	t.quiet += o.quiet
	t.unnamed += o.unnamed
	t.whole += o.whole
	t.failovers += o.failovers
}

// planServer is a server with all that it ever logged, purged or not.
type planServer struct {
	uuid     gtid.UUID
	epoch    event.Epoch
	all      []Commit    // in the binlog's order
	purged   int         // how many of them are in no file any more
	owned    gtid.Set    // of the last ones: logged, and not executed yet
	file     int         // where the last file of the newest run that was seen begins
	restored bool        // its data set is another one since the announcement
	stopped  event.Epoch // the run that its newest start of mysqld began
	tainted  bool        // as a replica it was found to have another transaction
}

func (s *planServer) set(list []Commit) gtid.Set {
	var b gtid.Builder
	for _, c := range list {
		b.Add(c.GTID)
	}
	return b.Set()
}

func (s *planServer) find(g gtid.GTID) (event.Identity, bool) {
	for _, c := range s.all {
		if c.GTID == g {
			return c.Identity, true
		}
	}
	return event.Identity{}, false
}

// planWorld is two servers, one of them the primary, and the stream.
type planWorld struct {
	r        *rand.Rand
	anyProof bool // a common commit proves, wherever it was made
	servers  [2]planServer
	primary  int
	clock    int64
	epochs   event.Epoch
	relaxed  bool
	led      *ledger
	stands   map[gtid.GTID]event.Identity // what a delivered GTID stands for
	unread   gtid.Set                     // purged before it was read
	tally    planTally
	trace    string
}

func newPlanWorld(seed uint64, anyProof bool) *planWorld {
	w := &planWorld{r: rand.New(rand.NewPCG(seed, 1)), anyProof: anyProof, stands: map[gtid.GTID]event.Identity{}}
	w.servers[0].uuid, w.servers[1].uuid = planA, planB
	w.relaxed = w.r.IntN(3) == 0
	w.led = newLedger(4 + w.r.IntN(12))
	return w
}

func (w *planWorld) say(format string, args ...any) { w.trace += fmt.Sprintf(format, args...) + "\n" }

func (w *planWorld) run() error {
	w.write(&w.servers[0], w.r.IntN(8))
	w.write(&w.servers[1], w.r.IntN(3))
	w.replicate(w.r.IntN(12))
	for range 24 {
		if err := w.step(); err != nil {
			return err
		}
		if err := w.replica(); err != nil {
			return err
		}
	}
	return nil
}

func (w *planWorld) step() error {
	p := &w.servers[w.primary]
	switch w.r.IntN(12) {
	case 0, 1, 2:
		w.write(p, 1+w.r.IntN(6))
	case 3, 4:
		w.replicate(1 + w.r.IntN(8))
	case 5, 6:
		w.deliver(1 + w.r.IntN(10))
	case 7:
		p.purged = max(p.purged, w.r.IntN(len(p.all)+1)/(1+w.r.IntN(3)))
		w.unread = w.unread.Union(p.set(p.all[:p.purged]).Subtract(w.led.delivered.Set()))
		w.say("purge: %d of %d", p.purged, len(p.all))
	case 8:
		w.restart(p)
		w.write(p, w.r.IntN(8))
		return w.announce()
	case 9:
		w.reread()
	case 10:
		w.write(&w.servers[1-w.primary], w.r.IntN(2)) // errant
	case 11:
		return w.failover()
	}
	return nil
}

// write commits n transactions; GTIDs are the lowest free numbers of the server.
func (w *planWorld) write(s *planServer, n int) {
	s.owned = gtid.Set{}
	has := s.set(s.all)
	for range n {
		g := gtid.GTID{UUID: s.uuid, Seq: 1}
		for has.Contains(g) {
			g.Seq++
		}
		has = has.Union(gtid.Of(g))
		w.clock++
		c := Commit{Identity: event.Identity{GTID: g, OriginalCommit: w.clock}, At: w.clock}
		s.all = append(s.all, c)
		if _, delivered := w.stands[g]; delivered && s != &w.servers[w.primary] {
			s.tainted = true // its tailer remembers more than this ring
		}
		w.say("%v commits %v at %d", s.uuid, g, w.clock)
	}
	// Of the last ones some are still being committed, in any order.
	for _, c := range s.all[max(s.purged, len(s.all)-min(n, 3)):] {
		if w.r.IntN(3) == 0 {
			s.owned = s.owned.Union(gtid.Of(c.GTID))
		}
	}
}

// replicate applies on the other server what it lacks, in order, n at the most.
func (w *planWorld) replicate(n int) {
	p, q := &w.servers[w.primary], &w.servers[1-w.primary]
	has := q.set(q.all)
	for _, c := range p.all[p.purged:] {
		if n == 0 {
			return
		}
		if has.Contains(c.GTID) {
			continue
		}
		w.clock++
		q.all = append(q.all, Commit{Identity: c.Identity, At: w.clock})
		w.say("%v applies %v at %d", q.uuid, c.GTID, w.clock)
		n--
	}
}

// deliver writes what the announced run has next into the stream.
func (w *planWorld) deliver(n int) {
	p := &w.servers[w.primary]
	if w.led.announced.Epoch != p.epoch || p.epoch == 0 {
		return
	}
	p.file = w.r.IntN(len(p.all) + 1) // the last file that is seen
	for i, c := range p.all {
		if n == 0 {
			return
		}
		if w.led.delivered.Contains(c.GTID) {
			continue
		}
		if i < p.purged {
			return // the next announcement makes it a hole
		}
		w.led.transaction(&event.Transaction{GTID: c.GTID, OriginalCommit: c.OriginalCommit, ImmediateCommit: c.At})
		w.stands[c.GTID] = c.Identity
		w.say("delivered %v", c.GTID)
		if q := &w.servers[1-w.primary]; !q.tainted {
			id, there := q.find(c.GTID)
			q.tainted = there && id != c.Identity
		}
		n--
	}
}

// restart begins another run: as it was, after a crash that took the end of the
// binlog, or with older data restored.
func (w *planWorld) restart(s *planServer) {
	w.epochs++
	s.epoch, s.owned = w.epochs, gtid.Set{}
	if w.r.IntN(4) == 0 {
		w.say("%v is met anew, mysqld runs on", s.uuid)
		return
	}
	s.stopped = s.epoch
	cut := 0
	if w.r.IntN(3) > 0 {
		cut = w.r.IntN(len(s.all) - s.purged + 1)
		if w.r.IntN(2) == 0 {
			cut = min(cut, 3)
		}
	}
	s.all = s.all[:len(s.all)-cut]
	// Older data is another data set, or its binlog is too short to have the file.
	s.restored = s.restored || cut > 0 && (!w.relaxed || len(s.all) < s.file)
	s.file = min(s.file, len(s.all))
	w.say("%v restarts, cut by %d, restored: %v", s.uuid, cut, s.restored)
}

// reread lets the tailer forget: a new one starts at a checkpoint that leaves half
// of the window, where there is one.
func (w *planWorld) reread() {
	if w.led.history == 0 {
		return
	}
	led := newLedger(cap(w.led.identities.slots))
	led.item(w.led.checkpoint(), 1)
	led.next = w.led.next
	old, since := w.led.identities.all(), w.led.identities.since()
	keep := min(len(old), cap(w.led.identities.slots)/2+w.r.IntN(3))
	for _, c := range old[len(old)-keep:] {
		led.identities.push(c.Identity, c.At)
	}
	led.identities.mark = led.identities.n - uint64(min(since, keep))
	w.led = led
	w.say("the stream is read from its newest checkpoint")
}

// replica counts as a replica's tailer does (rules §2.2): it compares with the
// identity that the stream names, also when the replica comes later; where it names
// none, what the replica has counts, unless a transaction was lost under that GTID.
// What was purged before it was read has no identity, and counts where it is not
// empty.
func (w *planWorld) replica() error {
	p, q := &w.servers[w.primary], &w.servers[1-w.primary]
	for _, c := range q.all {
		id, there := p.find(c.GTID)
		if !there || id == c.Identity || !w.led.delivered.Contains(c.GTID) || w.led.holes.Contains(c.GTID) || w.unread.Contains(c.GTID) {
			continue
		}
		if named, ok := w.led.identities.find(c.GTID); ok && named != c.Identity {
			q.tainted = true
		} else if !q.tainted && !w.led.everLost.Contains(c.GTID) {
			return fmt.Errorf("%v counts with %v of %d, the primary has that of %d", q.uuid, c.GTID, c.OriginalCommit, id.OriginalCommit)
		}
	}
	return nil
}

func (w *planWorld) failover() error {
	q := &w.servers[1-w.primary]
	// What another server purged, and what the stream names no more, is not compared
	// when it is promoted (decisions/reuse.md, left open). While the stream named it,
	// that server's own tailer did.
	for i, c := range q.all {
		id, ok := w.stands[c.GTID]
		_, named := w.led.identities.find(c.GTID)
		if ok && id != c.Identity && (i < q.purged || !named) {
			return nil
		}
	}
	w.primary = 1 - w.primary
	w.epochs++
	q.epoch, q.owned, q.restored = w.epochs, gtid.Set{}, false
	w.tally.failovers++
	w.say("%v is promoted", q.uuid)
	return w.announce()
}

// announce gathers evidence as the tailer does, and holds what plan makes of it
// against the servers.
func (w *planWorld) announce() error {
	p := &w.servers[w.primary]
	if q := &w.servers[1-w.primary]; w.led.history == 0 {
		// Where a replica parted from the primary before anything was seen, its own
		// tailer finds it (rules §2.3).
		q.all = slices.DeleteFunc(q.all, func(c Commit) bool {
			id, there := p.find(c.GTID)
			return !there && c.GTID.UUID != q.uuid || there && id != c.Identity
		})
		q.purged = min(q.purged, len(q.all))
	}
	tail := w.led.tail([8]byte{})
	tail.OtherFold = false
	if w.r.IntN(2) == 0 { // the replica's state, if it was published
		tail.Anywhere = w.servers[1-w.primary].set(w.servers[1-w.primary].all)
	}
	if tail.Announced.Epoch != 0 && w.r.IntN(2) == 0 {
		tail.PrevE = tail.Announced.Executed
	}
	f := &PrimaryFacts{
		Server: "p", UUID: p.uuid, Epoch: p.epoch, Owned: p.owned, Executed: p.set(p.all).Subtract(p.owned),
		Purged: p.set(p.all[:p.purged]), Relaxed: w.relaxed, RanOn: tail.Announced.Epoch >= p.stopped,
	}
	if w.anyProof && !tail.Announced.Had.IsEmpty() {
		tail.Since, tail.Announced.Had = len(tail.Commits), gtid.Of(gtid.GTID{UUID: gtid.UUID{1}, Seq: 1})
	}
	w.evidence(p, tail, f)
	v := plan(tail, f, nil)
	w.say("announced %v run %d: purged %s, newly lost %s, new history %v (%s)", p.uuid, p.epoch, f.Purged.OneLine(), v.ann.NewlyLost.OneLine(), v.newHistory, v.why)

	given := false
	for g, id := range w.stands {
		if !tail.Delivered.Contains(g) || tail.Holes.Contains(g) {
			continue
		}
		now, there := p.find(g)
		if there && now == id {
			continue
		}
		if unnamed := !slices.ContainsFunc(tail.Commits, func(c Commit) bool { return c.GTID == g }); unnamed && w.led.everLost.Contains(g) {
			continue // no replica counts with it, for all that is known
		}
		given = given || there
		if !v.ann.NewlyLost.Contains(g) {
			return fmt.Errorf("%v stands for a transaction of %d in the stream, the primary has %+v (%v), and it is not announced as lost", g, id.OriginalCommit, now, there)
		}
	}
	if given && !v.newHistory {
		return fmt.Errorf("GTIDs were given again, and the history goes on: %+v", v.ann)
	}
	w.count(tail, f, &v, given)
	w.begin(f, &v)
	for _, c := range p.all {
		if v.delivered.Contains(c.GTID) && !w.led.holes.Contains(c.GTID) {
			w.stands[c.GTID] = c.Identity
		}
	}
	p.restored = false
	return nil
}

func (w *planWorld) count(tail *Tail, f *PrimaryFacts, v *verdict, given bool) {
	newest := f.Whole != nil && f.Whole.Newest
	switch {
	case given && newest:
		w.tally.newestReused++
		fallthrough
	case given:
		w.tally.reused++
	}
	if newest {
		w.tally.newest++
	} else if f.Whole != nil {
		w.tally.whole++
	}
	if tail.Announced.ServerUUID == f.UUID && v.ann.NewlyLost.IsEmpty() {
		w.tally.quiet++
	}
	if r := f.Restart; r != nil && !hold(tail, r.Commits, nil).unnamed.Intersect(v.ann.NewlyLost).IsEmpty() {
		w.tally.unnamed++
	}
}

// evidence is what a tailer reads of the primary's binlog before it announces it.
func (w *planWorld) evidence(p *planServer, tail *Tail, f *PrimaryFacts) {
	files := slices.DeleteFunc(slices.Clone(p.all[p.purged:]), func(c Commit) bool { return p.owned.Contains(c.GTID) })
	switch {
	case tail.Announced.ServerUUID != p.uuid:
		for _, c := range files {
			f.Seen = append(f.Seen, c.Identity)
		}
		return
	case tail.Announced.Epoch == p.epoch:
		return
	}
	if named, made := tail.Newest(f.Purged); !f.Relaxed && len(made) > 0 {
		there := named.Intersect(f.Executed).Subtract(f.Purged)
		whole := &WholeBinlog{Before: f.Executed.Subtract(there), Newest: true}
		proven := false
		for _, c := range files {
			if there.Contains(c.GTID) {
				whole.Commits = append(whole.Commits, c)
				proven = proven || made[c]
			}
		}
		if proven {
			f.Whole = whole
			return
		}
	}
	switch {
	case p.restored || p.file < p.purged && !f.RanOn:
		f.Whole = &WholeBinlog{Before: f.Purged, Commits: files}
	case p.file < p.purged:
		f.Restart = &RestartEvidence{Purged: true}
	default:
		f.Restart = &RestartEvidence{Before: p.set(p.all[:p.file])}
		f.Restart.Commits = files[min(p.file-p.purged, len(files)):]
	}
}

// begin writes to the stream what a writer does.
func (w *planWorld) begin(f *PrimaryFacts, v *verdict) {
	if v.newHistory {
		cp := &event.Checkpoint{
			History: w.led.history + 1, Delivered: v.delivered, Lost: v.ann.Lost, LostIDs: v.ann.LostIDs, KnownEmpty: v.knownEmpty,
			Announced: event.Announcement{NewlyLost: w.led.everLost.Union(v.ann.NewlyLost)},
		}
		w.led.item(cp, 1)
		clear(w.stands)
	}
	w.led.item(&v.ann, 1)
	if !v.hole.IsEmpty() {
		w.led.item(&event.Hole{GTIDs: v.hole}, 1)
	}
}
