package cdc

import (
	"errors"
	"fmt"
	"slices"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// PrimaryFacts is what the primary's monitor knows when a writer begins.
type PrimaryFacts struct {
	Server string // configured name
	UUID   gtid.UUID
	Epoch  event.Epoch
	// Owned and Executed of one statement, in this order, asked after the old
	// channel was drained and after [OpenWriter] returned.
	Owned, Executed gtid.Set
	// Purged is gtid_purged, asked with them: what the binlog can't give.
	Purged   gtid.Set
	GTIDMode string // only "ON" will do
	Drained  bool   // no old channel has anything left to apply
	// FoldNames: lower_case_table_names is not 0.
	FoldNames bool
	// Relaxed: a crash of its host may have lost what it had committed
	// (sync_binlog or innodb_flush_log_at_trx_commit other than 1).
	Relaxed bool
	// RanOn: mysqld has run on since the announced run of this server, and only the
	// tailer knows it as another run; its binlog goes on.
	RanOn bool
	// Restart is what the binlog proves of restarts of mysqld since the run that
	// the stream has announced. It, or Whole, is needed when that was a run of the
	// same server with another epoch; without, a new history starts.
	Restart *RestartEvidence
	// Whole takes its place where the binlog may part from the stream anywhere.
	Whole *WholeBinlog
	// Seen are identities that the caller knows from this server's binlog and
	// wants compared besides (a replica that became primary).
	Seen []event.Identity
	// Doubted could not be compared, though there is reason to.
	Doubted gtid.Set
	// Anonymous: what had to be compared could not, since the binlog has a transaction
	// without a GTID there. The stream may have passed it, or not.
	Anonymous bool
}

// RestartEvidence is what was read again in the binlog after a restart (rules
// §11.2): the files from the one that the announced run used last up to the
// newest one before the current run.
type RestartEvidence struct {
	// Purged: the file is gone; nothing can be proven.
	Purged bool
	// Before is what the binlog has ahead of the first file read (its
	// PREVIOUS_GTIDS); Commits are all transactions of the files.
	Before  gtid.Set
	Commits []Commit
}

// WholeBinlog is all that is left of the primary's binlog, where nothing says
// from where on it may differ from the one that the stream was read from: the
// announced primary has another data set, or it brought another transaction
// under a delivered GTID.
type WholeBinlog struct {
	// Before is gtid_purged: what no file tells of.
	Before gtid.Set
	// Commits are the transactions in the binlog's order, from its beginning;
	// not to its end where there was no time for all.
	Commits []Commit
	// Newest: of all that was executed, Commits has those that [Tail.Newest] names,
	// and Before is everything else.
	Newest bool
}

// Commit is a transaction as one server's binlog has it. Two that are equal are
// one commit of one binlog, or of copies of it: a transaction that is given its
// GTID again, or is applied on another server, has another At.
type Commit struct {
	event.Identity
	At int64 // when that server committed it; 0: not known
}

// Tail is what the stream said when the writer was opened. It is immutable.
type Tail struct {
	// Empty: the stream holds nothing that a writer could continue.
	Empty bool
	// Delivered is everything that is not to be read again, holes included.
	Delivered, Holes, Lost gtid.Set
	LostIDs                []event.Identity
	History                event.History
	Announced              event.Announcement // Epoch 0: none in force; see anonymous
	Groups                 []event.GroupColumn
	FoldNames              bool
	KnownEmpty             gtid.Set
	// OtherFold: the stream was folded by another version, or with another
	// secret, than this program would use.
	OtherFold bool
	// PrevE is owned ∪ executed of the announced primary as STATE has it.
	PrevE gtid.Set
	// Anywhere is owned ∪ executed ∪ received of all servers as STATE has it, from before the
	// primary was asked.
	Anywhere gtid.Set
	// Commits are the newest transactions, oldest first; the last Since of them
	// came after the newest announcement.
	Commits []Commit
	Since   int
}

// newestCommits is how many of the stream's newest transactions are looked for in
// the binlog of another run.
const newestCommits = 512

// Newest returns the stream's newest transactions, and which of them the announced
// run made after it was announced, by what its binlog then had. One of those that
// another run's binlog has too is behind all that the stream had before it, so that
// only what came after it has to be read there (cdc/decisions/reuse.md). There are
// none while the stream has holes that lie behind purged: where, nobody knows.
func (t *Tail) Newest(purged gtid.Set) (named gtid.Set, made map[Commit]bool) {
	if t.Announced.Had.IsEmpty() || !t.Holes.Subtract(purged).IsEmpty() {
		return gtid.Set{}, nil
	}
	var b gtid.Builder
	made = map[Commit]bool{}
	for i := max(0, len(t.Commits)-newestCommits); i < len(t.Commits); i++ {
		c := t.Commits[i]
		b.Add(c.GTID)
		if i >= len(t.Commits)-t.Since && c.At != 0 && !t.Announced.Had.Contains(c.GTID) {
			made[c] = true
		}
	}
	return b.Set(), made
}

// Last returns the newest transaction that the stream names and that is in a set, or
// an empty set.
func (t *Tail) Last(of gtid.Set) gtid.Set {
	of = of.Subtract(t.Holes)
	for _, c := range slices.Backward(t.Commits) {
		if of.Contains(c.GTID) {
			return gtid.Of(c.GTID)
		}
	}
	return gtid.Set{}
}

// anonymous tells whether a transaction without a GTID ended what was announced.
func (t *Tail) anonymous() bool { return t.Announced.Epoch == 0 && !t.Announced.Had.IsEmpty() }

// verdict is what a writer announces, and from where it goes on.
type verdict struct {
	newHistory bool
	why        string // of newHistory, for people
	ann        event.Announcement
	delivered  gtid.Set // after the announcement, hole included
	hole       gtid.Set // purged on the primary and not in the stream
	knownEmpty gtid.Set // of a new history: the part of delivered known to be empty
}

// validate refuses facts from which nothing may be announced (rules §6.2).
func (f *PrimaryFacts) validate() error {
	var errs []error
	if f.Server == "" || f.UUID.IsZero() || f.Epoch == 0 {
		errs = append(errs, errors.New("primary without name, UUID or epoch"))
	}
	if f.GTIDMode != "ON" {
		errs = append(errs, fmt.Errorf("gtid_mode of %s is %q, not ON", f.Server, f.GTIDMode))
	}
	if !f.Drained {
		errs = append(errs, fmt.Errorf("%s still has transactions of its old channel to apply", f.Server))
	}
	return errors.Join(errs...)
}

// plan decides what a writer for this primary announces. It is pure.
//
// Lost is (D ∪ H ∪ previous E) minus what the primary has or is committing
// (rules §10); for the run that is already announced nothing is lost: its
// binlog is ahead of its executed set, and it goes on committing. What the
// binlog after a restart no longer has, or has under another identity, is lost
// as an identity; when its GTID was given again, the history ends (§11.2).
//
// A transaction without a GTID is in no set. Who has executed the same GTIDs as
// the primary may lack it, and by auto position no replica gets it: all that the
// primary has is then in doubt elsewhere, like what may have been given again, so
// that no server counts before its operator has said that it is a copy.
func plan(t *Tail, f *PrimaryFacts, columns []event.GroupColumn) verdict {
	v := verdict{}
	has := f.Executed.Union(f.Owned)
	sameServer := t.Announced.Epoch != 0 && t.Announced.ServerUUID == f.UUID
	sameRun := sameServer && t.Announced.Epoch == f.Epoch

	var newly gtid.Set
	if !sameRun {
		// Whatever a replica had of this primary's own, before that was asked, is as
		// lost as what the stream had: it may be given again at once.
		newly = t.Delivered.Union(t.PrevE).Union(ofServer(t.Anywhere, f.UUID)).Subtract(has)
	}
	gone, maybe, reason := compare(t, f, sameServer && !sameRun)
	var missed gtid.Set
	if t.Announced.Epoch != 0 {
		missed = has.Subtract(t.Delivered)
	}
	if !gone.Intersect(has).IsEmpty() || !maybe.IsEmpty() {
		// Of what was given again the stream may have had only a part, and a replica
		// all of it.
		maybe = maybe.Union(missed)
	}
	anonymous := f.Anonymous || t.anonymous()
	if anonymous {
		maybe = maybe.Union(f.Executed.Subtract(gone))
	}
	newly = newly.Union(gone).Union(maybe)
	switch {
	case t.Empty:
		v.begin("the stream has nothing to continue")
	case anonymous:
		v.begin("the primary has a transaction without a GTID: nothing tells which other servers have it")
	case t.Announced.Epoch == 0 && t.History > 0:
		v.begin("a stream that was never announced")
	case t.OtherFold:
		v.begin("keys are folded by another version or with another secret")
	case t.FoldNames != f.FoldNames:
		v.begin("lower_case_table_names changed")
	case reason != "":
		v.begin(reason)
	}

	lost := t.Lost.Union(newly).Subtract(f.Executed)
	ids := append([]event.Identity(nil), t.LostIDs...)
	for _, c := range t.Commits {
		if newly.Contains(c.GTID) && !maybe.Contains(c.GTID) {
			ids = append(ids, c.Identity)
		}
	}
	if v.newHistory {
		v.delivered = f.Executed
		if !anonymous {
			// But for what was or may have been given again, or never came, and is still
			// in its binlog: that is read, so that the stream names it (rules §11.2). No
			// server lets a reader by GTID pass a transaction without one.
			v.delivered = f.Executed.Subtract(newly.Union(missed).Subtract(f.Purged))
		}
		v.knownEmpty = t.KnownEmpty.Intersect(v.delivered).Subtract(newly)
	} else {
		v.delivered = t.Delivered.Subtract(lost)
		v.hole = f.Purged.Subtract(v.delivered)
	}
	v.ann = event.Announcement{
		Server: f.Server, ServerUUID: f.UUID, Epoch: f.Epoch, Executed: f.Executed, Had: has,
		Lost: lost, LostIDs: ids, NewlyLost: newly, FoldNames: f.FoldNames,
		Groups: groups(t.Groups, columns, v.delivered, v.newHistory),
	}
	v.delivered = v.delivered.Union(v.hole)
	return v
}

// ofServer is the part of a set that one server gave, whatever its tags.
func ofServer(s gtid.Set, uuid gtid.UUID) (own gtid.Set) {
	for src, iv := range s.All() {
		if src.UUID == uuid {
			own = own.AddInterval(src, iv)
		}
	}
	return own
}

// from is what the tailer says that it has: all that is delivered, less the newest
// transaction that the primary's binlog still has. A server begins a dump in the
// newest file of which the reader has everything before. With all that is delivered
// that file may lie behind a transaction without a GTID that nobody has read, written
// while no tailer was there. What comes again is skipped by its identity (rules
// §11.4). A new history has nothing behind its first checkpoint yet.
func (v *verdict) from(t *Tail, f *PrimaryFacts) gtid.Set {
	if v.newHistory {
		return v.delivered
	}
	return v.delivered.Subtract(t.Last(v.delivered.Intersect(f.Executed).Subtract(f.Purged)))
}

func (v *verdict) begin(why string) {
	if !v.newHistory {
		v.newHistory, v.why = true, why
	}
}

// compare holds the stream's identities against the binlog's. It returns the
// GTIDs whose transaction in the stream is no more, those whose transaction may
// be another one for all that is known, and why the history ends, if it does.
func compare(t *Tail, f *PrimaryFacts, restarted bool) (gone, maybe gtid.Set, reason string) {
	if f.Whole != nil {
		return compareWhole(t, f, restarted)
	}
	has := f.Executed.Union(f.Owned)
	r := f.Restart
	var files heldAgainst
	if restarted && r != nil && !r.Purged {
		files = hold(t, r.Commits, nil)
		// What was delivered from that server's binlog and is in none of its
		// files is lost, identity known or not. Holes were never read there.
		gone = t.Delivered.Subtract(t.Holes).Subtract(r.Before).Subtract(files.read)
		if !f.RanOn {
			// But one that this run is committing was not executed by the last: it is given
			// again, and what comes under it would be taken for delivered.
			gone = gone.Union(t.Holes.Intersect(f.Owned).Subtract(f.Executed).Subtract(files.read))
		}
		if files.common || f.Relaxed || !gone.IsEmpty() || !files.differs.IsEmpty() {
			// Behind the newest commit that both have, a delivered GTID that the stream
			// does not name (of its base, or older than what it remembers) was given
			// again. Without such a commit it may have been, where the binlog was cut
			// or a crash may have cut it.
			maybe = files.unnamed.Intersect(t.Delivered).Subtract(t.Holes)
		}
	}
	differs := files.differs.Union(differing(t, f.Seen))
	gone = gone.Union(differs)
	maybe = maybe.Union(f.Doubted.Intersect(t.Delivered))
	reason = givenAgain(maybe, gone.Intersect(has).Union(differs))
	if restarted && (r == nil || r.Purged) {
		reason = "the primary restarted, and its binlog can not prove that it lost nothing"
		if f.Relaxed || !f.RanOn {
			// Nobody knows which ones it lost and gave again: any of them.
			maybe = t.Delivered.Subtract(t.Holes).Intersect(has)
		}
	}
	return gone, maybe.Subtract(gone), reason
}

// heldAgainst is what came of holding a binlog against the stream.
type heldAgainst struct {
	read    gtid.Set // all transactions that were read
	same    gtid.Set // the stream's, by identity, or before common
	differs gtid.Set // the stream has another transaction
	unnamed gtid.Set // behind common, and the stream names none
	common  bool     // there is a commit that both have, with nothing before it that differs
}

// hold compares commits, in the binlog's order, with the stream's. One that both
// have proves the binlog to be the announced one up to there, as long as nothing
// before it differs: a binlog only grows at its end, and its files are purged from
// the beginning. With made, only those prove that.
func hold(t *Tail, commits []Commit, made map[Commit]bool) (h heldAgainst) {
	stream := make(map[gtid.GTID]Commit, len(t.Commits))
	for _, c := range t.Commits {
		stream[c.GTID] = c
	}
	var read, same, differs, unnamed gtid.Builder
	common, parted := 0, false
	for i, c := range commits {
		read.Add(c.GTID)
		s, named := stream[c.GTID]
		switch {
		case !named:
		case s.Identity != c.Identity:
			parted = true
			differs.Add(c.GTID)
		default:
			same.Add(c.GTID)
			if s == c && c.At != 0 && !parted && (made == nil || made[c]) {
				common = i + 1
			}
		}
	}
	for i, c := range commits {
		if i < common {
			same.Add(c.GTID)
		} else if _, named := stream[c.GTID]; !named {
			unnamed.Add(c.GTID)
		}
	}
	return heldAgainst{read: read.Set(), same: same.Set(), differs: differs.Set(), unnamed: unnamed.Set(), common: common > 0}
}

// differing returns the GTIDs under which the stream has another transaction.
func differing(t *Tail, seen []event.Identity) gtid.Set {
	came := make(map[gtid.GTID]event.Identity, len(seen))
	for _, id := range seen {
		came[id.GTID] = id
	}
	var b gtid.Builder
	for _, c := range t.Commits {
		if id, ok := came[c.GTID]; ok && id != c.Identity {
			b.Add(c.GTID)
		}
	}
	return b.Set()
}

// givenAgain is why a history ends, if it does.
func givenAgain(maybe, reused gtid.Set) string {
	switch {
	case !maybe.IsEmpty():
		return "GTIDs may have been given again: " + maybe.Brief(4)
	case !reused.IsEmpty():
		return "GTIDs were given again: " + reused.Brief(4)
	}
	return ""
}

// compareWhole is compare where the binlog may part from the stream anywhere. Of
// what comes behind the newest common commit, and of all where there is none, a
// GTID is in doubt unless its transaction was read and is the stream's: what was
// given again and purged since left nothing that could differ.
func compareWhole(t *Tail, f *PrimaryFacts, restarted bool) (gone, maybe gtid.Set, reason string) {
	var made map[Commit]bool
	if f.Whole.Newest {
		if _, made = t.Newest(f.Purged); made == nil {
			made = map[Commit]bool{}
		}
	}
	held := hold(t, f.Whole.Commits, made)
	same := held.same
	if held.common {
		same = same.Union(f.Whole.Before)
	}
	has := f.Executed
	if restarted {
		// The announced run's binlog may be ahead of what it has executed; what
		// another run is committing is given again.
		has = has.Union(f.Owned)
		gone = t.Delivered.Subtract(t.Holes).Subtract(f.Executed).Subtract(held.read)
	}
	differs := held.differs.Union(differing(t, f.Seen))
	gone = gone.Union(differs)
	// A replica may have what was purged here before it was read, too: of before it
	// was given again.
	maybe = t.Delivered.Intersect(has).Union(f.Purged.Subtract(t.Delivered)).Subtract(same).Subtract(gone)
	return gone, maybe, givenAgain(maybe, gone.Intersect(has).Union(differs))
}

// groups names the columns whose values are recorded from here on, and for each
// what had passed before it was first announced.
func groups(old, want []event.GroupColumn, passed gtid.Set, fresh bool) []event.GroupColumn {
	var out []event.GroupColumn
	for _, w := range want {
		w.Before = passed
		for _, o := range old {
			if !fresh && o.Schema == w.Schema && o.Table == w.Table && o.Column == w.Column {
				w.Before = o.Before
			}
		}
		out = append(out, w)
	}
	return out
}
