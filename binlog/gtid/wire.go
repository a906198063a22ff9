package gtid

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorrupt is wrapped by the errors of [DecodeBinary] and [DecodeSIDBlock]:
// the bytes are not what the encoder writes.
var ErrCorrupt = errors.New("corrupt GTID set encoding")

func corrupt(offset int, reason string) error {
	return fmt.Errorf("gtid: %s at offset %d: %w", reason, offset, ErrCorrupt)
}

// AppendBinary appends Tidegate's compact form of s to dst and returns it. It
// begins with its own length information, so that other fields may follow:
//
//	uvarint            number of UUIDs
//	each UUID:         16 bytes, uvarint number of its sources
//	each source:       uvarint length of the tag, the tag,
//	                   uvarint number of intervals
//	first interval:    uvarint First-1, uvarint Last-First
//	further intervals: uvarint First-previous Last-2, uvarint Last-First
//
// UUIDs, tags and intervals ascend. The form is canonical: equal sets have
// equal bytes, and no other bytes decode to them. It carries no version; what
// it is part of does.
func (s Set) AppendBinary(dst []byte) []byte {
	if s.b == nil {
		return append(dst, 0)
	}
	src := s.b.idx.src
	uuids := 1
	for i := 1; i < len(src); i++ {
		if src[i].UUID != src[i-1].UUID {
			uuids++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(uuids))
	for i := 0; i < len(src); {
		k := i + 1
		for k < len(src) && src[k].UUID == src[i].UUID {
			k++
		}
		dst = append(dst, src[i].UUID[:]...)
		dst = binary.AppendUvarint(dst, uint64(k-i))
		for ; i < k; i++ {
			dst = append(dst, byte(len(src[i].Tag)))
			dst = append(dst, src[i].Tag...)
			dst = s.b.runs[i].appendBinary(dst)
		}
	}
	return dst
}

func (r *run) appendBinary(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(r.len()))
	floor := int64(1)
	for k := range r.len() {
		iv := r.at(k)
		dst = binary.AppendUvarint(dst, uint64(iv.First-floor))
		dst = binary.AppendUvarint(dst, uint64(iv.Last-iv.First))
		floor = iv.Last + 2
	}
	return dst
}

// DecodeBinary reads a set that [Set.AppendBinary] wrote at the start of b and
// returns what follows it. Anything else is an error that wraps [ErrCorrupt].
// The set does not refer to b. Memory is bounded by a multiple (less than a
// hundred) of the length of b, whatever b says.
func DecodeBinary(b []byte) (Set, []byte, error) {
	d := decoder{in: b}
	a := assembly{ivs: make([]Interval, 0, intervalsIn(b))}
	uuids, err := d.count(minUUIDBytes)
	if err != nil {
		return Set{}, nil, err
	}
	var last Source
	tags := interner{}
	for i := range uuids {
		u, err := d.uuid()
		if err != nil {
			return Set{}, nil, err
		}
		sources, err := d.count(minSourceBytes)
		if err != nil {
			return Set{}, nil, err
		}
		if sources == 0 {
			return Set{}, nil, corrupt(d.pos, "UUID without intervals")
		}
		for k := range sources {
			at := d.pos
			tag, err := d.tag()
			if err != nil {
				return Set{}, nil, err
			}
			src := Source{UUID: u, Tag: tags.of(tag)}
			if (i > 0 || k > 0) && src.Compare(last) <= 0 {
				return Set{}, nil, corrupt(at, "sources not in order")
			}
			if k == 0 && i > 0 && u == last.UUID {
				return Set{}, nil, corrupt(at, "UUID repeated")
			}
			last = src
			a.source(src)
			if err := d.intervals(&a); err != nil {
				return Set{}, nil, err
			}
		}
	}
	return a.set(), d.in[d.pos:], nil
}

// The least bytes that a UUID, a source and an interval take: they bound the
// counts that are believed.
const (
	minIntervalBytes = 2
	minSourceBytes   = 2 + minIntervalBytes
	minUUIDBytes     = 16 + 1 + minSourceBytes
)

// intervalsIn counts the intervals of a set's encoding at the start of b, so that
// a set of thousands is read into one array of its size: growing one makes twice
// as much garbage, and states of servers come many times a second. It reads
// lengths only; of what is no encoding it counts as many as there are up to where
// that shows, at most one for each [minIntervalBytes].
func intervalsIn(b []byte) int {
	d := decoder{in: b}
	n := 0
	uuids, err := d.count(minUUIDBytes)
	for i := 0; i < uuids && err == nil; i++ {
		d.pos = min(d.pos+len(UUID{}), len(b))
		var sources, tag, intervals int
		sources, err = d.count(minSourceBytes)
		for k := 0; k < sources && err == nil; k++ {
			if tag, err = d.count(1); err != nil {
				break
			}
			d.pos += tag
			if intervals, err = d.count(minIntervalBytes); err != nil || !d.skip(2*intervals) {
				return n
			}
			n += intervals
		}
	}
	return n
}

// skip passes over n numbers and tells whether they are there.
func (d *decoder) skip(n int) bool {
	for pos, b := range d.in[d.pos:] {
		if n == 0 {
			d.pos += pos
			return true
		}
		if b < 0x80 {
			n--
		}
	}
	d.pos = len(d.in)
	return n == 0
}

// decoder reads DecodeBinary's fields.
type decoder struct {
	in  []byte
	pos int
}

func (d *decoder) uvarint() (uint64, error) {
	v, n := binary.Uvarint(d.in[d.pos:])
	if n <= 0 {
		return 0, corrupt(d.pos, "number cut off or too large")
	}
	if n > 1 && d.in[d.pos+n-1] == 0 {
		return 0, corrupt(d.pos, "number longer than need be")
	}
	d.pos += n
	return v, nil
}

// count reads how many things of at least size bytes follow.
func (d *decoder) count(size int) (int, error) {
	at := d.pos
	n, err := d.uvarint()
	if err != nil {
		return 0, err
	}
	if n > uint64((len(d.in)-d.pos)/size) {
		return 0, corrupt(at, "count larger than the bytes that follow")
	}
	return int(n), nil
}

func (d *decoder) uuid() (UUID, error) {
	var u UUID
	if len(d.in)-d.pos < len(u) {
		return u, corrupt(d.pos, "UUID cut off")
	}
	copy(u[:], d.in[d.pos:])
	d.pos += len(u)
	return u, nil
}

func (d *decoder) tag() (string, error) {
	at := d.pos
	n, err := d.count(1)
	if err != nil {
		return "", err
	}
	if n > MaxTagLen {
		return "", corrupt(at, "tag too long")
	}
	tag := string(d.in[d.pos : d.pos+n])
	if !validTag(tag) {
		return "", corrupt(at, "malformed tag")
	}
	d.pos += n
	return tag, nil
}

func (d *decoder) intervals(a *assembly) error {
	at := d.pos
	n, err := d.count(minIntervalBytes)
	if err != nil {
		return err
	}
	if n == 0 {
		return corrupt(at, "source without intervals")
	}
	floor := uint64(1)
	for range n {
		iv, err := d.interval(&floor)
		if err != nil {
			return err
		}
		a.add(iv)
	}
	return nil
}

// interval reads one interval at or above floor, and raises floor to the least
// number at which the next may begin.
func (d *decoder) interval(floor *uint64) (Interval, error) {
	const maxSeq = uint64(MaxSeq)
	at := d.pos
	skip, err := d.uvarint()
	if err != nil {
		return Interval{}, err
	}
	more, err := d.uvarint()
	if err != nil {
		return Interval{}, err
	}
	// Subtractions only, so that nothing overflows; floor is unsigned
	// because it may lie two beyond MaxSeq.
	if *floor > maxSeq || skip > maxSeq-*floor || more > maxSeq-*floor-skip {
		return Interval{}, corrupt(at, "sequence number out of range")
	}
	first := *floor + skip
	*floor = first + more + 2
	return Interval{int64(first), int64(first + more)}, nil
}
