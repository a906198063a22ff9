package index_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/index"
)

// content is everything that survives a restart, for comparison.
type content struct {
	seq                      uint64
	header                   event.Header
	digest                   [16]byte
	resumable                bool
	delivered, horizon, lost string
	failover                 event.Version
	announced                string
	records                  map[string]event.Version
	at                       map[event.Version]gtid.GTID
	group                    string
	def, streamDef           key.DefVersion
	open                     int
}

// read takes the content of an index. rows are looked up as records.
func read(w *world, rows int) content {
	s := w.snap()
	c := content{
		delivered: s.Delivered().OneLine(), horizon: s.Horizon().OneLine(), lost: s.Lost().OneLine(),
		failover: s.LastFailover(), announced: s.FailoverLeft().OneLine(), records: map[string]event.Version{}, at: map[event.Version]gtid.GTID{},
		open: w.ix.Counters().OpenXIDs,
	}
	c.seq, c.header, c.digest, c.resumable = w.ix.Resume()
	for i := range rows {
		if v := w.newest(row(i)); v != 0 {
			c.records[fmt.Sprint("row ", i)] = v
		}
	}
	for name, d := range map[string]key.Digest{"any": posts.AnyRow, "all": posts.AllRows, "everything": hasher.Everything()} {
		c.records[name] = w.newest(d)
	}
	for v := event.MakeVersion(w.timeline, 0); v <= w.lastVersion(); v++ {
		if g, ok := s.GTIDAt(v); ok {
			c.at[v] = g
		}
	}
	if before, ok := s.GroupHorizon(author.AllRows); ok {
		c.group = before.OneLine()
	}
	if d, ok := s.Definition("app", "posts"); ok {
		c.def = d.Version
	}
	c.streamDef, _ = s.StreamDef(posts.AnyRow)
	return c
}

func (c content) diff(o content) string {
	return compare(fmt.Sprintf("%+v", c), fmt.Sprintf("%+v", o))
}

func compare(a, b string) string {
	if a == b {
		return ""
	}
	return "\n got " + a + "\nwant " + b
}

// reopened is a world whose index was opened from a store, going on where w is.
func reopened(tb tester, w *world, st index.Store, o index.Options) *world {
	tb.Helper()
	o.Store = st
	n := newWorld(tb, o)
	n.seq, n.timeline, n.ord, n.now, n.tick = w.seq, w.timeline, w.ord, w.now, w.tick
	return n
}

// busy writes something of everything that is kept.
func busy(w *world) {
	t := w.tb
	w.start("a:1-10")
	if err := w.ix.Definition(&event.TableDefinition{Definition: key.Definition{Schema: "app", Table: "posts", Version: 5}}); err != nil {
		t.Fatal(err)
	}
	one := tx("a:11", 1, 2, 3)
	one.Defs = []event.DefRef{{Table: posts.AnyRow, Version: 5}}
	w.write(one, tx("a:12", 4))
	again := w.announcement("a", "a:1-12")
	again.Groups = []event.GroupColumn{{Schema: "app", Table: "posts", Column: "author_id", Before: set(t, "a:1-12")}}
	w.write(again)
	prepare := tx("a:13", 50)
	prepare.Flags, prepare.XID = event.XAPrepare, "X'00ff',X'',1"
	w.write(&event.Hole{GTIDs: set(t, "a:15")})
	w.write(prepare, tx("b:1", 5), tx("a:14", 6))
	lost := w.announcement("b", "a:1-13,a:15,b:1")
	lost.Lost, lost.NewlyLost = set(t, "a:14"), set(t, "a:14")
	w.write(lost)
	c := chunks("b:2", []int{60}, []int{61}, []int{62})
	w.write(c[0])
	w.write(c[1])
}

// finish writes what ends all that busy left open.
func finish(w *world) {
	c := chunks("b:2", []int{60}, []int{61}, []int{62})
	w.write(c[2])
	w.write(&event.Transaction{GTID: g("b:3"), Flags: event.XACommit, XID: "X'00ff',X'',1"})
}

// TestRestart: a restart is warm, and goes on as if there had been none. Not
// restored is what is known of servers (rules §5.6).
func TestRestart(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			st, reopen := open()
			w := newWorld(t, index.Options{Store: st})
			busy(w)
			w.newTick()
			w.state("b", "a:1-13", primary)
			if err := w.ix.Flush(); err != nil {
				t.Fatal(err)
			}
			want := read(w, 100)
			n := reopened(t, w, reopen(), index.Options{})
			if d := read(n, 100).diff(want); d != "" {
				t.Errorf("after a restart:%s", d)
			}
			s := n.snap()
			if s.Server(n.at("b")) != nil || s.LeaseAt(n.at("b")) != 0 || s.WatermarkAt() != 0 {
				t.Error("something of a server was restored")
			}
			if ok, detail := s.Ready(); ok {
				t.Errorf("ready before the stream's end is known (%s)", detail)
			}
			n.ix.CaughtUp(n.seq, true)
			if ok, detail := n.snap().Ready(); !ok {
				t.Errorf("not ready: %s", detail)
			}
			n.wantPrimary("no_primary", "not heard of")
			finish(w)
			finish(n)
			if d := read(n, 100).diff(read(w, 100)); d != "" {
				t.Errorf("going on after a restart:%s", d)
			}
			if v := n.newest(row(50)); v != n.lastVersion() {
				t.Errorf("the prepared row has version %d, want %d", v, n.lastVersion())
			}
			n.wantSet("D", n.snap().Delivered(), "a:1-13,b:1-3")
		})
	}
}

// stores are the kinds of store, each with a way to open it again.
func stores(t *testing.T) map[string]func() (index.Store, func() index.Store) {
	return map[string]func() (index.Store, func() index.Store){
		"memory": func() (index.Store, func() index.Store) {
			m := index.NewMemory()
			return m, func() index.Store { return m.Clone() }
		},
		"pebble": func() (index.Store, func() index.Store) {
			fs := vfs.NewMem()
			p := openPebble(t, fs)
			return p, func() index.Store {
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
				return openPebble(t, fs)
			}
		},
		"pebble on disk": func() (index.Store, func() index.Store) {
			dir := t.TempDir()
			open := func() *index.Pebble {
				p, err := index.OpenPebble(index.PebbleOptions{Dir: dir})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := p.Close(); err != nil {
						t.Error(err)
					}
				})
				return p
			}
			p := open()
			return p, func() index.Store {
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
				return open()
			}
		},
	}
}

func openPebble(tb testing.TB, fs vfs.FS) *index.Pebble {
	tb.Helper()
	p, err := index.OpenPebble(index.PebbleOptions{Dir: "data", FS: fs})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return p
}

// TestStoreForeign: whose store it is decides between a refusal, a new start
// and a warm one.
func TestStoreForeign(t *testing.T) {
	st := index.NewMemory()
	w := newWorld(t, index.Options{Store: st})
	busy(w)
	if err := w.ix.Flush(); err != nil {
		t.Fatal(err)
	}
	clock := func() int64 { return 1 }
	tests := []struct {
		name    string
		cluster string
		secret  key.Secret
		err     error
		warm    bool
	}{
		{"same", "shop", secret, nil, true},
		{"another cluster", "blog", secret, index.ErrForeignStore, false},
		{"another secret", "shop", key.Secret{9}, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			st := st.Clone()
			ix, err := index.Open(index.Options{Store: st, Cluster: tt.cluster, Secret: tt.secret, Clock: clock})
			if !errors.Is(err, tt.err) {
				t.Fatalf("error is %v, want %v", err, tt.err)
			}
			if err != nil {
				return
			}
			if _, _, _, ok := ix.Resume(); ok != tt.warm {
				t.Errorf("warm: %v, want %v", ok, tt.warm)
			}
			if empty := ix.Snapshot().Delivered().IsEmpty(); empty == tt.warm {
				t.Errorf("D is empty: %v", empty)
			}
			// What is built anew replaces what was there, at once.
			if err := ix.Start(&event.Checkpoint{History: 9, Delivered: set(t, "c:1-3")}, 1, event.Header{}, 1); err != nil {
				t.Fatal(err)
			}
			if err := ix.Flush(); err != nil {
				t.Fatal(err)
			}
			again, err := index.Open(index.Options{Store: st.Clone(), Cluster: tt.cluster, Secret: tt.secret, Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			if got := again.Snapshot().Horizon(); !got.Equal(set(t, "c:1-3")) {
				t.Errorf("H after the new start is %s", got.OneLine())
			}
			if n := again.Counters(); n.Records != 0 || n.OpenXIDs != 0 || n.Runs != 0 {
				t.Errorf("left over: %d records, %d XIDs, %d runs", n.Records, n.OpenXIDs, n.Runs)
			}
		})
	}
}

// TestStoreCorrupt: content that no flush writes is refused with what to do.
func TestStoreCorrupt(t *testing.T) {
	st := index.NewMemory()
	w := newWorld(t, index.Options{Store: st})
	busy(w)
	if err := w.ix.Flush(); err != nil {
		t.Fatal(err)
	}
	var keys []string
	if err := st.Scan([]byte{0}, []byte{0xff}, func(k, _ []byte) error {
		keys = append(keys, string(k))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		t.Run(fmt.Sprintf("%.2q", k), func(t *testing.T) {
			st := st.Clone()
			v, _, _ := st.Get([]byte(k))
			b := st.Begin()
			b.Set([]byte(k), append(v[:len(v)/2:len(v)/2], 0xff))
			if err := b.Commit(); err != nil {
				t.Fatal(err)
			}
			_, err := index.Open(index.Options{Store: st, Cluster: "shop", Secret: secret, Clock: func() int64 { return 1 }})
			if !errors.Is(err, index.ErrCorruptStore) && !errors.Is(err, index.ErrForeignStore) {
				t.Errorf("error is %v, want ErrCorruptStore", err)
			}
		})
	}
}

// TestStoreFails: after an error of the store nobody knows what is durable: no
// yes, nothing is applied, and a restart recovers (style: stop).
func TestStoreFails(t *testing.T) {
	st := index.NewMemory()
	w := newWorld(t, index.Options{Store: st})
	w.start("a:1-10")
	w.write(tx("a:11", 1))
	if err := w.ix.Flush(); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left on device")
	st.Fail(full)
	w.now += 2 * second
	if _, err := w.tryWrite(tx("a:12", 2)); !errors.Is(err, full) {
		t.Fatalf("error is %v, want %v", err, full)
	}
	if ok, _ := w.snap().Ready(); ok {
		t.Error("still ready")
	}
	st.Fail(nil)
	if _, err := w.tryWrite(tx("a:13", 3)); !errors.Is(err, full) {
		t.Errorf("error of the next message is %v, want %v", err, full)
	}
	if err := w.ix.Flush(); !errors.Is(err, full) {
		t.Errorf("error of the next flush is %v, want %v", err, full)
	}
	n := reopened(t, w, st.Clone(), index.Options{})
	n.wantSet("D", n.snap().Delivered(), "a:1-11")
	if seq, _, _, ok := n.ix.Resume(); seq != 3 || !ok {
		t.Errorf("resume at %d, %v; want 3", seq, ok)
	}
}

// TestBrokenIsNotResumed: what broke off is not what a restart comes back to.
func TestBrokenIsNotResumed(t *testing.T) {
	st := index.NewMemory()
	w := newWorld(t, index.Options{Store: st})
	busy(w)
	if err := w.ix.Flush(); err != nil {
		t.Fatal(err)
	}
	w.ord = 0
	if _, err := w.tryWrite(tx("a:20", 1)); !errors.Is(err, index.ErrDiscontinuity) {
		t.Fatalf("error is %v, want ErrDiscontinuity", err)
	}
	n := reopened(t, w, st.Clone(), index.Options{})
	if _, _, _, ok := n.ix.Resume(); ok {
		t.Error("a restart resumes what broke off")
	}
}

// TestFlushes: by size, by time, and nothing when nothing happened.
func TestFlushes(t *testing.T) {
	st := index.NewMemory()
	w := newWorld(t, index.Options{Store: st, FlushBytes: 1000, FlushInterval: time.Minute})
	flushes := func() uint64 { return w.ix.Counters().Flushes }
	w.start("a:1-10")
	if n := flushes(); n != 0 {
		t.Fatalf("%d flushes before it was time", n)
	}
	for i := range 50 {
		name := tx("a:11", i)
		name.GTID.Seq = int64(11 + i)
		w.write(name)
		if n := w.ix.Counters().PendingBytes; n > 1100 {
			t.Fatalf("%d bytes are pending", n)
		}
	}
	bySize := flushes()
	if bySize == 0 {
		t.Fatal("no flush by size")
	}
	w.now += 61 * second
	w.write(tx("a:100", 1))
	if n := flushes(); n != bySize+1 {
		t.Errorf("%d flushes, want one by time after %d", n, bySize)
	}
	if err := w.ix.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := flushes(); n != bySize+1 {
		t.Errorf("a flush of nothing counts: %d", n)
	}
}

// TestRun flushes by itself, and once more at its end.
func TestRun(t *testing.T) {
	st := index.NewMemory()
	w := newWorld(t, index.Options{Store: st, FlushInterval: time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.ix.Run(ctx) }()
	w.start("a:1-10")
	w.write(tx("a:11", 1))
	deadline := time.After(hang)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		n := reopened(t, w, st.Clone(), index.Options{})
		if n.snap().Delivered().Contains(g("a:11")) {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("not flushed: D is %s", n.snap().Delivered().OneLine())
		case <-tick.C:
		}
	}
	w.write(tx("a:12", 1))
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	n := reopened(t, w, st.Clone(), index.Options{})
	n.wantSet("D", n.snap().Delivered(), "a:1-12")
}
