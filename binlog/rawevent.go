package binlog

import (
	"encoding/binary"
	"hash/crc32"

	"tidegate/binlog/gtid"
)

// eventType is the type byte of an event's header.
type eventType uint8

// The event types that the tailer tells apart. The numbers are MySQL's.
const (
	evQuery          eventType = 2
	evStop           eventType = 3
	evRotate         eventType = 4
	evIntvar         eventType = 5
	evAppendBlock    eventType = 9
	evDeleteFile     eventType = 11
	evRand           eventType = 13
	evUserVar        eventType = 14
	evFormat         eventType = 15
	evXID            eventType = 16
	evBeginLoad      eventType = 17
	evExecuteLoad    eventType = 18
	evTableMap       eventType = 19
	evWriteRowsV1    eventType = 23
	evUpdateRowsV1   eventType = 24
	evDeleteRowsV1   eventType = 25
	evIncident       eventType = 26
	evHeartbeat      eventType = 27
	evIgnorable      eventType = 28
	evRowsQuery      eventType = 29
	evWriteRows      eventType = 30
	evUpdateRows     eventType = 31
	evDeleteRows     eventType = 32
	evGTID           eventType = 33
	evAnonymousGTID  eventType = 34
	evPreviousGTIDs  eventType = 35
	evTxnContext     eventType = 36
	evViewChange     eventType = 37
	evXAPrepare      eventType = 38
	evPartialUpdate  eventType = 39
	evPayload        eventType = 40
	evHeartbeatV2    eventType = 41
	evTaggedGTID     eventType = 42
	lastKnownType              = evTaggedGTID
	headerBytes                = 19
	checksumBytes              = 4
	flagArtificial   uint16    = 0x20 // made by the dump thread, not in the file
	flagIgnorable    uint16    = 0x80 // may be ignored by who does not know the type
	minPostHeaderLen           = int(evExecuteLoad)
)

// header is the head of each event.
type header struct {
	kind    eventType
	flags   uint16
	size    uint32 // of the whole event, header and checksum included
	logPos  uint32 // behind the event, modulo 2^32; 0: not in a file
	seconds uint32 // since 1970
}

func parseHeader(b []byte) (header, error) {
	if len(b) < headerBytes {
		return header{}, malformed("event of %d bytes", len(b))
	}
	h := header{
		seconds: binary.LittleEndian.Uint32(b),
		kind:    eventType(b[4]),
		size:    binary.LittleEndian.Uint32(b[9:]),
		logPos:  binary.LittleEndian.Uint32(b[13:]),
		flags:   binary.LittleEndian.Uint16(b[17:]),
	}
	if h.size < headerBytes {
		return header{}, malformed("event that says it has %d bytes", h.size)
	}
	return h, nil
}

// Checksum algorithms of a format description.
const (
	checksumOff   = 0
	checksumCRC32 = 1
)

// format is what a FORMAT_DESCRIPTION event says of the events after it.
type format struct {
	version  string
	checksum byte
	// postHeader holds the length of the fixed part of each event type.
	postHeader [lastKnownType + 1]byte
	known      bool // one was read
}

// tableIDBytes is the width of table ids, which older servers wrote shorter.
func (f *format) tableIDBytes(t eventType) int {
	if f.postHeader[t] == 6 {
		return 4
	}
	return 6
}

// parseFormat reads a FORMAT_DESCRIPTION event; body still has its checksum,
// which this event always has.
func parseFormat(body []byte) (format, error) {
	const fixed = 2 + 50 + 4 + 1
	if len(body) < fixed+minPostHeaderLen+1+checksumBytes {
		return format{}, malformed("format description of %d bytes", len(body))
	}
	if v := binary.LittleEndian.Uint16(body); v != 4 {
		return format{}, malformed("format description: binlog version %d", v)
	}
	if n := body[fixed-1]; n != headerBytes {
		return format{}, malformed("format description: event headers of %d bytes", n)
	}
	f := format{version: cString(body[2:52]), known: true}
	lens := body[fixed : len(body)-1-checksumBytes]
	for t := 1; t < len(f.postHeader) && t <= len(lens); t++ {
		f.postHeader[t] = lens[t-1]
	}
	f.checksum = body[len(body)-1-checksumBytes]
	if f.checksum != checksumOff && f.checksum != checksumCRC32 {
		return format{}, malformed("format description: checksum algorithm %d", f.checksum)
	}
	return f, nil
}

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// checksumOK verifies the CRC32 in an event's last four bytes.
func checksumOK(event []byte) bool {
	n := len(event) - checksumBytes
	return n >= headerBytes && crc32.ChecksumIEEE(event[:n]) == binary.LittleEndian.Uint32(event[n:])
}

// parseRotate reads a ROTATE event: the next file, and where in it.
func parseRotate(body []byte) (Position, error) {
	if len(body) < 8 {
		return Position{}, malformed("rotate event of %d bytes", len(body))
	}
	return Position{File: string(body[8:]), Pos: binary.LittleEndian.Uint64(body)}, nil
}

// parseHeartbeat reads either kind of heartbeat. It keeps the file name of at
// when that did not change.
func parseHeartbeat(h header, body []byte, at Position) (Position, error) {
	if h.kind == evHeartbeat {
		return named(at, body, uint64(h.logPos)), nil
	}
	var name []byte
	pos := uint64(0)
	r := reader{b: body}
	for r.left() > 0 {
		field := r.byte()
		if field == 0 {
			break
		}
		value := r.bytes(r.packed())
		v := reader{b: value}
		switch field {
		case 1:
			name = value
		case 2:
			pos = v.packed()
		}
		if v.bad {
			r.bad = true
		}
	}
	if r.bad || name == nil {
		return at, malformed("heartbeat")
	}
	return named(at, name, pos), nil
}

func named(at Position, file []byte, pos uint64) Position {
	if at.File != string(file) {
		at.File = string(file)
	}
	at.Pos = pos
	return at
}

// gtidEvent is what the event at the head of a transaction says.
type gtidEvent struct {
	id        gtid.GTID
	original  int64 // microseconds since 1970; 0: the server did not say
	immediate int64
	size      uint64 // of the whole transaction; 0: the server did not say
}

// parseGTID reads a GTID or ANONYMOUS_GTID event.
func parseGTID(body []byte) (gtidEvent, error) {
	r := reader{b: body}
	r.skip(1) // flags: whether the transaction may hold statements
	var e gtidEvent
	copy(e.id.UUID[:], r.bytes(16))
	e.id.Seq = int64(r.uint(8))
	if r.left() >= 1+16 && r.byte() == 2 { // logical clock
		r.skip(16)
	}
	const originalFollows = 1 << 55
	if r.left() >= 7 {
		t := r.uint(7)
		e.immediate = int64(t &^ originalFollows)
		e.original = e.immediate
		if t&originalFollows != 0 {
			e.original = int64(r.uint(7))
		}
		if r.left() > 0 {
			e.size = r.packed()
		}
	}
	if r.bad {
		return gtidEvent{}, malformed("GTID event of %d bytes", len(body))
	}
	return e, nil
}

// Fields of a GTID_TAGGED event, by their number in mysql::serialization.
const (
	tagFlags = iota
	tagUUID
	tagNumber
	tagTag
	tagLastCommitted
	tagSequence
	tagImmediate
	tagOriginal
	tagSize
	tagServerVersion
	tagOriginalVersion
	tagTicket
)

// parseTaggedGTID reads a GTID_TAGGED event (MySQL 8.3 and later): fields with
// their numbers, some optional, in MySQL's own variable-length coding.
func parseTaggedGTID(body []byte) (gtidEvent, error) {
	r := reader{b: body}
	r.varUint() // version of the coding
	r.varUint() // size
	lastNeeded := r.varUint()
	var e gtidEvent
	var have uint32
	original := false
	for r.left() > 0 && !r.bad {
		field := r.varUint()
		if field < 32 {
			have |= 1 << field
		}
		switch field {
		case tagFlags:
			r.varUint()
		case tagUUID:
			for i := range e.id.UUID {
				e.id.UUID[i] = byte(r.varUint())
			}
		case tagNumber:
			e.id.Seq = r.varInt()
		case tagTag:
			e.id.Tag = string(r.bytes(r.varUint()))
		case tagLastCommitted, tagSequence:
			r.varInt()
		case tagImmediate:
			e.immediate = int64(r.varUint())
		case tagOriginal:
			e.original, original = int64(r.varUint()), true
		case tagSize:
			e.size = r.varUint()
		case tagServerVersion, tagOriginalVersion, tagTicket:
			r.varUint()
		default:
			if field <= lastNeeded {
				return gtidEvent{}, malformed("tagged GTID event: unknown field %d", field)
			}
			r.skip(r.left()) // a newer server's ignorable fields
		}
	}
	if !original {
		e.original = e.immediate
	}
	const needed = 1<<tagUUID | 1<<tagNumber | 1<<tagTag | 1<<tagImmediate
	if r.bad || have&needed != needed {
		return gtidEvent{}, malformed("tagged GTID event of %d bytes", len(body))
	}
	return e, nil
}
