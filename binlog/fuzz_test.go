package binlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"tidegate/binlog/gtid"
)

// hang is when a test gives up reading. It only stops a test that hangs, and says
// nothing of how long anything may take.
const hang = 2 * time.Minute

// seedEvents are events of every kind, to begin from.
func seedEvents(t testing.TB) [][]byte {
	return scriptEvents(t, strings.ReplaceAll("format crc32\n"+cutScript+`
rotate bin.000009 4
heartbeat bin.000009
anonymous
query app|over|DELETE FROM t
map 1 app.t ivj 0,1 id,v,j
partial 1 (1,'x',null) (2,'y',1)
raw 99 0
`, "$A:", scriptUUID+":"))
}

// FuzzEvents feeds hostile events into an open transaction: no panic, no memory
// without bound, and an assembler that goes on.
func FuzzEvents(f *testing.F) {
	for _, ev := range seedEvents(f) {
		f.Add(byte(ev[4]), ev[headerBytes:], false)
		f.Add(byte(ev[4]), ev[headerBytes:len(ev)-3], true)
	}
	f.Fuzz(func(t *testing.T, kind byte, body []byte, hints bool) {
		options := "fuzz"
		if hints {
			options = "hints"
		}
		b := newTranscriptBed(t, options)
		defer b.asm.close()
		s := newEventScript(t)
		feed := func(ev []byte) {
			if _, err := b.asm.event(Raw{Data: ev}); err != nil {
				b.asm.poison()
			}
		}
		feed(s.line("format crc32"))
		feed(s.line("gtid " + scriptGTID(1)))
		feed(s.line("query BEGIN"))
		feed(s.line("map 1 app.t ii 0 id,v"))
		feed(s.event(eventType(kind), 0, body))
		feed(s.line("write 1 (1,2)"))
		feed(s.line("format crc32"))
		feed(s.line("gtid " + scriptGTID(2)))
		feed(s.line("query BEGIN"))
		out, err := b.asm.event(Raw{Data: s.line("xid")})
		if err != nil || out.txn == nil || out.txn.GTID.Seq != 2 {
			t.Errorf("after event %d: %+v, %v", kind, out, err)
		}
	})
}

// FuzzTableMap reads hostile table maps and walks hostile rows along them.
func FuzzTableMap(f *testing.F) {
	for _, ev := range seedEvents(f) {
		if eventType(ev[4]) == evTableMap {
			f.Add(ev[headerBytes:len(ev)-4], []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, []byte{0xff})
		}
	}
	f.Fuzz(func(t *testing.T, body, rows, present []byte) {
		m, err := parseTableMap(body, 6)
		if err != nil {
			return
		}
		steps := make([]step, len(m.columns))
		for i := range m.columns {
			var ok bool
			if steps[i], ok = stepOf(&m.columns[i]); !ok {
				return
			}
			steps[i].slot = int16(i)
			if _, err := m.describe(i, scriptFacts.Collations); err != nil {
				continue
			}
		}
		bitmap := make([]byte, (len(steps)+7)/8)
		copy(bitmap, present)
		img := newImage(bitmap, len(steps))
		cells := make([]cell, len(steps))
		next, ok := walk(steps, rows, 0, &img, cells)
		if !ok {
			return
		}
		if next > len(rows) {
			t.Fatalf("walked to %d of %d", next, len(rows))
		}
		for i, c := range cells {
			if c.state == cellValue {
				v := valueOf(valueKind(i%4), rows, c)
				if len(v.Bytes) > len(rows) {
					t.Fatal("value beyond the rows")
				}
			}
		}
	})
}

// FuzzClassify reads hostile statements. What names tables must name something,
// and what is not understood must be wide.
func FuzzClassify(f *testing.F) {
	for _, s := range []string{
		"DROP TABLE `a``b`.t, u", "ALTER TABLE t RENAME TO x", "/*!50000 CREATE */ TABLE IF NOT EXISTS t (a INT)", "RENAME TABLE a TO b, c TO d",
		"TRUNCATE t", "CREATE UNIQUE INDEX i ON t(a)", "-- x\nDROP DATABASE d", "XA COMMIT X'00',X'',1", "CREATE DEFINER=`a`@`b` PROCEDURE p() BEGIN END",
	} {
		f.Add(s, uint64(0), "utf8mb4")
		f.Add(s, uint64(modeANSIQuotes|modeNoBackslashEscapes), "gbk")
	}
	f.Fuzz(func(t *testing.T, text string, mode uint64, charset string) {
		q := queryEvent{schema: []byte("app"), text: []byte(text), sqlMode: mode}
		e := classify(&q, charset)
		switch {
		case e.reach == reachTables && len(e.tables) == 0, e.reach == reachSchemas && len(e.schemas) == 0:
			t.Errorf("%q reaches %d and names nothing", text, e.reach)
		case !e.understood && e.reach != reachEverything:
			t.Errorf("%q is not understood and reaches %d without a list of databases", text, e.reach)
		case e.write && e.reach == reachNothing:
			t.Errorf("%q writes nothing", text)
		}
		if v, xid, ok := parseXA(text); ok && v != xaNone {
			if again, ok := parseXID(xid); !ok || again != xid {
				t.Errorf("%q: %q reads as %q", text, xid, again)
			}
		}
	})
}

// FuzzGTIDEvents reads hostile heads of transactions.
func FuzzGTIDEvents(f *testing.F) {
	s := newEventScript(f)
	for _, g := range []string{"gtid " + scriptGTID(7), "tagged " + scriptUUID + ":x:70000"} {
		ev := s.line(g)
		f.Add(ev[headerBytes : len(ev)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, parse := range []func([]byte) (gtidEvent, error){parseGTID, parseTaggedGTID} {
			if e, err := parse(body); err == nil && e.id.Validate() == nil {
				var b gtid.Builder
				b.Add(e.id)
			}
		}
	})
}

// FuzzPackets feeds a hostile stream of packets.
func FuzzPackets(f *testing.F) {
	f.Add([]byte{3, 0, 0, 1, 0, 1, 2})
	f.Add([]byte{255, 255, 255, 1, 0, 1, 2})
	f.Add([]byte{9, 0, 0, 1, 255, 1, 2, '#', '1', '2', '3', '4', '5'})
	f.Fuzz(func(t *testing.T, stream []byte) {
		client, server := net.Pipe()
		go func() {
			_, _ = server.Write(stream)
			_ = server.Close()
		}()
		s := newPacketSource(client, hang, 1<<20, serverError)
		defer s.Close()
		for range 1000 {
			raw, err := s.Next(context.Background())
			if err != nil {
				return
			}
			if raw.Rest != nil {
				_, _ = io.CopyN(io.Discard, raw.Rest, 10)
			}
		}
	})
}

// TestLargePackets: an event that spans packets comes whole, or as head and
// rest, and the next one is found behind it.
func TestLargePackets(t *testing.T) {
	const size = 2*maxPacket + 1234
	body := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
	binary.LittleEndian.PutUint32(body[9:], size)
	stream := func(w io.Writer) {
		seq := byte(1)
		packet := func(p []byte) {
			_, _ = w.Write(append([]byte{byte(len(p)), byte(len(p) >> 8), byte(len(p) >> 16), seq}, p...))
			seq++
		}
		for _, payload := range [][]byte{append([]byte{0}, body...), []byte("\x00small event of some bytes")} {
			for len(payload) >= maxPacket {
				packet(payload[:maxPacket])
				payload = payload[maxPacket:]
			}
			packet(payload)
		}
	}
	for _, maxEvent := range []int{64 << 20, 1 << 20} {
		client, server := net.Pipe()
		go func() {
			stream(server)
			_ = server.Close()
		}()
		s := newPacketSource(client, hang, maxEvent, serverError)
		raw, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := bytes.Clone(raw.Data)
		if (raw.Rest == nil) != (maxEvent > size) {
			t.Errorf("max %d: rest %v", maxEvent, raw.Rest)
		}
		if raw.Rest != nil {
			rest, err := io.ReadAll(raw.Rest)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, rest...)
		}
		if !bytes.Equal(got, body) {
			t.Errorf("max %d: %d bytes, not what was sent", maxEvent, len(got))
		}
		raw, err = s.Next(t.Context())
		if err != nil || string(raw.Data) != "small event of some bytes" {
			t.Errorf("max %d: next event %q, %v", maxEvent, raw.Data, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNextIsInterrupted: a context ends the wait, and the same source goes on.
func TestNextIsInterrupted(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	s := newPacketSource(client, hang, 1<<20, serverError)
	defer s.Close()
	for i := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		if _, err := s.Next(ctx); err != context.Canceled {
			t.Fatalf("Next: %v", err)
		}
		go func() { _, _ = server.Write([]byte{3, 0, 0, byte(1 + i), 0, 'o', 'k'}) }()
		raw, err := s.Next(t.Context())
		if err != nil || string(raw.Data) != "ok" {
			t.Fatalf("Next after an interruption: %q, %v", raw.Data, err)
		}
	}
}

// TestMemoryOfAHugeTransaction: five million rows stream through.
func TestMemoryOfAHugeTransaction(t *testing.T) {
	b := newTranscriptBed(t, "")
	b.asm.keyCap = DefaultKeyCap
	defer b.asm.close()
	s := newEventScript(t)
	feed := func(ev []byte) outcome {
		out, err := b.asm.event(Raw{Data: ev})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	feed(s.line("format off"))
	feed(s.line("gtid " + scriptGTID(1)))
	feed(s.line("query BEGIN"))
	feed(s.line("map 1 app.t ii 0 id,v"))
	var line strings.Builder
	line.WriteString("update 1")
	const perEvent = 500
	for range perEvent {
		line.WriteString(" (1000000,10) (2000000,20)")
	}
	ev := s.line(line.String())
	// Each row gets a key of its own: find the places of the two keys.
	var places []int
	for i := headerBytes; i+4 <= len(ev); i++ {
		if v := binary.LittleEndian.Uint32(ev[i:]); v == 1000000 || v == 2000000 {
			places = append(places, i)
		}
	}
	if len(places) != 2*perEvent {
		t.Fatalf("%d keys in an event", len(places))
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	id := uint32(0)
	for range 5_000_000 / perEvent {
		for _, i := range places {
			binary.LittleEndian.PutUint32(ev[i:], id)
			id++
		}
		feed(ev)
	}
	out := feed(s.line("xid"))
	runtime.ReadMemStats(&after)
	if got := b.outcome(out); got != "txn A:1 capped tables=[any:t] scopes=[all:t] defs=[t:known]" {
		t.Error(got)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 64<<20 {
		t.Errorf("allocated %d MiB", allocated>>20)
	}
}

// TestRowsDoNotAllocate: what grows with rows is not allocated.
func TestRowsDoNotAllocate(t *testing.T) {
	b := newTranscriptBed(t, "")
	b.asm.keyCap = 1 << 20
	defer b.asm.close()
	s := newEventScript(t)
	for _, line := range []string{"format crc32", "gtid " + scriptGTID(1), "query BEGIN", "map 1 app.g iii 0 id,v,grp"} {
		if _, err := b.asm.event(Raw{Data: s.line(line)}); err != nil {
			t.Fatal(err)
		}
	}
	ev := s.line("update 1 (1,10,20) (1,11,20) (2,10,21) (3,10,22) (7,null,3) (7,1,null)")
	feed := func() {
		if _, err := b.asm.event(Raw{Data: ev}); err != nil {
			t.Fatal(err)
		}
	}
	feed()
	if n := testing.AllocsPerRun(100, feed); n > 0 {
		t.Errorf("%v allocations for an event of three rows", n)
	}
}
