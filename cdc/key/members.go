package key

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// ENUM and SET fold by number (rules §4.2) as long as different numbers are
// different texts under the collation. They need not be: outside of strict mode
// a member may be listed twice, the error value 0 reads like a member ”, and a
// SET member may hold a character that the collation calls a comma. MySQL
// compares such columns with a text as text, so their values then fold as the
// text that MySQL prints for them, which is coarser than the number.

// membersByNumber tells whether numbers can stand for the texts. It is called
// once for each sealed definition.
func (c *Column) membersByNumber(coll *collation) bool {
	forms := make([][]byte, 0, len(c.Members)+1)
	if c.Type == TypeEnum {
		forms = append(forms, nil) // the error value
	}
	for _, m := range c.Members {
		if c.Type == TypeSet && !plainMember(m) {
			return false
		}
		form, err := coll.appendUTF8(nil, m)
		if err != nil {
			return false
		}
		if c.Type == TypeSet && len(form) == 0 {
			return false
		}
		forms = append(forms, form)
	}
	for i := range forms {
		for j := range forms[:i] {
			if bytes.Equal(forms[i], forms[j]) {
				return false
			}
		}
	}
	return true
}

// plainMember tells that a SET member can neither melt into the comma beside it
// nor hold something like one: letters, digits, space, - and _ alone.
func plainMember(m string) bool {
	for i := range len(m) {
		switch c := m[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == ' ', c == '-', c == '_':
		default:
			return false
		}
	}
	return m != ""
}

func (c *Column) appendMembers(dst []byte, r *resolved, n uint64) ([]byte, error) {
	if c.Type == TypeEnum && n > uint64(len(c.Members)) ||
		c.Type == TypeSet && len(c.Members) < 64 && n>>len(c.Members) != 0 {
		return dst, fmt.Errorf("%w: column %s has %d members, value %d", ErrMalformed, c.Name, len(c.Members), n)
	}
	if r.byNumber {
		return appendNumber(dst, n), nil
	}
	start := len(dst)
	out, err := r.coll.appendUTF8(appendLength(dst, 0), c.memberText(n))
	if err != nil {
		return dst, fmt.Errorf("%w: column %s: %w", ErrMalformed, c.Name, err)
	}
	putLength(out, start)
	return out, nil
}

// memberText is what MySQL prints for a number.
func (c *Column) memberText(n uint64) string {
	if c.Type == TypeEnum {
		if n == 0 {
			return ""
		}
		return c.Members[n-1]
	}
	var set []string
	for i, m := range c.Members {
		if n>>i&1 != 0 {
			set = append(set, m)
		}
	}
	return strings.Join(set, ",")
}

// parseEnum reads a member's name.
func (c *Column) parseEnum(text string) (uint64, string) {
	for i, m := range c.Members {
		if m == text {
			return uint64(i) + 1, ""
		}
	}
	if text == "" {
		return 0, ""
	}
	for _, m := range c.Members {
		if strings.EqualFold(m, text) {
			return 0, fmt.Sprintf("ENUM members are written as declared: %q", m)
		}
	}
	return 0, "not a member of the ENUM; want one of its names, such as " + c.firstMember()
}

// parseSet reads names separated by commas, in the order of the declaration.
func (c *Column) parseSet(text string) (uint64, string) {
	if text == "" {
		return 0, ""
	}
	var mask uint64
	next := 0 // members of the same name may stand more than once
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(c.Members[next:], name)
		if i < 0 {
			if slices.Contains(c.Members, name) {
				return 0, "SET members stand once each, in the order of their declaration"
			}
			return 0, fmt.Sprintf("%q is not a member of the SET; want names such as %s", name, c.firstMember())
		}
		mask |= 1 << (next + i)
		next += i + 1
	}
	return mask, ""
}

func (c *Column) firstMember() string {
	if len(c.Members) == 0 {
		return "(none known)"
	}
	return fmt.Sprintf("%q", c.Members[0])
}
