package checker_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"tidegate/testenv/checker"
)

const ms = checker.Moment(time.Millisecond)

// script is a history written by hand.
type script struct {
	t testing.TB
	b strings.Builder
	n int64
}

func newScript(t testing.TB, faults ...string) *script {
	s := &script{t: t}
	s.add(checker.Line{Head: &checker.Head{Format: 1, Keys: checker.NumKeys(), Router: "scripted", MaxAge: time.Second, After: 5 * time.Second, Faults: faults}})
	for _, srv := range []string{"a", "b", "c"} {
		s.add(checker.Line{Identity: &checker.Identity{Server: srv, UUID: "uuid-" + srv}})
	}
	return s
}

func (s *script) add(l checker.Line) {
	s.t.Helper()
	b, err := json.Marshal(l)
	if err != nil {
		s.t.Fatal(err)
	}
	s.b.Write(append(b, '\n'))
}

// write adds a write of one key, acknowledged at end, and returns its number.
func (s *script) write(session, line int, end checker.Moment, key checker.Key, v int64, group int) int64 {
	s.n++
	s.add(checker.Line{Write: &checker.Write{
		Session: session, ID: s.n, Line: line, Begin: end - ms, End: end, GTID: "u:1",
		Rows: []checker.WrittenRow{{Key: key, V: v, Group: group}},
	}})
	return s.n
}

// unknown adds a write whose outcome is not known.
func (s *script) unknown(line int, end checker.Moment, key checker.Key, group int) int64 {
	s.n++
	s.add(checker.Line{Write: &checker.Write{
		Session: 9, ID: s.n, Line: line, Begin: end - ms, End: end, Err: "lost connection",
		Rows: []checker.WrittenRow{{Key: key, Group: group}},
	}})
	return s.n
}

func (s *script) fork(line int, begin checker.Moment, base map[checker.Key]int64) {
	f := checker.Fork{Line: line, Begin: begin, End: begin + 100*ms, Base: make([]int64, checker.NumKeys())}
	for k, v := range base {
		f.Base[k] = v
	}
	s.add(checker.Line{Fork: &f})
}

// read is a yes for replica b at 1 s, with what was read there a millisecond
// later.
func read(change func(r *checker.Read)) *checker.Read {
	r := &checker.Read{
		Session: 1, Level: checker.LevelKey, Keys: []checker.Key{0}, Group: -1, Asked: 1000 * ms, Answered: 1000 * ms,
		Yes: true, Server: "b", Replica: true, UUID: "uuid-b", WatermarkAge: 50 * time.Millisecond, Staleness: checker.Unknown,
		Begin: 1001 * ms, End: 1002 * ms, ReadUUID: "uuid-b",
	}
	change(r)
	return r
}

// readAt is the same at another time.
func readAt(at checker.Moment, change func(r *checker.Read)) *checker.Read {
	return read(func(r *checker.Read) {
		r.Asked, r.Answered, r.Begin, r.End = at, at, at+ms, at+2*ms
		change(r)
	})
}

func row(k checker.Key, v, w int64) checker.ShownRow { return checker.ShownRow{Key: k, V: v, W: w} }

// judge ends the script and judges it.
func (s *script) judge() *checker.Report {
	s.t.Helper()
	s.add(checker.Line{End: &checker.End{At: 10_000 * ms}})
	rep, err := checker.Judge(strings.NewReader(s.b.String()))
	if err != nil {
		s.t.Fatal(err)
	}
	return rep
}

// wrote1 is the usual beginning: key 0 was written by session 2 at 900 ms.
func wrote1(s *script) { s.write(2, 0, 900*ms, 0, 1, 0) }

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name string
		want string // class of the one violation; empty: none
		with func(s *script)
	}{
		{"a commit before the watermark is missing", checker.ViolationKey, func(s *script) {
			wrote1(s)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, 0, 0)} })})
		}},
		{"it is shown", "", func(s *script) {
			wrote1(s)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, 1, 1)} })})
		}},
		{"the row itself is missing", checker.ViolationKey, func(s *script) {
			wrote1(s)
			s.add(checker.Line{Read: read(func(*checker.Read) {})})
		}},
		{"a commit after the watermark may be missing", "", func(s *script) {
			s.write(2, 0, 960*ms, 0, 1, 0)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, 0, 0)} })})
		}},
		{"a no promises nothing", "", func(s *script) {
			wrote1(s)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Yes, r.Rows = false, []checker.ShownRow{row(0, 0, 0)} })})
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, 1, 1)} })})
		}},
		{"a yes flagged stale promises nothing", "", func(s *script) {
			wrote1(s)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Stale, r.Rows = true, []checker.ShownRow{row(0, 0, 0)} })})
		}},
		{"the session's own write is missing, though after the watermark", checker.ViolationSession, func(s *script) {
			s.write(1, 0, 999*ms, 0, 1, 0)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, 0, 0)} })})
		}},
		{"the session's own write is missing at level session", checker.ViolationSession, func(s *script) {
			s.write(1, 0, 999*ms, 0, 1, 0)
			s.add(checker.Line{Read: read(func(r *checker.Read) {
				r.Level, r.WatermarkAge, r.Rows = checker.LevelSession, checker.Unknown, []checker.ShownRow{row(0, 0, 0)}
			})})
		}},
		{"level session promises nothing of others", "", func(s *script) {
			wrote1(s)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Level, r.Rows = checker.LevelSession, []checker.ShownRow{row(0, 0, 0)} })})
		}},
		{"a write acknowledged after the question may be missing", "", func(s *script) {
			s.write(1, 0, 1001*ms, 0, 1, 0)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, 0, 0)} })})
		}},
		{"a write of the floor is missing", checker.ViolationContradicted, func(s *script) {
			w := s.write(2, 0, 999*ms, 0, 1, 0)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Others, r.Rows = []int64{w}, []checker.ShownRow{row(0, 0, 0)} })})
		}},
		{"the named staleness allows less", checker.ViolationBounded, func(s *script) {
			wrote1(s)
			s.add(checker.Line{Read: read(func(r *checker.Read) {
				r.Level, r.Staleness, r.Rows = checker.LevelBounded, 90*time.Millisecond, []checker.ShownRow{row(0, 0, 0)}
			})})
		}},
		{"the named staleness allows it", "", func(s *script) {
			wrote1(s)
			s.add(checker.Line{Read: read(func(r *checker.Read) {
				r.Level, r.Staleness, r.Rows = checker.LevelBounded, 110*time.Millisecond, []checker.ShownRow{row(0, 0, 0)}
			})})
		}},
		{"a staleness beyond the bound that was asked for is no excuse", checker.ViolationBounded, func(s *script) {
			wrote1(s)
			s.add(checker.Line{Read: read(func(r *checker.Read) {
				r.Level, r.Bound, r.Staleness, r.Rows = checker.LevelBounded, 90*time.Millisecond, 5*time.Second, []checker.ShownRow{row(0, 0, 0)}
			})})
		}},
		{"nor is none", checker.ViolationBounded, func(s *script) {
			wrote1(s)
			s.add(checker.Line{Read: read(func(r *checker.Read) {
				r.Level, r.Bound, r.Staleness, r.Rows = checker.LevelBounded, 90*time.Millisecond, checker.Unknown, []checker.ShownRow{row(0, 0, 0)}
			})})
		}},
		{"a staleness that is named of a primary counts too", checker.ViolationBounded, func(s *script) {
			wrote1(s)
			s.add(checker.Line{Read: read(func(r *checker.Read) {
				r.Level, r.Staleness, r.Replica, r.Rows = checker.LevelBounded, 90*time.Millisecond, false, []checker.ShownRow{row(0, 0, 0)}
			})})
		}},
		{"a watermark older than is allowed is no excuse", checker.ViolationKey, func(s *script) {
			s.write(2, 0, 1500*ms, 0, 1, 0)
			s.add(checker.Line{Read: readAt(3000*ms, func(r *checker.Read) { r.WatermarkAge, r.Rows = 10*time.Second, []checker.ShownRow{row(0, 0, 0)} })})
		}},
		{"nor is a replica's yes without one", checker.ViolationKey, func(s *script) {
			s.write(2, 0, 1500*ms, 0, 1, 0)
			s.add(checker.Line{Read: readAt(3000*ms, func(r *checker.Read) { r.WatermarkAge, r.Rows = checker.Unknown, []checker.ShownRow{row(0, 0, 0)} })})
		}},
		{"a primary's yes without one promises nothing of others", "", func(s *script) {
			s.write(2, 0, 1500*ms, 0, 1, 0)
			s.add(checker.Line{Read: readAt(3000*ms, func(r *checker.Read) {
				r.Replica, r.WatermarkAge, r.Rows = false, checker.Unknown, []checker.ShownRow{row(0, 0, 0)}
			})})
		}},
		{"the second of two keys is behind", checker.ViolationKey, func(s *script) {
			s.write(2, 0, 900*ms, 40, 1, 0)
			s.add(checker.Line{Read: read(func(r *checker.Read) {
				r.Keys, r.Rows = []checker.Key{0, 40}, []checker.ShownRow{row(0, 0, 0), row(40, 0, 0)}
			})})
		}},
		{"versions are not acknowledged in their order", checker.ViolationKey, func(s *script) {
			s.write(2, 0, 800*ms, 0, 2, 0)
			s.write(3, 0, 850*ms, 0, 1, 0)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, 1, 2)} })})
		}},
		{"an answer for a server_uuid that the server never had", checker.ViolationWrongServer, func(s *script) {
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.UUID, r.Rows = "uuid-x", []checker.ShownRow{row(0, 0, 0)} })})
		}},
		{"a row that nobody wrote", checker.ViolationImpossible, func(s *script) {
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, 5, 77)} })})
		}},
		{"a row before it was written", checker.ViolationImpossible, func(s *script) {
			w := s.write(2, 0, 1500*ms, 0, 1, 0)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, 1, w)} })})
		}},
		{"a row with another version than was acknowledged", checker.ViolationImpossible, func(s *script) {
			wrote1(s)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, 2, 1)} })})
		}},
		{"a row of a write of another key", checker.ViolationImpossible, func(s *script) {
			wrote1(s)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Keys, r.Rows = []checker.Key{1}, []checker.ShownRow{row(1, 1, 1)} })})
		}},
		{"a write of unknown outcome may be shown", "", func(s *script) {
			w := s.unknown(0, 900*ms, 0, 0)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, 1, w)} })})
		}},
		{"and may not", "", func(s *script) {
			s.unknown(0, 900*ms, 0, 0)
			s.add(checker.Line{Read: read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, 0, 0)} })})
		}},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, c.want, c.with) })
	}
}

func expect(t *testing.T, want string, with func(*script)) {
	t.Helper()
	s := newScript(t)
	with(s)
	rep := s.judge()
	if rep.Reads+rep.Failed == 0 {
		t.Fatal("the script has no read")
	}
	for class, n := range rep.Violations {
		switch {
		case class == want && n != 1:
			t.Errorf("%s: %d violations, want 1", class, n)
		case class != want && n != 0:
			t.Errorf("%s: %d violations, want none: %s", class, n, rep.Details[0].Text)
		}
	}
	if rep.OK() != (want == "") {
		t.Errorf("OK is %v", rep.OK())
	}
	if want != "" && (len(rep.Details) != 1 || rep.Details[0].Class != want || rep.Details[0].Text == "") {
		t.Errorf("details %+v do not explain it", rep.Details)
	}
}

func TestGroups(t *testing.T) {
	// Key 3 begins in group 3, as do 11, 19 and 27.
	group3 := func(rows ...checker.ShownRow) *checker.Read {
		return read(func(r *checker.Read) { r.Keys, r.Group, r.Rows = nil, 3, rows })
	}
	rest := []checker.ShownRow{row(11, 0, 0), row(19, 0, 0), row(27, 0, 0)}
	with := func(rows ...checker.ShownRow) *checker.Read { return group3(append(rows, rest...)...) }
	for _, c := range []struct {
		name, want string
		with       func(s *script)
	}{
		{"all rows are shown", "", func(s *script) { s.add(checker.Line{Read: with(row(3, 0, 0))}) }},
		{"a row that nobody moved is missing", checker.ViolationKey, func(s *script) { s.add(checker.Line{Read: with()}) }},
		{"a row is old", checker.ViolationKey, func(s *script) {
			s.write(2, 0, 900*ms, 3, 1, 3)
			s.add(checker.Line{Read: with(row(3, 0, 0))})
		}},
		{"a row was moved in and is missing", checker.ViolationKey, func(s *script) {
			s.write(2, 0, 900*ms, 4, 1, 3)
			s.add(checker.Line{Read: with(row(3, 0, 0))})
		}},
		{"a row was moved away and is shown still", checker.ViolationKey, func(s *script) {
			s.write(2, 0, 900*ms, 3, 1, 5)
			s.add(checker.Line{Read: with(row(3, 0, 0))})
		}},
		{"a row was moved away", "", func(s *script) {
			s.write(2, 0, 900*ms, 3, 1, 5)
			s.add(checker.Line{Read: with()})
		}},
		{"a row was moved in, and away by a write that is not acknowledged yet", "", func(s *script) {
			s.write(2, 0, 900*ms, 4, 1, 3)
			s.write(2, 0, 1002*ms, 4, 2, 4)
			s.add(checker.Line{Read: with(row(3, 0, 0))})
		}},
		{"a row may have been moved by a write of unknown outcome", "", func(s *script) {
			s.unknown(0, 900*ms, 3, 5)
			s.add(checker.Line{Read: with()})
		}},
		{"of unknown outcome, though it was put back by another one since", "", func(s *script) {
			s.unknown(0, 500*ms, 3, 5)
			s.write(2, 0, 900*ms, 3, 1, 3)
			s.add(checker.Line{Read: with()})
		}},
		{"of unknown outcome, in the one version that nobody else has", "", func(s *script) {
			s.unknown(0, 500*ms, 3, 5)
			s.write(2, 0, 900*ms, 3, 1, 3)
			s.write(2, 0, 2000*ms, 3, 3, 3)
			s.add(checker.Line{Read: with()})
		}},
		{"no version is left for the write of unknown outcome", checker.ViolationKey, func(s *script) {
			s.unknown(0, 500*ms, 3, 5)
			s.write(2, 0, 900*ms, 3, 1, 3)
			s.write(2, 0, 2000*ms, 3, 2, 3)
			s.add(checker.Line{Read: with()})
		}},
		{"a failover took back the write of unknown outcome", checker.ViolationKey, func(s *script) {
			s.unknown(0, 500*ms, 3, 5)
			s.fork(1, 700*ms, nil)
			s.write(2, 1, 900*ms, 3, 1, 3)
			s.add(checker.Line{Read: with()})
		}},
		{"a failover took back the write that moved it away", checker.ViolationKey, func(s *script) {
			s.write(2, 0, 500*ms, 3, 1, 5)
			s.fork(1, 700*ms, nil)
			s.write(2, 1, 900*ms, 3, 1, 3)
			s.add(checker.Line{Read: with()})
		}},
		{"what a failover took back may be shown still", "", func(s *script) {
			s.write(2, 0, 500*ms, 3, 1, 5)
			s.fork(1, 700*ms, nil)
			s.add(checker.Line{Read: with()})
		}},
		{"a failover left the row in the group, and it is missing", checker.ViolationKey, func(s *script) {
			s.write(2, 0, 300*ms, 4, 1, 3)
			s.write(2, 0, 500*ms, 4, 2, 3)
			s.fork(1, 700*ms, map[checker.Key]int64{4: 1})
			s.add(checker.Line{Read: with(row(3, 0, 0))})
		}},
		{"a failover left the row elsewhere", "", func(s *script) {
			s.write(2, 0, 300*ms, 4, 1, 5)
			s.write(2, 0, 500*ms, 4, 2, 5)
			s.fork(1, 700*ms, map[checker.Key]int64{4: 1})
			s.add(checker.Line{Read: with(row(3, 0, 0))})
		}},
		{"a row was moved away only after the read", checker.ViolationKey, func(s *script) {
			s.write(2, 0, 2000*ms, 3, 1, 5)
			s.add(checker.Line{Read: with()})
		}},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, c.want, c.with) })
	}
}

func TestFailovers(t *testing.T) {
	show := func(v, w int64) *checker.Read {
		return read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, v, w)} })
	}
	for _, c := range []struct {
		name, want string
		with       func(s *script)
	}{
		{"a lost write need not be shown", "", func(s *script) {
			s.write(2, 0, 500*ms, 0, 1, 0)
			s.write(1, 0, 600*ms, 0, 2, 0)
			s.fork(1, 700*ms, map[checker.Key]int64{0: 1})
			s.add(checker.Line{Read: show(1, 1)})
		}},
		{"what it left must be", checker.ViolationSession, func(s *script) {
			s.write(2, 0, 500*ms, 0, 1, 0)
			s.write(1, 0, 600*ms, 0, 2, 0)
			s.fork(1, 700*ms, map[checker.Key]int64{0: 1})
			s.add(checker.Line{Read: show(0, 0)})
		}},
		{"and at level session, whose floor names the lost write alone", checker.ViolationSession, func(s *script) {
			s.write(1, 0, 400*ms, 0, 1, 0)
			s.write(2, 0, 500*ms, 0, 2, 0)
			s.write(1, 0, 600*ms, 0, 3, 0)
			s.fork(1, 700*ms, map[checker.Key]int64{0: 2})
			s.add(checker.Line{Read: read(func(r *checker.Read) {
				r.Level, r.Rows = checker.LevelSession, []checker.ShownRow{row(0, 1, 1)}
			})})
		}},
		{"before the failover it must be shown", checker.ViolationSession, func(s *script) {
			s.write(2, 0, 500*ms, 0, 1, 0)
			s.write(1, 0, 600*ms, 0, 2, 0)
			s.fork(1, 2000*ms, map[checker.Key]int64{0: 1})
			s.add(checker.Line{Read: show(1, 1)})
		}},
		{"a lost version does not stand for a newer write of the same number", checker.ViolationKey, func(s *script) {
			s.write(2, 0, 500*ms, 0, 1, 0)
			lost := s.write(2, 0, 600*ms, 0, 2, 0)
			s.fork(1, 700*ms, map[checker.Key]int64{0: 1})
			s.write(3, 1, 900*ms, 0, 2, 0)
			s.add(checker.Line{Read: show(2, lost)})
		}},
		{"the newer write does", "", func(s *script) {
			s.write(2, 0, 500*ms, 0, 1, 0)
			s.write(2, 0, 600*ms, 0, 2, 0)
			s.fork(1, 700*ms, map[checker.Key]int64{0: 1})
			w := s.write(3, 1, 900*ms, 0, 2, 0)
			s.add(checker.Line{Read: show(2, w)})
		}},
		{"a write that a failover kept must be shown after it", checker.ViolationKey, func(s *script) {
			s.write(2, 0, 500*ms, 0, 1, 0)
			s.fork(1, 700*ms, map[checker.Key]int64{0: 1})
			s.add(checker.Line{Read: show(0, 0)})
		}},
		{"two failovers", "", func(s *script) {
			s.write(2, 0, 400*ms, 0, 5, 0)
			s.fork(1, 500*ms, map[checker.Key]int64{0: 4})
			s.write(2, 1, 650*ms, 0, 5, 0)
			s.fork(2, 700*ms, map[checker.Key]int64{0: 3})
			w := s.unknown(2, 900*ms, 0, 0)
			s.add(checker.Line{Read: show(4, w)})
		}},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, c.want, c.with) })
	}
}

// What met another server than the answer spoke of is set aside, not judged.
func TestMoved(t *testing.T) {
	s := newScript(t)
	wrote1(s)
	s.add(checker.Line{Identity: &checker.Identity{Server: "b", UUID: "uuid-b2"}})
	s.add(checker.Line{Down: &checker.Down{Server: "b", Begin: 2000 * ms, End: 3000 * ms}})
	stale := func(change func(*checker.Read)) {
		s.add(checker.Line{Read: read(func(r *checker.Read) {
			r.Rows = []checker.ShownRow{row(0, 0, 0)}
			change(r)
		})})
	}
	stale(func(r *checker.Read) { r.ReadUUID = "uuid-b2" })
	stale(func(r *checker.Read) { r.Asked, r.Begin, r.End = 1999*ms, 3001*ms, 3002*ms })
	if rep := s.judge(); rep.Moved != 2 || rep.NumViolations() != 0 || rep.Reads != 2 {
		t.Errorf("moved %d, violations %v, reads %d; want 2, none, 2", rep.Moved, rep.Violations, rep.Reads)
	}
	s = newScript(t)
	wrote1(s)
	s.add(checker.Line{Down: &checker.Down{Server: "b", Begin: 100 * ms, End: 500 * ms}})
	s.add(checker.Line{Down: &checker.Down{Server: "c", Begin: 900 * ms, End: 1500 * ms}})
	stale(func(*checker.Read) {})
	if rep := s.judge(); rep.NumViolations() != 1 {
		t.Errorf("a server that came back before the question, and another one that is down, excuse the answer: %v", rep.Violations)
	}
}

func TestShares(t *testing.T) {
	s := newScript(t, "applier", "delay")
	wrote1(s)
	at := func(at checker.Moment, replica bool, oracle ...checker.Shown) {
		s.add(checker.Line{Read: readAt(at, func(r *checker.Read) {
			r.Replica, r.Oracle = replica, oracle
			r.Rows = []checker.ShownRow{row(0, 1, 1)}
			if !replica {
				r.Server, r.UUID, r.ReadUUID = "a", "uuid-a", "uuid-a"
			}
		})})
	}
	fresh := checker.Shown{Server: "b", Rows: []checker.ShownRow{row(0, 1, 1)}}
	old := checker.Shown{Server: "c", Rows: []checker.ShownRow{row(0, 0, 0)}}
	dead := checker.Shown{Server: "b", Err: "refused"}
	at(1000*ms, true, fresh, old)
	at(2100*ms, false, fresh)
	at(2200*ms, false, old, dead)
	at(3500*ms, true, fresh)
	at(3600*ms, false, fresh)
	at(8900*ms, true, fresh)
	s.add(checker.Line{Strike: &checker.Strike{Name: "applier", Begin: 2000 * ms, End: 3000 * ms}})
	rep := s.judge()
	if rep.Decisions != 6 || rep.ReplicaShare != 0.5 || rep.OracleShare != 0.8333 || rep.Ratio != 0.6 {
		t.Errorf("decisions %d, share %v, oracle %v, ratio %v; want 6, 0.5, 0.8333, 0.6", rep.Decisions, rep.ReplicaShare, rep.OracleShare, rep.Ratio)
	}
	f := rep.Faults[0]
	if f.Struck != 1 || f.Reads != 2 || f.ShareAfter == nil || *f.ShareAfter != 0.5 || *f.OracleAfter != 1 || *f.ShareInside != 0 {
		t.Errorf("applier: %+v", f)
	}
	if idle := rep.Idle(); !slices.Equal(idle, []string{"delay"}) || rep.OK() {
		t.Errorf("idle faults %q, OK %v; a fault that never struck must fail the run", idle, rep.OK())
	}
}

// A yes that names a replica is worth a read on a replica only when that replica
// was read: else a router that names dead ones would beat the oracle.
func TestSharesCountWhatWasRead(t *testing.T) {
	s := newScript(t)
	s.add(checker.Line{Identity: &checker.Identity{Server: "b", UUID: "uuid-b2"}})
	rows := []checker.ShownRow{row(0, 0, 0)}
	for _, change := range []func(r *checker.Read){
		func(r *checker.Read) { r.Rows = rows },
		func(r *checker.Read) { r.Err, r.ReadUUID = "refused", "" },
		func(r *checker.Read) { r.Rows, r.ReadUUID = rows, "uuid-b2" },
		func(r *checker.Read) { r.Rows, r.Stale = rows, true },
	} {
		s.add(checker.Line{Read: read(change)})
	}
	if rep := s.judge(); rep.Decisions != 4 || rep.ReplicaShare != 0.25 {
		t.Errorf("replica share %v of %d decisions; want 0.25 of 4: one was read there, one failed, one met another server, one promised nothing", rep.ReplicaShare, rep.Decisions)
	}
}

// The oracle decides when it asks, not when the slowest replica has answered.
func TestOracleDecidesWhenItAsks(t *testing.T) {
	for _, c := range []struct {
		at   checker.Moment
		want float64
	}{{0, 0}, {900 * ms, 1}, {980 * ms, 1}, {995 * ms, 0}} {
		s := newScript(t)
		w := s.write(2, 0, 980*ms, 0, 1, 0)
		s.add(checker.Line{Read: read(func(r *checker.Read) {
			r.WatermarkAge, r.Rows = 10*time.Millisecond, []checker.ShownRow{row(0, 1, w)}
			r.Oracle = []checker.Shown{{Server: "b", At: c.at, Rows: []checker.ShownRow{row(0, 0, 0)}}}
		})})
		if rep := s.judge(); rep.OracleShare != c.want {
			t.Errorf("read at %d ms, before the write at 980 ms: oracle share %v, want %v", c.at/ms, rep.OracleShare, c.want)
		}
	}
}

// A fault that could not be mended leaves a world that proves nothing.
func TestBrokenStrikeIsNoPass(t *testing.T) {
	s := newScript(t, "delay")
	s.add(checker.Line{Read: read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, 0, 0)} })})
	s.add(checker.Line{Strike: &checker.Strike{Name: "delay", Begin: 500 * ms, End: 1500 * ms}})
	s.add(checker.Line{Strike: &checker.Strike{Name: "delay", Begin: 2000 * ms, End: 3000 * ms, Err: "stuck"}})
	if rep := s.judge(); rep.OK() || len(rep.Faults[0].Errors) != 1 {
		t.Errorf("passes: %+v", rep.Faults)
	}
}

func TestBadHistories(t *testing.T) {
	for name, text := range map[string]string{
		"empty":        "",
		"no head":      `{"end":{"at":1}}`,
		"other format": `{"head":{"format":99}}`,
		"not JSON":     "hello",
		"unknown":      newScript(t).b.String() + `{"surprise":1}`,
		"key":          newScript(t).b.String() + `{"w":{"s":1,"w":1,"rows":[{"k":100000,"v":1,"g":0}]}}`,
		"read's key":   newScript(t).b.String() + `{"r":{"s":1,"lv":"key","k":[-4],"yes":true}}`,
		"fork":         newScript(t).b.String() + `{"fork":{"line":3,"base":[]}}`,
	} {
		if rep, err := checker.Judge(strings.NewReader(text)); err == nil {
			t.Errorf("%s: judged as %+v", name, rep)
		}
	}
}

// What a process that died had written until then is judged; it is no pass.
func TestUnfinishedHistories(t *testing.T) {
	for name, tail := range map[string]string{"without its end": "", "cut off within a line": `{"w":{"s":`} {
		s := newScript(t)
		wrote1(s)
		s.add(checker.Line{Read: read(func(r *checker.Read) { r.Rows = []checker.ShownRow{row(0, 0, 0)} })})
		rep, err := checker.Judge(strings.NewReader(s.b.String() + tail))
		if err != nil || rep.OK() || rep.Whole || rep.Reads != 1 || rep.NumViolations() != 1 {
			t.Errorf("a history %s: %+v, %v; want one read, which is a violation, and no pass", name, rep, err)
		}
	}
}
