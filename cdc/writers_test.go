package cdc_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// TestStandbyTakesOver: of a pair one writes; when it dies without a word or says
// good-bye the other one goes on. How soon, and not before: TestLeaseTakeover.
func TestStandbyTakesOver(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	r := newRecorder()
	follow(t, c, r)
	mortal := cdc.WriterOptions{Name: "first"}
	kill := mortal.Mortal()
	first := write(t, c, mortal, facts(upTo(0)))
	first.numbered(t, 1, 20)
	r.wantNumbered(t, 1, 20)

	type opened struct {
		w    *cdc.Writer
		tail *cdc.Tail
		err  error
	}
	standby := func(name string) <-chan opened {
		out := make(chan opened, 1)
		go func() {
			w, tail, err := cdc.OpenWriter(t.Context(), c, cdc.WriterOptions{Name: name})
			out <- opened{w, tail, err}
		}()
		return out
	}
	second := standby("second")
	kill()
	o := <-second
	if o.err != nil {
		t.Fatal(o.err)
	}
	defer o.w.Close()
	if !o.tail.Delivered.Equal(upTo(20)) || o.w.Generation() <= first.Generation() {
		t.Errorf("the second one starts from %v as generation %d after %d", o.tail.Delivered, o.w.Generation(), first.Generation())
	}
	if _, err := o.w.Begin(t.Context(), facts(upTo(20))); err != nil {
		t.Fatal(err)
	}
	run := start(t, o.w.Run)
	// The first one is not dead after all.
	first.numbered(t, 21, 21)
	if err := first.run.wait(t); !errors.Is(err, cdc.ErrFenced) {
		t.Errorf("the first one ended with %v, want %v", err, cdc.ErrFenced)
	}
	if err := o.w.Append(t.Context(), tx(21)); err != nil {
		t.Fatal(err)
	}
	r.wantNumbered(t, 1, 21)

	third := standby("third")
	if err := run.stop(); err != nil {
		t.Error(err)
	}
	if err := o.w.Close(); err != nil {
		t.Error(err)
	}
	o = <-third
	if o.err != nil {
		t.Fatal(o.err)
	}
	if err := o.w.Close(); err != nil {
		t.Error(err)
	}
}

// TestRivalWriterIsFenced: whatever the leader key says, two writers that both
// believe to be the one never both get in, and readers follow the higher
// generation.
func TestRivalWriterIsFenced(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	r := newRecorder()
	f, _ := follow(t, c, r)
	mortal := cdc.WriterOptions{Name: "first"}
	kill := mortal.Mortal()
	first := write(t, c, mortal, facts(upTo(0)))
	first.numbered(t, 1, 10)
	r.wantNumbered(t, 1, 10)
	kill()
	second, _, err := cdc.OpenWriter(t.Context(), c, cdc.WriterOptions{Name: "second"})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	// Between the second one's tail read and its first word.
	first.numbered(t, 11, 15)
	first.stored(t, 15)
	from, err := second.Begin(t.Context(), facts(upTo(15)))
	if err != nil {
		t.Fatal(err)
	}
	if !from.Equal(upTo(15).Subtract(gtid.Of(ga(15)))) {
		t.Errorf("dump from %v: what the first one wrote last was not read again", from)
	}
	start(t, second.Run)
	if err := second.Append(t.Context(), tx(16)); err != nil {
		t.Fatal(err)
	}
	first.numbered(t, 16, 20)
	if err := first.run.wait(t); !errors.Is(err, cdc.ErrFenced) {
		t.Errorf("the first one ended with %v, want %v", err, cdc.ErrFenced)
	}
	for n := int64(17); n <= 20; n++ {
		if err := second.Append(t.Context(), tx(n)); err != nil {
			t.Fatal(err)
		}
	}
	r.wantNumbered(t, 1, 20)
	if n := f.Counters().Rebuilds; n != 0 {
		t.Errorf("%d rebuilds", n)
	}
}

// TestLowerGenerationIsIgnored: a message of an older writer that came in all
// the same is a link of the chain and nothing else.
func TestLowerGenerationIsIgnored(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	r := newRecorder()
	f, following := follow(t, c, r)
	for range 2 {
		w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
		w.end(t)
	}
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	w.numbered(t, 1, 5)
	w.stored(t, 5)
	w.end(t)
	r.wantAll(t, w)
	s, err := c.JetStream().Stream(t.Context(), c.WritesStream())
	if err != nil {
		t.Fatal(err)
	}
	seq := w.Counters().AckedSeq
	raw, err := s.GetMsg(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	m, err := event.DecodeMessage(raw.Data)
	if err != nil {
		t.Fatal(err)
	}
	for _, resumed := range []bool{false, true} {
		if resumed { // behind the ignored one
			if err := following.stop(); err != nil {
				t.Fatal(err)
			}
			f, _ = follow(t, c, r)
		}
		m.Prev, m.Count, m.Generation, m.First = m.Digest, m.Count+1, 1, m.First+uint64(len(m.Items))
		m.Items = []event.Item{tx(6)}
		data := m.AppendBinary(nil)
		m.Digest = event.DigestOf(data)
		if _, err := c.JetStream().Publish(t.Context(), c.WritesSubject(), data); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			if got := f.Counters(); got.Messages == 0 || got.Ignored != 1 {
				return fmt.Sprintf("resumed %v: %d messages ignored of %d", resumed, got.Ignored, got.Messages)
			}
			return ""
		})
	}
	// The next writer ignores it too, and goes on behind it.
	w = write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	if !w.tail.Delivered.Equal(upTo(5)) {
		t.Errorf("the tail has %v, want %v", w.tail.Delivered, upTo(5))
	}
	w.numbered(t, 6, 8)
	w.stored(t, 3)
	r.wantAll(t, w)
	var got gtid.Set
	r.do(func() {
		for _, x := range r.txs {
			got = got.Add(x.GTID)
		}
		got = got.Union(r.starts[len(r.starts)-1].Delivered)
	})
	if want := upTo(8); !got.Equal(want) || f.Counters().Rebuilds != 0 {
		t.Errorf("read %v with %d rebuilds, want %v", got, f.Counters().Rebuilds, want)
	}
}

// lastSeen publishes a state, and ends as the tailer that saw it did.
func lastSeen(t *testing.T, c *cdc.Conn, s *event.ServerState) {
	t.Helper()
	sp := cdc.NewStatePublisher(c)
	states := start(t, sp.Run)
	if err := sp.Publish(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if st, err := c.LastState(t.Context(), s.Server); err != nil || st == nil {
			return fmt.Sprintf("state %v, %v", st, err)
		}
		return ""
	})
	if err := states.stop(); err != nil {
		t.Fatal(err)
	}
}

// tenStored is a followed stream of ten transactions, and its writer.
func tenStored(t *testing.T) (*cdc.Conn, *recorder, *writing) {
	t.Helper()
	c := open(t, options(t, t.TempDir()))
	r := newRecorder()
	follow(t, c, r)
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	r.wantStarted(t)
	w.numbered(t, 1, 10)
	w.stored(t, 10)
	return c, r, w
}

// TestFailover: the new primary's announcement names what is lost, with the
// identities; the timeline is new and the history is not.
func TestFailover(t *testing.T) {
	c, r, w := tenStored(t)
	// The old primary was committing 11 and 12 when it was seen last.
	lastSeen(t, c, &event.ServerState{Server: "a", UUID: uuidA, Epoch: 1, Alive: true, Executed: upTo(10), Owned: gtid.Of(ga(11), ga(12))})
	w.end(t)

	f := cdc.PrimaryFacts{Server: "b", UUID: uuidB, Epoch: 2, Executed: upTo(8).Add(gb(1)), GTIDMode: "ON", Drained: true}
	w = write(t, c, cdc.WriterOptions{}, f)
	if want := upTo(8).Subtract(gtid.Of(ga(8))); !w.from.Equal(want) {
		t.Errorf("dump from %v, want %v: the newest comes again", w.from, want)
	}
	w.append(t, txOf(gb(1), commitOf(100)), txOf(gb(2), commitOf(101)))
	r.wantAll(t, w)
	list := itemsOf[*event.Announcement](r)
	a := list[len(list)-1]
	if want := gtid.Of(ga(9), ga(10), ga(11), ga(12)); !a.Lost.Equal(want) || !a.NewlyLost.Equal(want) || len(a.LostIDs) != 2 || a.LostIDs[0].OriginalCommit != commitOf(9) {
		t.Errorf("lost %v (new %v, identities %v), want %v", a.Lost, a.NewlyLost, a.LostIDs, want)
	}
	if a.History != 1 || len(a.Timelines) != 2 || a.Server != "b" || a.Epoch != 2 {
		t.Errorf("announced %+v", a)
	}
	w.end(t)
	// 9 comes back: it is not lost any more, its identity stays.
	f.Executed = f.Executed.Add(gb(2)).Add(ga(9))
	w = write(t, c, cdc.WriterOptions{}, f)
	r.wantAll(t, w)
	list = itemsOf[*event.Announcement](r)
	if a = list[len(list)-1]; a.Lost.Contains(ga(9)) || len(a.LostIDs) != 2 || !a.NewlyLost.IsEmpty() {
		t.Errorf("lost %v, identities %v, newly %v", a.Lost, a.LostIDs, a.NewlyLost)
	}
	w.end(t)
}

// TestLostBeforeItWasDelivered: a crash of the primary took what the stream had not
// come to, and a replica has it. The primary may give those GTIDs again at once, and
// then accounts for them: so they are lost.
func TestLostBeforeItWasDelivered(t *testing.T) {
	c, r, w := tenStored(t)
	w.end(t)
	lastSeen(t, c, &event.ServerState{Server: "b *", UUID: uuidB, Epoch: 2, Alive: true, Executed: upTo(11).Add(gb(1)), Owned: gtid.Of(ga(12)), Received: upTo(13)})
	f := facts(upTo(10))
	f.Epoch = 3
	f.Restart = &cdc.RestartEvidence{Before: upTo(0)}
	for n := int64(1); n <= 10; n++ {
		f.Restart.Commits = append(f.Restart.Commits, cdc.Commit{Identity: tx(n).Identity()})
	}
	w = write(t, c, cdc.WriterOptions{}, f)
	w.numbered(t, 14, 14)
	r.wantAll(t, w)
	list := itemsOf[*event.Announcement](r)
	a := list[len(list)-1]
	if want := gtid.Of(ga(11), ga(12), ga(13)); !a.Lost.Equal(want) || !a.NewlyLost.Equal(want) || a.History != 1 {
		t.Errorf("lost %v (new %v) in history %d, want %v in history 1", a.Lost, a.NewlyLost, a.History, want)
	}
	w.end(t)
}

// TestReuseBeginsAHistory: rules §11.2 from the crash to the rebuilt reader.
func TestReuseBeginsAHistory(t *testing.T) {
	c, r, w := tenStored(t)
	w.end(t)
	f := facts(upTo(10))
	f.Epoch = 2
	f.Restart = &cdc.RestartEvidence{Before: upTo(5), Commits: []cdc.Commit{{Identity: tx(6).Identity()}, {Identity: tx(7).Identity()}}}
	ids := cdc.NewIdentities(c, cdc.IdentitiesOptions{Server: "b"})
	ids.Observe(replica(1, upTo(10), upTo(10), gtid.Set{}))
	start(t, ids.Run)
	w = write(t, c, cdc.WriterOptions{}, f)
	if !w.from.Equal(upTo(7)) {
		t.Errorf("dump from %v, want what was given again to be read again", w.from)
	}
	again := txOf(ga(8), commitOf(8)+5)
	w.append(t, again, txOf(ga(9), commitOf(9)+5), txOf(ga(10), commitOf(10)+5))
	w.numbered(t, 11, 12)
	r.wantAll(t, w)
	r.wantStarts(t, 2)
	r.wantNumbered(t, 8, 12)
	if len(r.starts) != 2 || r.starts[1].History != 2 || !r.starts[1].Delivered.Equal(upTo(7)) {
		t.Fatalf("%d starts, the last at %+v", len(r.starts), r.starts[len(r.starts)-1])
	}
	// A replica's tailer learns which transaction the GTIDs name now.
	if k := wantKnown(t, ids, ga(8), event.Identified); k.OriginalCommit != again.OriginalCommit {
		t.Errorf("8 is %+v", k)
	}
	wantKnown(t, ids, ga(10), event.Identified)
	if turn := ids.Since(0); !turn.EverLost.Equal(upTo(10).Subtract(upTo(7))) || !turn.Vouched.Equal(upTo(7)) || turn.History != 2 {
		t.Errorf("the replica's tailer is told %+v", turn)
	}
	a := itemsOf[*event.Announcement](r)[0]
	if want := gtid.Of(ga(8), ga(9), ga(10)); !a.NewlyLost.Equal(want) || !a.Lost.IsEmpty() || len(a.LostIDs) != 3 || a.History != 2 {
		t.Errorf("newly lost %v, lost %v, identities %v, history %d", a.NewlyLost, a.Lost, a.LostIDs, a.History)
	}
	w.end(t)
	// Who comes later starts behind their messages: no identity, and still none
	// for a base.
	f.Executed, f.Restart = upTo(12), nil
	write(t, c, cdc.WriterOptions{}, f).end(t)
	late := cdc.NewIdentities(c, cdc.IdentitiesOptions{Server: "b"})
	s := replica(1, upTo(7), upTo(12), gtid.Set{})
	s.History, s.LossSeen = 2, math.MaxInt64
	late.Observe(s)
	start(t, late.Run)
	wantKnown(t, late, ga(8), event.NoIdentity)
	if turn := late.Since(0); !turn.EverLost.Equal(upTo(10).Subtract(upTo(7))) {
		t.Errorf("ever lost are %v", turn.EverLost)
	}
	if !isLost(late, tx(8)) || isLost(late, again) {
		t.Error("the old 8 is lost as this identity, and the new one is not")
	}
}

// TestLostComesBack: a server that held a lost transaction is the primary now.
// Who has that transaction holds nothing lost, also for who starts later.
func TestLostComesBack(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	w.numbered(t, 1, 10)
	w.stored(t, 10)
	w.end(t)
	lossy := cdc.PrimaryFacts{Server: "b", UUID: uuidB, Epoch: 2, Executed: upTo(8), GTIDMode: "ON", Drained: true}
	write(t, c, cdc.WriterOptions{}, lossy).end(t)
	back := facts(upTo(9))
	back.Epoch = 3
	w = write(t, c, cdc.WriterOptions{}, back)
	w.append(t, tx(9))
	if err := w.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.end(t)
	ids := cdc.NewIdentities(c, cdc.IdentitiesOptions{Server: "c"})
	s := replica(1, upTo(9), upTo(9), gtid.Set{})
	s.History, s.LossSeen = 1, math.MaxInt64
	ids.Observe(s)
	start(t, ids.Run)
	wantKnown(t, ids, ga(9), event.NoIdentity)
	if isLost(ids, tx(9)) || !isLost(ids, tx(10)) {
		t.Error("9 is the primary's again, and 10 is lost")
	}
	if ever := ids.Since(0).EverLost; !ever.Equal(upTo(10).Subtract(upTo(8))) {
		t.Errorf("ever lost are %v", ever)
	}
}

// TestAnonymousTransaction: a hole without GTIDs stops what the primary says
// until a new history is announced (rules §6.2), also for who starts at a
// checkpoint behind it.
func TestAnonymousTransaction(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	w.numbered(t, 1, 3)
	if err := w.Hole(t.Context(), &event.Hole{Anonymous: true, Reason: "no GTID"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := newRecorder()
	follow(t, c, r)
	r.wantStarted(t)
	if r.starts[0].Announced.Epoch != 0 {
		t.Errorf("the checkpoint says that epoch %d is announced", r.starts[0].Announced.Epoch)
	}
	w.end(t)
	w = write(t, c, cdc.WriterOptions{}, facts(upTo(3)))
	r.wantAll(t, w)
	if n := len(r.starts); n != 2 || r.starts[1].History != 2 {
		t.Errorf("%d starts, want a second one for history 2", n)
	}
	w.end(t)
}

// TestPurgedBeforeRead: what the binlog can't give any more is a hole.
func TestPurgedBeforeRead(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	w.numbered(t, 1, 3)
	w.stored(t, 3)
	w.end(t)
	f := facts(upTo(9))
	f.Purged = upTo(6)
	w = write(t, c, cdc.WriterOptions{}, f)
	if !w.from.Equal(upTo(6)) {
		t.Errorf("dump from %v, want %v", w.from, upTo(6))
	}
	w.end(t)
	r := newRecorder()
	follow(t, c, r)
	r.wantStarted(t)
	if cp := r.starts[0]; !cp.Delivered.Equal(upTo(6)) || !cp.Holes.Equal(upTo(6).Subtract(upTo(3))) {
		t.Errorf("checkpoint of %v with holes %v", cp.Delivered, cp.Holes)
	}
}

// TestKilledBetweenChunks: the next writer sends the transaction again, whole.
func TestKilledBetweenChunks(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	o := cdc.WriterOptions{InFlight: 1, AckTimeout: time.Minute}
	o.SmallMessages(1200)
	f := &cdc.Faults{At: 5, Fault: cdc.LoseSilently} // the third message of the transaction
	o.BreakPublish(f)
	w := write(t, c, o, facts(upTo(0)))
	big := tx(1)
	big.Scopes = make([]key.Digest, 400)
	w.append(t, big)
	eventually(t, func() string {
		if !f.Struck() {
			return "the fault struck nothing"
		}
		return ""
	})
	w.end(t)
	o = cdc.WriterOptions{}
	o.SmallMessages(1200)
	w = write(t, c, o, facts(upTo(1)))
	if !w.from.IsEmpty() {
		t.Errorf("dump from %v: half a transaction counts", w.from)
	}
	w.append(t, big)
	w.stored(t, 1)
	oldest := newRecorder()
	fl := cdc.NewFollower(c, cdc.FollowerOptions{Sink: oldest, StartAt: func(*event.Checkpoint) bool { return false }})
	start(t, fl.Run)
	oldest.wantStarted(t)
	oldest.wantAll(t, w)
	scopes := 0
	for _, ch := range itemsOf[*event.Chunk](oldest) {
		if ch.Number == 0 {
			scopes = 0
		}
		if scopes += len(ch.Scopes); ch.Last != nil {
			if scopes += len(ch.Last.Scopes); scopes != 400 {
				t.Errorf("%d scopes, want 400", scopes)
			}
		}
	}
	w.end(t)
}

// TestStreamPurgedOrDeleted: an operator's purge, and a stream deleted and made
// again, end the writer's session and rebuild readers; nothing is said of what
// is gone.
func TestStreamPurgedOrDeleted(t *testing.T) {
	for name, harm := range map[string]func(*testing.T, *cdc.Conn, jetstream.Stream){
		"purged": func(t *testing.T, _ *cdc.Conn, s jetstream.Stream) {
			if err := s.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"deleted and made again": func(t *testing.T, c *cdc.Conn, s jetstream.Stream) {
			cfg := s.CachedInfo().Config
			if err := c.JetStream().DeleteStream(t.Context(), cfg.Name); err != nil {
				t.Fatal(err)
			}
			if _, err := c.JetStream().CreateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, options(t, t.TempDir()))
			r := newRecorder()
			f, _ := follow(t, c, r)
			w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
			r.wantStarted(t)
			w.numbered(t, 1, 20)
			r.wantNumbered(t, 1, 20)
			s, err := c.JetStream().Stream(t.Context(), c.WritesStream())
			if err != nil {
				t.Fatal(err)
			}
			harm(t, c, s)
			eventually(t, func() string {
				var up bool
				r.do(func() { up = r.connected })
				if up && f.Counters().Rebuilds == 0 {
					return "the reader takes itself for caught up"
				}
				return ""
			})
			for n := int64(21); n <= 22; n++ { // the run may end with the first of them
				if err := w.Append(t.Context(), tx(n)); err != nil && !errors.Is(err, cdc.ErrSteppedBack) {
					t.Fatal(err)
				}
			}
			if err := w.run.wait(t); !errors.Is(err, cdc.ErrSteppedBack) {
				t.Fatalf("run ended with %v, want %v", err, cdc.ErrSteppedBack)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			w = write(t, c, cdc.WriterOptions{}, facts(upTo(22)))
			if !w.tail.Empty || !w.from.Equal(upTo(22)) {
				t.Errorf("tail empty %v, dump from %v", w.tail.Empty, w.from)
			}
			w.numbered(t, 23, 30)
			r.wantStarts(t, 2)
			r.wantNumbered(t, 23, 30)
			if n := len(r.starts); n != 2 || r.starts[1].History != 2 {
				t.Errorf("%d starts, the last in history %d, want the second one in history 2", n, r.starts[n-1].History)
			}
			w.end(t)
		})
	}
}

// TestStreamAwayUnderLoad: NATS is gone for a while; Append blocks at the bound
// of the queue, and everything goes on afterwards.
func TestStreamAwayUnderLoad(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	r := newRecorder()
	follow(t, c, r)
	w := write(t, c, cdc.WriterOptions{QueueBytes: 10_000}, facts(upTo(0)))
	w.numbered(t, 1, 10)
	r.wantNumbered(t, 1, 10)
	c.StopServer()
	appended := start(t, func(ctx context.Context) error {
		for n := int64(11); n <= 1000; n++ {
			if err := w.Append(ctx, tx(n)); err != nil {
				return err
			}
		}
		return nil
	})
	eventually(t, func() string {
		var up bool
		r.do(func() { up = r.connected })
		if up {
			return "the reader takes itself for connected"
		}
		return ""
	})
	select {
	case <-appended.done:
		t.Error("Append took more than the queue holds")
	case <-time.After(300 * time.Millisecond):
	}
	if err := c.StartServer(); err != nil {
		t.Fatal(err)
	}
	r.wantNumbered(t, 1, 1000)
	r.wantCaughtUp(t)
	if err := appended.wait(t); err != nil {
		t.Error(err)
	}
	w.end(t)
}

// TestCheckpointsComeInTime: by count, and by age if anything was written.
func TestCheckpointsComeInTime(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{CheckpointEvery: 100, BatchBytes: 2000}, facts(upTo(0)))
	w.numbered(t, 1, 1000)
	w.stored(t, 1000)
	if n := w.Counters().Checkpoints; n < 5 || n > 15 {
		t.Errorf("%d checkpoints for 1000 transactions, one in 100 wanted", n)
	}
	w.end(t)
	w = write(t, c, cdc.WriterOptions{CheckpointAge: 200 * time.Millisecond}, facts(upTo(1000)))
	before := w.Counters().Checkpoints
	w.numbered(t, 1001, 1001)
	eventually(t, func() string {
		if w.Counters().Checkpoints == before {
			return "no checkpoint by age"
		}
		return ""
	})
	w.end(t)
}

// TestGroupColumnsAreAnnounced: who starts finds the new column in the newest
// checkpoint, and what lies before it.
func TestGroupColumnsAreAnnounced(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	w.numbered(t, 1, 5)
	w.stored(t, 5)
	w.end(t)
	col := event.GroupColumn{Schema: "app", Table: "posts", Column: "author_id"}
	w = write(t, c, cdc.WriterOptions{Groups: []event.GroupColumn{col}}, facts(upTo(5)))
	r := newRecorder()
	follow(t, c, r)
	r.wantStarted(t)
	if g := r.starts[0].Groups; len(g) != 1 || g[0].Column != "author_id" || !g[0].Before.Equal(upTo(5)) {
		t.Errorf("groups of the checkpoint: %+v", g)
	}
	w.end(t)
}

// Close gives the leader key back, also when it interrupts a renewal that was
// done already: else a standby waits for nothing.
func TestReleaseAfterALostRenewal(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	var o cdc.WriterOptions
	renewed := o.LoseRenewal()
	w := write(t, c, o, facts(upTo(0)))
	select {
	case <-renewed:
	case <-time.After(hang):
		t.Fatal("the leader key is not renewed")
	}
	w.end(t)
	if released, err := c.LeaderReleased(t.Context()); err != nil || !released {
		t.Errorf("the leader key is released: %v, %v", released, err)
	}
}

// The gauge of what waits holds what was appended, until it is in a message.
func TestQueueIsCounted(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w, _, err := cdc.OpenWriter(t.Context(), c, cdc.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	if _, err := w.Begin(t.Context(), facts(upTo(0))); err != nil {
		t.Fatal(err)
	}
	want := uint64(0)
	for n := int64(1); n <= 3; n++ {
		if err := w.Append(t.Context(), tx(n)); err != nil {
			t.Fatal(err)
		}
		want += uint64(event.SizeBound(tx(n)))
	}
	if got := w.Counters().QueueBytes; got != want {
		t.Errorf("%d bytes wait, want %d", got, want)
	}
	run := start(t, w.Run)
	if err := w.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.Counters().QueueBytes; got != 0 {
		t.Errorf("%d bytes wait when all is stored", got)
	}
	if err := run.stop(); err != nil {
		t.Error(err)
	}
}
