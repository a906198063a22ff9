package serve

import (
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonReader reads JSON of a known shape from a body, strictly (RFC 8259) and
// with the offset of whatever is wrong. encoding/json tells neither the offset
// nor the place of an unknown field.
type jsonReader struct {
	b []byte
	i int
}

// maxJSONDepth bounds what skip follows.
const maxJSONDepth = 32

func (r *jsonReader) wrong(format string, a ...any) *wireError {
	return bad(CodeBadJSON, "", r.i, fmt.Sprintf(format, a...))
}

func (r *jsonReader) space() {
	for r.i < len(r.b) {
		switch r.b[r.i] {
		case ' ', '\t', '\n', '\r':
			r.i++
		default:
			return
		}
	}
}

// peek returns the next byte that is no white space; 0 at the end.
func (r *jsonReader) peek() byte {
	r.space()
	if r.i < len(r.b) {
		return r.b[r.i]
	}
	return 0
}

func (r *jsonReader) expect(c byte) *wireError {
	if r.peek() != c || r.i >= len(r.b) {
		return r.wrong("expected %q, got %s", c, r.here())
	}
	r.i++
	return nil
}

func (r *jsonReader) here() string {
	if r.i >= len(r.b) {
		return "the end"
	}
	return strconv.QuoteToASCII(string(r.b[r.i:min(len(r.b), r.i+12)]))
}

// end demands that nothing follows.
func (r *jsonReader) end() *wireError {
	if r.space(); r.i < len(r.b) {
		return r.wrong("expected the end, got %s", r.here())
	}
	return nil
}

// object calls f for each member with the reader at its value.
func (r *jsonReader) object(f func(name string) *wireError) *wireError {
	if err := r.expect('{'); err != nil {
		return err
	}
	if r.peek() == '}' {
		r.i++
		return nil
	}
	for {
		name, err := r.text()
		if err != nil {
			return err
		}
		if err := r.expect(':'); err != nil {
			return err
		}
		if err := f(name); err != nil {
			return err
		}
		if r.peek() == ',' {
			r.i++
			continue
		}
		return r.expect('}')
	}
}

// array calls f for each element with the reader at it.
func (r *jsonReader) array(f func(n int) *wireError) *wireError {
	if err := r.expect('['); err != nil {
		return err
	}
	if r.peek() == ']' {
		r.i++
		return nil
	}
	for n := 0; ; n++ {
		if err := f(n); err != nil {
			return err
		}
		if r.peek() == ',' {
			r.i++
			continue
		}
		return r.expect(']')
	}
}

// text reads a string.
func (r *jsonReader) text() (string, *wireError) {
	if err := r.expect('"'); err != nil {
		return "", err
	}
	start := r.i
	for r.i < len(r.b) {
		switch c := r.b[r.i]; {
		case c == '"':
			s := r.b[start:r.i]
			if !utf8.Valid(s) {
				r.i = start
				return "", r.wrong("the string is not UTF-8")
			}
			r.i++
			return string(s), nil
		case c == '\\':
			return r.escaped(start)
		case c < 0x20:
			return "", r.wrong("a control character in a string")
		default:
			r.i++
		}
	}
	return "", r.wrong("a string has no end")
}

func (r *jsonReader) escaped(start int) (string, *wireError) {
	out := append([]byte(nil), r.b[start:r.i]...)
	for r.i < len(r.b) {
		c := r.b[r.i]
		switch {
		case c == '"':
			if !utf8.Valid(out) {
				r.i = start
				return "", r.wrong("the string is not UTF-8")
			}
			r.i++
			return string(out), nil
		case c < 0x20:
			return "", r.wrong("a control character in a string")
		case c != '\\':
			out = append(out, c)
			r.i++
			continue
		}
		var err *wireError
		if out, err = r.escape(out); err != nil {
			return "", err
		}
	}
	return "", r.wrong("a string has no end")
}

func (r *jsonReader) escape(out []byte) ([]byte, *wireError) {
	if r.i+1 >= len(r.b) {
		return nil, r.wrong("a string has no end")
	}
	switch c := r.b[r.i+1]; c {
	case '"', '\\', '/':
		out = append(out, c)
	case 'b':
		out = append(out, '\b')
	case 'f':
		out = append(out, '\f')
	case 'n':
		out = append(out, '\n')
	case 'r':
		out = append(out, '\r')
	case 't':
		out = append(out, '\t')
	case 'u':
		u, ok := r.hex4(r.i)
		if !ok {
			return nil, r.wrong("\\u needs four hex digits")
		}
		if utf16.IsSurrogate(u) {
			low, ok := r.hex4(r.i + 6)
			if u = utf16.DecodeRune(u, low); !ok || u == utf8.RuneError {
				return nil, r.wrong("half of a surrogate pair")
			}
			r.i += 6
		}
		out = utf8.AppendRune(out, u)
		r.i += 4
	default:
		return nil, r.wrong("no such escape")
	}
	r.i += 2
	return out, nil
}

// hex4 reads the four hexadecimal digits of an escaped character at i.
func (r *jsonReader) hex4(i int) (rune, bool) {
	if i+6 > len(r.b) || r.b[i] != '\\' || r.b[i+1] != 'u' {
		return 0, false
	}
	u := rune(0)
	for _, c := range r.b[i+2 : i+6] {
		switch {
		case c >= '0' && c <= '9':
			u = u<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			u = u<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return u, true
}

// number returns a number as it is written.
func (r *jsonReader) number() (string, *wireError) {
	r.space()
	start := r.i
	digits := func() bool {
		from := r.i
		for r.i < len(r.b) && r.b[r.i] >= '0' && r.b[r.i] <= '9' {
			r.i++
		}
		return r.i > from
	}
	at := func(c byte) bool { return r.i < len(r.b) && r.b[r.i] == c }
	if at('-') {
		r.i++
	}
	if at('0') {
		r.i++
	} else if !digits() {
		return "", r.wrong("expected a number, got %s", r.here())
	}
	if at('.') {
		if r.i++; !digits() {
			return "", r.wrong("expected a digit after the point")
		}
	}
	if at('e') || at('E') {
		r.i++
		if at('+') || at('-') {
			r.i++
		}
		if !digits() {
			return "", r.wrong("expected an exponent")
		}
	}
	return string(r.b[start:r.i]), nil
}

// word reads true, false or null.
func (r *jsonReader) word(w string) bool {
	r.space()
	if len(r.b)-r.i >= len(w) && string(r.b[r.i:r.i+len(w)]) == w {
		r.i += len(w)
		return true
	}
	return false
}

func (r *jsonReader) boolean() (bool, *wireError) {
	switch {
	case r.word("true"):
		return true, nil
	case r.word("false"):
		return false, nil
	}
	return false, r.wrong("expected true or false, got %s", r.here())
}

// skip passes over one value of any kind and checks it as it goes.
func (r *jsonReader) skip(depth int) *wireError {
	if depth > maxJSONDepth {
		return r.wrong("nested more than %d deep", maxJSONDepth)
	}
	switch c := r.peek(); {
	case c == '{':
		return r.object(func(string) *wireError { return r.skip(depth + 1) })
	case c == '[':
		return r.array(func(int) *wireError { return r.skip(depth + 1) })
	case c == '"':
		_, err := r.text()
		return err
	case c == 't' || c == 'f' || c == 'n':
		if r.word("true") || r.word("false") || r.word("null") {
			return nil
		}
		return r.wrong("expected a value, got %s", r.here())
	}
	_, err := r.number()
	return err
}
