package binlog

import (
	"context"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// replay delivers the same transactions again and again with new numbers.
type replay struct {
	events [][]byte
	i, n   int // event, transactions left
	seq    uint64
}

// gtidNumberAt is where the number stands in a GTID event.
const gtidNumberAt = headerBytes + 1 + 16

func (r *replay) Next(context.Context) (Raw, error) {
	if r.i == len(r.events) {
		if r.n--; r.n == 0 {
			return Raw{}, io.EOF
		}
		r.i = 1 // the format description is sent once
	}
	ev := r.events[r.i]
	if eventType(ev[4]) == evGTID {
		r.seq++
		for k := range 8 {
			ev[gtidNumberAt+k] = byte(r.seq >> (8 * k))
		}
	}
	r.i++
	return Raw{Data: ev}, nil
}

func (r *replay) Close() error { return nil }

type countHandler struct {
	n    int
	want int
	done func()
}

func (h *countHandler) Transaction(context.Context, *event.Transaction, Position) error {
	if h.n++; h.n == h.want {
		h.done()
	}
	return nil
}
func (h *countHandler) Hole(context.Context, *event.Hole) error                    { return nil }
func (h *countHandler) Definitions(context.Context, []event.TableDefinition) error { return nil }
func (h *countHandler) Progress(context.Context, Position) error                   { return nil }

// BenchmarkTailer takes single-row transactions from memory to the handler.
func BenchmarkTailer(b *testing.B) {
	for _, mode := range []Mode{Keys, Hints} {
		b.Run([]string{"keys", "hints"}[mode], func(b *testing.B) {
			events := scriptEvents(b, "format off\ngtid "+scriptGTID(1)+"\nquery BEGIN\nmap 1 app.t iiv 0 id,v,w\nwrite 1 (1,10,'some-text')\nxid")
			ctx, cancel := context.WithCancel(context.Background())
			src := &replay{events: events, n: b.N}
			h := &countHandler{want: b.N, done: cancel}
			t, err := NewTailer(TailerOptions{
				Mode: mode, Hasher: key.NewHasher(key.Secret{1}),
				Dial: func(context.Context, gtid.Set) (*Session, error) {
					return &Session{Source: src, Facts: scriptFacts}, nil
				},
			})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			_ = t.Run(ctx, h)
			b.StopTimer()
			b.ReportMetric(float64(h.n)/b.Elapsed().Seconds(), "txn/s")
			if h.n != b.N {
				b.Fatalf("%d of %d", h.n, b.N)
			}
		})
	}
}

// BenchmarkRows decodes the keys of an event of 500 updated rows.
func BenchmarkRows(b *testing.B) {
	bed := newTranscriptBed(b, "")
	bed.asm.keyCap = 1 << 20
	defer bed.asm.close()
	s := newEventScript(b)
	for _, line := range []string{"format off", "gtid " + scriptGTID(1), "query BEGIN", "map 1 app.t iiv 0 id,v,w"} {
		if _, err := bed.asm.event(Raw{Data: s.line(line)}); err != nil {
			b.Fatal(err)
		}
	}
	line := "update 1"
	for i := range 500 {
		line += " (" + strconv.Itoa(i) + ",1,'some-text') (" + strconv.Itoa(i) + ",2,'some-text')"
	}
	ev := s.line(line)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := bed.asm.event(Raw{Data: ev}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(500*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// dumpServer speaks just enough of MySQL's protocol to send a dump of n
// single-row transactions over loopback, as fast as the reader takes them. It
// stands where mysqld would be the bottleneck.
func dumpServer(b *testing.B, events [][]byte, n int) net.Listener {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		src := &replay{events: events, n: n}
		seq := byte(1)
		buf := make([]byte, 0, 1<<20)
		for {
			raw, err := src.Next(context.Background())
			if err != nil || len(buf) > 1<<19 {
				if _, werr := c.Write(buf); werr != nil {
					return
				}
				buf = buf[:0]
			}
			if err != nil {
				_, _ = io.Copy(io.Discard, c) // until the reader closes
				return
			}
			size := len(raw.Data) + 1
			buf = append(buf, byte(size), byte(size>>8), byte(size>>16), seq, 0)
			buf = append(buf, raw.Data...)
			seq++
		}
	}()
	return l
}

// BenchmarkDelivery compares, over loopback, the raw delivery of go-mysql's
// parser and packet reader with the whole tailer in Keys mode.
func BenchmarkDelivery(b *testing.B) {
	text := "format crc32\ngtid " + scriptGTID(1) + "\nquery BEGIN\nmap 1 app.t iiv 0 id,v,w\nwrite 1 (1,10,'some-text')\nxid"
	b.Run("tailer", func(b *testing.B) {
		// The checksum of a GTID event changes with its number: sent without.
		l := dumpServer(b, scriptEvents(b, "format off"+text[len("format crc32"):]), b.N)
		defer l.Close()
		ctx, cancel := context.WithCancel(context.Background())
		h := &countHandler{want: b.N, done: cancel}
		t, err := NewTailer(TailerOptions{
			Hasher: key.NewHasher(key.Secret{1}),
			Dial: func(ctx context.Context, _ gtid.Set) (*Session, error) {
				c, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					return nil, err
				}
				return &Session{Source: newPacketSource(c, hang, 1<<26, serverError), Facts: scriptFacts}, nil
			},
		})
		if err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		_ = t.Run(ctx, h)
		b.StopTimer()
		b.ReportMetric(float64(h.n)/b.Elapsed().Seconds(), "txn/s")
	})
	b.Run("packets", func(b *testing.B) {
		l := dumpServer(b, scriptEvents(b, "format off"+text[len("format crc32"):]), b.N)
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		s := newPacketSource(c, hang, 1<<26, serverError)
		defer s.Close()
		b.ResetTimer()
		for n := 0; n < b.N; {
			raw, err := s.Next(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			if eventType(raw.Data[4]) == evXID {
				n++
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "txn/s")
	})
}

// BenchmarkGoMySQLParser is what go-mysql's syncer does for each event in raw
// mode after it has read the packet, and its hand-over: the part of its delivery
// that needs no server.
func BenchmarkGoMySQLParser(b *testing.B) {
	events := scriptEvents(b, "format off\ngtid "+scriptGTID(1)+"\nquery BEGIN\nmap 1 app.t iiv 0 id,v,w\nwrite 1 (1,10,'some-text')\nxid")
	p := replication.NewBinlogParser()
	p.SetFlavor(mysql.MySQLFlavor)
	p.SetRawMode(true)
	ch := make(chan *replication.BinlogEvent, 10240)
	done := make(chan int)
	go func() {
		n := 0
		for range ch {
			n++
		}
		done <- n
	}()
	src := &replay{events: events, n: b.N}
	b.ResetTimer()
	for {
		raw, err := src.Next(context.Background())
		if err != nil {
			break
		}
		e, err := p.Parse(append([]byte(nil), raw.Data...))
		if err != nil {
			b.Fatal(err)
		}
		ch <- e
	}
	close(ch)
	<-done
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "txn/s")
}
