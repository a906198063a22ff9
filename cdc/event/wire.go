package event

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
)

// ErrNewerFormat is wrapped when bytes carry a format that this program does
// not know. The reader stops and answers no until it is upgraded (P3).
var ErrNewerFormat = errors.New("newer wire format")

// ErrCorrupt is wrapped when bytes are not what an encoder of a known format
// writes.
var ErrCorrupt = errors.New("corrupt wire form")

// oldestFormat is the oldest format that the decoders accept: the one before
// [Format].
const oldestFormat = Format - 1

// The second byte of each encoding.
const (
	kindMessage byte = iota + 1
	kindState
	kindDefinition
)

// headerBytes is how much of each encoding names format and kind.
const headerBytes = 2

// DigestOf is the digest that the next message of WRITES carries as its Prev:
// the first half of the SHA-256 of the whole encoding. It proves that a reader
// sees what the writer wrote (rules §5.4).
func DigestOf(encoded []byte) [16]byte {
	sum := sha256.Sum256(encoded)
	return [16]byte(sum[:16])
}

// open checks format and kind and returns a reader of what follows.
func open(b []byte, kind byte) (reader, error) {
	if len(b) < headerBytes {
		return reader{}, fmt.Errorf("event: %d bytes are no encoding: %w", len(b), ErrCorrupt)
	}
	switch {
	case b[0] > Format:
		return reader{}, fmt.Errorf("event: format %d, this program reads %d to %d: %w", b[0], oldestFormat, Format, ErrNewerFormat)
	case b[0] < oldestFormat:
		return reader{}, fmt.Errorf("event: format %d, this program reads %d to %d: %w", b[0], oldestFormat, Format, ErrCorrupt)
	case b[1] != kind:
		return reader{}, fmt.Errorf("event: kind %d where %d was expected: %w", b[1], kind, ErrCorrupt)
	}
	return reader{b: b[headerBytes:], format: b[0]}, nil
}

// reader takes fields off the front of b. After the first error every field
// reads as zero and every count as none, so that callers check err once.
type reader struct {
	b      []byte
	format uint8
	err    error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("event: %s with %d bytes left: %w", what, len(r.b), ErrCorrupt)
	}
	r.b = nil
}

func (r *reader) uvarint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := r.b[0]
		r.b = r.b[1:]
		return uint64(v)
	}
	return r.uvarintSlow()
}

func (r *reader) uvarintSlow() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("malformed number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// small reads a number that must not be larger than limit.
func (r *reader) small(limit uint64) uint64 {
	v := r.uvarint()
	if v > limit {
		r.fail("number out of range")
		return 0
	}
	return v
}

// count reads how many elements of at least size bytes follow. What the bytes
// left can't hold is refused before anything is allocated for it.
func (r *reader) count(size int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/size) {
		r.fail("count beyond the end")
		return 0
	}
	return int(n)
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail("missing byte")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) bool() bool {
	switch r.byte() {
	case 0:
		return false
	case 1:
		return true
	}
	r.fail("malformed truth value")
	return false
}

// raw returns the next n bytes without copying them.
func (r *reader) raw(n int) []byte {
	if n > len(r.b) {
		r.fail("missing bytes")
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) array16() (v [16]byte) {
	copy(v[:], r.raw(16))
	return v
}

func (r *reader) fixed64() uint64 {
	if b := r.raw(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) text() string { return string(r.raw(r.count(1))) }

func (r *reader) texts() []string {
	n := r.count(1)
	if n == 0 {
		return nil
	}
	out := make([]string, n)
	for i := range out {
		out[i] = r.text()
	}
	return out
}

func (r *reader) set() gtid.Set { return r.setLike(gtid.Set{}) }

// setLike shares with like what it can.
func (r *reader) setLike(like gtid.Set) gtid.Set {
	if r.err != nil {
		return gtid.Set{}
	}
	s, rest, err := gtid.DecodeBinaryLike(r.b, like)
	if err != nil {
		r.err, r.b = fmt.Errorf("event: read GTID set: %w (%w)", err, ErrCorrupt), nil
		return gtid.Set{}
	}
	r.b = rest
	return s
}

// gtid reads a GTID that stands alone; the zero value is allowed.
func (r *reader) gtid() gtid.GTID {
	if !r.bool() {
		return gtid.GTID{}
	}
	g := gtid.GTID{UUID: r.array16(), Tag: r.text(), Seq: int64(r.small(uint64(gtid.MaxSeq)))}
	if r.err == nil && g.Validate() != nil {
		r.fail("invalid GTID")
	}
	return g
}

// digests reads raw digests by copy.
func (r *reader) digests() []key.Digest {
	n := r.count(len(key.Digest{}))
	if n == 0 {
		return nil
	}
	out := make([]key.Digest, n)
	for i := range out {
		out[i] = r.array16()
	}
	return out
}

// close reports the first error, or bytes that nobody asked for.
func (r *reader) close() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("trailing bytes")
	}
	return r.err
}

func appendZigzag(b []byte, v int64) []byte {
	return binary.AppendUvarint(b, uint64(v)<<1^uint64(v>>63))
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendTexts(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}

func appendGTID(b []byte, g gtid.GTID) []byte {
	if g.IsZero() {
		return append(b, 0)
	}
	b = append(append(b, 1), g.UUID[:]...)
	return binary.AppendUvarint(appendText(b, g.Tag), uint64(g.Seq))
}

func appendDigests(b []byte, list []key.Digest) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for i := range list {
		b = append(b, list[i][:]...)
	}
	return b
}

// fits reports whether n can be a number of elements here.
func fits(n uint64) bool { return n <= math.MaxInt32 }
