package cdc_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// The tests of this file are the lines of "What JetStream does" in the design.

// TestStreamIsItsOwnCheckpoint: a writer starts from the stream alone, and skips
// by identity what is in it.
func TestStreamIsItsOwnCheckpoint(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	r := newRecorder()
	follow(t, c, r)
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(3)))
	w.numbered(t, 4, 50)
	w.stored(t, 47)
	r.wantNumbered(t, 4, 50) // else it may start at the checkpoint of the next writer
	w.end(t)

	w = write(t, c, cdc.WriterOptions{}, facts(upTo(40)))
	// The newest that the primary has comes again: behind it no transaction without a
	// GTID goes unseen.
	from := upTo(50).Subtract(gtid.Of(ga(40)))
	if w.tail.Empty || !w.tail.Delivered.Equal(upTo(50)) || !w.from.Equal(from) {
		t.Errorf("tail %v, dump from %v, want %v and %v", w.tail.Delivered, w.from, upTo(50), from)
	}
	if got := len(w.tail.Commits); got != 47 {
		t.Errorf("%d identities in the tail, want 47", got)
	}
	w.numbered(t, 45, 60) // the dump repeats some
	r.wantNumbered(t, 4, 60)
	if got := w.Counters().Skipped; got != 6 {
		t.Errorf("%d skipped, want 6", got)
	}
	w.end(t)
}

// TestSameGTIDOtherIdentity: what comes under a GTID of the stream but is
// another transaction is no repetition (rules §11.4).
func TestSameGTIDOtherIdentity(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(3)))
	w.numbered(t, 4, 5)
	w.stored(t, 2)
	w.append(t, txOf(ga(5), commitOf(5)+1))
	if err := w.run.wait(t); !errors.Is(err, cdc.ErrReused) {
		t.Errorf("run ended with %v, want %v", err, cdc.ErrReused)
	}
	err := w.Append(t.Context(), tx(6))
	if !errors.Is(err, cdc.ErrReused) {
		t.Errorf("append after the end: %v, want %v", err, cdc.ErrReused)
	}
	var reused *cdc.ReusedError
	if !errors.As(err, &reused) || !reused.Known || reused.Stream != tx(5).Identity() {
		t.Fatalf("%v does not tell what was reused", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	// Told of it, the next writer begins a history, in the same run too.
	f := facts(upTo(5))
	f.Seen = []event.Identity{reused.Came}
	w = write(t, c, cdc.WriterOptions{}, f)
	w.numbered(t, 6, 7)
	w.stored(t, 2)
	r := newRecorder()
	follow(t, c, r)
	r.wantStarted(t)
	if r.starts[0].History != 2 {
		t.Errorf("history %d, want 2", r.starts[0].History)
	}
	w.end(t)
}

// TestUnknownIdentityIsNoRepetition: a GTID below the stream's beginning has no
// identity that could prove the repetition.
func TestUnknownIdentityIsNoRepetition(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(3)))
	w.append(t, tx(2))
	if err := w.run.wait(t); !errors.Is(err, cdc.ErrReused) {
		t.Errorf("run ended with %v, want %v", err, cdc.ErrReused)
	}
}

// TestDeduplicationForgets: with the server's window of ids out of the game, a
// message whose ack was lost is in the stream once all the same.
func TestDeduplicationForgets(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	r := newRecorder()
	follow(t, c, r)
	o := cdc.WriterOptions{BatchBytes: 600}
	f := &cdc.Faults{At: 5, Fault: cdc.LoseAnswer, StripID: true}
	o.BreakPublish(f)
	w := write(t, c, o, facts(upTo(0)))
	w.numbered(t, 1, 300)
	r.wantNumbered(t, 1, 300)
	if !f.Struck() {
		t.Error("the fault struck nothing")
	}
}

// TestGroupCommit: what waits to be published shares messages.
func TestGroupCommit(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	r := newRecorder()
	follow(t, c, r)
	writer, tail, err := cdc.OpenWriter(t.Context(), c, cdc.WriterOptions{QueueBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writer.Close() })
	from, err := writer.Begin(t.Context(), facts(upTo(0)))
	if err != nil {
		t.Fatal(err)
	}
	w := &writing{Writer: writer, tail: tail, from: from}
	w.numbered(t, 1, 20000) // all of them wait when it begins
	w.run = start(t, w.Run)
	r.wantNumbered(t, 1, 20000)
	if n := w.Counters(); n.Messages > n.Transactions/5 {
		t.Errorf("%d messages for %d transactions", n.Messages, n.Transactions)
	}
}

// TestSteppedBackBehindAWriter: what is left of a stream that stepped back may be
// of older writers than a reader knows of; it starts there all the same, whether a
// new writer comes or not.
func TestSteppedBackBehindAWriter(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	r := newRecorder()
	f, _ := follow(t, c, r)
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	r.wantStarted(t)
	w.numbered(t, 1, 100)
	r.wantNumbered(t, 1, 100)
	w.end(t)
	saved := filepath.Join(t.TempDir(), "saved")
	whileStopped(t, c, c.SaveStore, saved)
	w = write(t, c, cdc.WriterOptions{}, facts(upTo(100)))
	w.numbered(t, 101, 150)
	w.stored(t, 50)
	r.wantNumbered(t, 1, 150)
	w.end(t)
	whileStopped(t, c, c.RestoreStore, saved)
	eventually(t, func() string {
		var have gtid.Set
		var starts int
		r.do(func() {
			starts = len(r.starts)
			if starts == 0 {
				return
			}
			have = r.starts[starts-1].Delivered
			for _, x := range r.txs {
				have = have.Add(x.GTID)
			}
		})
		if starts < 2 || !have.Equal(upTo(100)) {
			return fmt.Sprintf("%d starts, %d rebuilds, the reader has %s", starts, f.Counters().Rebuilds, have)
		}
		return ""
	})
	if n := f.Counters().Rebuilds; n != 1 {
		t.Errorf("started again %d times, want once", n)
	}
}

// TestAckIsNotAnFsync: the store steps back to what it was; the writer notices
// when it reconnects and starts again from the tail, the reader rebuilds, and
// nothing is missing in the end.
func TestAckIsNotAnFsync(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	r := newRecorder()
	f, _ := follow(t, c, r)
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	def := event.TableDefinition{Definition: key.Definition{Schema: "app", Table: "posts", Version: 7}}
	w.numbered(t, 1, 100)
	w.stored(t, 100)

	saved := filepath.Join(t.TempDir(), "saved")
	whileStopped(t, c, c.SaveStore, saved)
	if err := w.Definitions(t.Context(), []event.TableDefinition{def}); err != nil {
		t.Fatal(err)
	}
	w.numbered(t, 101, 200)
	w.stored(t, 200)
	r.wantNumbered(t, 1, 200)
	eventually(t, func() string {
		if _, ok := r.definition("app.posts"); !ok {
			return "the definition did not come"
		}
		return ""
	})
	whileStopped(t, c, c.RestoreStore, saved)
	if err := w.run.wait(t); !errors.Is(err, cdc.ErrSteppedBack) {
		t.Fatalf("run ended with %v, want %v", err, cdc.ErrSteppedBack)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, func() string {
		if f.Counters().Rebuilds == 0 {
			return "the follower did not notice"
		}
		return ""
	})
	w = write(t, c, cdc.WriterOptions{}, facts(upTo(200)))
	if want := upTo(100).Subtract(gtid.Of(ga(100))); !w.from.Equal(want) {
		t.Errorf("dump from %v, want %v: what the stream still has, less the newest", w.from, want)
	}
	if err := w.Definitions(t.Context(), []event.TableDefinition{def}); err != nil {
		t.Fatal(err)
	}
	w.numbered(t, 101, 210)
	r.wantCaughtUp(t)
	eventually(t, func() string {
		var have gtid.Set
		r.do(func() {
			have = r.starts[len(r.starts)-1].Delivered
			for _, x := range r.txs {
				have = have.Add(x.GTID)
			}
		})
		if !have.Equal(upTo(210)) {
			return "the reader has " + have.String()
		}
		return ""
	})
	if _, lines, err := c.Numbering(t.Context()); err != nil || len(lines) == 0 || lines[len(lines)-1].First != uint64(1+2+100+1-1) && lines[len(lines)-1].First > 110 {
		t.Errorf("timelines %+v, %v: the newest must begin where ordinals are given again", lines, err)
	}
}

func (r *recorder) definition(name string) (d *event.TableDefinition, ok bool) {
	r.do(func() { d, ok = r.defs[name] })
	return d, ok
}

// TestOrderSurvivesRetryAndDisconnect: NATS goes away again and again under
// load; every transaction is in the stream once, in order.
func TestOrderSurvivesRetryAndDisconnect(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	r := newRecorder()
	follow(t, c, r)
	w := write(t, c, cdc.WriterOptions{BatchBytes: 2000, QueueBytes: 20000}, facts(upTo(0)))
	enough := w.onAndOn(t)
	for range 4 {
		before := w.Counters().Transactions
		eventually(t, func() string {
			if w.Counters().Transactions < before+500 {
				return "no progress"
			}
			return ""
		})
		c.StopServer()
		if err := c.StartServer(); err != nil {
			t.Fatal(err)
		}
	}
	r.wantNumbered(t, 1, enough())
	if w.Counters().Resyncs == 0 {
		t.Error("nothing was interrupted")
	}
}

// onAndOn appends A:1, A:2 and so on until enough is called, which returns the last
// one's number.
func (w *writing) onAndOn(t testing.TB) (enough func() (last int64)) {
	stop, n := make(chan struct{}), int64(0)
	appending := start(t, func(ctx context.Context) error {
		for {
			select {
			case <-stop:
				return nil
			default:
			}
			if err := w.Append(ctx, tx(n+1)); err != nil {
				return err
			}
			n++
		}
	})
	return func() int64 {
		close(stop)
		if err := appending.wait(t); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// TestRetentionEatsHistory: a reader whose position is gone rebuilds from a
// checkpoint, and the oldest GTID still held is told.
func TestRetentionEatsHistory(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{BatchBytes: 600}, facts(upTo(0)))
	r := newRecorder()
	_, run := follow(t, c, r)
	w.numbered(t, 1, 50)
	r.wantNumbered(t, 1, 50)
	if err := run.stop(); err != nil {
		t.Fatal(err)
	}
	w.numbered(t, 51, 100)
	if err := w.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.numbered(t, 101, 120)
	w.stored(t, 120)
	s, err := c.JetStream().Stream(t.Context(), c.WritesStream())
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Up to and with message 51's: somewhere before the checkpoint.
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(info.State.LastSeq-25)); err != nil {
		t.Fatal(err)
	}
	f, _ := follow(t, c, r)
	r.wantCaughtUp(t)
	r.wantNumbered(t, 101, 120)
	n := len(r.starts)
	if got := r.starts[n-1].Delivered; n != 2 || !got.Equal(upTo(100)) {
		t.Errorf("%d starts, the last one at %v, want the second one at %v", n, got, upTo(100))
	}
	eventually(t, func() string {
		if got := f.Counters(); got.Oldest.IsZero() || got.OldestAt == 0 {
			return fmt.Sprintf("oldest GTID held: %v at %d", got.Oldest, got.OldestAt)
		}
		return ""
	})
}

// TestLargePayloads: what does not fit into a message is cut, arrives whole,
// and nothing comes between its pieces.
func TestLargePayloads(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	r := newRecorder()
	follow(t, c, r)
	o := cdc.WriterOptions{InFlight: 3, BatchBytes: 1000, CheckpointEvery: 30}
	o.SmallMessages(1500)
	w := write(t, c, o, facts(upTo(0)))
	r.wantStarted(t)
	big := tx(50)
	big.Scopes = nil
	for i := range 1000 {
		big.Scopes = append(big.Scopes, key.Digest{9, byte(i), byte(i >> 8)})
	}
	prepare := tx(51)
	prepare.Flags, prepare.XID, prepare.Scopes = event.XAPrepare, "X'61',X'',1", big.Scopes
	w.numbered(t, 1, 49)
	w.append(t, big, prepare)
	w.numbered(t, 52, 100)
	if err := w.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wantAll(t, w)
	var scopes []key.Digest
	sum := event.NewScopesDigest()
	chunks := 0
	for _, ch := range itemsOf[*event.Chunk](r) {
		if ch.GTID != ga(50) {
			continue
		}
		chunks++
		scopes = append(scopes, ch.Scopes...)
		sum.Add(ch.Scopes)
		if ch.Last == nil {
			continue
		}
		scopes = append(scopes, ch.Last.Scopes...)
		sum.Add(ch.Last.Scopes)
		if ch.Digest != sum.Sum() || int(ch.Total) != chunks || ch.Last.OriginalCommit != commitOf(50) {
			t.Errorf("last chunk %+v of %d", ch, chunks)
		}
	}
	if chunks < 3 || len(scopes) != 1000 || scopes[0] != big.Scopes[0] || scopes[999] != big.Scopes[999] {
		t.Errorf("%d chunks with %d scopes, want several with 1000 in order", chunks, len(scopes))
	}
	if n := len(itemsOf[*event.Checkpoint](r)); n < 2 {
		t.Errorf("%d checkpoints, want several", n)
	}
	// A reader that starts at the newest one finds the prepared transaction.
	late := newRecorder()
	follow(t, c, late)
	late.wantStarted(t)
	cp := late.starts[0]
	if len(cp.Open) != 1 || len(cp.Open[0].Scopes) != 1000 || !cp.Delivered.Equal(upTo(100)) {
		t.Errorf("checkpoint of %v with %d open XA transactions", cp.Delivered, len(cp.Open))
	}
	// And so does the next writer, which would write a checkpoint from it.
	w.end(t)
	w = write(t, c, o, facts(upTo(100)))
	if !w.from.Equal(upTo(100).Subtract(gtid.Of(ga(100)))) {
		t.Errorf("dump from %v", w.from)
	}
	last := newRecorder()
	follow(t, c, last)
	last.wantStarted(t)
	if cp := last.starts[0]; len(cp.Open) != 1 || len(cp.Open[0].Scopes) != 1000 {
		t.Errorf("after a restart: %d open XA transactions", len(cp.Open))
	}
}

// TestBrokenStep breaks each publish of a session in each way.
func TestBrokenStep(t *testing.T) {
	for name, fault := range map[string]cdc.Fault{
		"lost": cdc.Lose, "done but reported lost": cdc.LoseAnswer, "done without an answer": cdc.Silence, "lost without an answer": cdc.LoseSilently,
	} {
		t.Run(name, func(t *testing.T) {
			for at := int64(1); ; at++ {
				f := &cdc.Faults{At: at, Fault: fault}
				o := session()
				o.BreakPublish(f)
				playSession(t, at, o, nil)
				if !f.Struck() {
					if at < 12 {
						t.Errorf("only %d steps", at-1)
					}
					return
				}
			}
		})
	}
}

// TestBrokenRecord breaks each write to KV of a session in each way.
func TestBrokenRecord(t *testing.T) {
	for name, fault := range map[string]cdc.Fault{"lost": cdc.Lose, "done but reported lost": cdc.LoseAnswer} {
		t.Run(name, func(t *testing.T) {
			for at := int64(1); ; at++ {
				f := &cdc.Faults{At: at, Fault: fault}
				playSession(t, at, session(), f)
				if !f.Struck() {
					if at < 6 {
						t.Errorf("only %d steps", at-1)
					}
					return
				}
			}
		})
	}
}

func session() cdc.WriterOptions {
	o := cdc.WriterOptions{InFlight: 3, BatchBytes: 900, AckTimeout: 100 * time.Millisecond, CheckpointEvery: 25}
	o.SmallMessages(1200)
	return o
}

// playSession writes small and large transactions, checkpoints, a hole and a
// restart, and wants all of it once and in order.
func playSession(t *testing.T, at int64, o cdc.WriterOptions, kv *cdc.Faults) {
	t.Helper()
	opts := options(t, t.TempDir())
	opts.Log = discard()
	c, err := cdc.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if kv != nil {
		c.BreakStore(kv)
	}
	r := newRecorder()
	_, run := follow(t, c, r)
	w := write(t, c, o, facts(upTo(2)))
	r.wantStarted(t)
	big := tx(20)
	big.Scopes = make([]key.Digest, 150)
	w.numbered(t, 3, 19)
	w.append(t, big)
	w.numbered(t, 21, 40)
	w.stored(t, 38)
	w.end(t)
	w = write(t, c, o, facts(upTo(40)))
	w.numbered(t, 41, 50)
	if err := w.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wantAll(t, w)
	var got []gtid.GTID
	r.do(func() {
		for _, it := range r.items {
			switch x := it.(type) {
			case *event.Transaction:
				got = append(got, x.GTID)
			case *event.Chunk:
				if x.Last != nil {
					got = append(got, x.GTID)
				}
			}
		}
	})
	if len(got) != 48 {
		t.Errorf("step %d: %d transactions, want 48", at, len(got))
	}
	for i, g := range got {
		if g != ga(int64(3+i)) {
			t.Fatalf("step %d: transaction %d is %v, want %v", at, i, g, ga(int64(3+i)))
		}
	}
	w.end(t)
	if err := run.stop(); err != nil {
		t.Errorf("step %d: follower: %v", at, err)
	}
}
