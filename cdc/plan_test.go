package cdc

import (
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

var (
	planA = gtid.UUID{0xaa, 15: 1}
	planB = gtid.UUID{0xbb, 15: 2}
)

func set(t *testing.T, text string) gtid.Set {
	t.Helper()
	names := map[byte]gtid.UUID{'a': planA, 'b': planB}
	var out gtid.Set
	// "a1-5 b7": intervals of the two servers.
	for len(text) > 0 {
		var first, last int64
		u, rest := names[text[0]], text[1:]
		n := 0
		for n < len(rest) && rest[n] != ' ' {
			n++
		}
		word := rest[:n]
		text = rest[min(n+1, len(rest)):]
		for i, dash := 0, false; i < len(word); i++ {
			switch {
			case word[i] == '-':
				dash = true
			case dash:
				last = last*10 + int64(word[i]-'0')
			default:
				first = first*10 + int64(word[i]-'0')
			}
		}
		out = out.AddInterval(gtid.Source{UUID: u}, gtid.Interval{First: first, Last: max(first, last)})
	}
	return out
}

// commits are the transactions of a set as its server has them: committed there at
// once. Elsewhere it is another commit of the same transaction.
func commits(s gtid.Set, shift int64) []Commit {
	var out []Commit
	for _, id := range ids(s, shift) {
		out = append(out, Commit{Identity: id, At: id.OriginalCommit})
	}
	return out
}

func elsewhere(list []Commit) []Commit {
	for i := range list {
		list[i].At += 1000
	}
	return list
}

// ids are the identities of a set: commit time = number + shift.
func ids(s gtid.Set, shift int64) []event.Identity {
	var out []event.Identity
	for src, iv := range s.All() {
		for n := iv.First; n <= iv.Last; n++ {
			out = append(out, event.Identity{GTID: gtid.GTID{UUID: src.UUID, Seq: n}, OriginalCommit: n + shift})
		}
	}
	return out
}

func TestPlan(t *testing.T) {
	s := func(text string) gtid.Set { return set(t, text) }
	announced := event.Announcement{Server: "a", ServerUUID: planA, Epoch: 1, History: 1}
	tail := func(delivered string) *Tail {
		return &Tail{Delivered: s(delivered), History: 1, Announced: announced, Commits: commits(s(delivered), 0)}
	}
	primary := func(u gtid.UUID, epoch event.Epoch, executed string) *PrimaryFacts {
		return &PrimaryFacts{Server: "x", UUID: u, Epoch: epoch, Executed: s(executed)}
	}
	for _, c := range []struct {
		name  string
		tail  *Tail
		facts *PrimaryFacts
		with  func(*Tail, *PrimaryFacts)

		newHistory       bool
		lost, newly, ids string // ids: lost identities, as GTIDs
		from, hole       string
		empty            string // known to be empty, of a new history
	}{
		{name: "empty stream", tail: &Tail{Empty: true}, facts: primary(planA, 1, "a1-9"), newHistory: true, from: "a1-9"},
		{name: "same run, nothing new", tail: tail("a1-9"), facts: primary(planA, 1, "a1-9"), from: "a1-9"},
		{name: "same run, the binlog ahead of executed", tail: tail("a1-9"), facts: primary(planA, 1, "a1-5"), from: "a1-9"},
		{name: "same run, more executed", tail: tail("a1-5"), facts: primary(planA, 1, "a1-9"), from: "a1-5"},
		{
			name: "same run, old E is no loss", tail: tail("a1-5"), facts: primary(planA, 1, "a1-5"), from: "a1-5",
			with: func(t *Tail, _ *PrimaryFacts) { t.PrevE = s("a1-8") },
		},
		{name: "failover without loss", tail: tail("a1-9"), facts: primary(planB, 2, "a1-9"), from: "a1-9"},
		{
			name: "failover, the new primary is still committing some", tail: tail("a1-9"), facts: primary(planB, 2, "a1-8"), from: "a1-9",
			with: func(_ *Tail, f *PrimaryFacts) { f.Owned = s("a9") },
		},
		{name: "failover with loss", tail: tail("a1-9"), facts: primary(planB, 2, "a1-7 b1"), lost: "a8-9", newly: "a8-9", ids: "a8-9", from: "a1-7"},
		{
			name: "failover, loss known from E alone", tail: tail("a1-9"), facts: primary(planB, 2, "a1-9"), lost: "a10-11", newly: "a10-11", from: "a1-9",
			with: func(t *Tail, _ *PrimaryFacts) { t.PrevE = s("a1-11") },
		},
		{
			name: "lost before it was delivered, and a replica has it", tail: tail("a1-7"), facts: primary(planA, 2, "a1-7"), lost: "a8-9", newly: "a8-9", from: "a1-7",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Anywhere = s("a1-9 b1-3")
				f.Restart = &RestartEvidence{Before: s("a1-3"), Commits: commits(s("a4-7"), 0)}
			},
		},
		{
			name: "what a replica has of another server's is none of the new primary's", tail: tail("a1-7"), facts: primary(planB, 2, "a1-7"), from: "a1-7",
			with: func(t *Tail, _ *PrimaryFacts) { t.Anywhere = s("a1-9") },
		},
		{
			name: "a hole is lost like everything else", tail: tail("a1-9"), facts: primary(planB, 2, "a1-3 a6-9"), lost: "a4-5", newly: "a4-5", ids: "a4-5", from: "a1-3 a6-9",
			with: func(t *Tail, _ *PrimaryFacts) { t.Holes = s("a4-5") },
		},
		{
			name: "a hole that another run is committing is given again", tail: tail("a1-9"), facts: primary(planA, 2, "a1-8"), newHistory: true, lost: "a9", newly: "a9", ids: "a9", from: "a1-8",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Holes, f.Owned = s("a9"), s("a9")
				f.Restart = &RestartEvidence{Before: s("a1-3"), Commits: commits(s("a4-8"), 0)}
			},
		},
		{
			name: "mysqld ran on: it is committing the hole", tail: tail("a1-9"), facts: primary(planA, 2, "a1-8"), from: "a1-9",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Holes, f.Owned, f.RanOn = s("a9"), s("a9"), true
				f.Restart = &RestartEvidence{Before: s("a1-3"), Commits: commits(s("a4-8"), 0)}
			},
		},
		{
			name: "earlier losses stay", tail: tail("a1-7"), facts: primary(planB, 3, "a1-7"), lost: "a8-9", ids: "a8-9", from: "a1-7",
			with: func(t *Tail, _ *PrimaryFacts) { t.Lost, t.LostIDs = s("a8-9"), ids(s("a8-9"), 0) },
		},
		{
			name: "what the primary has again is not lost; its identity is", tail: tail("a1-7"), facts: primary(planB, 3, "a1-9"), ids: "a8-9", from: "a1-7",
			with: func(t *Tail, _ *PrimaryFacts) { t.Lost, t.LostIDs = s("a8-9"), ids(s("a8-9"), 0) },
		},
		{
			name: "purged before it was read", tail: tail("a1-5"), facts: primary(planA, 1, "a1-9"), hole: "a6-7", from: "a1-7",
			with: func(_ *Tail, f *PrimaryFacts) { f.Purged = s("a1-7") },
		},
		{name: "restart without evidence", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), newHistory: true, newly: "a1-9"},
		{
			name: "mysqld ran on, without evidence", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), newHistory: true, from: "a1-9",
			with: func(_ *Tail, f *PrimaryFacts) { f.RanOn = true },
		},
		{
			name: "restart, file purged", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), newHistory: true, newly: "a1-9",
			with: func(_ *Tail, f *PrimaryFacts) { f.Restart = &RestartEvidence{Purged: true} },
		},
		{
			name: "mysqld ran on, file purged", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), newHistory: true, from: "a1-9",
			with: func(_ *Tail, f *PrimaryFacts) { f.RanOn, f.Restart = true, &RestartEvidence{Purged: true} },
		},
		{
			name: "unclean restart that lost nothing", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), from: "a1-9",
			with: func(_ *Tail, f *PrimaryFacts) {
				f.Restart = &RestartEvidence{Before: s("a1-3"), Commits: commits(s("a4-9"), 0)}
			},
		},
		{
			name: "unclean restart that lost some", tail: tail("a1-9"), facts: primary(planA, 2, "a1-7"), lost: "a8-9", newly: "a8-9", ids: "a8-9", from: "a1-7",
			with: func(_ *Tail, f *PrimaryFacts) {
				f.Restart = &RestartEvidence{Before: s("a1-3"), Commits: commits(s("a4-7"), 0)}
			},
		},
		{
			name: "lost and given again: read again", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), newHistory: true, newly: "a8-9", ids: "a8-9", from: "a1-7", empty: "a2",
			with: func(t *Tail, f *PrimaryFacts) {
				t.KnownEmpty = s("a2 a8 a12")
				f.Restart = &RestartEvidence{Before: s("a1-3"), Commits: commits(s("a4-7"), 0)}
			},
		},
		{
			name: "being given again at this moment", tail: tail("a1-9"), facts: primary(planA, 2, "a1-7"), newHistory: true, lost: "a8-9", newly: "a8-9", ids: "a8-9", from: "a1-7",
			with: func(_ *Tail, f *PrimaryFacts) {
				f.Owned = s("a8-9")
				f.Restart = &RestartEvidence{Before: s("a1-3"), Commits: commits(s("a4-7"), 0)}
			},
		},
		{
			name: "another identity in the files", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), newHistory: true, newly: "a9", ids: "a9", from: "a1-8",
			with: func(_ *Tail, f *PrimaryFacts) {
				f.Restart = &RestartEvidence{Before: s("a1-3"), Commits: append(commits(s("a4-8"), 0), commits(s("a9"), 100)...)}
			},
		},
		{
			name: "the stream names none, and the binlog was cut", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), newHistory: true, newly: "a4-9", from: "a1-3",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Commits = nil
				f.Restart = &RestartEvidence{Before: s("a1-3"), Commits: commits(s("a4-8"), 0)}
			},
		},
		{
			name: "the stream names none, and a crash may have cut the binlog", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), newHistory: true, newly: "a4-9", from: "a1-3",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Commits, f.Relaxed = nil, true
				f.Restart = &RestartEvidence{Before: s("a1-3"), Commits: commits(s("a4-9"), 0)}
			},
		},
		{
			name: "the stream names none, and no crash can have cut the binlog", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), from: "a1-9",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Commits = nil
				f.Restart = &RestartEvidence{Before: s("a1-3"), Commits: commits(s("a4-9"), 0)}
			},
		},
		{
			name: "behind the newest common commit the stream names no more", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), newHistory: true, newly: "a6-9", from: "a1-5",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Commits = commits(s("a4-5"), 0)
				f.Restart = &RestartEvidence{Before: s("a1-3"), Commits: append(commits(s("a4-5"), 0), commits(s("a6-9"), 100)...)}
			},
		},
		{
			name: "the newest, made behind the announcement, are there", tail: tail("a1-9"), facts: primary(planA, 2, "a1-12"), from: "a1-9",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Announced.Had, t.Since = s("a1-6"), 4
				f.Whole = &WholeBinlog{Before: s("a1-5 a10-12"), Commits: commits(s("a6-9"), 0), Newest: true}
			},
		},
		{
			name: "some of the newest were given again", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), newHistory: true, newly: "a8-9", ids: "a8-9", from: "a1-7",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Announced.Had, t.Since = s("a1-6"), 4
				f.Whole = &WholeBinlog{Before: s("a1-5"), Commits: append(commits(s("a6-7"), 0), commits(s("a8-9"), 100)...), Newest: true}
			},
		},
		{
			name: "of the newest, none that is there was made behind the announcement", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), newHistory: true, newly: "a1-5 a8-9", ids: "a8-9", from: "a6-7",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Announced.Had, t.Since = s("a1-7"), 4
				f.Whole = &WholeBinlog{Before: s("a1-5"), Commits: append(commits(s("a6-7"), 0), commits(s("a8-9"), 100)...), Newest: true}
			},
		},
		{
			name: "an announcement that does not say what was being committed", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), newHistory: true, newly: "a1-5", from: "a6-9",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Since = 4
				f.Whole = &WholeBinlog{Before: s("a1-5"), Commits: commits(s("a6-9"), 0), Newest: true}
			},
		},
		{
			name: "holes are not looked for in the files", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), from: "a1-9",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Holes = s("a4")
				f.Restart = &RestartEvidence{Before: s("a1-3"), Commits: commits(s("a5-9"), 0)}
			},
		},
		{
			name: "a promoted replica with another identity", tail: tail("a1-9"), facts: primary(planB, 2, "a1-9"), newHistory: true, newly: "a5", ids: "a5", from: "a1-4 a6-9",
			with: func(_ *Tail, f *PrimaryFacts) { f.Seen = ids(s("a5"), 100) },
		},
		{
			name: "given again, and purged since: nothing brings it", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), newHistory: true, newly: "a8-9", ids: "a8-9", from: "a1-8",
			with: func(t *Tail, f *PrimaryFacts) {
				t.KnownEmpty = s("a8")
				f.Purged = s("a1-8")
				f.Restart = &RestartEvidence{Before: s("a1-7"), Commits: commits(s("a9"), 100)}
			},
		},
		{
			name: "no evidence, and a crash may have lost what was committed, whatever ran on", tail: tail("a1-9"), facts: primary(planA, 2, "a1-12"), newHistory: true, newly: "a1-4 a6-12", from: "a1-3 a5", empty: "a5",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Holes, t.KnownEmpty = s("a5"), s("a3 a5 a7")
				f.Purged, f.Relaxed = s("a1-3"), true
			},
		},
		{
			name: "no evidence, and mysqld ran on", tail: tail("a1-9"), facts: primary(planA, 2, "a1-12"), newHistory: true, from: "a1-9", empty: "a3",
			with: func(t *Tail, f *PrimaryFacts) { t.KnownEmpty, f.RanOn = s("a3"), true },
		},
		{
			name: "another data set, nothing differs", tail: tail("a1-9"), facts: primary(planA, 2, "a1-10"), from: "a1-9",
			with: func(_ *Tail, f *PrimaryFacts) {
				f.Purged, f.Whole = s("a1-3"), &WholeBinlog{Before: s("a1-3"), Commits: commits(s("a4-10"), 0)}
			},
		},
		{
			name: "another data set, given again and read", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"), newHistory: true, newly: "a8-9", ids: "a8-9", from: "a1-7", empty: "a2",
			with: func(t *Tail, f *PrimaryFacts) {
				t.KnownEmpty = s("a2 a8")
				f.Whole = &WholeBinlog{Before: s("a1-3"), Commits: append(commits(s("a4-7"), 0), commits(s("a8-9"), 100)...)}
			},
		},
		{
			name: "another data set, given again and purged: all that was purged is in doubt", tail: tail("a1-9"), facts: primary(planA, 2, "a1-12"),
			newHistory: true, newly: "a1-12", from: "a1-11",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Holes, t.KnownEmpty = s("a2"), s("a3")
				f.Purged, f.Whole = s("a1-11"), &WholeBinlog{Before: s("a1-11"), Commits: commits(s("a12"), 100)}
			},
		},
		{
			name: "another data set, given again and purged: what is left is read again", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"),
			newHistory: true, newly: "a1-9", ids: "a9", from: "a1-8",
			with: func(_ *Tail, f *PrimaryFacts) {
				f.Purged, f.Whole = s("a1-8"), &WholeBinlog{Before: s("a1-8"), Commits: commits(s("a9"), 100)}
			},
		},
		{
			name: "another data set that was given the stream's transactions back", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"),
			newHistory: true, newly: "a1-7", from: "a1-9",
			with: func(_ *Tail, f *PrimaryFacts) {
				f.Purged, f.Whole = s("a1-7"), &WholeBinlog{Before: s("a1-7"), Commits: elsewhere(commits(s("a8-9"), 0))}
			},
		},
		{
			name: "another data set, commit times not known", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"),
			newHistory: true, newly: "a1-7", from: "a1-9",
			with: func(t *Tail, f *PrimaryFacts) {
				list := commits(s("a8-9"), 0)
				for i := range list {
					list[i].At = 0
				}
				for i := range t.Commits {
					t.Commits[i].At = 0
				}
				f.Purged, f.Whole = s("a1-7"), &WholeBinlog{Before: s("a1-7"), Commits: list}
			},
		},
		{
			name: "another data set, the stream's commits behind one that differs prove nothing", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"),
			newHistory: true, newly: "a1-5", ids: "a5", from: "a1-4 a6-9",
			with: func(_ *Tail, f *PrimaryFacts) {
				f.Purged, f.Whole = s("a1-4"), &WholeBinlog{Before: s("a1-4"), Commits: append(commits(s("a5"), 100), commits(s("a6-9"), 0)...)}
			},
		},
		{
			name: "another data set, behind the newest common commit the stream names no more", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"),
			newHistory: true, newly: "a6-9", from: "a1-5",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Commits = commits(s("a4-5"), 0)
				f.Purged, f.Whole = s("a1-3"), &WholeBinlog{Before: s("a1-3"), Commits: commits(s("a4-9"), 0)}
			},
		},
		{
			name: "another data set, not read to its end", tail: tail("a1-9"), facts: primary(planA, 2, "a1-9"),
			newHistory: true, newly: "a7-9", from: "a1-6",
			with: func(_ *Tail, f *PrimaryFacts) {
				f.Purged, f.Whole = s("a1-3"), &WholeBinlog{Before: s("a1-3"), Commits: commits(s("a4-6"), 0)}
			},
		},
		{
			name: "another data set that lacks the newest", tail: tail("a1-9"), facts: primary(planA, 2, "a1-7"), lost: "a8-9", newly: "a8-9", ids: "a8-9", from: "a1-7",
			with: func(_ *Tail, f *PrimaryFacts) {
				f.Purged, f.Whole = s("a1-3"), &WholeBinlog{Before: s("a1-3"), Commits: commits(s("a4-7"), 0)}
			},
		},
		{
			name: "another data set, being given again at this moment", tail: tail("a1-9"), facts: primary(planA, 2, "a1-7"), newHistory: true, lost: "a8-9", newly: "a8-9", ids: "a8", from: "a1-7",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Holes, f.Owned = s("a9"), s("a8-9")
				t.Commits = commits(s("a1-8"), 0)
				f.Purged, f.Whole = s("a1-3"), &WholeBinlog{Before: s("a1-3"), Commits: commits(s("a4-7"), 0)}
			},
		},
		{
			name: "one came as another transaction: what it follows is the announced run's", tail: tail("a1-9"), facts: primary(planA, 1, "a1-9"), newHistory: true, newly: "a8", ids: "a8", from: "a1-7 a9",
			with: func(_ *Tail, f *PrimaryFacts) {
				f.Seen = ids(s("a8"), 100)
				f.Purged, f.Whole = s("a1-3"), &WholeBinlog{Before: s("a1-3"), Commits: append(commits(s("a4-7 a9"), 0), commits(s("a8"), 100)...)}
			},
		},
		{
			name: "one came as another transaction, and where the binlog parts is purged", tail: tail("a1-9"), facts: primary(planA, 1, "a1-7"), newHistory: true, newly: "a1-7", ids: "a7", from: "a1-7",
			with: func(_ *Tail, f *PrimaryFacts) {
				f.Seen = ids(s("a7"), 100)
				f.Purged, f.Whole = s("a1-7"), &WholeBinlog{Before: s("a1-7")}
			},
		},
		{
			name: "never announced", tail: tail("a1-9"), facts: primary(planA, 1, "a1-9"), newHistory: true, from: "a1-9",
			with: func(t *Tail, _ *PrimaryFacts) { t.Announced = event.Announcement{} },
		},
		{
			name: "an anonymous transaction: all is in doubt, and nothing is read again", tail: tail("a1-9"), facts: primary(planA, 1, "a1-11"), newHistory: true, newly: "a1-11", from: "a1-11",
			with: func(t *Tail, f *PrimaryFacts) {
				t.Announced = event.Announcement{Had: s("a1-9")}
				f.Purged = s("a1-3")
			},
		},
		{
			name: "an anonymous transaction in what is compared", tail: tail("a1-9"), facts: primary(planA, 2, "a1-8 a10"), newHistory: true, lost: "a9", newly: "a1-10", ids: "a9", from: "a1-8 a10",
			with: func(t *Tail, f *PrimaryFacts) { f.Anonymous, f.RanOn = true, true },
		},
		{
			name: "an anonymous transaction, and one is another than it was", tail: tail("a1-9"), facts: primary(planB, 2, "a1-9"), newHistory: true, newly: "a1-9", ids: "a4", from: "a1-9",
			with: func(t *Tail, f *PrimaryFacts) { f.Anonymous, f.Seen = true, ids(s("a4"), 100) },
		},
		{
			name: "another way to fold keys", tail: tail("a1-9"), facts: primary(planA, 1, "a1-9"), newHistory: true, from: "a1-9",
			with: func(t *Tail, _ *PrimaryFacts) { t.OtherFold = true },
		},
		{
			name: "names fold from now on", tail: tail("a1-9"), facts: primary(planA, 1, "a1-9"), newHistory: true, from: "a1-9",
			with: func(_ *Tail, f *PrimaryFacts) { f.FoldNames = true },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.with != nil {
				c.with(c.tail, c.facts)
			}
			v := plan(c.tail, c.facts, nil)
			if v.newHistory != c.newHistory {
				t.Errorf("new history: got %v (%s), want %v", v.newHistory, v.why, c.newHistory)
			}
			var lostIDs gtid.Builder
			for _, id := range v.ann.LostIDs {
				lostIDs.Add(id.GTID)
			}
			for _, x := range []struct {
				what string
				got  gtid.Set
				want string
			}{
				{"lost", v.ann.Lost, c.lost},
				{"newly lost", v.ann.NewlyLost, c.newly},
				{"lost identities", lostIDs.Set(), c.ids},
				{"dump from", v.delivered, c.from},
				{"hole", v.hole, c.hole},
				{"known to be empty", v.knownEmpty, c.empty},
			} {
				if !x.got.Equal(s(x.want)) {
					t.Errorf("%s: got %v, want %v", x.what, x.got, s(x.want))
				}
			}
			if v.ann.Lost.Overlaps(v.delivered) {
				t.Errorf("lost %v is still delivered %v", v.ann.Lost, v.delivered)
			}
		})
	}
}

func TestPlanGroups(t *testing.T) {
	s := func(text string) gtid.Set { return set(t, text) }
	posts := event.GroupColumn{Schema: "app", Table: "posts", Column: "author_id"}
	likes := event.GroupColumn{Schema: "app", Table: "likes", Column: "post_id"}
	old := posts
	old.Before = s("a1-2")
	tail := &Tail{
		Delivered: s("a1-9"), History: 1, Groups: []event.GroupColumn{old},
		Announced: event.Announcement{ServerUUID: planA, Epoch: 1},
	}
	f := &PrimaryFacts{UUID: planA, Epoch: 1, Executed: s("a1-9")}
	v := plan(tail, f, []event.GroupColumn{posts, likes})
	if got := v.ann.Groups; len(got) != 2 || !got[0].Before.Equal(s("a1-2")) || !got[1].Before.Equal(s("a1-9")) {
		t.Errorf("groups %+v: want the old column to keep its horizon and the new one to begin here", got)
	}
	f.FoldNames = true // a new history records nothing of before
	v = plan(tail, f, []event.GroupColumn{posts})
	if got := v.ann.Groups; len(got) != 1 || !got[0].Before.Equal(s("a1-9")) {
		t.Errorf("groups %+v in a new history, want everything before it", got)
	}
	if v = plan(tail, f, nil); len(v.ann.Groups) != 0 {
		t.Errorf("a column that is no longer configured stays: %+v", v.ann.Groups)
	}
}

func TestFactsThatMayNotBeAnnounced(t *testing.T) {
	good := PrimaryFacts{Server: "a", UUID: planA, Epoch: 1, GTIDMode: "ON", Drained: true}
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*PrimaryFacts){
		"gtid_mode": func(f *PrimaryFacts) { f.GTIDMode = "OFF_PERMISSIVE" },
		"drained":   func(f *PrimaryFacts) { f.Drained = false },
		"epoch":     func(f *PrimaryFacts) { f.Epoch = 0 },
		"uuid":      func(f *PrimaryFacts) { f.UUID = gtid.UUID{} },
	} {
		f := good
		spoil(&f)
		if f.validate() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestNewest: what is looked for at the end of another run's binlog, and which of it
// proves what is older.
func TestNewest(t *testing.T) {
	s := func(text string) gtid.Set { return set(t, text) }
	for _, c := range []struct {
		name                  string
		delivered, had, holes string
		since                 int
		purged                string
		named, made           string
		withoutTime           string
	}{
		{name: "behind the announcement", delivered: "a1-9", had: "a1-5", since: 4, named: "a1-9", made: "a6-9"},
		{name: "read behind it, made before", delivered: "a1-9", had: "a1-7", since: 4, named: "a1-9", made: "a8-9"},
		{name: "not known to be had, and before it", delivered: "a1-9", had: "a1-5", since: 2, named: "a1-9", made: "a8-9"},
		{name: "nothing since", delivered: "a1-9", had: "a1-9", named: "a1-9"},
		{name: "not said what it had", delivered: "a1-9", since: 9},
		{name: "a commit time that is not known", delivered: "a1-9", had: "a1-5", since: 4, withoutTime: "a9", named: "a1-9", made: "a6-8"},
		{name: "the newest only", delivered: "a1-1000", had: "a1", since: 1000, named: "a489-1000", made: "a489-1000"},
		{name: "a hole somewhere", delivered: "a1-9", had: "a1-5", since: 4, holes: "b3"},
		{name: "a hole that is purged", delivered: "a1-9", had: "a1-5", since: 4, holes: "b3", purged: "b1-3", named: "a1-9", made: "a6-9"},
	} {
		tail := &Tail{
			Delivered: s(c.delivered), Holes: s(c.holes), Commits: commits(s(c.delivered), 0), Since: c.since,
			Announced: event.Announcement{Had: s(c.had)},
		}
		for i := range tail.Commits {
			if s(c.withoutTime).Contains(tail.Commits[i].GTID) {
				tail.Commits[i].At = 0
			}
		}
		named, made := tail.Newest(s(c.purged))
		var proving gtid.Builder
		for m := range made {
			proving.Add(m.GTID)
		}
		if !named.Equal(s(c.named)) || !proving.Set().Equal(s(c.made)) {
			t.Errorf("%s: %s are named and %s prove, want %s and %s", c.name, named.OneLine(), proving.Set().OneLine(), c.named, c.made)
		}
	}
}
