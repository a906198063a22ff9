package gtid

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxSeq is the largest sequence number that MySQL lets a GTID carry; the
// server refuses the next one, the end mark of its half-open intervals.
const MaxSeq int64 = 1<<63 - 2

// MaxTagLen is the largest length of a tag, in bytes.
const MaxTagLen = 32

// Source is what numbers transactions: a server's UUID, or one of its tags. It
// is comparable and may key a map. Tag is empty or matches [a-z_][a-z0-9_]*
// with at most [MaxTagLen] bytes; the zero value is no source.
type Source struct {
	UUID UUID
	Tag  string
}

// Compare orders sources as MySQL prints them: by UUID, untagged first, then
// by tag, bytewise.
func (s Source) Compare(o Source) int {
	if c := s.UUID.Compare(o.UUID); c != 0 {
		return c
	}
	return strings.Compare(s.Tag, o.Tag)
}

// String returns "uuid" or "uuid:tag".
func (s Source) String() string {
	if s.Tag == "" {
		return s.UUID.String()
	}
	return s.UUID.String() + ":" + s.Tag
}

// GTID identifies one transaction. Valid ones have 1 <= Seq <= [MaxSeq] and a
// tag as [Source] describes; the zero value stands for "no GTID" (an
// anonymous transaction). It is comparable and may key a map.
type GTID struct {
	UUID UUID
	Tag  string
	Seq  int64
}

// ParseGTID reads "uuid:5" or "uuid:tag:5" as MySQL reads gtid_next: white
// space may stand around the parts, letters may be of either case, the UUID
// has dashes and no braces. It reads exactly one GTID: an interval, a list or
// an empty string is a [*ParseError].
func ParseGTID(s string) (GTID, error) {
	p := scanner{in: s}
	return p.gtid()
}

// String returns "uuid:5" or "uuid:tag:5" as MySQL prints it, and an empty
// string for the zero value.
func (g GTID) String() string {
	if g.IsZero() {
		return ""
	}
	var buf [uuidTextLen + 1 + MaxTagLen + 1 + 20]byte
	return string(g.AppendString(buf[:0]))
}

// AppendString appends the form of String to dst and returns it.
func (g GTID) AppendString(dst []byte) []byte {
	if g.IsZero() {
		return dst
	}
	dst = g.UUID.append(dst)
	if g.Tag != "" {
		dst = append(dst, ':')
		dst = append(dst, g.Tag...)
	}
	dst = append(dst, ':')
	return strconv.AppendInt(dst, g.Seq, 10)
}

// IsZero reports whether g is the zero value.
func (g GTID) IsZero() bool { return g == GTID{} }

// Source returns what numbered g.
func (g GTID) Source() Source { return Source{UUID: g.UUID, Tag: g.Tag} }

// Compare orders GTIDs by source and then by number. Numbers of different
// sources say nothing about time, and even those of one source need not be in
// commit order: rules §1, "newer" means a larger version, never a larger GTID.
func (g GTID) Compare(o GTID) int {
	if c := g.Source().Compare(o.Source()); c != 0 {
		return c
	}
	switch {
	case g.Seq < o.Seq:
		return -1
	case g.Seq > o.Seq:
		return 1
	}
	return 0
}

// Validate returns an error that says why g can't be in a set: a number out of
// range or a malformed tag. Callers that build a GTID from bytes they did not
// write check it before they add it.
func (g GTID) Validate() error {
	if g.Seq < 1 || g.Seq > MaxSeq {
		return fmt.Errorf("gtid: sequence number %d of %v is not within 1 and %d", g.Seq, g.Source(), MaxSeq)
	}
	if !validTag(g.Tag) {
		return fmt.Errorf("gtid: tag %q is not [a-z_][a-z0-9_]* of at most %d bytes", g.Tag, MaxTagLen)
	}
	return nil
}

// MarshalText implements [encoding.TextMarshaler] with the form of String.
func (g GTID) MarshalText() ([]byte, error) { return g.AppendString(nil), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] as [ParseGTID]; an empty
// text is the zero value.
func (g *GTID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*g = GTID{}
		return nil
	}
	v, err := ParseGTID(string(text))
	if err != nil {
		return err
	}
	*g = v
	return nil
}

// Interval is a run of sequence numbers, both ends included:
// 1 <= First <= Last <= [MaxSeq].
type Interval struct {
	First, Last int64
}

// Len returns how many numbers the interval holds.
func (iv Interval) Len() uint64 { return uint64(iv.Last-iv.First) + 1 }

func (iv Interval) valid() bool {
	return 1 <= iv.First && iv.First <= iv.Last && iv.Last <= MaxSeq
}

// checkInterval panics on an interval that no server could have sent: sets
// must never hold one, and the callers in this module validate what they read.
func checkInterval(iv Interval) {
	if !iv.valid() {
		panic(fmt.Sprintf("gtid: interval %d-%d is not within 1 and %d", iv.First, iv.Last, MaxSeq))
	}
}

// checkTag panics on a tag that would break the order or the text of a set.
func checkTag(tag string) {
	if !validTag(tag) {
		panic(fmt.Sprintf("gtid: tag %q is not [a-z_][a-z0-9_]* of at most %d bytes", tag, MaxTagLen))
	}
}

// validTag reports whether tag is empty or in the normal (lower-case) form.
func validTag(tag string) bool {
	if len(tag) > MaxTagLen {
		return false
	}
	for i := range len(tag) {
		c := tag[i]
		if !(c == '_' || 'a' <= c && c <= 'z' || i > 0 && '0' <= c && c <= '9') {
			return false
		}
	}
	return true
}
