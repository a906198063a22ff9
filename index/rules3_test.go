package index_test

import (
	"crypto/sha256"
	"errors"
	"testing"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/index"
)

// TestRule3XA: keys of an XA transaction are written at the commit that makes
// them visible; an unknown XID is a write of everything (rules §3.1).
func TestRule3XA(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	prepare := tx("a:11", 1)
	prepare.Flags, prepare.XID = event.XAPrepare, "X'61',X'',1"
	w.write(prepare)
	if v := w.newest(row(1)); v != 0 {
		t.Errorf("a prepared row has version %d, want none", v)
	}
	w.wantSet("D", w.snap().Delivered(), "a:1-11")
	v := w.write(&event.Transaction{GTID: g("a:12"), Flags: event.XACommit, XID: "X'61',X'',1"})
	if got := w.newest(row(1)); got != v {
		t.Errorf("the committed row has version %d, want %d", got, v)
	}
	if got := w.newest(posts.AnyRow); got != v {
		t.Errorf("any row of the table has version %d, want %d", got, v)
	}
	if got := w.newest(hasher.Everything()); got != 0 {
		t.Errorf("everything has version %d, want none", got)
	}
	v = w.write(&event.Transaction{GTID: g("a:13"), Flags: event.XACommit, XID: "X'61',X'',1"})
	if got := w.newest(hasher.Everything()); got != v {
		t.Errorf("commit of an unknown XID: everything has version %d, want %d", got, v)
	}

	// Rolled back: dropped, nothing is written.
	prepare = tx("a:14", 2)
	prepare.Flags, prepare.XID = event.XAPrepare, "X'62',X'',1"
	w.write(prepare, &event.Transaction{GTID: g("a:15"), Flags: event.XARollback, XID: "X'62',X'',1"})
	if got := w.newest(row(2)); got != 0 {
		t.Errorf("a row rolled back has version %d, want none", got)
	}
	if n := w.ix.Counters(); n.OpenXIDs != 0 || n.UnknownXIDs != 1 {
		t.Errorf("open XIDs %d, unknown %d; want 0, 1", n.OpenXIDs, n.UnknownXIDs)
	}
}

// TestRule3XAOpenSurvives: eviction never drops an open XID, and checkpoints
// carry them (rules §3.1).
func TestRule3XAOpenSurvives(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	prepare := tx("a:11", 1)
	prepare.Flags, prepare.XID = event.XAPrepare, "x"
	w.write(prepare, tx("a:12", 5), tx("a:13", 6))
	w.ix.Evict(100)
	v := w.write(&event.Transaction{GTID: g("a:14"), Flags: event.XACommit, XID: "x"})
	if got := w.newest(row(1)); got != v {
		t.Errorf("after eviction the row has version %d, want %d", got, v)
	}

	w.seq++
	w.ord++
	err := w.ix.Start(&event.Checkpoint{History: 1, Delivered: set(t, "a:1-20"), Open: []event.OpenXA{
		{XID: "y", GTID: g("a:20"), Tables: []key.Digest{posts.AnyRow}, Scopes: []key.Digest{row(9)}},
	}}, w.seq, event.Header{}, event.MakeVersion(1, w.ord))
	if err != nil {
		t.Fatal(err)
	}
	v = w.write(&event.Transaction{GTID: g("a:21"), Flags: event.XACommit, XID: "y"})
	if got := w.newest(row(9)); got != v {
		t.Errorf("of a checkpoint's open XID the row has version %d, want %d", got, v)
	}
}

// TestRule3XALostPrepare: when the prepare of an XID is lost and the XID is
// prepared again, the new scopes count.
func TestRule3XALostPrepare(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	one, two := tx("a:11", 1), tx("b:1", 2)
	one.Flags, one.XID = event.XAPrepare, "x"
	two.Flags, two.XID = event.XAPrepare, "x"
	w.write(one)
	lost := w.announcement("b", "a:1-10")
	lost.Lost, lost.NewlyLost = set(t, "a:11"), set(t, "a:11")
	w.write(lost, two)
	v := w.write(&event.Transaction{GTID: g("b:2"), Flags: event.XACommit, XID: "x"})
	if got := w.newest(row(2)); got != v {
		t.Errorf("row of the second prepare has version %d, want %d", got, v)
	}
	if got := w.newest(row(1)); got != 0 {
		t.Errorf("row of the lost prepare has version %d, want none", got)
	}
}

// TestRule3XAHole: a hole may have ended what is prepared and prepared another
// transaction under the same XID, so that its commit is one of an unknown XID.
func TestRule3XAHole(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	prepare := tx("a:11", 1)
	prepare.Flags, prepare.XID = event.XAPrepare, "x"
	// a:12 commits x, a:13 prepares x again, of another row: both unread.
	w.write(prepare, &event.Hole{GTIDs: set(t, "a:12-13"), Reason: "purged"})
	v := w.write(&event.Transaction{GTID: g("a:14"), Flags: event.XACommit, XID: "x"})
	if got := w.newest(hasher.Everything()); got != v {
		t.Errorf("everything has version %d, want %d", got, v)
	}
	if n := w.ix.Counters(); n.OpenXIDs != 0 || n.UnknownXIDs != 1 {
		t.Errorf("open XIDs %d, unknown %d; want 0, 1", n.OpenXIDs, n.UnknownXIDs)
	}
}

func chunks(name string, parts ...[]int) []event.Item {
	var items []event.Item
	h := sha256.New()
	last := tx(name)
	for i, p := range parts {
		var scopes []key.Digest
		for _, n := range p {
			d := row(n)
			scopes = append(scopes, d)
			h.Write(d[:])
		}
		c := &event.Chunk{GTID: g(name), Number: uint32(i), Scopes: scopes}
		if i == len(parts)-1 {
			c.Scopes, last.Scopes = nil, scopes
			c.Last, c.Total, c.Digest = last, uint32(len(parts)), [16]byte(h.Sum(nil))
		}
		items = append(items, c)
	}
	return items
}

// TestRule3Chunks: a transaction in chunks is delivered with the last one, when
// all came; else it is a hole (rules §1 D, §3.3).
func TestRule3Chunks(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	c := chunks("a:11", []int{1}, []int{2}, []int{3})
	w.write(c[0], c[1])
	w.wantSet("D in the middle", w.snap().Delivered(), "a:1-10")
	v := w.write(c[2], tx("a:12", 4))
	w.wantSet("D at the end", w.snap().Delivered(), "a:1-12")
	for n := 1; n <= 3; n++ {
		if got := w.newest(row(n)); got != v-1 {
			t.Errorf("row %d has version %d, want %d", n, got, v-1)
		}
	}
	if got := w.newest(row(4)); got != v {
		t.Errorf("row 4 has version %d, want %d", got, v)
	}

	bad := map[string]func([]event.Item) []event.Item{
		"first is missing":  func(c []event.Item) []event.Item { return c[1:] },
		"middle is missing": func(c []event.Item) []event.Item { return []event.Item{c[0], c[2]} },
		"twice":             func(c []event.Item) []event.Item { return []event.Item{c[0], c[1], c[1], c[2]} },
		"digest": func(c []event.Item) []event.Item {
			c[1].(*event.Chunk).Scopes[0][0] ^= 1
			return c
		},
		"total": func(c []event.Item) []event.Item {
			c[2].(*event.Chunk).Total = 4
			return c
		},
	}
	for name, f := range bad {
		t.Run(name, func(t *testing.T) {
			w := started(t, index.Options{}, "a:1-10")
			v := w.write(f(chunks("a:11", []int{1}, []int{2}, []int{3}))...)
			w.wantSet("D", w.snap().Delivered(), "a:1-10")
			w.wantSet("H", w.snap().Horizon(), "a:1-11")
			if got := w.newest(hasher.Everything()); got != v {
				t.Errorf("everything has version %d, want %d", got, v)
			}
		})
	}

	t.Run("left half by its writer", func(t *testing.T) {
		w := started(t, index.Options{}, "a:1-10")
		c := chunks("a:11", []int{1}, []int{2})
		w.write(c[0])
		w.timeline, w.ord = 2, 0
		w.write(w.announcement("a", "a:1-11"))
		c = chunks("a:11", []int{1}, []int{2})
		v := w.write(c...)
		w.wantSet("D", w.snap().Delivered(), "a:1-11")
		w.wantSet("H", w.snap().Horizon(), "a:1-10")
		if got := w.newest(row(1)); got != v {
			t.Errorf("row 1 has version %d, want %d", got, v)
		}
	})
}

// TestRule3Hole: a hole is a write of everything, and its GTIDs join H.
func TestRule3Hole(t *testing.T) {
	w := started(t, index.Options{}, "a:1-10")
	v := w.write(&event.Hole{GTIDs: set(t, "a:11-12"), Reason: "purged"})
	w.wantSet("D", w.snap().Delivered(), "a:1-10")
	w.wantSet("H", w.snap().Horizon(), "a:1-12")
	if got := w.newest(hasher.Everything()); got != v {
		t.Errorf("everything has version %d, want %d", got, v)
	}
	// H shrinks when a GTID is delivered after all (rules §5.1).
	w.write(tx("a:12", 1))
	w.wantSet("D", w.snap().Delivered(), "a:1-10,a:12")
	w.wantSet("H", w.snap().Horizon(), "a:1-11")
}

// TestStreamBreaks: what does not continue makes the index answer no until it
// is started anew (P3, rules §5.4).
func TestStreamBreaks(t *testing.T) {
	breaks := map[string]func(w *world) error{
		"a sequence again": func(w *world) error {
			w.seq -= 2
			_, err := w.tryWrite(tx("a:12", 1))
			return err
		},
		"an ordinal again": func(w *world) error {
			w.ord--
			_, err := w.tryWrite(tx("a:12", 1))
			return err
		},
		"an older timeline": func(w *world) error {
			w.timeline = 0
			_, err := w.tryWrite(tx("a:12", 1))
			return err
		},
		"another history": func(w *world) error {
			a := w.announcement("a", "a:1-12")
			a.History = 2
			_, err := w.tryWrite(a)
			return err
		},
		"an unknown item": func(w *world) error {
			_, err := w.tryWrite(&event.Part{})
			return err
		},
	}
	for name, f := range breaks {
		t.Run(name, func(t *testing.T) {
			w := started(t, index.Options{}, "a:1-10")
			w.write(tx("a:11", 1))
			if ok, detail := w.snap().Ready(); !ok {
				t.Fatalf("not ready: %s", detail)
			}
			if err := f(w); !errors.Is(err, index.ErrDiscontinuity) {
				t.Fatalf("error is %v, want ErrDiscontinuity", err)
			}
			if ok, _ := w.snap().Ready(); ok {
				t.Error("still ready")
			}
			if _, _, _, ok := w.ix.Resume(); ok {
				t.Error("there is something to resume from")
			}
			if _, err := w.tryWrite(tx("a:13", 1)); !errors.Is(err, index.ErrDiscontinuity) {
				t.Errorf("the next message: %v, want ErrDiscontinuity", err)
			}
			w.timeline, w.seq = 3, 100
			w.start("a:1-20")
			if ok, detail := w.snap().Ready(); !ok {
				t.Errorf("started anew and not ready: %s", detail)
			}
			w.wantSet("D", w.snap().Delivered(), "a:1-20")
		})
	}
}

// TestItemsBehindACheckpoint: the message that carried the checkpoint may come
// again; what the index has is skipped.
func TestItemsBehindACheckpoint(t *testing.T) {
	w := newWorld(t, index.Options{})
	cp := &event.Checkpoint{History: 1, Delivered: set(t, "a:1-10")}
	m := &event.Message{Header: event.Header{Timeline: 1, Count: 7}, First: 20, Digest: [16]byte{4}, Items: []event.Item{
		tx("a:10", 1), cp, tx("a:11", 2),
	}}
	if err := w.ix.Start(cp, 7, m.Header, event.MakeVersion(1, 21)); err != nil {
		t.Fatal(err)
	}
	if err := w.ix.Writes(7, m); err != nil {
		t.Fatal(err)
	}
	w.wantSet("D", w.snap().Delivered(), "a:1-11")
	if v := w.newest(row(1)); v != 0 {
		t.Errorf("a row from before the checkpoint has version %d", v)
	}
	if v := w.newest(row(2)); v != event.MakeVersion(1, 22) {
		t.Errorf("a row from behind the checkpoint has version %d, want %d", v, event.MakeVersion(1, 22))
	}
	seq, h, d, ok := w.ix.Resume()
	if seq != 7 || h.Count != 7 || d != m.Digest || !ok {
		t.Errorf("resume at %d, count %d, digest %x, %v", seq, h.Count, d, ok)
	}
}
