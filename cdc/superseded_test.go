package cdc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"tidegate/cdc"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/testenv/testenvtest"
)

// TestSupersededWriterNamesNothing: a writer that found the stream empty and lost
// the leader key before it began leaves the incarnation of its successor's stream
// as it is: readers that start cold find that stream by it.
func TestSupersededWriterNamesNothing(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	o := cdc.WriterOptions{Name: "first"}
	kill := o.Mortal()
	first, _, err := cdc.OpenWriter(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	kill()
	second := write(t, c, cdc.WriterOptions{Name: "second"}, facts(upTo(0)))
	second.numbered(t, 1, 3)
	second.stored(t, 3)
	if _, err := first.Begin(t.Context(), facts(upTo(3))); !errors.Is(err, cdc.ErrFenced) {
		t.Fatalf("the first one ended with %v", err)
	}
	r := newRecorder()
	follow(t, c, r)
	r.wantStarted(t)
}

// TestIncarnationIsNamedAgain: where KV names another incarnation than the stream
// has, the next writer names the stream's.
func TestIncarnationIsNamedAgain(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	w.numbered(t, 1, 3)
	w.stored(t, 3)
	w.end(t)
	kv, err := c.JetStream().KeyValue(t.Context(), c.Bucket())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), "stream", []byte(`{"incarnation":"00112233445566778899aabbccddeeff"}`)); err != nil {
		t.Fatal(err)
	}
	write(t, c, cdc.WriterOptions{}, facts(upTo(3)))
	r := newRecorder()
	follow(t, c, r)
	r.wantStarted(t)
}

// TestPurgedWhileTheTailIsRead: what a writer reads its tail up to is purged
// meanwhile. It says so, and the next one begins anew.
func TestPurgedWhileTheTailIsRead(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	w.numbered(t, 1, 3)
	w.stored(t, 3)
	w.end(t)
	o := cdc.WriterOptions{}
	o.AfterLast(func() {
		s, err := c.JetStream().Stream(t.Context(), c.WritesStream())
		if err == nil {
			err = s.Purge(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), testenvtest.HangTimeout)
	defer cancel()
	if _, _, err := cdc.OpenWriter(ctx, c, o); err == nil || ctx.Err() != nil {
		t.Fatalf("opened with %v", err)
	}
	w = write(t, c, cdc.WriterOptions{}, facts(upTo(3)))
	if !w.tail.Empty {
		t.Error("the stream has nothing, and the writer goes on from it")
	}
}

// TestSupersededWriterDefinesNothing: a writer that was superseded while it was cut
// off does not put its definitions over its successor's.
func TestSupersededWriterDefinesNothing(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	def := func(v key.DefVersion) []event.TableDefinition {
		return []event.TableDefinition{{Definition: key.Definition{Schema: "s", Table: "t", Version: v}, Engine: "InnoDB"}}
	}
	r := newRecorder()
	follow(t, c, r)
	want := func(v key.DefVersion) {
		t.Helper()
		eventually(t, func() (reason string) {
			r.do(func() {
				if d := r.defs["s.t"]; d == nil || d.Version != v {
					reason = fmt.Sprintf("%+v, waiting for version %d", d, v)
				}
			})
			return reason
		})
	}
	o := cdc.WriterOptions{Name: "first"}
	kill := o.Mortal()
	first := write(t, c, o, facts(upTo(0)))
	if err := first.Definitions(t.Context(), def(1)); err != nil {
		t.Fatal(err)
	}
	want(1)
	// A reconnect of the writer that is in force brings them once more.
	stored := lastOfState(t, c)
	if err := c.Reconnect(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if lastOfState(t, c) == stored {
			return "not published again"
		}
		return ""
	})
	kill()
	second := write(t, c, cdc.WriterOptions{Name: "second"}, facts(upTo(0)))
	if err := second.Definitions(t.Context(), def(2)); err != nil {
		t.Fatal(err)
	}
	want(2)
	// Two processes have a connection each; here the second one is at rest, its
	// definition stored, and the first one's connection comes back.
	if err := second.run.stop(); err != nil {
		t.Error(err)
	}
	if err := c.Reconnect(); err != nil {
		t.Fatal(err)
	}
	if err := first.run.wait(t); !errors.Is(err, cdc.ErrFenced) {
		t.Errorf("the first one ended with %v", err)
	}
	s, err := c.JetStream().Stream(t.Context(), c.StateStream())
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(t.Context(), "tidegate.shop.schema.s.t")
	if err != nil {
		t.Fatal(err)
	}
	if d, err := event.DecodeTableDefinition(m.Data); err != nil || d.Version != 2 {
		t.Errorf("STATE has %+v (%v), want version 2", d, err)
	}
}

// lastOfState is the sequence of the newest message of STATE.
func lastOfState(t *testing.T, c *cdc.Conn) (seq uint64) {
	t.Helper()
	// The connection may be away for a moment.
	if err := c.Retry(t.Context(), func(ctx context.Context) error {
		s, err := c.JetStream().Stream(ctx, c.StateStream())
		if err == nil {
			seq = s.CachedInfo().State.LastSeq
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return seq
}

// TestColdFollowerWantsACheckpoint: what a follower that has to start anew gets
// first is a checkpoint or nothing: the sink does not stand where an announcement
// would come next.
func TestColdFollowerWantsACheckpoint(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	m := event.Message{
		Header: event.Header{Count: 9, Incarnation: [16]byte{1}, Generation: 3, Timeline: 2, Fold: key.FoldVersion, SecretPrint: c.SecretPrint()}, First: 50,
		Items: []event.Item{&event.Announcement{Server: "a", ServerUUID: uuidA, Epoch: 1, History: 1, Executed: upTo(9)}},
	}
	r := newRecorder()
	r.seq, r.has = 4, true
	if err := cdc.DeliverCold(c, r, m.AppendBinary(nil)); err == nil || r.seq != 4 {
		t.Errorf("the sink stood at 4, and stands at %d (%v)", r.seq, err)
	}
}
