package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cmd/internal/daemon"
	"tidegate/router/serve"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestReuse: rules §11.2. The primary's host crashes, and with it goes what was
// not synced: five transactions that a replica already has. The primary gives
// their GTIDs to five others while nobody watches. All executed sets are equal
// then, without an error anywhere, and the data is not. The replica that has the
// old ones gets no yes, ever; the one that has the new ones gets it by itself.
func TestReuse(t *testing.T) {
	w := newWorld(t)
	a, old, right := w.c.Primary(), w.c.Replicas()[0], w.c.Replicas()[1]
	p := w.start(everything, settings{})
	p.ready()
	w.must(a.Exec(w.ctx, "UPDATE app.posts SET v = -1 WHERE id = 6"))
	w.allYes(p, old, right)
	disk := w.syncedDisk(a)
	for range 4 { // the copy has fewer binlog files than the primary that is lost
		w.must(a.Exec(w.ctx, "FLUSH BINARY LOGS"))
	}

	w.allYes(p, old, right)
	w.must(right.StopIOThread(w.ctx))
	for id := 1; id <= 5; id++ {
		w.must(a.Exec(w.ctx, "UPDATE app.posts SET v = ? WHERE id = ?", id, id))
	}
	common := w.executed(right)
	lost := w.executed(a).Subtract(w.executed(right))
	w.caughtUp(old, a)
	w.allYes(p, old)
	w.must(old.StopIOThread(w.ctx))
	p.end()

	w.crashTo(a, disk)
	if n := lost.Intersect(w.executed(a)).Count(); lost.Count() != 5 || n != 0 {
		t.Fatalf("the crash lost %s, and the primary still has %d of them", lost.OneLine(), n)
	}
	for v := 101; v <= 105; v++ {
		w.must(a.Exec(w.ctx, "UPDATE app.posts SET v = ? WHERE id = 6", v))
	}
	w.must(a.Exec(w.ctx, "UPDATE app.posts SET v = 200 WHERE id = 5"))
	for range 6 { // and comes to their names again, behind what it gave again
		w.must(a.Exec(w.ctx, "FLUSH BINARY LOGS"))
	}
	w.must(right.StartIOThread(w.ctx))
	w.must(old.StartIOThread(w.ctx))
	if all := w.level(a, old, right); !all.ContainsSet(lost) {
		t.Fatalf("not all of %s were given again: %s", lost.OneLine(), all.OneLine())
	}
	v, err := old.QueryString(w.ctx, "SELECT v FROM app.posts WHERE id = 6")
	w.must(err)
	if v == "105" {
		t.Fatal("the replica has the new rows: nothing to see here")
	}

	// From the first answer on, and again from a stream whose checkpoint is all
	// that is left to read of them.
	for range 2 {
		p = w.start(everything, settings{})
		p.ready()
		w.yesWithout(p, old, right, a)
		// The copy has a commit that the stream names: what is before it is not in
		// doubt, and stays the base of who has it.
		if st := p.state(right); !st.Base.Overlaps(common) {
			t.Errorf("base %s has nothing of %s, which no crash has touched", st.Base.OneLine(), common.OneLine())
		}
		w.refused(askRouter(p.Router), old.Name(), "app.posts/6", "excluded", "another transaction")
		p.end()
	}

	// A copy of the primary has no binlog of before, so nothing tells which ones
	// it has: the operator who made it has to say so.
	w.must(old.WipeAndRebuildFrom(w.ctx, a, false))
	p = w.start(everything, settings{})
	p.ready()
	w.yesWithout(p, old, right)
	w.refused(askRouter(p.Router), old.Name(), "app.posts/6", "excluded", "given again")
	w.must(daemon.Accept(w.ctx, p.Conn, serve.Acceptance{Server: old.Name(), Copy: true, Author: "test", Reason: "copied from the primary"}))
	w.allYes(p, old, right)
	p.end()

	w.reusedAndPurged(disk)
}

// reusedAndPurged crashes the primary of [TestReuse] to the disk again, and has it
// purge what it gave again before anybody has compared it: what is left of its
// binlog differs nowhere.
func (w *world) reusedAndPurged(disk string) {
	w.t.Helper()
	a, old, right := w.c.Primary(), w.c.Replicas()[0], w.c.Replicas()[1]
	w.must(old.StopIOThread(w.ctx))
	w.must(right.StopIOThread(w.ctx))
	before := w.executed(a)
	w.crashTo(a, disk)
	for v := 301; !w.executed(a).ContainsSet(before); v++ {
		w.must(a.Exec(w.ctx, "UPDATE app.posts SET v = ? WHERE id = 1", v))
	}
	w.must(a.PurgeBinlogs(w.ctx))
	w.must(right.StartIOThread(w.ctx))
	w.must(old.StartIOThread(w.ctx))
	if all := w.level(a, old, right); !all.Equal(before) {
		w.t.Fatalf("executed is %s, and was %s", all.OneLine(), before.OneLine())
	}
	p := w.start(everything, settings{})
	p.ready()
	for _, s := range []*testenv.Server{old, right} {
		w.yesWithout(p, s, a)
		w.refused(askRouter(p.Router), s.Name(), "app.posts/1", "excluded", "given again")
	}
}

// allYes waits until each of the servers has a yes for rows that were lost and for
// rows that were written instead.
func (w *world) allYes(p *program, list ...*testenv.Server) {
	w.t.Helper()
	w.yesWithout(p, nil, list...)
}

// yesWithout is allYes, while a server that may have none is asked as well.
func (w *world) yesWithout(p *program, never *testenv.Server, list ...*testenv.Server) {
	w.t.Helper()
	a := askRouter(p.Router)
	for _, s := range list {
		for id := 1; id <= loadRows; id++ {
			k := fmt.Sprintf("app.posts/%d", id)
			testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
				if never != nil {
					got, err := a(w.ctx, question{server: never.Name(), key: k})
					w.must(err)
					if got.yes {
						w.t.Fatalf("WRONG YES: %s for %s may be an old row", never.Name(), k)
					}
				}
				got, err := a(w.ctx, question{server: s.Name(), key: k})
				w.must(err)
				return got.yes, fmt.Sprintf("%s for %s: %s", s.Name(), k, got)
			})
		}
	}
}

// syncedDisk is a server's data as it would be on disk if nothing was synced from
// here on. The server crashes for it and comes back.
func (w *world) syncedDisk(s *testenv.Server) string {
	w.t.Helper()
	disk := filepath.Join(w.t.TempDir(), "disk")
	w.must(s.Kill())
	w.must(os.CopyFS(disk, os.DirFS(s.DataDir())))
	w.must(s.Start(w.ctx))
	w.must(w.c.WaitInSync(w.ctx))
	return disk
}

// crashTo is a crash of the server's host: the binlog's tail is gone, and what
// the engine had of it (sync_binlog=0).
func (w *world) crashTo(s *testenv.Server, disk string) {
	w.t.Helper()
	w.must(s.Kill())
	w.must(os.RemoveAll(s.DataDir()))
	w.must(os.CopyFS(s.DataDir(), os.DirFS(disk)))
	w.must(s.Start(w.ctx))
}

// TestReusePurged: the primary is set back to an older copy of its disk while nobody
// watches, gives GTIDs again, comes to a higher binlog file than the last one that
// was read, and purges what it gave again, or a part of it. Whatever of that is
// gone proves nothing: the replica that has the old ones gets no yes.
func TestReusePurged(t *testing.T) {
	for _, c := range []struct {
		name    string
		running bool // the copy is of a running mysqld: same file, same mark
		purged  int  // of the five
	}{
		{"all, copy of a stopped mysqld", false, 5},
		{"all, copy of a running mysqld", true, 5},
		{"some, copy of a stopped mysqld", false, 2},
		{"some, copy of a running mysqld", true, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			a, old, right := w.c.Primary(), w.c.Replicas()[0], w.c.Replicas()[1]
			p := w.start(everything, settings{})
			p.ready()
			w.must(a.Exec(w.ctx, "UPDATE app.posts SET v = -1 WHERE id = 6"))
			w.allYes(p, old, right)
			var disk string
			if c.running {
				disk = w.frozenDisk(a)
			} else {
				disk = w.syncedDisk(a)
			}
			w.allYes(p, old, right)
			w.must(right.StopIOThread(w.ctx))
			for id := 1; id <= 5; id++ {
				w.must(a.Exec(w.ctx, "UPDATE app.posts SET v = ? WHERE id = ?", id, id))
			}
			w.caughtUp(old, a)
			w.allYes(p, old)
			w.must(old.StopIOThread(w.ctx))
			p.end()
			before := w.executed(a)

			w.crashTo(a, disk)
			for v := 101; v <= 100+c.purged; v++ {
				w.must(a.Exec(w.ctx, "UPDATE app.posts SET v = ? WHERE id = 6", v))
			}
			w.must(right.StartIOThread(w.ctx))
			w.caughtUp(right, a)
			for range 6 {
				w.must(a.Exec(w.ctx, "FLUSH BINARY LOGS"))
			}
			w.must(a.PurgeBinlogs(w.ctx))
			for v := 101 + c.purged; v <= 105; v++ {
				w.must(a.Exec(w.ctx, "UPDATE app.posts SET v = ? WHERE id = 6", v))
			}
			w.must(old.StartIOThread(w.ctx))
			if all := w.level(a, old, right); !all.Equal(before) {
				t.Fatalf("executed is %s, and was %s", all.OneLine(), before.OneLine())
			}
			p = w.start(everything, settings{})
			p.ready()
			w.yesWithout(p, old, a)
			w.refused(askRouter(p.Router), old.Name(), "app.posts/6", "excluded", "")
		})
	}
}

// frozenDisk is a server's data as a snapshot of a running machine has it.
func (w *world) frozenDisk(s *testenv.Server) string {
	w.t.Helper()
	disk := filepath.Join(w.t.TempDir(), "disk")
	w.must(s.Pause())
	err := os.CopyFS(disk, os.DirFS(s.DataDir()))
	w.must(s.Resume())
	w.must(err)
	return disk
}

// caughtUp waits until a server has what another has.
func (w *world) caughtUp(s, of *testenv.Server) {
	w.t.Helper()
	text, err := of.GTIDExecuted(w.ctx)
	w.must(err)
	w.must(s.WaitForGTIDs(w.ctx, text))
}

// level waits until all servers are in sync, holds that these have executed the same,
// and returns it.
func (w *world) level(of *testenv.Server, others ...*testenv.Server) gtid.Set {
	w.t.Helper()
	w.must(w.c.WaitInSync(w.ctx))
	all := w.executed(of)
	for _, s := range others {
		if has := w.executed(s); !has.Equal(all) {
			w.t.Fatalf("executed sets differ: %s on %s, %s on %s", all.OneLine(), of.Name(), has.OneLine(), s.Name())
		}
	}
	return all
}
