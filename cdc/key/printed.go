package key

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Kind tells what a printed key names.
type Kind uint8

// The kinds of keys.
const (
	KindRow    Kind = iota + 1 // app.posts/42: the row with this primary key
	KindGroup                  // app.posts@author_id/7: any row with this value in a column under keys:
	KindAnyRow                 // app.posts/*: any row of the table
)

// Key is a key as a caller names it. Nothing in it is folded or checked against
// a definition yet; that is [Definition.Cover].
type Key struct {
	Kind          Kind
	Schema, Table string
	Column        string      // KindGroup: the group column
	Values        []TextValue // KindRow: in index order; KindGroup: one; KindAnyRow: none
}

// TextValue is one value of a key as text. What the text means depends on the
// column: binary columns take 0x hex, all others what MySQL prints.
type TextValue struct {
	Text string // decoded, no percent signs of the printed form
	Null bool   // @null; Text is empty then
}

// ParseError tells where and why a printed key is malformed (a 400 for callers).
type ParseError struct {
	Offset int // in bytes, from the start of the printed key
	Reason string
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("malformed key at offset %d: %s", e.Offset, e.Reason)
}

// nullToken is NULL among printed values; a text that reads so prints as %40null.
const nullToken = "@null"

// maxPrintedBytes bounds a printed key; a name has at most 64 characters and an
// index at most 3,072 bytes, each byte at most three when encoded.
const maxPrintedBytes = 16 << 10

// Parse reads a printed key:
//
//	schema.table/value[,value...]   a row
//	schema.table@column/value       a group value
//	schema.table/*                  any row of the table
//
// In names and values the characters % / , . @ * and control bytes are written
// as % and two hex digits; any other byte may be. A dot in a value may also
// stand as it is, for it can not be mistaken. NULL is @null. Errors are
// [*ParseError].
func Parse(printed string) (Key, error) {
	var k Key
	if err := k.Parse(printed); err != nil {
		return Key{}, err
	}
	return k, nil
}

// Parse is the function [Parse], into a key whose Values are used again: where
// nothing is percent-encoded it does not allocate. The key's strings share
// printed's memory. After an error the key has no meaning.
func (k *Key) Parse(printed string) error {
	*k = Key{Values: k.Values[:0]}
	if len(printed) > maxPrintedBytes {
		return &ParseError{maxPrintedBytes, fmt.Sprintf("longer than %d bytes", maxPrintedBytes)}
	}
	p := parser{s: printed}
	var err error
	if k.Schema, err = p.name("schema", "."); err != nil {
		return err
	}
	if k.Table, err = p.name("table", "/@"); err != nil {
		return err
	}
	k.Kind = KindRow
	if p.s[p.i-1] == '@' {
		k.Kind = KindGroup
		if k.Column, err = p.name("column", "/"); err != nil {
			return err
		}
	}
	if p.rest() == "*" {
		if k.Kind == KindGroup {
			return &ParseError{p.i, "a group key names one value; any row of the table is schema.table/*"}
		}
		k.Kind = KindAnyRow
		return nil
	}
	return p.values(k)
}

// ParseTable reads a printed table name, schema.table, as it stands in the JSON
// form of keys. Errors are [*ParseError].
func ParseTable(printed string) (schema, table string, err error) {
	if len(printed) > maxPrintedBytes {
		return "", "", &ParseError{maxPrintedBytes, fmt.Sprintf("longer than %d bytes", maxPrintedBytes)}
	}
	p := parser{s: printed}
	if schema, err = p.name("schema", "."); err != nil {
		return "", "", err
	}
	if table, err = p.name("table", ""); err != nil {
		return "", "", err
	}
	return schema, table, nil
}

// parser walks through a printed key; i is the offset of the next byte.
type parser struct {
	s string
	i int
}

func (p *parser) rest() string { return p.s[p.i:] }

// name reads a name and the one delimiter of ends after it; with empty ends the
// name reaches to the end of the text.
func (p *parser) name(what, ends string) (string, error) {
	start := p.i
	text, err := p.token(ends, false)
	if err != nil {
		return "", err
	}
	switch {
	case p.i == len(p.s) && ends != "":
		return "", &ParseError{p.i, fmt.Sprintf("ends after the %s name; want schema.table/value", what)}
	case text == "":
		return "", &ParseError{start, "empty " + what + " name"}
	case !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0:
		return "", &ParseError{start, what + " name is not valid UTF-8 text"}
	}
	if ends != "" {
		p.i++
	}
	return text, nil
}

// values reads comma-separated values to the end.
func (p *parser) values(k *Key) error {
	for {
		start := p.i
		var v TextValue
		if strings.HasPrefix(p.rest(), nullToken) {
			p.i += len(nullToken)
			v.Null = true
			if p.i < len(p.s) && p.s[p.i] != ',' {
				return &ParseError{start, "after @null only a comma may stand; @ in a text is written %40"}
			}
		} else {
			text, err := p.token(",", true)
			if err != nil {
				return err
			}
			v.Text = text
		}
		k.Values = append(k.Values, v)
		if p.i == len(p.s) {
			return nil
		}
		if k.Kind == KindGroup {
			return &ParseError{p.i, "a group key names one value; a comma in a text is written %2C"}
		}
		p.i++
	}
}

// token reads and decodes up to one of ends (not included) or to the end.
func (p *parser) token(ends string, dots bool) (string, error) {
	start := p.i
	var decoded []byte // nil while nothing was encoded
	for p.i < len(p.s) {
		c := p.s[p.i]
		switch {
		case strings.IndexByte(ends, c) >= 0:
			return tokenText(p.s[start:p.i], decoded), nil
		case c == '%':
			if decoded == nil {
				decoded = append(make([]byte, 0, len(p.s)-start), p.s[start:p.i]...)
			}
			b, ok := hexByte(p.s, p.i+1)
			if !ok {
				return "", &ParseError{p.i, "% wants two hex digits; a percent sign is written %25"}
			}
			decoded = append(decoded, b)
			p.i += 3
			continue
		case c == '.' && dots:
		case c == '/' && !dots && ends == ".":
			return "", &ParseError{p.i, "a key begins with schema.table; '/' in a name is written %2F"}
		case mustEncode(c):
			return "", &ParseError{p.i, fmt.Sprintf("%q must be written %%%02X here", c, c)}
		}
		if decoded != nil {
			decoded = append(decoded, c)
		}
		p.i++
	}
	return tokenText(p.s[start:], decoded), nil
}

func tokenText(plain string, decoded []byte) string {
	if decoded != nil {
		return string(decoded)
	}
	return plain
}

func hexByte(s string, i int) (byte, bool) {
	if i+2 > len(s) {
		return 0, false
	}
	hi, lo := hexDigit(s[i]), hexDigit(s[i+1])
	return hi<<4 | lo, hi < 16 && lo < 16
}

// hexDigit returns the value of a hex digit, 0xff for any other byte.
func hexDigit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}

// mustEncode tells whether a byte may not stand for itself in a printed key.
func mustEncode(c byte) bool {
	switch c {
	case '%', '/', ',', '.', '@', '*':
		return true
	}
	return c < 0x20 || c == 0x7f
}

// String prints the key in the one canonical way; Parse gives the key back.
func (k Key) String() string { return string(k.AppendPrinted(nil)) }

// AppendPrinted appends what String returns.
func (k *Key) AppendPrinted(dst []byte) []byte {
	dst = AppendTable(dst, k.Schema, k.Table)
	if k.Kind == KindGroup {
		dst = append(dst, '@')
		dst = appendEncoded(dst, k.Column)
	}
	dst = append(dst, '/')
	if k.Kind == KindAnyRow {
		return append(dst, '*')
	}
	for i, v := range k.Values {
		if i > 0 {
			dst = append(dst, ',')
		}
		if v.Null {
			dst = append(dst, nullToken...)
		} else {
			dst = appendEncoded(dst, v.Text)
		}
	}
	return dst
}

// AppendTable appends the printed form of a table name, what [ParseTable] reads.
func AppendTable(dst []byte, schema, table string) []byte {
	dst = appendEncoded(dst, schema)
	dst = append(dst, '.')
	return appendEncoded(dst, table)
}

const upperHex = "0123456789ABCDEF"

// appendEncoded also encodes what is not valid UTF-8, so that a printed key is
// always valid text.
func appendEncoded(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if mustEncode(c) {
				dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
			} else {
				dst = append(dst, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		} else {
			dst = append(dst, s[i:i+n]...)
		}
		i += n
	}
	return dst
}
