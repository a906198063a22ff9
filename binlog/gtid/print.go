package gtid

import (
	"fmt"
	"strconv"
)

// String returns s as MySQL prints it: UUIDs in ascending order, behind each
// its untagged intervals and then those of its tags, and a comma with a
// newline between UUIDs. The empty set is an empty string.
func (s Set) String() string { return string(s.AppendString(nil)) }

// AppendString appends the form of String to dst and returns it.
func (s Set) AppendString(dst []byte) []byte { return s.appendText(dst, ",\n") }

// OneLine returns the form of String without the newlines, for logs, headers
// and JSON. MySQL and [Parse] read both.
func (s Set) OneLine() string { return string(s.appendText(nil, ",")) }

// Brief is [Set.OneLine] of the first n intervals, for logs and errors; it says how
// many more there are.
func (s Set) Brief(n int) string {
	all := s.NumIntervals()
	if all <= n {
		return s.OneLine()
	}
	return fmt.Sprintf("%s and %d more", s.Limit(n).OneLine(), all-n)
}

func (s Set) appendText(dst []byte, separator string) []byte {
	if s.b == nil {
		return dst
	}
	if dst == nil {
		dst = make([]byte, 0, s.textSize())
	}
	src := s.b.idx.src
	for i, r := range s.b.runs {
		if i == 0 || src[i].UUID != src[i-1].UUID {
			if i > 0 {
				dst = append(dst, separator...)
			}
			dst = src[i].UUID.append(dst)
		}
		if src[i].Tag != "" {
			dst = append(dst, ':')
			dst = append(dst, src[i].Tag...)
		}
		for k := range r.len() {
			iv := r.at(k)
			dst = append(dst, ':')
			dst = strconv.AppendInt(dst, iv.First, 10)
			if iv.Last > iv.First {
				dst = append(dst, '-')
				dst = strconv.AppendInt(dst, iv.Last, 10)
			}
		}
	}
	return dst
}

// textSize returns a guess that spares most sets a second allocation.
func (s Set) textSize() int {
	const perInterval = 16
	return len(s.b.runs)*(uuidTextLen+2) + s.NumIntervals()*perInterval
}
