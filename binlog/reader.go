package binlog

import (
	"encoding/binary"
	"math/bits"
)

// reader takes values off a byte slice. Reading past the end, or a value that
// can not be, sets bad; everything read after that is zero. Nothing it returns
// is copied.
type reader struct {
	b   []byte
	i   int
	bad bool
}

func (r *reader) left() int { return len(r.b) - r.i }

// need reports whether n more bytes are there.
func (r *reader) need(n int) bool {
	if r.bad || n < 0 || n > len(r.b)-r.i {
		r.bad = true
		return false
	}
	return true
}

func (r *reader) skip(n int) {
	if r.need(n) {
		r.i += n
	}
}

func (r *reader) byte() byte {
	if !r.need(1) {
		return 0
	}
	r.i++
	return r.b[r.i-1]
}

// bytes returns the next n bytes, nil when they are not there.
func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) || !r.need(int(n)) {
		r.bad = true
		return nil
	}
	r.i += int(n)
	return r.b[r.i-int(n) : r.i : r.i]
}

// uint reads a little-endian number of n <= 8 bytes.
func (r *reader) uint(n int) uint64 {
	if !r.need(n) {
		return 0
	}
	var buf [8]byte
	copy(buf[:], r.b[r.i:r.i+n])
	r.i += n
	return binary.LittleEndian.Uint64(buf[:])
}

// packed reads MySQL's length-encoded integer.
func (r *reader) packed() uint64 {
	switch c := r.byte(); c {
	case 0xfc:
		return r.uint(2)
	case 0xfd:
		return r.uint(3)
	case 0xfe:
		return r.uint(8)
	case 0xfb, 0xff:
		r.bad = true
		return 0
	default:
		return uint64(c)
	}
}

// varUint reads an unsigned number of mysql::serialization: the number of one
// bits at the low end of the first byte is the number of bytes that follow it.
func (r *reader) varUint() uint64 {
	if !r.need(1) {
		return 0
	}
	n := bits.TrailingZeros8(^r.b[r.i]) + 1
	if n > 8 { // first byte 0xff: the number stands in the eight that follow
		r.skip(1)
		return r.uint(8)
	}
	return r.uint(n) >> n
}

// varInt reads a signed number of mysql::serialization: the sign stands in the
// lowest bit, negative numbers count down from -1.
func (r *reader) varInt() int64 {
	u := r.varUint()
	if u&1 != 0 {
		return -1 - int64(u>>1)
	}
	return int64(u >> 1)
}
