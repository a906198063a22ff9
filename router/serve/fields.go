package serve

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
	"tidegate/router"
)

// classNormal is the one class there is.
const classNormal = "normal"

// maxStalenessMillis bounds max_staleness_ms: thirty years.
const maxStalenessMillis = 1e12

// kind is what is asked.
type kind uint8

const (
	kindServe kind = iota + 1
	kindRoute
	kindEligible
)

// ask is one question on its way through: as it was written, as the router
// takes it, the answer, and the buffers. It is used again and again.
type ask struct {
	kind    kind
	req     router.Request
	ans     router.Answer
	keys    []key.Key // len is what is in use; Values are kept beyond
	printed []string  // the keys as they were written; "" for the object form
	exclude []string
	given   uint32 // fields that were given, a bit each
	keyName string // "key" or "keys", for errors
	body    []byte
	out     []byte
}

var asks = sync.Pool{New: func() any { return new(ask) }}

func takeAsk(k kind) *ask {
	a := asks.Get().(*ask)
	a.reset(k)
	return a
}

// maxKeptBytes bounds the buffers that are kept for the next question.
const maxKeptBytes = 64 << 10

func (a *ask) put() {
	if cap(a.body) > maxKeptBytes {
		a.body = nil
	}
	if cap(a.out) > maxKeptBytes {
		a.out = nil
	}
	a.reset(0)
	asks.Put(a)
}

func (a *ask) reset(k kind) {
	a.kind, a.req, a.given, a.keyName = k, router.Request{Explain: true}, 0, "key"
	a.keys, a.printed, a.exclude = a.keys[:0], a.printed[:0], a.exclude[:0]
	a.body, a.out = a.body[:0], a.out[:0]
}

// The fields that may be given once.
const (
	gaveReplica uint32 = 1 << iota
	gaveFloor
	gaveLevel
	gaveClass
	gaveStaleness
	gaveVerbose
	gaveKeys
	gaveExclude
	gaveInTransaction
)

func (a *ask) once(bit uint32, field string) *wireError {
	if a.given&bit != 0 {
		return bad(CodeBadField, field, -1, "it is given twice")
	}
	a.given |= bit
	return nil
}

// text takes a field whose value is text. known is false for a field that does
// not exist for this kind of question.
func (a *ask) text(name, value string) (known bool, err *wireError) {
	switch name {
	case "replica":
		if a.kind != kindServe {
			return false, nil
		}
		if err := a.once(gaveReplica, name); err != nil {
			return true, err
		}
		a.req.Server = value
		if value == "" {
			return true, bad(CodeBadField, name, -1, "it is empty")
		}
	case "floor":
		if a.kind == kindEligible {
			return false, nil
		}
		if err := a.once(gaveFloor, name); err != nil {
			return true, err
		}
		return true, a.floor(name, value)
	case "level":
		if a.kind == kindEligible {
			return false, nil
		}
		if err := a.once(gaveLevel, name); err != nil {
			return true, err
		}
		return true, a.level(name, value)
	case "class":
		if a.kind == kindEligible {
			return false, nil
		}
		if err := a.once(gaveClass, name); err != nil {
			return true, err
		}
		return true, class(name, value)
	default:
		return false, nil
	}
	return true, nil
}

func (a *ask) floor(field, value string) *wireError {
	set, err := gtid.ParseNamed(value)
	if err != nil {
		return badGTID(field, err)
	}
	a.req.Floor, a.req.HasFloor = set, true
	return nil
}

func (a *ask) level(field, value string) *wireError {
	l, ok := router.ParseLevel(value)
	if !ok {
		return bad(CodeBadField, field, 0, "the levels are "+strings.Join(router.Levels(), ", "))
	}
	a.req.Level = l
	return nil
}

func class(field, value string) *wireError {
	if value != classNormal {
		return bad(CodeBadField, field, 0, "the one class is "+classNormal)
	}
	return nil
}

// staleness takes max_staleness_ms, a decimal number of milliseconds.
func (a *ask) staleness(field, value string) *wireError {
	if err := a.once(gaveStaleness, field); err != nil {
		return err
	}
	ms, err := parseMillis(value)
	if err != nil {
		return bad(CodeBadField, field, 0, "it is not a number of milliseconds, 0 or more")
	}
	a.req.MaxStaleness, a.req.HasBound = ms, true
	return nil
}

// parseMillis reads decimals alone: no sign, no hexadecimal, no infinity.
func parseMillis(s string) (time.Duration, error) {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && c != '.' && c != 'e' && c != 'E' && c != '+' && (c != '-' || i == 0) {
			return 0, strconv.ErrSyntax
		}
	}
	ms, err := strconv.ParseFloat(s, 64)
	if err != nil || ms < 0 || ms > maxStalenessMillis {
		return 0, strconv.ErrRange
	}
	return time.Duration(ms * float64(time.Millisecond)), nil
}

// nextKey returns a place for one more key, whose Values may be used again.
func (a *ask) nextKey() (*key.Key, *wireError) {
	if len(a.keys) == router.MaxKeys {
		return nil, fail(http.StatusRequestEntityTooLarge, CodeTooLarge, a.keyName,
			"at most "+strconv.Itoa(router.MaxKeys)+" keys are allowed")
	}
	if len(a.keys) < cap(a.keys) {
		a.keys = a.keys[:len(a.keys)+1]
	} else {
		a.keys = append(a.keys, key.Key{})
	}
	a.printed = append(a.printed, "")
	return &a.keys[len(a.keys)-1], nil
}

// key takes one printed key.
func (a *ask) key(printed string) *wireError {
	k, err := a.nextKey()
	if err != nil {
		return err
	}
	n := len(a.keys) - 1
	a.printed[n] = printed
	if err := k.Parse(printed); err != nil {
		return badKey(a.keyName, n, err)
	}
	return nil
}

// query takes the fields of a URL's query.
func (a *ask) query(raw string) *wireError {
	for at := 0; raw != ""; {
		pair := raw
		if i := strings.IndexByte(raw, '&'); i >= 0 {
			pair, raw = raw[:i], raw[i+1:]
		} else {
			raw = ""
		}
		if pair != "" {
			name, value, _ := strings.Cut(pair, "=")
			n, ok1 := unescape(name)
			v, ok2 := unescape(value)
			if !ok1 || !ok2 {
				return bad(CodeBadQuery, name, at, "a percent sign without two hex digits")
			}
			if err := a.queryField(n, v); err != nil {
				return err
			}
		}
		at += len(pair) + 1
	}
	return nil
}

func (a *ask) queryField(name, value string) *wireError {
	switch name {
	case "key":
		if a.kind == kindEligible {
			break
		}
		return a.key(value)
	case "max_staleness_ms":
		return a.staleness(name, value)
	case "verbose":
		if err := a.once(gaveVerbose, name); err != nil {
			return err
		}
		if value != "0" && value != "1" {
			return bad(CodeBadField, name, 0, "it is 0 or 1")
		}
		a.req.Verbose = value == "1"
		return nil
	}
	if known, err := a.text(name, value); known {
		return err
	}
	return bad(CodeUnknownField, name, -1, "there is no such field here")
}

// unescape decodes a part of a query; it does not copy what has nothing to
// decode.
func unescape(s string) (string, bool) {
	if !strings.ContainsAny(s, "%+") {
		return s, true
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '+':
			out = append(out, ' ')
		case '%':
			if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
				return "", false
			}
			out = append(out, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 2
		default:
			out = append(out, s[i])
		}
	}
	return string(out), true
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// header takes the fields that may also be headers; what the query or the body
// said wins. A token can not be honoured here, and a floor that is not looked
// at would be a wrong yes: it is refused.
func (a *ask) header(h http.Header) *wireError {
	if _, ok := h["Tidegate-Token"]; ok {
		return bad(CodeUnknownField, "Tidegate-Token", -1, "this version has no tokens")
	}
	for _, f := range []struct {
		name  string
		given uint32
		take  func(field, value string) *wireError
	}{{"Tidegate-Level", gaveLevel, a.level}, {"Tidegate-Class", gaveClass, class}} {
		v := h[f.name]
		switch {
		case len(v) == 0 || a.given&f.given != 0:
		case len(v) > 1: // which one is meant, the weaker or the stronger?
			return bad(CodeBadField, f.name, -1, "it is given twice")
		default:
			if err := f.take(f.name, v[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// complete hands the fields over to the request and checks what must be there.
func (a *ask) complete() *wireError {
	a.req.Keys, a.req.Exclude = a.keys, a.exclude
	if a.kind == kindServe && a.given&gaveReplica == 0 {
		return bad(CodeBadField, "replica", -1, "it is missing")
	}
	return nil
}
