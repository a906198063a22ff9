package key

import (
	"fmt"
	"strconv"
	"strings"
)

// ValueError tells that a caller's key does not fit the table's definition (a
// 400 for callers, never "no record": rules §4.3).
type ValueError struct {
	Column string // empty: the key as a whole
	Index  int    // of the value in Key.Values; 0 when Column is empty
	Reason string // what would be right
}

func (e *ValueError) Error() string {
	if e.Column == "" {
		return "key: " + e.Reason
	}
	return fmt.Sprintf("key value %d, column %s: %s", e.Index+1, e.Column, e.Reason)
}

// ParseValue reads a caller's text into a value of the column. Only the one text
// that MySQL prints for a value is read, so that '042', ' 42', '42.0' and '42x',
// which all match the integer 42 in a query, are refused instead of being taken
// for something that was never written. Bytes are appended to buf, which the
// value then shares. reason is empty, or says what would be right.
//
// Columns that fold wide are not read: their values are never compared.
func (c *Column) ParseValue(buf []byte, t TextValue) (v Value, reason string) {
	if t.Null {
		if !c.Nullable {
			return v, "the column is NOT NULL (the text \"@null\" is written %40null)"
		}
		return Value{Null: true}, ""
	}
	r := c.resolve()
	if r.fold == Wide {
		return v, ""
	}
	switch c.Type {
	case TypeInt:
		return c.parseInt(t.Text)
	case TypeDecimal:
		v.Bytes, reason = c.appendPackedDecimal(buf, t.Text)
	case TypeYear:
		v.Uint, reason = parseYear(t.Text)
	case TypeDate:
		v.Uint, reason = parseDate(t.Text)
	case TypeTime:
		v.Uint, reason = parseTime(t.Text, c.Scale)
	case TypeDatetime:
		v.Uint, reason = parseDatetime(t.Text, c.Scale)
	case TypeTimestamp:
		v.Uint, reason = parseTimestamp(t.Text, c.Scale)
	case TypeBit:
		v.Uint, reason = parseUnsigned(t.Text, c.Precision)
	case TypeEnum:
		v.Uint, reason = c.parseEnum(t.Text)
	case TypeSet:
		v.Uint, reason = c.parseSet(t.Text)
	case TypeChar, TypeVarchar:
		// A CHAR of a NO PAD collation ends in spaces only where a session prints it
		// so (PAD_CHAR_TO_FULL_LENGTH), and there they stand for none.
		if c.Type == TypeChar && len(r.coll.pad) == 0 && strings.HasSuffix(t.Text, " ") {
			return v, "want the text without spaces at its end: a CHAR has none there (PAD_CHAR_TO_FULL_LENGTH adds them)"
		}
		var err error
		if v.Bytes, err = r.coll.encode(buf, t.Text); err != nil {
			reason = err.Error()
		}
	case TypeBinary, TypeVarbinary:
		v.Bytes, reason = c.appendHex(buf, t.Text)
	}
	return v, reason
}

func (c *Column) parseInt(text string) (v Value, reason string) {
	bits := 64
	if c.Length > 0 {
		bits = min(8*c.Length, 64)
	}
	if c.Unsigned {
		v.Uint, reason = parseUnsigned(text, bits)
		return v, reason
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil || !canonicalDigits(strings.TrimPrefix(text, "-")) || text == "-0" {
		low := int64(-1) << (bits - 1)
		return v, fmt.Sprintf("want a whole number from %d to %d, without leading zeros, plus sign or spaces", low, -(low + 1))
	}
	v.Int = n
	return v, ""
}

func parseUnsigned(text string, bits int) (uint64, string) {
	n, err := strconv.ParseUint(text, 10, bits)
	if err != nil || !canonicalDigits(text) {
		return 0, fmt.Sprintf("want a whole number from 0 to %d, without leading zeros, signs or spaces", ^uint64(0)>>(64-bits))
	}
	return n, ""
}

// canonicalDigits tells that a number that strconv read begins as it should.
func canonicalDigits(s string) bool {
	return s == "0" || s != "" && s[0] >= '1' && s[0] <= '9'
}

func (c *Column) appendHex(buf []byte, text string) ([]byte, string) {
	digits, ok := strings.CutPrefix(text, "0x")
	start := len(buf)
	ok = ok && len(digits)%2 == 0
	for i := 0; ok && i < len(digits); i += 2 {
		var b byte
		b, ok = hexByte(digits, i)
		buf = append(buf, b)
	}
	switch {
	case !ok && c.Type == TypeBinary:
		return buf, fmt.Sprintf("want 0x and %d hex digits", 2*c.Length)
	case !ok:
		return buf, "want 0x and an even number of hex digits"
	case c.Type == TypeBinary && len(buf)-start != c.Length:
		return buf, fmt.Sprintf("want all %d bytes of the column, as 0x and %d hex digits", c.Length, 2*c.Length)
	}
	return buf[start:], ""
}
