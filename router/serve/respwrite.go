package serve

import (
	"strconv"
	"strings"
	"time"
)

// reply writes RESP; proto is 2 or 3. It owns its buffer.
type reply struct {
	b     []byte
	proto int
}

func (w *reply) crlf()           { w.b = append(w.b, '\r', '\n') }
func (w *reply) simple(s string) { w.b = append(append(w.b, '+'), s...); w.crlf() }

func (w *reply) head(kind byte, n int) {
	w.b = append(w.b, kind)
	w.b = strconv.AppendInt(w.b, int64(n), 10)
	w.crlf()
}
func (w *reply) array(n int)   { w.head('*', n) }
func (w *reply) integer(n int) { w.head(':', n) }

func (w *reply) bulk(s string) {
	w.head('$', len(s))
	w.b = append(w.b, s...)
	w.crlf()
}

// null is its own type in RESP3, a bulk string of length -1 in RESP2.
func (w *reply) null() {
	if w.proto == 3 {
		w.b = append(w.b, "_\r\n"...)
		return
	}
	w.b = append(w.b, "$-1\r\n"...)
}

// textOrNull writes null for an empty text.
func (w *reply) textOrNull(s string) {
	if s == "" {
		w.null()
		return
	}
	w.bulk(s)
}

// pairs begins a map of n entries: a map in RESP3, a flat array in RESP2.
func (w *reply) pairs(n int) {
	if w.proto == 3 {
		w.head('%', n)
		return
	}
	w.array(2 * n)
}

func (w *reply) flag(v bool) {
	if v {
		w.b = append(w.b, ":1\r\n"...)
		return
	}
	w.b = append(w.b, ":0\r\n"...)
}

func (w *reply) millis(d time.Duration) {
	if d < 0 {
		w.null()
		return
	}
	var buf [32]byte
	w.bulk(string(appendMillisNumber(buf[:0], d)))
}

// raw writes what is encoded already.
func (w *reply) raw(s string) { w.b = append(w.b, s...) }

// err writes -ERR code [field=f] [offset=n] [retry_after_ms=n] [otherwise=o]
// message, on one line whatever the message holds.
func (w *reply) err(e *wireError) {
	w.b = append(w.b, "-ERR "...)
	w.b = append(w.b, e.code...)
	if e.field != "" {
		w.b = append(w.b, " field="...)
		w.line(e.field)
	}
	if e.offset >= 0 {
		w.b = append(w.b, " offset="...)
		w.b = strconv.AppendInt(w.b, int64(e.offset), 10)
	}
	if e.retryAfter > 0 {
		w.b = append(w.b, " retry_after_ms="...)
		w.b = appendMillisNumber(w.b, e.retryAfter)
	}
	if e.otherwise != "" {
		w.b = append(append(w.b, " otherwise="...), e.otherwise...)
	}
	if e.message != "" {
		w.b = append(w.b, ' ')
		w.line(e.message)
	}
	w.crlf()
}

// line writes text without anything that could end the line early.
func (w *reply) line(s string) {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
		w.b = append(w.b, s...)
		return
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' {
			w.b = append(w.b, '?')
		} else {
			w.b = append(w.b, c)
		}
	}
}
