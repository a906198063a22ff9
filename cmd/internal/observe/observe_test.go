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
}

var uuids = map[string]gtid.UUID{"a": {0xa}, "b": {0xb}, "c": {0xc}}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, def: &event.TableDefinition{Definition: key.Definition{
		Schema: "app", Table: "posts", Columns: 2, Primary: []key.Column{{Name: "id", Type: key.TypeInt, Length: 4}},
	}}}
	w.def.Seal()
	var err error
	w.ix, err = index.Open(index.Options{Clock: func() int64 { return time.Now().UnixNano() }, Router: [16]byte{1}, Servers: []string{"a", "b", "c"}})
	w.must(err)
	w.seq = 1
	w.must(w.ix.Start(&event.Checkpoint{History: 1}, 1, event.Header{Timeline: 1, Count: 1}, event.MakeVersion(1, 1)))
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

// show tells what a server has executed.
func (w *world) show(server string, executed gtid.Set) {
	w.t.Helper()
	w.tick++
	w.ix.TickSent(w.tick, time.Now().UnixNano())
	role := event.RoleReplica
	if server == "a" {
		role = event.RolePrimary
	}
	w.must(w.ix.State(&event.ServerState{
		Server: server, UUID: uuids[server], Epoch: 1, DataSet: 1, History: 1, LossSeen: 1 << 62, Alive: true, Role: role, Writable: role == event.RolePrimary,
		Drained: true, GTIDMode: "ON", Follow: "binlog", Executed: executed, Ticks: []event.RouterTick{{Router: [16]byte{1}, Tick: w.tick}},
	}))
}

func TestVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := New(w.ix.Snapshot)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- o.Run(ctx) }()
		pass := func(d time.Duration) {
			timer := time.NewTimer(d)
			<-timer.C
		}
		w.commit(1)
		before := w.done
		w.commit(2)
		for server, set := range map[string]gtid.Set{"a": w.done, "b": w.done, "c": before} {
			w.show(server, set)
		}
		pass(100 * time.Millisecond)
		read := func(server, k string, ago time.Duration) {
			parsed, err := key.Parse(k)
			w.must(err)
			w.must(o.Observe(ctx, []serve.ObservedRead{{At: time.Now().Add(-ago), Server: server, Keys: []key.Key{parsed}}}))
		}
		read("b", "app.posts/2", 0) // shown
		read("c", "app.posts/2", 0) // not shown there
		read("c", "app.posts/1", 0) // shown
		read("a", "app.posts/2", 0) // b would have done
		read("b", "app.posts/2", time.Hour)
		read("b", "app.other/2", 0)
		read("nobody", "app.posts/2", 0)
		read("b", "app.posts/1", 0) // written again behind it
		pass(50 * time.Millisecond)
		w.commit(1)
		w.show("a", w.done)
		pass(time.Second)
		total, by := o.Tally()
		if want := (Tally{Reads: 8, Stale: 1, NeedlessPrimary: 1, Undecided: 5}); total != want {
			t.Errorf("got %+v, want %+v", total, want)
		}
		// Post 1 is written behind both reads of it: what was newest then is not
		// known any more.
		if want := (Tally{Reads: 2, Stale: 1, Undecided: 1}); by["c"] != want {
			t.Errorf("c: got %+v, want %+v", by["c"], want)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAFullQueueRefuses(t *testing.T) {
	w := newWorld(t)
	o := New(w.ix.Snapshot)
	if err := o.Observe(t.Context(), make([]serve.ObservedRead, queued)); err != nil {
		t.Fatal(err)
	}
	if err := o.Observe(t.Context(), make([]serve.ObservedRead, 1)); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}

// TestReportersCannotFillTheObserver: reads from the future (a clock that is
// wrong) do not wait for it, and servers that nobody knows get no tally.
func TestReportersCannotFillTheObserver(t *testing.T) {
	w := newWorld(t)
	o := New(w.ix.Snapshot)
	now := time.Now()
	var reads []serve.ObservedRead
	for i := range 100 {
		reads = append(reads, serve.ObservedRead{At: now.Add(time.Hour), Server: "made up " + string(rune('a'+i))})
	}
	reads = append(reads, serve.ObservedRead{At: now.Add(100 * time.Millisecond), Server: "b"})
	if err := o.Observe(t.Context(), reads); err != nil {
		t.Fatal(err)
	}
	o.judge(now)
	total, by := o.Tally()
	if want := (Tally{Reads: 100, Undecided: 100}); total != want {
		t.Errorf("got %+v, want %+v", total, want)
	}
	if len(by) != 0 {
		t.Errorf("%d servers that nobody knows have a tally", len(by))
	}
	if len(o.waiting) != 1 {
		t.Errorf("%d reads wait, want the one that has just happened", len(o.waiting))
	}
}
