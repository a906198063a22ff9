package gtid

import (
	"fmt"
	"math"
	"strings"
)

// ParseError says where and why a text is not a GTID, a set or a UUID.
type ParseError struct {
	Excerpt string // what stands at the offset, at most 24 bytes
	Offset  int    // bytes from the start of the text
	Reason  string
}

func (e *ParseError) Error() string {
	if e.Excerpt == "" {
		return fmt.Sprintf("gtid: %s at the end of the text (offset %d)", e.Reason, e.Offset)
	}
	return fmt.Sprintf("gtid: %s at offset %d: %q", e.Reason, e.Offset, e.Excerpt)
}

// Parse reads a GTID set as MySQL 9.7 does:
//
//	set   = { "," } [ part { "," { "," } part } ] { "," }
//	part  = uuid { ":" tag | ":" first [ "-" last ] }
//
// A tag holds for the intervals behind it, up to the next tag or part. White
// space may stand between all tokens (not inside a UUID), letters may be of
// either case, intervals may come in any order, overlap and repeat; one whose
// last is below its first is empty; a uuid or a tag without intervals adds
// nothing; zeros may lead a number. The empty text is the empty set.
//
// What MySQL refuses with ER_MALFORMED_GTID_SET is a [*ParseError]: a missing
// or signed number, a first of 0, a number above [MaxSeq], a tag of more than
// [MaxTagLen] bytes, a "+" in front, bytes after a part. Time grows with n log n
// of the text's length and memory with a multiple (less than a hundred) of it,
// whatever the text: callers bound the length.
func Parse(s string) (Set, error) {
	p := scanner{in: s}
	return p.set()
}

// ParseNamed is [Parse] for what people and programs say of their own accord. What
// MySQL lets pass although it names nothing is a [*ParseError] as well: the empty
// text, commas alone, a uuid or a tag without an interval behind it, an interval
// whose last is below its first. A slip of that kind would ask for less than was
// meant.
func ParseNamed(s string) (Set, error) {
	p := scanner{in: s, named: true}
	set, err := p.set()
	if err == nil && set.IsEmpty() {
		err = p.failAt(0, "the set is empty, and names no GTID")
	}
	return set, err
}

// MustParse is [Parse] for constants and tests: it panics on an error.
func MustParse(s string) Set {
	set, err := Parse(s)
	if err != nil {
		panic(err)
	}
	return set
}

// scanner reads tokens from a text.
type scanner struct {
	in    string
	pos   int
	named bool // see ParseNamed
}

func (p *scanner) atEnd() bool { return p.pos == len(p.in) }

// peek returns the next byte, 0 at the end (a NUL byte is no token either).
func (p *scanner) peek() byte {
	if p.pos < len(p.in) {
		return p.in[p.pos]
	}
	return 0
}

// skip passes c and the white space behind it, if c is next.
func (p *scanner) skip(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.pos++
	p.space()
	return true
}

func (p *scanner) space() {
	for p.pos < len(p.in) {
		switch p.in[p.pos] {
		case ' ', '\t', '\n', '\v', '\f', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *scanner) fail(reason string) error { return p.failAt(p.pos, reason) }

func (p *scanner) failAt(pos int, reason string) error {
	const excerpt = 24
	return &ParseError{
		Excerpt: p.in[pos:min(len(p.in), pos+excerpt)],
		Offset:  pos,
		Reason:  reason,
	}
}

func (p *scanner) set() (Set, error) {
	// Each interval has its colon, so the list never grows.
	a := assembly{ivs: make([]Interval, 0, strings.Count(p.in, ":"))}
	tags := interner{}
	p.space()
	for {
		for p.skip(',') {
		}
		if p.atEnd() {
			return a.set(), nil
		}
		if err := p.part(&a, &tags); err != nil {
			return Set{}, err
		}
		if !p.atEnd() && p.peek() != ',' {
			return Set{}, p.fail(`expected ","`)
		}
	}
}

// part reads one UUID with its tags and intervals.
func (p *scanner) part(a *assembly, tags *interner) error {
	u, err := p.uuid()
	if err != nil {
		return err
	}
	p.space()
	a.source(Source{UUID: u})
	lacks, tagged := true, false // an interval, of the uuid or of a tag
	for p.skip(':') {
		if isTagStart(p.peek()) {
			if p.named && tagged && lacks {
				return p.fail("expected an interval of the tag before")
			}
			lacks, tagged = true, true
			tag, err := p.tag()
			if err != nil {
				return err
			}
			a.source(Source{UUID: u, Tag: tags.of(tag)})
			p.space()
			continue
		}
		at := p.pos
		iv, err := p.interval()
		switch {
		case err != nil:
			return err
		case iv.First <= iv.Last:
			a.add(iv)
		case p.named:
			return p.failAt(at, "the last of the interval is below its first")
		}
		lacks = false
	}
	if p.named && lacks {
		return p.fail(`expected ":" and an interval`)
	}
	return nil
}

// interval reads "5" or "5-7" and the white space behind it; Last may be below
// First.
func (p *scanner) interval() (Interval, error) {
	at := p.pos
	first, err := p.number()
	if err != nil {
		return Interval{}, err
	}
	if first < 1 || first > uint64(MaxSeq) {
		return Interval{}, p.failAt(at, "sequence number out of range")
	}
	last := first
	p.space()
	if p.skip('-') {
		at = p.pos
		if last, err = p.number(); err != nil {
			return Interval{}, err
		}
		if last > uint64(MaxSeq) {
			return Interval{}, p.failAt(at, "sequence number out of range")
		}
		p.space()
	}
	return Interval{int64(first), int64(last)}, nil
}

func (p *scanner) number() (uint64, error) {
	const safe = 19 // digits that can't exceed a uint64
	var n uint64
	i := p.pos
	for ; i < len(p.in); i++ {
		c := uint64(p.in[i] - '0')
		if c > 9 {
			break
		}
		if i-p.pos >= safe && n > (math.MaxUint64-c)/10 {
			return 0, p.fail("sequence number out of range")
		}
		n = n*10 + c
	}
	if i == p.pos {
		return 0, p.fail("expected a sequence number or a tag")
	}
	p.pos = i
	return n, nil
}

// tag reads a tag as it is written; the next byte is known to begin one.
func (p *scanner) tag() (string, error) {
	start := p.pos
	for p.pos < len(p.in) && isTagByte(p.in[p.pos]) {
		p.pos++
	}
	if p.pos-start > MaxTagLen {
		return "", p.failAt(start, fmt.Sprintf("tag longer than %d bytes", MaxTagLen))
	}
	return p.in[start:p.pos], nil
}

// uuid reads the three forms described at ParseUUID.
func (p *scanner) uuid() (UUID, error) {
	var u UUID
	brace := p.peek() == '{'
	if brace {
		p.pos++
	}
	dashes := brace
	for i := range u {
		if i == 4 && !brace {
			dashes = p.peek() == '-'
		}
		if dashes && (i == 4 || i == 6 || i == 8 || i == 10) {
			if p.peek() != '-' {
				return UUID{}, p.fail(`expected "-" in a UUID`)
			}
			p.pos++
		}
		for range 2 {
			d, ok := hexValue(p.peek())
			if !ok {
				return UUID{}, p.fail("expected a hexadecimal digit of a UUID")
			}
			u[i] = u[i]<<4 | d
			p.pos++
		}
	}
	if brace {
		if p.peek() != '}' {
			return UUID{}, p.fail(`expected "}" after a UUID`)
		}
		p.pos++
	}
	return u, nil
}

// gtid reads exactly one GTID.
func (p *scanner) gtid() (GTID, error) {
	var g GTID
	var err error
	p.space()
	at := p.pos
	if g.UUID, err = p.uuid(); err != nil {
		return GTID{}, err
	}
	if p.pos-at != uuidTextLen {
		// The server reads the other forms of a UUID in sets alone.
		return GTID{}, p.failAt(at, "expected a UUID with dashes and without braces")
	}
	p.space()
	if !p.skip(':') {
		return GTID{}, p.fail(`expected ":"`)
	}
	if isTagStart(p.peek()) {
		tag, err := p.tag()
		if err != nil {
			return GTID{}, err
		}
		g.Tag = lowerTag(tag)
		p.space()
		if !p.skip(':') {
			return GTID{}, p.fail(`expected ":"`)
		}
	}
	at = p.pos
	n, err := p.number()
	if err != nil {
		return GTID{}, err
	}
	if n < 1 || n > uint64(MaxSeq) {
		return GTID{}, p.failAt(at, "sequence number out of range")
	}
	g.Seq = int64(n)
	p.space()
	if !p.atEnd() {
		return GTID{}, p.fail("expected the end of the GTID")
	}
	return g, nil
}

// interner makes one string of equal tags, so that a set with a tag on a
// hundred UUIDs holds it once and keeps no part of the text alive.
type interner struct{ seen map[string]string }

func (in *interner) of(tag string) string {
	if tag == "" {
		return ""
	}
	if t, ok := in.seen[tag]; ok {
		return t
	}
	if in.seen == nil {
		in.seen = make(map[string]string)
	}
	low := lowerTag(tag)
	if t, ok := in.seen[low]; ok {
		return t
	}
	in.seen[low] = low
	return low
}

// lowerTag returns a copy of tag in lower case.
func lowerTag(tag string) string {
	var buf [MaxTagLen]byte
	for i := range len(tag) {
		c := tag[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		buf[i] = c
	}
	return string(buf[:len(tag)])
}

func isTagStart(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' }

func isTagByte(c byte) bool { return isTagStart(c) || '0' <= c && c <= '9' }

func hexValue(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}
