package index_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/index"
)

// moment is the content after a flush of the crash tests' workload.
type moment struct{ content content }

const crashRows = 40

// crashWorkload opens a store on fs, works, and flushes after each step. It
// returns the content after each flush that succeeded; the first is of the
// empty index.
func crashWorkload(tb tester, fs vfs.FS, flushed func(i int)) (moments []moment, last *world, err error) {
	p, err := index.OpenPebble(index.PebbleOptions{Dir: "data", FS: fs})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, closeSoon(p)) }()
	w := newWorld(tb, index.Options{Store: p, MaxRecords: 60, FlushInterval: time.Hour, MaxRuns: 8})
	note := func() error {
		if err := w.ix.Flush(); err != nil {
			return err
		}
		moments = append(moments, moment{read(w, crashRows)})
		flushed(len(moments))
		return nil
	}
	moments = append(moments, moment{read(w, crashRows)})
	for i := range crashLen {
		if err := crashStep(w, i); err != nil {
			return moments, w, err
		}
		if err := note(); err != nil {
			return moments, w, err
		}
	}
	return moments, w, nil
}

const crashLen = 14

// crashStep does one thing of everything that is kept.
func crashStep(w *world, i int) error {
	try := func(items ...event.Item) error {
		_, err := w.tryWrite(items...)
		return err
	}
	switch i {
	case 0:
		w.start("a:1-10")
		return nil
	case 3:
		prepare := tx("b:1", 30)
		prepare.Flags, prepare.XID = event.XAPrepare, "x"
		return try(&event.Hole{GTIDs: set(w.tb, "b:3")}, prepare)
	case 5:
		c := chunks("b:2", []int{31}, []int{32})
		return try(c[0])
	case 6:
		c := chunks("b:2", []int{31}, []int{32})
		return try(c[1])
	case 8:
		f := w.announcement("b", "a:1-200,b:1-3")
		f.Lost, f.NewlyLost = set(w.tb, "a:70-72"), set(w.tb, "a:70-72")
		return try(f)
	case 10:
		return try(&event.Transaction{GTID: g("b:4"), Flags: event.XACommit, XID: "x"})
	case 12: // a new history
		return try(&event.Checkpoint{History: 1, Delivered: w.snap().Delivered()},
			&event.Checkpoint{History: 2, Delivered: set(w.tb, "a:1-300,b:1-9")})
	}
	var items []event.Item
	for k := range 12 {
		name := tx("a:11", (i*5+k)%30)
		name.GTID = gtid.GTID{UUID: uuidA, Seq: int64(1000 + 12*i + k)}
		if i <= 2 {
			name.GTID.Seq = int64(11 + 30*i + k)
		}
		items = append(items, name)
	}
	return try(items...)
}

// closeSoon closes a store, which a broken one must not hinder for ever.
func closeSoon(p *index.Pebble) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Close() // what was flushed is durable, whatever this says
	}()
	select {
	case <-done:
		return nil
	case <-time.After(hang):
		return errors.New("close does not return")
	}
}

// restored opens what is left on fs and returns its content.
func restored(tb tester, fs vfs.FS, w *world) content {
	tb.Helper()
	p, err := index.OpenPebble(index.PebbleOptions{Dir: "data", FS: fs})
	if err != nil {
		tb.Fatalf("open after a crash: %v", err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	}()
	return read(reopened(tb, w, p, index.Options{MaxRecords: 60, MaxRuns: 8}), crashRows)
}

// wantMoment checks that content is one that a flush left, not older than the
// last that succeeded before the crash.
func wantMoment(t *testing.T, got content, moments []moment, atLeast int) {
	t.Helper()
	for i := atLeast; i < len(moments); i++ {
		if got.diff(moments[i].content) == "" {
			return
		}
	}
	t.Fatalf("the content is of no flush from %d to %d:%s", atLeast, len(moments)-1, got.diff(moments[min(atLeast, len(moments)-1)].content))
}

// TestCrash loses power at every operation on the file system. What is left is
// one whole flush, and no flush that returned is lost.
func TestCrash(t *testing.T) {
	for _, unsynced := range []int{0, 50, 100} {
		t.Run(fmt.Sprintf("%d%% of unsynced data survives", unsynced), func(t *testing.T) {
			all, w := crashCount(t)
			step := 1
			if testing.Short() {
				step = 7
			}
			for k := 1 + unsynced%3; k <= all.ops; k += step + unsynced/40 {
				crashAt(t, k, unsynced, all.moments, w)
			}
		})
	}
}

type crashPlan struct {
	ops     int
	moments []moment
}

// counter counts the operations of a file system and calls at before one.
type counter struct {
	mu   sync.Mutex
	n    int
	when int
	at   func() error
}

func (c *counter) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	c.mu.Lock()
	c.n++
	now := c.n >= c.when && c.at != nil
	c.mu.Unlock()
	if now {
		return c.at()
	}
	return nil
}

func (c *counter) String() string { return "counter" }

func crashCount(t *testing.T) (crashPlan, *world) {
	t.Helper()
	c := &counter{}
	moments, w, err := crashWorkload(t, errorfs.Wrap(vfs.NewCrashableMem(), c), func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(moments) != crashLen+1 || c.n < 2*crashLen {
		t.Fatalf("%d moments, %d operations", len(moments), c.n)
	}
	return crashPlan{c.n, moments}, w
}

func crashAt(t *testing.T, k, unsynced int, moments []moment, w *world) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	var (
		left   *vfs.MemFS
		done   int
		before int
		mu     sync.Mutex
	)
	c := &counter{when: k}
	c.at = func() error {
		mu.Lock()
		defer mu.Unlock()
		if left == nil {
			before = done
			left = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(1, uint64(k)))})
		}
		return nil
	}
	if _, _, err := crashWorkload(t, errorfs.Wrap(mem, c), func(i int) {
		mu.Lock()
		defer mu.Unlock()
		done = i - 1
	}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if left == nil {
		return // this run needed fewer operations
	}
	wantMoment(t, restored(t, left, w), moments, before)
}

// TestDiskFull fails every write from some operation on. The index reports it
// and applies nothing more; with room again, a restart has the last flush that
// succeeded, or the one that failed.
func TestDiskFull(t *testing.T) {
	all, _ := crashCount(t)
	failed := 0
	for k := 1; k <= all.ops; k += 3 {
		mem := vfs.NewCrashableMem()
		c := &counter{when: k, at: func() error { return syscall.ENOSPC }}
		moments, w, err := crashWorkload(t, errorfs.Wrap(mem, c), func(int) {})
		if err == nil {
			continue // nothing of it was on the way of a flush
		}
		failed++
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("operation %d: error is %v, want ENOSPC", k, err)
		}
		if w == nil {
			continue // not even opened
		}
		if ok, _ := w.snap().Ready(); ok {
			t.Fatalf("operation %d: ready after %v", k, err)
		}
		wantMoment(t, restored(t, mem, w), all.moments, len(moments)-1)
	}
	if failed < 10 {
		t.Errorf("only %d failures reached the index", failed)
	}
}
