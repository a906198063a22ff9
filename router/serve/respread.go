package serve

import (
	"io"
	"strconv"
)

// frames reads RESP commands out of one buffer, in place: arguments are slices
// of it, valid until the next fill. Why it is ours: RESP.md.
type frames struct {
	buf  []byte
	r, w int // what is read in and not yet consumed
	args [][]byte

	maxBytes, maxArgs int
}

// frameError is a breach of the protocol, after which nothing that follows can
// be understood.
type frameError struct {
	code   Code
	offset int // within the command
	text   string
}

func (e *frameError) Error() string {
	return string(e.code) + " offset=" + strconv.Itoa(e.offset) + " " + e.text
}

const minFrameBuffer = 4 << 10

// next returns the arguments of the next command. ok is false when it is not
// complete yet: fill, then ask again. Empty commands are passed over.
func (f *frames) next() (args [][]byte, ok bool, err *frameError) {
	for f.r < f.w {
		var n int
		b := f.buf[f.r:f.w]
		if b[0] == '*' {
			n, err = f.array(b)
		} else {
			n, err = f.inline(b)
		}
		if err != nil {
			return nil, false, err
		}
		if n == 0 {
			if len(b) >= f.maxBytes {
				return nil, false, &frameError{CodeTooLarge, len(b), "a command has at most " + strconv.Itoa(f.maxBytes) + " bytes"}
			}
			return nil, false, nil
		}
		f.r += n
		if len(f.args) > 0 {
			return f.args, true, nil
		}
	}
	return nil, false, nil
}

// array parses *n and n bulk strings; it returns the command's length, 0 when it
// is not complete.
func (f *frames) array(b []byte) (int, *frameError) {
	f.args = f.args[:0]
	n, i, err := number(b, 1)
	if i == 0 || err != nil {
		return 0, err
	}
	if n > f.maxArgs {
		return 0, &frameError{CodeTooLarge, 1, "a command has at most " + strconv.Itoa(f.maxArgs) + " arguments"}
	}
	for range max(n, 0) { // *0 and *-1 are commands of no argument
		if i >= len(b) {
			return 0, nil
		}
		if b[i] != '$' {
			return 0, &frameError{CodeBadFrame, i, "expected '$'"}
		}
		size, at, err := number(b, i+1)
		if at == 0 || err != nil {
			return 0, err
		}
		if size < 0 {
			return 0, &frameError{CodeBadFrame, i + 1, "an argument can not be null"}
		}
		if size > f.maxBytes {
			return 0, &frameError{CodeTooLarge, i + 1, "a command has at most " + strconv.Itoa(f.maxBytes) + " bytes"}
		}
		if len(b) < at+size+2 {
			return 0, nil
		}
		if b[at+size] != '\r' || b[at+size+1] != '\n' {
			return 0, &frameError{CodeBadFrame, at + size, "expected CR LF after the argument"}
		}
		f.args = append(f.args, b[at:at+size])
		i = at + size + 2
	}
	return i, nil
}

// number parses a decimal and CR LF at i and returns where it ends; 0 when it is
// not complete.
func number(b []byte, i int) (n, end int, err *frameError) {
	start := i
	negative := i < len(b) && b[i] == '-'
	if negative {
		i++
	}
	digits := 0
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case c >= '0' && c <= '9' && digits < 10:
			n = n*10 + int(c-'0')
			digits++
		case c == '\r' && digits > 0:
			if i+1 == len(b) {
				return 0, 0, nil
			}
			if b[i+1] != '\n' {
				return 0, 0, &frameError{CodeBadFrame, i + 1, "expected LF"}
			}
			if negative {
				n = -n
			}
			return n, i + 2, nil
		default:
			return 0, 0, &frameError{CodeBadFrame, max(i, start), "expected a length"}
		}
	}
	return 0, 0, nil
}

// inline parses a command as people type it: words, spaces, a line end.
func (f *frames) inline(b []byte) (int, *frameError) {
	f.args = f.args[:0]
	word := -1
	for i, c := range b {
		switch {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			if word >= 0 {
				f.args = append(f.args, b[word:i])
				word = -1
			}
			if len(f.args) > f.maxArgs {
				return 0, &frameError{CodeTooLarge, i, "a command has at most " + strconv.Itoa(f.maxArgs) + " arguments"}
			}
			if c == '\n' {
				return i + 1, nil
			}
		case c < ' ' || c == 0x7f:
			return 0, &frameError{CodeBadFrame, i, "neither a command nor a line of text"}
		case word < 0:
			word = i
		}
	}
	return 0, nil
}

// fill reads more. Arguments that were handed out are no longer valid.
func (f *frames) fill(r io.Reader) error {
	if f.r > 0 {
		f.w = copy(f.buf, f.buf[f.r:f.w])
		f.r = 0
	}
	if f.w == len(f.buf) {
		grown := make([]byte, max(minFrameBuffer, min(2*len(f.buf), f.maxBytes+minFrameBuffer)))
		copy(grown, f.buf[:f.w])
		f.buf = grown
	}
	n, err := r.Read(f.buf[f.w:])
	f.w += n
	if n > 0 {
		return nil
	}
	return err
}

// shrink gives a large buffer back once nothing is left in it, and tells
// whether it did.
func (f *frames) shrink() bool {
	if f.r != f.w || len(f.buf) <= maxKeptBytes {
		return false
	}
	clear(f.args[:cap(f.args)])
	f.buf, f.r, f.w, f.args = nil, 0, 0, f.args[:0]
	return true
}
