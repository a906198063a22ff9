package key

import (
	"fmt"
	"strings"
	"time"
)

// What callers write for temporal columns, and how MySQL stores it. Only the
// one way in which MySQL prints a value is read; a TIMESTAMP is printed in UTC.
// Dates that MySQL can store, but no calendar has (zero dates, February 31 under
// ALLOW_INVALID_DATES), are values like others.

// fraction is the layout of fractional seconds of each scale.
var fraction = [...]string{"", ".f", ".ff", ".fff", ".ffff", ".fffff", ".ffffff"}

// fields reads text against a layout in which each lower-case letter stands for
// one digit; each run of digits is one number of out. It tells whether the text
// has exactly that shape.
func fields(text, layout string, out []uint64) bool {
	if len(text) != len(layout) {
		return false
	}
	field := -1
	for i := range len(layout) {
		c, l := text[i], layout[i]
		if l < 'a' || l > 'z' {
			if c != l {
				return false
			}
			continue
		}
		if c < '0' || c > '9' {
			return false
		}
		if i == 0 || layout[i-1] != l {
			field++
			out[field] = 0
		}
		out[field] = out[field]*10 + uint64(c-'0')
	}
	return true
}

func parseYear(text string) (uint64, string) {
	var f [1]uint64
	if !fields(text, "yyyy", f[:]) || f[0] != 0 && (f[0] < 1901 || f[0] > 2155) {
		return 0, "want a year of four digits, 1901 to 2155 or 0000"
	}
	if f[0] == 0 {
		return 0, ""
	}
	return f[0] - 1900, ""
}

func parseDate(text string) (uint64, string) {
	var f [3]uint64
	if !fields(text, "yyyy-mm-dd", f[:]) || f[1] > 12 || f[2] > 31 {
		return 0, "want a date such as 2026-01-31"
	}
	return f[0]<<9 | f[1]<<5 | f[2], ""
}

// parseTime reads [-]hhh:mm:ss[.f], two digits of hours at least.
func parseTime(text string, scale int) (uint64, string) {
	clock, negative := strings.CutPrefix(text, "-")
	layout := "hh:mm:ss"
	if len(clock) > len(layout)+len(fraction[scale]) {
		if clock[0] == '0' {
			return 0, wantTime(scale)
		}
		layout = "hhh:mm:ss"
	}
	var f [4]uint64
	if !fields(clock, layout+fraction[scale], f[:]) || f[1] > 59 || f[2] > 59 || f[0] > 838 {
		return 0, wantTime(scale)
	}
	packed := int64(f[0]<<12|f[1]<<6|f[2])<<24 | int64(f[3]*pow10[6-scale])
	if f[0] == 838 && packed > (838<<12|59<<6|59)<<24 {
		return 0, wantTime(scale)
	}
	if negative {
		if packed == 0 {
			return 0, "zero has no sign"
		}
		packed = -packed
	}
	// The stored number is the packed one, less the digits of the fraction that
	// the scale has no place for: seconds above, hundredths (scale 1, 2), ten
	// thousandths (3, 4) or millionths below, and an offset that makes it
	// unsigned.
	whole, frac := packed>>24, packed%(1<<24)
	bytes := fractionBytes(scale)
	divisor := int64(pow10[6-2*bytes])
	if bytes == 3 {
		return uint64(packed + 1<<47), ""
	}
	mask := uint64(1)<<(8*bytes) - 1
	return uint64(whole+1<<23)<<(8*bytes) | uint64(frac/divisor)&mask, ""
}

func parseDatetime(text string, scale int) (uint64, string) {
	f, ok := datetimeFields(text, scale)
	if !ok {
		return 0, "want a date and time such as 2026-01-31 12:34:56" + example(scale)
	}
	day := (f[0]*13+f[1])<<5 | f[2]
	whole := day<<17 | f[3]<<12 | f[4]<<6 | f[5]
	return (whole+1<<39)<<(8*fractionBytes(scale)) | f[6]*pow10[scale%2], ""
}

func parseTimestamp(text string, scale int) (uint64, string) {
	f, ok := datetimeFields(text, scale)
	if !ok {
		return 0, wantTimestamp(scale)
	}
	if f == [7]uint64{} {
		return 0, "" // the zero TIMESTAMP
	}
	t := time.Date(int(f[0]), time.Month(f[1]), int(f[2]), int(f[3]), int(f[4]), int(f[5]), 0, time.UTC)
	if t.Day() != int(f[2]) || t.Month() != time.Month(f[1]) || t.Unix() < 1 || t.Unix() > 1<<31-1 {
		return 0, wantTimestamp(scale)
	}
	return uint64(t.Unix())<<(8*fractionBytes(scale)) | f[6]*pow10[scale%2], ""
}

func datetimeFields(text string, scale int) (f [7]uint64, ok bool) {
	ok = fields(text, "yyyy-mm-dd hh:ii:ss"+fraction[scale], f[:]) &&
		f[1] <= 12 && f[2] <= 31 && f[3] <= 23 && f[4] <= 59 && f[5] <= 59
	return f, ok
}

// fractionBytes is the number of bytes that fractional seconds take; they hold
// an even number of digits.
func fractionBytes(scale int) int { return (scale + 1) / 2 }

var pow10 = [...]uint64{1, 10, 100, 1_000, 10_000, 100_000, 1_000_000}

func wantTime(scale int) string {
	return "want a time such as 12:34:56" + example(scale) + " (hours from -838 to 838)"
}

func wantTimestamp(scale int) string {
	return "want a date and time in UTC such as 2026-01-31 12:34:56" + example(scale) +
		", from 1970-01-01 00:00:01 to 2038-01-19 03:14:07"
}

func example(scale int) string {
	if scale == 0 {
		return ""
	}
	return fmt.Sprintf(".%0*d", scale, 5)
}
