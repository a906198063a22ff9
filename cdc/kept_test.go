package cdc_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cdc/event"
)

// TestKeptTail: a writer that goes on from what the one before knew knows what
// one does that reads the whole tail, and has read only what came since; where
// the stream is not what it was, nothing that was kept counts.
func TestKeptTail(t *testing.T) {
	for _, tt := range []struct {
		name string
		harm func(t *testing.T, c *cdc.Conn)
		read uint64 // messages that may be read, 0: all
	}{
		{name: "nothing came since", read: 1},
		{
			name: "another writer came between", read: 1 + 2 + 5,
			harm: func(t *testing.T, c *cdc.Conn) {
				w := write(t, c, cdc.WriterOptions{BatchBytes: 1}, facts(upTo(200)))
				w.numbered(t, 201, 205)
				w.stored(t, 5)
				w.end(t)
			},
		},
		{
			name: "a failover came between", read: 1 + 2,
			harm: func(t *testing.T, c *cdc.Conn) {
				f := facts(upTo(190))
				f.Server, f.UUID, f.Epoch = "b", uuidB, 2
				write(t, c, cdc.WriterOptions{}, f).end(t)
			},
		},
		{
			name: "a new history began", read: 1 + 2,
			harm: func(t *testing.T, c *cdc.Conn) {
				f := facts(upTo(200))
				f.Epoch = 2 // and no evidence
				write(t, c, cdc.WriterOptions{}, f).end(t)
			},
		},
		{
			name: "the stream was purged",
			harm: func(t *testing.T, c *cdc.Conn) {
				s, err := c.JetStream().Stream(t.Context(), c.WritesStream())
				if err == nil {
					err = s.Purge(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := open(t, options(t, t.TempDir()))
			o := cdc.WriterOptions{Kept: &cdc.KeptTail{}, BatchBytes: 1}
			w := write(t, c, o, facts(upTo(0)))
			w.numbered(t, 1, 199)
			w.append(t, &event.Transaction{GTID: ga(200), OriginalCommit: commitOf(200), XID: "x", Flags: event.XAPrepare | event.Empty})
			w.stored(t, 200)
			w.end(t)
			if tt.harm != nil {
				tt.harm(t, c)
			}
			wantSameTail(t, c, o, tt.read)
		})
	}
}

// TestKeptTailOfAStreamThatSteppedBack: the last message that was kept is no
// more, though another one has its place.
func TestKeptTailOfAStreamThatSteppedBack(t *testing.T) {
	for name, last := range map[string]int64{"shorter": 55, "as long as before": 60, "longer": 70} {
		t.Run(name, func(t *testing.T) {
			c := open(t, options(t, t.TempDir()))
			o := cdc.WriterOptions{Kept: &cdc.KeptTail{}, BatchBytes: 1}
			w := write(t, c, cdc.WriterOptions{BatchBytes: 1}, facts(upTo(0)))
			w.numbered(t, 1, 50)
			w.stored(t, 50)
			w.end(t)
			saved := filepath.Join(t.TempDir(), "saved")
			whileStopped(t, c, c.SaveStore, saved)
			w = write(t, c, o, facts(upTo(50)))
			w.numbered(t, 51, 60)
			w.stored(t, 10)
			w.end(t)
			whileStopped(t, c, c.RestoreStore, saved)
			w = write(t, c, cdc.WriterOptions{BatchBytes: 1}, facts(upTo(50)))
			w.numbered(t, 51, last)
			w.stored(t, uint64(last-50))
			w.end(t)
			wantSameTail(t, c, o, 0)
		})
	}
}

// wantSameTail opens a writer that goes on from what was kept, then one that
// reads everything, and holds one against the other.
func wantSameTail(t *testing.T, c *cdc.Conn, o cdc.WriterOptions, mostRead uint64) {
	t.Helper()
	tail := func(o cdc.WriterOptions) (string, uint64) {
		w, tail, err := cdc.OpenWriter(t.Context(), c, o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}()
		return printTail(tail), w.Counters().TailMessages
	}
	got, read := tail(o)
	o.Kept = nil
	want, all := tail(o)
	if got != want {
		t.Errorf("what was kept gave\n%s\nthe stream gives\n%s", got, want)
	}
	switch {
	case mostRead == 0 && read < all:
		t.Errorf("%d messages were read of %d: something that was kept was used", read, all)
	case mostRead > 0 && read > mostRead:
		t.Errorf("%d messages were read, want at most %d of %d", read, mostRead, all)
	}
}

func printTail(t *cdc.Tail) string {
	sets := func(s ...gtid.Set) (out []string) {
		for _, x := range s {
			out = append(out, x.OneLine())
		}
		return out
	}
	a := t.Announced
	return fmt.Sprint(t.Empty, t.History, sets(t.Delivered, t.Holes, t.Lost, t.KnownEmpty, t.PrevE, a.Executed, a.Lost, a.NewlyLost),
		t.LostIDs, a.Server, a.ServerUUID, a.Epoch, a.Timelines, t.Groups, t.FoldNames, t.OtherFold, t.Commits)
}
