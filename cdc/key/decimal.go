package key

import "fmt"

// MySQL packs decimals in groups of nine digits, four bytes each, counted from
// the point in both directions; a rest of fewer digits takes fewer bytes.
const decimalGroup = 9

// decimalBytes is the number of bytes that a rest of so many digits takes.
var decimalBytes = [decimalGroup + 1]int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}

// DecimalSize is the number of bytes of a packed DECIMAL(precision, scale).
func DecimalSize(precision, scale int) int {
	whole := precision - scale
	return whole/decimalGroup*4 + decimalBytes[whole%decimalGroup] +
		scale/decimalGroup*4 + decimalBytes[scale%decimalGroup]
}

// appendDecimal takes the packed form as it is, for equal numbers of one
// precision and scale have equal bytes, but for a zero with a minus sign.
func (c *Column) appendDecimal(dst, packed []byte) ([]byte, error) {
	if len(packed) != DecimalSize(c.Precision, c.Scale) {
		return dst, fmt.Errorf("%w: %d bytes in DECIMAL(%d,%d) column %s", ErrMalformed, len(packed), c.Precision, c.Scale, c.Name)
	}
	start := len(dst)
	dst = append(append(dst, formValue), packed...)
	if n := dst[start+1:]; n[0] == 0x7f && allOnes(n[1:]) {
		clear(n)
		n[0] = 0x80
	}
	return dst, nil
}

func allOnes(b []byte) bool {
	for _, c := range b {
		if c != 0xff {
			return false
		}
	}
	return true
}

// appendPackedDecimal packs a number printed as MySQL prints it at the column's
// scale. The reason tells what would be right; empty: it is.
func (c *Column) appendPackedDecimal(dst []byte, text string) (packed []byte, reason string) {
	digits, negative := text, false
	if digits != "" && digits[0] == '-' {
		digits, negative = digits[1:], true
	}
	whole, fraction := digits, ""
	if c.Scale > 0 {
		point := len(digits) - c.Scale - 1
		if point < 1 || digits[point] != '.' {
			return dst, c.wantDecimal()
		}
		whole, fraction = digits[:point], digits[point+1:]
	}
	if !allDigits(whole) || !allDigits(fraction) || whole == "" || len(whole) > 1 && whole[0] == '0' {
		return dst, c.wantDecimal()
	}
	if whole == "0" {
		whole = ""
	}
	if len(whole) > c.Precision-c.Scale {
		return dst, c.wantDecimal()
	}
	start := len(dst)
	dst = appendWhole(dst, whole, c.Precision-c.Scale)
	dst = appendFraction(dst, fraction)
	zero := true
	for i := start; i < len(dst); i++ {
		zero = zero && dst[i] == 0
		if negative {
			dst[i] ^= 0xff
		}
	}
	if negative && zero {
		return dst[:start], "zero has no sign"
	}
	dst[start] ^= 0x80
	return dst, ""
}

func (c *Column) wantDecimal() string {
	return fmt.Sprintf("want a number with %d digits after the point and at most %d before it, as MySQL prints it", c.Scale, c.Precision-c.Scale)
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// appendWhole packs the digits before the point, the short group first.
func appendWhole(dst []byte, s string, digits int) []byte {
	for digits > 0 {
		group := digits % decimalGroup
		if group == 0 {
			group = decimalGroup
		}
		digits -= group
		var n uint32
		if have := len(s) - digits; have > 0 {
			n, s = digitsValue(s[:have]), s[have:]
		}
		dst = appendGroup(dst, n, group)
	}
	return dst
}

// appendFraction packs the digits after the point, the short group last.
func appendFraction(dst []byte, s string) []byte {
	for s != "" {
		group := min(len(s), decimalGroup)
		dst = appendGroup(dst, digitsValue(s[:group]), group)
		s = s[group:]
	}
	return dst
}

func digitsValue(s string) (n uint32) {
	for i := range len(s) {
		n = n*10 + uint32(s[i]-'0')
	}
	return n
}

func appendGroup(dst []byte, n uint32, digits int) []byte {
	for i := decimalBytes[digits] - 1; i >= 0; i-- {
		dst = append(dst, byte(n>>(8*i)))
	}
	return dst
}
