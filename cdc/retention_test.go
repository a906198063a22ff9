package cdc_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tidegate/cdc"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// TestCheckpointsBeforeAThirdOfMaxBytes: rules §5.3. However far apart count and
// age leave them, a checkpoint comes before a third of what the stream holds was
// written; and so, whatever the stream has discarded, a reader finds one.
func TestCheckpointsBeforeAThirdOfMaxBytes(t *testing.T) {
	const maxBytes = 16 << 20
	for _, c := range []struct {
		name    string
		scopes  int   // of each transaction
		n       int64 // transactions, enough for several thirds
		cluster string
	}{
		{"large", 1000, 2100, "shop"},
		{"small", 1, 64_000, "shop"},
		{"long subject", 1, 48_000, strings.Repeat("%", 60)}, // three bytes each in subjects
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t, t.TempDir())
			o.WritesMaxBytes, o.Cluster = maxBytes, c.cluster
			conn := open(t, o)
			// Small ones go one a message: there what NATS adds weighs the most.
			wo := cdc.WriterOptions{CheckpointEvery: 1 << 40, CheckpointAge: 1000 * time.Hour}
			if c.scopes == 1 {
				wo.BatchBytes = 1
			}
			w := write(t, conn, wo, facts(upTo(0)))
			sizes := measure(t, conn)
			const step = 100 // far less than the stream holds: nothing is discarded unread
			for n := int64(1); n <= c.n; n++ {
				x := tx(n)
				for i := 1; i < c.scopes; i++ {
					x.Scopes = append(x.Scopes, key.Digest{3, byte(i), byte(i >> 8), byte(n), byte(n >> 8)})
				}
				w.append(t, x)
				if n%step == 0 || n == c.n {
					w.stored(t, uint64(n))
					sizes.readTo(t, w.Counters().AckedSeq)
				}
			}
			first := sizes.wantExact(t)
			if first == 1 {
				t.Error("the stream has discarded nothing")
			}
			// From one checkpoint to the next, both included: the third, and the two
			// messages that pass it.
			var opened []int // of the checkpoints
			for i, m := range sizes.read {
				if m.opens {
					opened = append(opened, i)
				}
			}
			if len(opened) < 4 {
				t.Fatalf("%d checkpoints in %d messages: too few to tell", len(opened), len(sizes.read))
			}
			for i := 1; i < len(opened); i++ {
				total, largest := 0, 0
				for _, m := range sizes.read[opened[i-1]:opened[i]] {
					total, largest = total+m.bytes, max(largest, m.bytes)
				}
				if total > maxBytes/3+2*largest {
					t.Errorf("%d bytes from message %d, a checkpoint, to the next, %d, want %d and two messages of %d at most",
						total, opened[i-1]+1, opened[i]+1, maxBytes/3, largest)
				}
			}
			r := newRecorder()
			follow(t, conn, r)
			r.wantStarted(t)
			r.wantAll(t, w)
		})
	}
}

// sizes reads WRITES as it grows and notes what each message takes of it.
type sizes struct {
	stream jetstream.Stream
	next   func() (jetstream.Msg, error)
	read   []sized // message n at n-1
}

type sized struct {
	bytes int
	opens bool // a checkpoint begins here
}

func measure(t *testing.T, conn *cdc.Conn) *sizes {
	t.Helper()
	stream, err := conn.JetStream().Stream(t.Context(), conn.WritesStream())
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(messages.Stop)
	return &sizes{stream: stream, next: func() (jetstream.Msg, error) {
		return messages.Next(jetstream.NextContext(t.Context()))
	}}
}

func (s *sizes) readTo(t *testing.T, seq uint64) {
	t.Helper()
	for uint64(len(s.read)) < seq {
		msg, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		if meta.Sequence.Stream != uint64(len(s.read))+1 {
			t.Fatalf("read message %d behind %d: the test's reader was too slow", meta.Sequence.Stream, len(s.read))
		}
		m, err := event.DecodeMessage(msg.Data())
		if err != nil {
			t.Fatal(err)
		}
		// What NATS' file store counts: 22 bytes before a record, 8 behind it, and 4
		// for the length of the headers.
		head := len("NATS/1.0\r\n\r\n")
		for name, values := range msg.Headers() {
			for _, v := range values {
				head += len(name) + len(": ") + len(v) + len("\r\n")
			}
		}
		s.read = append(s.read, sized{22 + len(msg.Subject()) + 4 + head + len(msg.Data()) + 8, cdc.StartsCheckpoint(m)})
	}
}

// wantExact compares with what the stream says it holds, and returns its first
// message's sequence.
func (s *sizes) wantExact(t *testing.T) uint64 {
	t.Helper()
	info, err := s.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var held uint64
	for _, m := range s.read[info.State.FirstSeq-1:] {
		held += uint64(m.bytes)
	}
	if held != info.State.Bytes {
		t.Fatalf("the messages read take %d bytes, the stream says %d", held, info.State.Bytes)
	}
	return info.State.FirstSeq
}

// TestCheckpointsBeforeAThirdOfMaxAge: rules §5.3, also of a stream that nobody
// writes to, whose only checkpoint would expire.
func TestCheckpointsBeforeAThirdOfMaxAge(t *testing.T) {
	for _, c := range []struct {
		age   time.Duration
		write bool
		want  uint64
	}{
		{age: 7*time.Hour + 50*time.Minute, write: true, want: 0},
		{age: 8 * time.Hour, write: true, want: 1},
		{age: 8 * time.Hour, want: 1},
	} {
		t.Run(fmt.Sprintf("%s written=%v", c.age, c.write), func(t *testing.T) {
			o := options(t, t.TempDir())
			o.WritesMaxAge = 24 * time.Hour
			conn := open(t, o)
			w, _, err := cdc.OpenWriter(t.Context(), conn, cdc.WriterOptions{CheckpointEvery: 1 << 40, CheckpointAge: 1000 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if _, err := w.Begin(t.Context(), facts(upTo(0))); err != nil {
				t.Fatal(err)
			}
			begun := w.Counters().Checkpoints
			w.BackdateCheckpoint(c.age)
			run := start(t, w.Run)
			wr := &writing{Writer: w, run: run}
			if c.write {
				wr.numbered(t, 1, 10)
				wr.stored(t, 10)
			}
			if c.want > 0 {
				eventually(t, func() string {
					if w.Counters().Checkpoints == begun {
						return "no checkpoint by a third of max_age"
					}
					return ""
				})
			}
			if n := w.Counters().Checkpoints - begun; n != c.want {
				t.Errorf("%d checkpoints, want %d", n, c.want)
			}
			wr.end(t)
		})
	}
}
