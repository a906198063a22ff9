package key

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"vitess.io/vitess/go/mysql/collations"
	"vitess.io/vitess/go/mysql/collations/charset"
	"vitess.io/vitess/go/mysql/collations/colldata"
)

// collation makes weights of texts under one of MySQL's collations. It is
// immutable.
type collation struct {
	fold FoldKind
	data colldata.Collation
	cs   charset.Charset
	// binary: the collation tells apart by bytes (but for padding), so that the
	// text is its own weight.
	binary bool
	// checked: texts must be valid in the character set, for weights stop at
	// (or skip over) what is not.
	checked bool
	// recoded: a character may have several codes, so texts are decoded and
	// encoded again to give it one.
	recoded bool
	// lacking is U+FFFF in the character set where the library gives it no weight
	// and MySQL does; else empty.
	lacking []byte
	// pad is the weight of a space, which PAD SPACE collations ignore at the end
	// of a text; empty for NO PAD.
	pad []byte
}

// lookupCollation returns the collation of that name, or nil when it is not
// proven to fold (see collationTable) or not known.
func lookupCollation(name string) *collation {
	name = strings.ToLower(name)
	if rest, ok := strings.CutPrefix(name, "utf8_"); ok {
		name = "utf8mb3_" + rest // what servers before 8.0.30 call it
	}
	i, ok := slices.BinarySearchFunc(collationTable, name, func(e collationEntry, name string) int {
		return strings.Compare(e.name, name)
	})
	if !ok || collationTable[i].fold == Wide {
		return nil
	}
	return newCollation(collationTable[i])
}

func newCollation(e collationEntry) *collation {
	data := colldata.Lookup(collations.ID(e.id))
	if data == nil {
		return nil
	}
	c := &collation{fold: e.fold, data: data, cs: data.Charset(), binary: data.IsBinary(), recoded: e.fold == Coarse}
	if eightBit, ok := c.cs.(*charset.Charset_8bit); !ok || eightBit.Name() == "ascii" {
		c.checked = true
	}
	if _, ok := data.(*colldata.Collation_uca_legacy); ok {
		if b, ok := c.appendRune(nil, lackingRune); ok && len(data.WeightString(nil, b, 0)) == 0 {
			c.lacking = b
		}
	}
	if !e.noPad {
		c.pad = c.weights(nil, c.space())
	}
	return c
}

// space is a space in the collation's character set.
func (c *collation) space() []byte {
	var b [8]byte
	return b[:max(c.cs.EncodeRune(b[:], ' '), 0)]
}

func (c *collation) weights(dst, text []byte) []byte {
	switch {
	case c.binary:
		return append(dst, text...)
	case len(c.lacking) > 0 && bytes.Contains(text, c.lacking):
		return c.weightsAround(dst, text)
	}
	return c.data.WeightString(dst, text, 0)
}

const lackingRune = 0xffff

// weightsAround adds the weight that U+FFFF has in MySQL's collations by UCA
// 4.0.0. No contraction spans it.
func (c *collation) weightsAround(dst, text []byte) []byte {
	from := 0
	for i := 0; i < len(text); {
		r, n, _ := c.cs.DecodeRune(text[i:])
		if r == lackingRune {
			dst = c.data.WeightString(dst, text[from:i], 0)
			dst = append(dst, 0xfb, 0xc1, 0xff, 0xff)
			from = i + n
		}
		i += max(n, 1)
	}
	return c.data.WeightString(dst, text[from:], 0)
}

// appendWeights appends the weights of a text in the collation's character set,
// trailing pad removed. ok is false, and the result without meaning, for bytes
// that are not valid in that character set.
func (c *collation) appendWeights(dst, text []byte) (out []byte, ok bool) {
	if c.checked && !charset.Validate(c.cs, text) {
		return dst, false
	}
	if c.recoded {
		if text, ok = c.recode(text); !ok {
			return dst, false
		}
	}
	start := len(dst)
	dst = c.weights(dst, text)
	if n := len(c.pad); n > 0 {
		for len(dst)-start >= n && string(dst[len(dst)-n:]) == string(c.pad) {
			dst = dst[:len(dst)-n]
		}
	}
	return dst, true
}

var (
	errNotUTF8    = errors.New("not valid UTF-8")
	errNotCharset = errors.New("has characters that the column's character set lacks")
)

// encode appends a UTF-8 text in the collation's character set.
func (c *collation) encode(dst []byte, text string) ([]byte, error) {
	if !utf8.ValidString(text) {
		return dst, errNotUTF8
	}
	if _, ok := c.cs.(charset.Charset_utf8mb4); ok {
		return append(dst, text...), nil
	}
	for _, r := range text {
		var ok bool
		if dst, ok = c.appendRune(dst, r); !ok {
			return dst, fmt.Errorf("%w: %q is not in %s", errNotCharset, r, c.cs.Name())
		}
	}
	return dst, nil
}

func (c *collation) appendRune(dst []byte, r rune) (out []byte, ok bool) {
	dst = slices.Grow(dst, maxCharBytes)
	n := c.cs.EncodeRune(dst[len(dst):len(dst)+maxCharBytes], r)
	if n < 0 {
		return dst, false
	}
	return dst[:len(dst)+n], true
}

// recode gives each character the code that a caller's text gets.
func (c *collation) recode(text []byte) (out []byte, ok bool) {
	out = make([]byte, 0, len(text)+maxCharBytes)
	for len(text) > 0 {
		r, n, ok := c.cs.DecodeRune(text)
		if !ok {
			return nil, false
		}
		if out, ok = c.appendRune(out, r); !ok {
			return nil, false
		}
		text = text[n:]
	}
	return out, true
}

// maxCharBytes is no less than any character set's longest character.
const maxCharBytes = 4

// appendUTF8 is appendWeights for UTF-8 text.
func (c *collation) appendUTF8(dst []byte, text string) ([]byte, error) {
	b, err := c.encode(nil, text)
	if err != nil {
		return dst, err
	}
	out, ok := c.appendWeights(dst, b)
	if !ok {
		return dst, errNotCharset
	}
	return out, nil
}
