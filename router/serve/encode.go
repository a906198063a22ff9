package serve

import (
	"strconv"
	"time"
	"unicode/utf8"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/router"
)

// Answers are written by hand into a buffer that is used again: their shape is
// fixed, and encoding/json would cost more than the decision.

const hexDigits = "0123456789abcdef"

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
			b = append(append(b, s[from:i]...), `\ufffd`...)
		} else if c == '"' || c == '\\' {
			b = append(append(b, s[from:i]...), '\\', c)
		} else {
			b = append(append(b, s[from:i]...), '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	return append(append(b, s[from:]...), '"')
}

// appendText writes a string, or null for an empty one.
func appendText(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendString(b, s)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, "true"...)
	}
	return append(b, "false"...)
}

// appendMillis writes milliseconds with three decimals; null for what is not
// known.
func appendMillis(b []byte, d time.Duration) []byte {
	if d < 0 {
		return append(b, "null"...)
	}
	return appendMillisNumber(b, d)
}

func appendMillisNumber(b []byte, d time.Duration) []byte {
	micros := int64(d / time.Microsecond)
	b = strconv.AppendInt(b, micros/1000, 10)
	m := micros % 1000
	return append(b, '.', byte('0'+m/100), byte('0'+m/10%10), byte('0'+m%10))
}

func appendCount(b []byte, n int64) []byte {
	if n < 0 {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, n, 10)
}

func appendUUID(b []byte, u *gtid.UUID) []byte {
	for i, c := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			b = append(b, '-')
		}
		b = append(b, hexDigits[c>>4], hexDigits[c&15])
	}
	return b
}

// appendServer writes which server an answer speaks of.
func appendServer(b []byte, addr string, u *gtid.UUID, e event.Epoch) []byte {
	b = append(b, `,"addr":`...)
	b = appendText(b, addr)
	if u.IsZero() {
		b = append(b, `,"server_uuid":null`...)
	} else {
		b = append(b, `,"server_uuid":"`...)
		b = append(appendUUID(b, u), '"')
	}
	if e == 0 {
		return append(b, `,"epoch":null`...)
	}
	b = append(b, `,"epoch":"`...)
	return append(strconv.AppendUint(b, uint64(e), 10), '"')
}

func (a *ask) appendAnswer(b []byte) []byte {
	if a.kind == kindRoute {
		return a.appendRoute(b)
	}
	return a.appendServe(b)
}

func (a *ask) appendServe(b []byte) []byte {
	ans := &a.ans
	b = append(b, `{"serve":`...)
	b = appendBool(b, ans.Yes)
	b = appendWhy(b, ans)
	b = append(b, `,"replica":`...)
	b = appendString(b, ans.Server)
	b = appendServer(b, ans.Addr, &ans.UUID, ans.Epoch)
	b = append(b, `,"blocked":[`...)
	for i, n := range ans.Blocked[:ans.NumBlocked] {
		if i > 0 {
			b = append(b, ',')
		}
		b = a.appendKey(b, int(n))
	}
	b = append(b, `],"need":`...)
	if ans.Need.IsEmpty() {
		b = append(b, "null"...)
	} else {
		b = append(b, '"')
		b = append(b, ans.Need.OneLine()...)
		b = append(b, '"')
	}
	b = append(b, `,"behind_txns":`...)
	b = appendCount(b, ans.BehindTxns)
	b = append(b, `,"eta_ms":null,"staleness_ms":`...)
	b = appendMillis(b, ans.Staleness)
	b = append(b, `,"watermark_age_ms":`...)
	b = appendMillis(b, ans.WatermarkAge)
	b = append(b, `,"otherwise":`...)
	b = appendText(b, ans.Otherwise.String())
	b = appendCaveats(b, ans)
	return append(b, '}')
}

// appendWhy writes the reason of an answer, and its level.
func appendWhy(b []byte, ans *router.Answer) []byte {
	b = append(b, `,"reason":"`...)
	b = append(b, ans.Reason.String()...)
	b = append(b, `","detail":`...)
	b = appendText(b, ans.Detail)
	b = append(b, `,"level":"`...)
	return append(append(b, ans.Level.String()...), '"')
}

// appendCaveats writes what a yes does not promise.
func appendCaveats(b []byte, ans *router.Answer) []byte {
	b = append(b, `,"stale":`...)
	b = appendBool(b, ans.Stale)
	b = append(b, `,"floor_lost":`...)
	b = appendBool(b, ans.FloorLost)
	if ans.FloorDropped {
		b = append(b, `,"floor_dropped":true`...)
	}
	return b
}

func (a *ask) appendKey(b []byte, n int) []byte {
	if p := a.printed[n]; p != "" {
		return appendString(b, p)
	}
	return appendString(b, a.keys[n].String())
}

func roleName(r event.Role) string {
	switch r {
	case event.RolePrimary:
		return "primary"
	case event.RoleReplica:
		return "replica"
	}
	return "unknown"
}

func (a *ask) appendRoute(b []byte) []byte {
	ans := &a.ans
	b = append(b, `{"target":`...)
	b = appendString(b, ans.Server)
	b = append(b, `,"role":"`...)
	b = append(b, roleName(ans.Role)...)
	b = append(b, '"')
	b = appendServer(b, ans.Addr, &ans.UUID, ans.Epoch)
	b = appendWhy(b, ans)
	b = append(b, `,"waited_ms":`...)
	b = appendMillis(b, ans.Waited)
	b = append(b, `,"staleness_ms":`...)
	b = appendMillis(b, ans.Staleness)
	b = appendCaveats(b, ans)
	b = append(b, `,"notice":`...)
	if !ans.Spreading {
		return append(b, "null}"...)
	}
	b = append(b, `{"code":"spreading","key":`...)
	b = a.appendKey(b, ans.SpreadingKey)
	b = append(b, `,"since_ms":`...)
	b = appendMillis(b, ans.SpreadingFor)
	return append(b, `,"eta_ms":null}}`...)
}

// appendError writes the error object; requestID may be empty (items of a
// batch).
func (e *wireError) appendError(b []byte, requestID string) []byte {
	b = append(b, `{"error":{"code":"`...)
	b = append(b, e.code...)
	b = append(b, `","message":`...)
	b = appendString(b, e.message)
	b = append(b, `,"field":`...)
	b = appendText(b, e.field)
	b = append(b, `,"offset":`...)
	b = appendCount(b, int64(e.offset))
	if e.retryAfter > 0 {
		b = append(b, `,"retry_after_ms":`...)
		b = appendMillisNumber(b, e.retryAfter)
	}
	if e.otherwise != "" {
		b = append(b, `,"otherwise":"`...)
		b = append(append(b, e.otherwise...), '"')
	}
	b = append(b, `,"request_id":`...)
	b = appendText(b, requestID)
	return append(b, "}}"...)
}
