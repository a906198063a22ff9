package gtid

import "encoding/binary"

// MySQL's binary encodings of a set, all numbers little endian:
//
//	format 0: uint48 number of sources, byte 0, byte 0
//	format 1: byte 1, uint48 number of sources, byte 1
//
//	each source: 16 bytes UUID,
//	             format 1 only: variable-length number length of the tag, the tag,
//	             uint64 number of intervals,
//	             each: uint64 first, uint64 one behind the last
//
// A variable-length number of n bytes has n-1 one bits and a zero bit at the
// low end of its first byte and its value behind them; a tag's length takes
// one byte.
const (
	sidFormatUntagged = 0
	sidFormatTagged   = 1

	sidHeaderBytes   = 8
	sidIntervalBytes = 16
	sidMinBytes      = 16 + 8 // a source of format 0 without intervals
)

// EncodeSIDBlock appends MySQL's own encoding of s to dst and returns it: the
// body of a PREVIOUS_GTIDS_LOG_EVENT, and the set in a COM_BINLOG_DUMP_GTID.
// A set without tags is written in the format that every server since 5.6
// reads, one with tags in that of 8.3 and later. (A server that has seen a tag
// anywhere writes the latter for sets without tags as well.)
func (s Set) EncodeSIDBlock(dst []byte) []byte {
	var header uint64
	tagged := s.HasTags()
	n := uint64(s.Sources())
	if tagged {
		header = sidFormatTagged | n<<8 | sidFormatTagged<<56
	} else {
		header = n
	}
	dst = binary.LittleEndian.AppendUint64(dst, header)
	if s.b == nil {
		return dst
	}
	for i, r := range s.b.runs {
		src := &s.b.idx.src[i]
		dst = append(dst, src.UUID[:]...)
		if tagged {
			dst = append(dst, byte(len(src.Tag))<<1)
			dst = append(dst, src.Tag...)
		}
		dst = binary.LittleEndian.AppendUint64(dst, uint64(r.len()))
		for k := range r.len() {
			iv := r.at(k)
			dst = binary.LittleEndian.AppendUint64(dst, uint64(iv.First))
			dst = binary.LittleEndian.AppendUint64(dst, uint64(iv.Last+1))
		}
	}
	return dst
}

// HasTags reports whether s has a source with a tag.
func (s Set) HasTags() bool {
	if s.b != nil {
		for i := range s.b.idx.src {
			if s.b.idx.src[i].Tag != "" {
				return true
			}
		}
	}
	return false
}

// DecodeSIDBlock reads MySQL's encoding of a set, either format, at the start
// of b and returns what follows it. As in the server, sources may come in any
// order and repeat, the intervals of one must ascend with gaps between them.
// Anything else is an error that wraps [ErrCorrupt]. The set does not refer to
// b. Memory is bounded by a multiple (less than a hundred) of the length of b.
func DecodeSIDBlock(b []byte) (Set, []byte, error) {
	if len(b) < sidHeaderBytes {
		return Set{}, nil, corrupt(len(b), "header cut off")
	}
	header := binary.LittleEndian.Uint64(b)
	var sources uint64
	tagged := false
	switch header >> 56 {
	case sidFormatUntagged:
		sources = header & (1<<48 - 1)
		if header>>48 != 0 {
			return Set{}, nil, corrupt(6, "unknown flags")
		}
	case sidFormatTagged:
		tagged = true
		sources = header >> 8 & (1<<48 - 1)
		if header&0xff != sidFormatTagged {
			return Set{}, nil, corrupt(0, "format numbers differ")
		}
	default:
		return Set{}, nil, corrupt(7, "unknown format")
	}
	d := decoder{in: b, pos: sidHeaderBytes}
	if sources > uint64((len(b)-d.pos)/sidMinBytes) {
		return Set{}, nil, corrupt(0, "count larger than the bytes that follow")
	}
	var a assembly
	tags := interner{}
	for range sources {
		u, err := d.uuid()
		if err != nil {
			return Set{}, nil, err
		}
		src := Source{UUID: u}
		if tagged {
			tag, err := d.sidTag()
			if err != nil {
				return Set{}, nil, err
			}
			src.Tag = tags.of(tag)
		}
		a.source(src)
		if err := d.sidIntervals(&a); err != nil {
			return Set{}, nil, err
		}
	}
	return a.set(), b[d.pos:], nil
}

func (d *decoder) sidTag() (string, error) {
	at := d.pos
	if at == len(d.in) {
		return "", corrupt(at, "tag cut off")
	}
	// Longer numbers than one byte (low bit set) exceed every tag.
	n := int(d.in[at] >> 1)
	if d.in[at]&1 != 0 || n > MaxTagLen {
		return "", corrupt(at, "tag too long")
	}
	if len(d.in)-at-1 < n {
		return "", corrupt(at, "tag cut off")
	}
	tag := lowerTag(string(d.in[at+1 : at+1+n]))
	if !validTag(tag) {
		return "", corrupt(at, "malformed tag")
	}
	d.pos += 1 + n
	return tag, nil
}

func (d *decoder) uint64() (uint64, error) {
	if len(d.in)-d.pos < 8 {
		return 0, corrupt(d.pos, "number cut off")
	}
	v := binary.LittleEndian.Uint64(d.in[d.pos:])
	d.pos += 8
	return v, nil
}

func (d *decoder) sidIntervals(a *assembly) error {
	at := d.pos
	n, err := d.uint64()
	if err != nil {
		return err
	}
	if n > uint64((len(d.in)-d.pos)/sidIntervalBytes) {
		return corrupt(at, "count larger than the bytes that follow")
	}
	floor := uint64(1)
	for range n {
		at := d.pos
		first := binary.LittleEndian.Uint64(d.in[at:])
		end := binary.LittleEndian.Uint64(d.in[at+8:])
		if first < floor || end <= first || end > uint64(MaxSeq)+1 {
			return corrupt(at, "intervals out of order or out of range")
		}
		a.add(Interval{int64(first), int64(end) - 1})
		d.pos += sidIntervalBytes
		floor = end + 1
	}
	return nil
}
