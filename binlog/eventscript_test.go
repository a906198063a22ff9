package binlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"tidegate/binlog/gtid"
)

// eventScript makes the bytes of binlog events from lines of text, so that a
// test reads like a binlog. Values of rows are int columns; "_" is a column that
// the image lacks, "null" is NULL, and 'x' is a VARCHAR.
type eventScript struct {
	t        testing.TB
	checksum bool
	corrupt  bool // the next event's checksum is wrong
	pos      uint32
	maps     map[uint64]scriptTable
	payload  []byte // events since "payload", nil outside
	inside   bool
}

// scriptTable is a table as the script declared it.
type scriptTable struct {
	kinds []byte
	json  int
}

func newEventScript(t testing.TB) *eventScript {
	return &eventScript{t: t, checksum: true, pos: 4, maps: map[uint64]scriptTable{}}
}

// event frames a body.
func (s *eventScript) event(kind eventType, flags uint16, body []byte) []byte {
	size := headerBytes + len(body)
	sum := s.checksum && !s.inside
	if sum {
		size += checksumBytes
	}
	if flags&flagArtificial == 0 {
		s.pos += uint32(size)
	}
	b := binary.LittleEndian.AppendUint32(nil, 1_700_000_000)
	b = append(b, byte(kind))
	b = binary.LittleEndian.AppendUint32(b, 1)
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	b = binary.LittleEndian.AppendUint32(b, s.pos)
	b = binary.LittleEndian.AppendUint16(b, flags)
	b = append(b, body...)
	if sum {
		c := crc32.ChecksumIEEE(b)
		if s.corrupt {
			c++
			s.corrupt = false
		}
		b = binary.LittleEndian.AppendUint32(b, c)
	}
	return b
}

// line makes the event of one line; nil: the line only changed the script.
func (s *eventScript) line(line string) []byte {
	f := strings.Fields(line)
	rest := strings.TrimSpace(strings.TrimPrefix(line, f[0]))
	ev := s.one(f, rest)
	if s.inside && f[0] != "payload" {
		s.payload = append(s.payload, ev...)
		return nil
	}
	return ev
}

func (s *eventScript) one(f []string, rest string) []byte {
	switch f[0] {
	case "corrupt":
		s.corrupt = true
		return nil
	case "format":
		return s.format(f[1])
	case "rotate":
		pos, _ := strconv.ParseUint(f[2], 10, 64)
		return s.event(evRotate, flagArtificial, append(binary.LittleEndian.AppendUint64(nil, pos), f[1]...))
	case "heartbeat":
		return s.event(evHeartbeat, 0, []byte(f[1]))
	case "stop":
		return s.event(evStop, 0, nil)
	case "gtid":
		return s.gtid(evGTID, f[1])
	case "tagged":
		return s.tagged(f[1])
	case "anonymous":
		return s.gtid(evAnonymousGTID, "00000000-0000-0000-0000-000000000000:1")
	case "query":
		return s.query(rest)
	case "xid":
		return s.event(evXID, 0, make([]byte, 8))
	case "xaprepare":
		return s.xaPrepare(f[1], len(f) > 2)
	case "map":
		return s.tableMap(f)
	case "write", "delete", "update", "partial":
		return s.rows(f)
	case "incident":
		return s.event(evIncident, 0, append([]byte{1, 0, byte(len(rest))}, rest...))
	case "raw": // raw type flags
		kind, _ := strconv.Atoi(f[1])
		flags, _ := strconv.ParseUint(f[2], 0, 16)
		return s.event(eventType(kind), uint16(flags), []byte("body"))
	case "payload":
		return s.payloadLine(f[1])
	}
	s.t.Fatalf("event script: %q", f)
	return nil
}

func (s *eventScript) format(checksum string) []byte {
	s.checksum = true
	body := binary.LittleEndian.AppendUint16(nil, 4)
	version := make([]byte, 50)
	copy(version, "9.7.4")
	body = append(body, version...)
	body = append(body, 0, 0, 0, 0, headerBytes)
	for i := range 42 {
		body = append(body, [...]byte{8, 10}[i%2]) // no length of 6: ids have 6 bytes
	}
	alg := byte(checksumCRC32)
	if checksum == "off" {
		alg = checksumOff
	}
	ev := s.event(evFormat, 0, append(body, alg))
	s.checksum = checksum != "off"
	return ev
}

func (s *eventScript) gtid(kind eventType, text string) []byte {
	g, err := gtid.ParseGTID(text)
	if err != nil {
		s.t.Fatal(err)
	}
	b := append([]byte{1}, g.UUID[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(g.Seq))
	b = append(b, 2)
	b = append(b, make([]byte, 16)...)
	const immediate, original = 2_000_000, 1_000_000
	b = append(b, binary.LittleEndian.AppendUint64(nil, immediate|1<<55)[:7]...)
	b = append(b, binary.LittleEndian.AppendUint64(nil, original)[:7]...)
	b = append(b, 0xfc, 0x2c, 0x01) // 300 bytes
	return s.event(kind, 0, append(b, 0, 0, 0, 0x80, 0, 0, 0, 0))
}

// appendVarUint writes a number of mysql::serialization.
func appendVarUint(b []byte, v uint64) []byte {
	n := 1
	for n < 8 && v>>(7*n) != 0 {
		n++
	}
	if n == 8 && v>>56 != 0 {
		return binary.LittleEndian.AppendUint64(append(b, 0xff), v)
	}
	return append(b, binary.LittleEndian.AppendUint64(nil, v<<n|(1<<(n-1)-1))[:n]...)
}

func (s *eventScript) tagged(text string) []byte {
	g, err := gtid.ParseGTID(text)
	if err != nil {
		s.t.Fatal(err)
	}
	b := appendVarUint(nil, 1)
	b = appendVarUint(b, 100)
	b = appendVarUint(b, 10)
	b = appendVarUint(appendVarUint(b, tagFlags), 1)
	b = appendVarUint(b, tagUUID)
	for _, x := range g.UUID {
		b = appendVarUint(b, uint64(x))
	}
	b = appendVarUint(appendVarUint(b, tagNumber), uint64(g.Seq)<<1)
	b = appendVarUint(appendVarUint(b, tagTag), uint64(len(g.Tag)))
	b = append(b, g.Tag...)
	b = appendVarUint(appendVarUint(b, tagLastCommitted), 2)
	b = appendVarUint(appendVarUint(b, tagSequence), 4)
	b = appendVarUint(appendVarUint(b, tagImmediate), 3_000_000)
	b = appendVarUint(appendVarUint(b, tagSize), 400)
	b = appendVarUint(appendVarUint(b, tagServerVersion), 90704)
	return s.event(evTaggedGTID, 0, b)
}

// query reads: schema|databases|text; databases: a comma-separated list, "-" for
// none, "over" for too many.
func (s *eventScript) query(rest string) []byte {
	part := strings.SplitN(rest, "|", 3)
	if len(part) != 3 {
		part = []string{"app", "app", rest}
	}
	status := []byte{statusFlags2, 0, 0, 0, 0, statusSQLMode, 0, 0, 0, 0, 0, 0, 0, 0, statusCharset, 255, 0, 255, 0, 255, 0}
	switch part[1] {
	case "-":
	case "over":
		status = append(status, statusDatabases, databasesOverflow)
	default:
		list := strings.Split(part[1], ",")
		status = append(status, statusDatabases, byte(len(list)))
		for _, d := range list {
			status = append(append(status, d...), 0)
		}
	}
	b := append(make([]byte, 8), byte(len(part[0])), 0, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(status)))
	b = append(b, status...)
	b = append(append(b, part[0]...), 0)
	return s.event(evQuery, 0, append(b, part[2]...))
}

func (s *eventScript) xaPrepare(gtrid string, onePhase bool) []byte {
	b := []byte{0}
	if onePhase {
		b[0] = 1
	}
	b = binary.LittleEndian.AppendUint32(b, 1)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(gtrid)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	return s.event(evXAPrepare, 0, append(b, gtrid...))
}

// tableMap reads: map id schema.table columns primary|- names|-, where columns
// are i (INT), v (VARCHAR), j (JSON).
func (s *eventScript) tableMap(f []string) []byte {
	id, _ := strconv.ParseUint(f[1], 10, 64)
	schema, table, _ := strings.Cut(f[2], ".")
	var t scriptTable
	var meta []byte
	var charsets int
	for _, c := range f[3] {
		switch c {
		case 'i':
			t.kinds = append(t.kinds, colLong)
		case 'v':
			t.kinds = append(t.kinds, colVarchar)
			meta = append(meta, 100, 0)
			charsets++
		case 'j':
			t.kinds = append(t.kinds, colJSON)
			meta = append(meta, 4)
			t.json++
		}
	}
	s.maps[id] = t
	b := binary.LittleEndian.AppendUint64(nil, id)[:6]
	b = append(b, 1, 0)
	b = append(append(append(b, byte(len(schema))), schema...), 0)
	b = append(append(append(b, byte(len(table))), table...), 0)
	b = append(b, byte(len(t.kinds)))
	b = append(b, t.kinds...)
	b = append(append(b, byte(len(meta))), meta...)
	nulls := make([]byte, (len(t.kinds)+7)/8)
	for i := range nulls {
		nulls[i] = 0xff
	}
	b = append(b, nulls...)
	b = append(b, optSignedness, 1, 0)
	if charsets > 0 {
		b = append(b, optDefaultCharset, 3, 0xfc, 255, 0) // utf8mb4_0900_ai_ci
	}
	if f[5] != "-" {
		var names []byte
		for _, n := range strings.Split(f[5], ",") {
			names = append(append(names, byte(len(n))), n...)
		}
		b = append(append(b, optNames, byte(len(names))), names...)
		if f[4] != "-" {
			var pk []byte
			for _, k := range strings.Split(f[4], ",") {
				n, _ := strconv.Atoi(k)
				pk = append(pk, byte(n))
			}
			b = append(append(b, optPrimary, byte(len(pk))), pk...)
		}
	}
	return s.event(evTableMap, 0, b)
}

// rows reads: write id row row ..., update id before after before after ...; a
// row is (1,2,'x',_,null). All rows must lack the same columns. "cascade" before
// the rows leaves the flag out that cascades are logged.
func (s *eventScript) rows(f []string) []byte {
	kind := map[string]eventType{"write": evWriteRows, "delete": evDeleteRows, "update": evUpdateRows, "partial": evPartialUpdate}[f[0]]
	id, _ := strconv.ParseUint(f[1], 10, 64)
	t, known := s.maps[id]
	if !known {
		t = scriptTable{kinds: []byte{colLong}}
	}
	flags := byte(rowsStatementEnd | rowsSQLForeignKeys)
	list := f[2:]
	if len(list) > 0 && list[0] == "cascade" {
		flags = rowsStatementEnd
		list = list[1:]
	}
	b := binary.LittleEndian.AppendUint64(nil, id)[:6]
	b = append(b, flags, 0, 2, 0, byte(len(t.kinds)))
	images := 1
	if kind == evUpdateRows || kind == evPartialUpdate {
		images = 2
	}
	var body []byte
	for i, row := range list {
		present, image := s.row(t, row)
		if i < images {
			b = append(b, present...)
		}
		if i%images == 1 && kind == evPartialUpdate {
			body = append(body, 1) // partial JSON
			body = append(body, make([]byte, (t.json+7)/8)...)
		}
		body = append(body, image...)
	}
	return s.event(kind, 0, append(b, body...))
}

func (s *eventScript) row(t scriptTable, text string) (present, image []byte) {
	vals := strings.Split(strings.Trim(text, "()"), ",")
	if len(vals) != len(t.kinds) {
		s.t.Fatalf("event script: row %s of %d columns", text, len(t.kinds))
	}
	present = make([]byte, (len(vals)+7)/8)
	var nulls []byte
	var data []byte
	n := 0
	for i, v := range vals {
		if v == "_" {
			continue
		}
		present[i/8] |= 1 << (i % 8)
		if n%8 == 0 {
			nulls = append(nulls, 0)
		}
		if v == "null" {
			nulls[n/8] |= 1 << (n % 8)
		}
		n++
		switch {
		case v == "null":
		case t.kinds[i] == colVarchar:
			v = strings.Trim(v, "'")
			data = append(append(data, byte(len(v))), v...)
		case t.kinds[i] == colJSON:
			data = append(data, 2, 0, 0, 0, 0, 0)
		default:
			x, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				s.t.Fatalf("event script: %v", err)
			}
			data = binary.LittleEndian.AppendUint32(data, uint32(x))
		}
	}
	return present, append(nulls, data...)
}

// payloadLine begins a payload, or ends it: zstd, plain, or cut (zstd that ends
// too early).
func (s *eventScript) payloadLine(what string) []byte {
	if what == "begin" {
		s.inside, s.payload = true, nil
		return nil
	}
	s.inside = false
	data, compression := s.payload, uint64(payloadPlain)
	if what != "plain" {
		enc, err := zstd.NewWriter(nil)
		if err != nil {
			s.t.Fatal(err)
		}
		defer enc.Close()
		compression = payloadZstd
		data = enc.EncodeAll(s.payload, nil)
		if what == "cut" {
			data = data[:len(data)/2]
		}
	}
	b := []byte{2}
	b = append(b, packedField(compression)...)
	b = append(b, 1)
	b = append(b, packedField(uint64(len(data)))...)
	b = append(b, 3)
	b = append(b, packedField(uint64(len(s.payload)))...)
	b = append(b, 0)
	return s.event(evPayload, 0, append(b, data...))
}

func packedField(v uint64) []byte {
	var p []byte
	switch {
	case v < 251:
		p = []byte{byte(v)}
	case v < 1<<16:
		p = append([]byte{0xfc}, byte(v), byte(v>>8))
	default:
		p = append([]byte{0xfe}, binary.LittleEndian.AppendUint64(nil, v)...)
	}
	return append([]byte{byte(len(p))}, p...)
}

// scriptEvents makes all events of a text.
func scriptEvents(t testing.TB, text string) (events [][]byte) {
	t.Helper()
	s := newEventScript(t)
	for _, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if ev := s.line(line); ev != nil {
			events = append(events, ev)
		}
	}
	return events
}

const scriptUUID = "11111111-1111-1111-1111-111111111111"

var scriptFacts = Facts{Version: "9.7.4", Collations: map[uint16]string{255: "utf8mb4_0900_ai_ci", 63: "binary"}}

func scriptGTID(n int) string { return fmt.Sprintf("%s:%d", scriptUUID, n) }
