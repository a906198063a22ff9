package observe

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/index"
	"tidegate/router/serve"
)

// world is an index that is fed by hand: a is the primary, b and c replicas.
type world struct {
	t    *testing.T
	ix   *index.Index
	def  *event.TableDefinition
	tick uint64
	seq  uint64
	done gtid.Set // committed on a
	mute bool     // a says nothing after the read
}

var uuids = map[string]gtid.UUID{"a": {0xa}, "b": {0xb}, "c": {0xc}}

func newWorld(t *testing.T) *world { return newWorldAt(t, gtid.Set{}) }

// newWorldAt starts at a checkpoint: what was delivered before is the horizon.
func newWorldAt(t *testing.T, delivered gtid.Set) *world {
	t.Helper()
	w := &world{t: t, def: &event.TableDefinition{Definition: key.Definition{
		Schema: "app", Table: "posts", Columns: 2, Primary: []key.Column{{Name: "id", Type: key.TypeInt, Length: 4}},
	}}}
	w.def.Seal()
	var err error
	w.ix, err = index.Open(index.Options{Clock: clock, Router: [16]byte{1}, Servers: []string{"a", "b", "c"}})
	w.must(err)
	w.seq, w.done = 1, delivered
	w.must(w.ix.Start(&event.Checkpoint{History: 1, Delivered: delivered}, 1, event.Header{Timeline: 1, Count: 1}, event.MakeVersion(1, 1)))
	w.write(&event.Announcement{Server: "a", ServerUUID: uuids["a"], Epoch: 1, History: 1})
	w.must(w.ix.Definition(w.def))
	w.ix.CaughtUp(w.seq, true)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) write(it event.Item) {
	w.t.Helper()
	w.seq++
	w.must(w.ix.Writes(w.seq, &event.Message{
		Header: event.Header{Timeline: 1, Count: w.seq, Fold: key.FoldVersion}, First: w.seq, Items: []event.Item{it},
	}))
}

// commit writes post n on the primary, and the stream has it.
func (w *world) commit(n int64) {
	w.t.Helper()
	g := gtid.GTID{UUID: uuids["a"], Seq: int64(w.done.Count()) + 1}
	w.done = w.done.Add(g)
	scopes := w.ix.Snapshot().Hasher().Table("app", "posts")
	form, err := w.def.Primary[0].AppendForm(nil, key.Value{Int: n})
	w.must(err)
	w.write(&event.Transaction{
		GTID: g, OriginalCommit: 1, Tables: []key.Digest{scopes.AnyRow}, Scopes: []key.Digest{scopes.Row(form)},
		Defs: []event.DefRef{{Table: scopes.AnyRow, Version: w.def.Version}},
	})
}

// show tells what a server has executed; change may hurt its state.
func (w *world) show(server string, executed gtid.Set, change ...func(*event.ServerState)) {
	w.t.Helper()
	w.tick++
	w.ix.TickSent(w.tick, time.Now().UnixNano())
	role := event.RoleReplica
	if server == "a" {
		role = event.RolePrimary
	}
	st := &event.ServerState{
		Server: server, UUID: uuids[server], Epoch: 1, DataSet: 1, History: 1, LossSeen: 1 << 62, Alive: true, Role: role, Writable: role == event.RolePrimary,
		Drained: true, GTIDMode: "ON", Follow: "binlog", Executed: executed, Ticks: []event.RouterTick{{Router: [16]byte{1}, Tick: w.tick}},
	}
	for _, c := range change {
		c(st)
	}
	w.must(w.ix.State(st))
}

const lease = 3 * time.Second

// clock is that of the world's index.
func clock() int64 { return time.Now().UnixNano() }

func pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}

// watch runs an observer of the world until the test ends.
func (w *world) watch() *Observer {
	o := New(w.ix.Snapshot, clock, lease)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		w.must(<-ended)
	})
	return o
}

func (w *world) read(o *Observer, server, k string, ago time.Duration) {
	w.t.Helper()
	r := serve.ObservedRead{At: time.Now().Add(-ago), Server: server}
	if k != "" {
		parsed, err := key.Parse(k)
		w.must(err)
		r.Keys = []key.Key{parsed}
	}
	w.must(o.Observe(w.t.Context(), []serve.ObservedRead{r}))
}

func TestVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.watch()
		w.commit(1)
		before := w.done
		w.commit(2)
		for server, set := range map[string]gtid.Set{"a": w.done, "b": w.done, "c": before} {
			w.show(server, set)
		}
		pass(100 * time.Millisecond)
		w.read(o, "b", "app.posts/2", 0) // shown
		w.read(o, "c", "app.posts/2", 0) // not shown there
		w.read(o, "c", "app.posts/1", 0) // shown
		w.read(o, "a", "app.posts/2", 0) // b would have done
		w.read(o, "b", "app.posts/2", time.Hour)
		w.read(o, "b", "app.other/2", 0)
		w.read(o, "b", "", 0)
		w.read(o, "b", "app.posts/1", 0) // written again behind it
		pass(50 * time.Millisecond)
		w.commit(1)
		w.show("a", w.done)
		pass(time.Second)
		total, by := o.Tally()
		if want := (Tally{Reads: 8, Stale: 1, NeedlessPrimary: 1, Undecided: 5, Because: Causes{Time: 1, Key: 2, WrittenSince: 2}}); total != want {
			t.Errorf("got %+v, want %+v", total, want)
		}
		// Post 1 is written behind both reads of it: what was newest then is not
		// known any more.
		if want := (Tally{Reads: 2, Stale: 1, Undecided: 1, Because: Causes{WrittenSince: 1}}); by["c"] != want {
			t.Errorf("c: got %+v, want %+v", by["c"], want)
		}
	})
}

// TestWritesFromBeforeTheIndex: the newest write of a key may lie before what the
// index remembers. Only a server that shows all of that is known to show it.
func TestWritesFromBeforeTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := gtid.Set{}.AddInterval(gtid.Source{UUID: uuids["a"]}, gtid.Interval{First: 1, Last: 5})
		w := newWorldAt(t, old)
		o := w.watch()
		lagging := old.Subtract(gtid.Set{}.Add(gtid.GTID{UUID: uuids["a"], Seq: 5}))
		w.show("a", w.done)
		w.show("b", lagging)
		w.show("c", lagging)
		pass(100 * time.Millisecond)
		w.read(o, "b", "app.posts/42", 0)
		w.read(o, "a", "app.posts/42", 0) // no replica is known to show it
		pass(100 * time.Millisecond)
		w.show("a", w.done)
		pass(time.Second)
		total, _ := o.Tally()
		if want := (Tally{Reads: 2, Undecided: 1, Because: Causes{Unproven: 1}}); total != want {
			t.Errorf("behind the horizon: got %+v, want %+v", total, want)
		}
		w.show("c", w.done)
		pass(100 * time.Millisecond)
		w.read(o, "c", "app.posts/42", 0)
		w.read(o, "a", "app.posts/42", 0)
		w.commit(43)
		w.show("a", w.done)
		pass(100 * time.Millisecond)
		w.read(o, "b", "app.posts/43", 0) // lacks a write that is known
		pass(100 * time.Millisecond)
		w.show("a", w.done)
		pass(time.Second)
		total, by := o.Tally()
		if want := (Tally{Reads: 1}); by["c"] != want {
			t.Errorf("a server that shows the horizon: got %+v, want %+v", by["c"], want)
		}
		if total.NeedlessPrimary != 1 || total.Stale != 1 {
			t.Errorf("got %+v, want one needless and one stale", total)
		}
	})
}

// TestWhatIsNotKnownIsUndecided: nothing is called fine by an index that lacks
// writes that were acknowledged before the read, nor on a server that lacks
// tables or may hold anything.
func TestWhatIsNotKnownIsUndecided(t *testing.T) {
	for _, tt := range []struct {
		name string
		hurt func(w *world)
		want Causes
	}{
		{"the watermark stands still", func(w *world) { w.mute = true }, Causes{Router: 1}},
		{"cut off", func(w *world) { w.ix.CaughtUp(w.seq, false) }, Causes{Router: 1}},
		{"the table is tainted", func(w *world) {
			w.show("b", w.done, func(st *event.ServerState) {
				st.Taints = []event.Taint{{Name: "app.posts", Table: w.ix.Snapshot().Hasher().Table("app", "posts").AnyRow}}
			})
		}, Causes{Server: 1}},
		{"excluded", func(w *world) {
			w.show("b", w.done, func(st *event.ServerState) { st.Excluded = []string{"copied from nobody knows where"} })
		}, Causes{Server: 1}},
		{"down", func(w *world) {
			w.show("b", w.done, func(st *event.ServerState) { st.Alive, st.Down = false, "gone" })
		}, Causes{Server: 1}},
		{"its tailer is not heard of", func(*world) { pass(lease) }, Causes{Server: 1}},
		{"nothing", func(*world) {}, Causes{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				o := w.watch()
				w.commit(1)
				w.show("a", w.done)
				w.show("b", w.done)
				tt.hurt(w)
				pass(100 * time.Millisecond)
				w.read(o, "b", "app.posts/1", 0)
				pass(100 * time.Millisecond)
				if !w.mute {
					w.show("a", w.done)
				}
				pass(time.Second)
				if total, _ := o.Tally(); w.mute && total.Reads != 0 {
					t.Errorf("judged before the stream had come so far: %+v", total)
				}
				pass(patience)
				want := Tally{Reads: 1, Because: tt.want}
				if tt.want != (Causes{}) {
					want.Undecided = 1
				}
				if total, _ := o.Tally(); total != want {
					t.Errorf("got %+v, want %+v", total, want)
				}
			})
		})
	}
}

func TestAFullQueueRefuses(t *testing.T) {
	w := newWorld(t)
	o := New(w.ix.Snapshot, clock, lease)
	reads := make([]serve.ObservedRead, queued)
	for i := range reads {
		reads[i].Server = "b"
	}
	if err := o.Observe(t.Context(), reads); err != nil {
		t.Fatal(err)
	}
	if err := o.Observe(t.Context(), reads[:1]); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}

// TestReportersCannotFillTheObserver: reads from the future (a clock that is
// wrong) do not wait for it, and a server that nobody knows is the reporter's
// mistake.
func TestReportersCannotFillTheObserver(t *testing.T) {
	w := newWorld(t)
	o := New(w.ix.Snapshot, clock, lease)
	now := time.Now()
	var reads []serve.ObservedRead
	for range 100 {
		reads = append(reads, serve.ObservedRead{At: now.Add(time.Hour), Server: "b"})
	}
	reads = append(reads, serve.ObservedRead{At: now.Add(100 * time.Millisecond), Server: "b"})
	if err := o.Observe(t.Context(), reads); err != nil {
		t.Fatal(err)
	}
	var wrong *serve.ReadError
	if err := o.Observe(t.Context(), []serve.ObservedRead{{At: now, Server: "b"}, {At: now, Server: "zz"}}); !errors.As(err, &wrong) || wrong.Read != 1 || wrong.Field != "server" {
		t.Errorf("an unknown server: %v", err)
	}
	o.judge(now, false)
	total, by := o.Tally()
	if want := (Tally{Reads: 100, Undecided: 100, Because: Causes{Time: 100}}); total != want || by["b"] != want {
		t.Errorf("got %+v, and %+v for b, want %+v", total, by["b"], want)
	}
	if len(o.waiting) != 1 {
		t.Errorf("%d reads wait, want the one that has just happened", len(o.waiting))
	}
}
