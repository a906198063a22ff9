package key

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// FoldKind says what a column's compare form is worth; the zero value is the safe one.
type FoldKind uint8

const (
	// Wide: the column can not be folded; its writes are all-rows (of the table
	// when it is part of the primary key, else of the group column).
	Wide FoldKind = iota
	// Coarse: values that MySQL calls equal have one form, and some that it
	// tells apart may share it, so a key stands for many rows.
	Coarse
	// Exact: one form if and only if MySQL calls the values equal.
	Exact
)

func (f FoldKind) String() string {
	switch f {
	case Exact:
		return "exact"
	case Coarse:
		return "coarse"
	}
	return "wide"
}

// ErrWide is returned for a value of a column that folds wide.
var ErrWide = errors.New("column can not be folded")

// ErrMalformed is wrapped in errors about values that can not stand in a column
// of that type, invalid bytes of its character set among them.
var ErrMalformed = errors.New("malformed value")

// The first byte of every form, so that NULL is its own token.
const (
	formNull  byte = 0
	formValue byte = 1
)

// AppendForm appends the compare form of v. A form tells its own length, so the
// forms of a key's columns, one after the other, are the form of the key.
//
// An error ([ErrWide], or one that wraps [ErrMalformed]) means that the value
// has no form; dst is returned as it was, and who reads a row event writes
// all-rows (rules §4.2). For Exact columns of a sealed definition whose values
// are well-formed it neither fails nor allocates (beyond growing dst).
func (c *Column) AppendForm(dst []byte, v Value) ([]byte, error) {
	r := c.resolve()
	if r.fold == Wide {
		return dst, ErrWide
	}
	if v.Null {
		return append(dst, formNull), nil
	}
	switch c.Type {
	case TypeInt:
		if c.Unsigned {
			return appendNumber(dst, v.Uint), nil
		}
		return appendNumber(dst, uint64(v.Int)), nil
	case TypeYear, TypeDate, TypeTime, TypeDatetime, TypeTimestamp, TypeBit:
		return appendNumber(dst, v.Uint), nil
	case TypeDecimal:
		return c.appendDecimal(dst, v.Bytes)
	case TypeEnum, TypeSet:
		return c.appendMembers(dst, r, v.Uint)
	case TypeChar, TypeVarchar:
		return c.appendText(dst, r, v.Bytes)
	case TypeBinary:
		return c.appendBinary(dst, v.Bytes)
	case TypeVarbinary:
		return append(appendLength(dst, len(v.Bytes)), v.Bytes...), nil
	}
	return dst, ErrWide
}

func appendNumber(dst []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, formValue), n)
}

// lengthSize is the size of the tag and the length in front of a form of
// variable length.
const lengthSize = 5

func appendLength(dst []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, formValue), uint32(n))
}

// putLength sets the length of the form that begins at start and ends with b.
func putLength(b []byte, start int) {
	binary.BigEndian.PutUint32(b[start+1:], uint32(len(b)-start-lengthSize))
}

// appendBinary pads to the column's length: row images lack trailing zero bytes
// (rules §4.1).
func (c *Column) appendBinary(dst, b []byte) ([]byte, error) {
	if len(b) > c.Length {
		return dst, fmt.Errorf("%w: %d bytes in BINARY(%d) column %s", ErrMalformed, len(b), c.Length, c.Name)
	}
	dst = append(appendLength(dst, c.Length), b...)
	for range c.Length - len(b) {
		dst = append(dst, 0)
	}
	return dst, nil
}

// appendText folds text in the column's own character set.
func (c *Column) appendText(dst []byte, r *resolved, text []byte) ([]byte, error) {
	start := len(dst)
	out, ok := r.coll.appendWeights(appendLength(dst, 0), text)
	if !ok {
		return dst, fmt.Errorf("%w: column %s: not valid in the character set of %s", ErrMalformed, c.Name, c.Collation)
	}
	putLength(out, start)
	return out, nil
}
