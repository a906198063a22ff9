package binlog

import "strings"

// tokenKind tells the tokens of a statement apart, as far as its head needs.
type tokenKind uint8

const (
	tokEnd    tokenKind = iota
	tokWord             // an unquoted word: keyword or name
	tokName             // a quoted name
	tokString           // a literal in quotes
	tokPunct            // one byte
	tokBad              // the text can not be read on
)

// token is one token; text is decoded for names.
type token struct {
	kind tokenKind
	text string
	punc byte
}

func (t token) is(word string) bool {
	return t.kind == tokWord && strings.EqualFold(t.text, word)
}

func (t token) punct(c byte) bool { return t.kind == tokPunct && t.punc == c }

// name tells whether the token may be an object's name. MySQL quotes reserved
// words, so every word may.
func (t token) name() bool { return t.kind == tokWord || t.kind == tokName }

// sqlTokens reads MySQL's tokens one after the other. Comments are skipped, the
// content of executable ones (/*! */) is read: the server that logged it ran it.
type sqlTokens struct {
	s           string
	i           int
	ansiQuotes  bool // "x" is a name
	noBackslash bool
	inComment   bool // inside /*! */
}

func (t *sqlTokens) next() token {
	if !t.blanks() {
		return token{kind: tokBad}
	}
	if t.i >= len(t.s) {
		if t.inComment {
			return token{kind: tokBad}
		}
		return token{kind: tokEnd}
	}
	c := t.s[t.i]
	switch {
	case c == '`' || c == '"' && t.ansiQuotes:
		return t.quoted(c, tokName)
	case c == '\'' || c == '"':
		return t.quoted(c, tokString)
	case isNameByte(c):
		start := t.i
		for t.i < len(t.s) && isNameByte(t.s[t.i]) {
			t.i++
		}
		return token{kind: tokWord, text: t.s[start:t.i]}
	}
	t.i++
	return token{kind: tokPunct, punc: c}
}

// blanks skips white space and comments; false: a comment does not end.
func (t *sqlTokens) blanks() bool {
	for t.i < len(t.s) {
		rest := t.s[t.i:]
		switch c := rest[0]; {
		case c == ' ' || c >= '\t' && c <= '\r':
			t.i++
		case c == '#', strings.HasPrefix(rest, "--") && (len(rest) == 2 || rest[2] <= ' '):
			n := strings.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest) - 1
			}
			t.i += n + 1
		case strings.HasPrefix(rest, "/*!") && !t.inComment:
			t.i += 3 + versionDigits(rest[3:])
			t.inComment = true
		case strings.HasPrefix(rest, "*/") && t.inComment:
			t.i += 2
			t.inComment = false
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest[2:], "*/")
			if n < 0 {
				return false
			}
			t.i += n + 4
		default:
			return true
		}
	}
	return true
}

// versionDigits is how long the version is that an executable comment begins with:
// five digits, or six before a blank. Digits of any other number are the statement's.
func versionDigits(s string) int {
	n := 0
	for n < len(s) && n < 6 && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	switch {
	case n == 6 && len(s) > 6 && (s[6] == ' ' || s[6] >= '\t' && s[6] <= '\r'):
		return 6
	case n >= 5:
		return 5
	}
	return 0
}

// quoted reads a name or literal in quotes; the quote doubled stands for itself,
// and in a literal a backslash escapes.
func (t *sqlTokens) quoted(q byte, kind tokenKind) token {
	t.i++
	start := t.i
	doubled := false
	for t.i < len(t.s) {
		switch c := t.s[t.i]; {
		case c == q:
			if t.i+1 < len(t.s) && t.s[t.i+1] == q {
				doubled = true
				t.i += 2
				continue
			}
			text := t.s[start:t.i]
			t.i++
			if doubled {
				text = strings.ReplaceAll(text, string([]byte{q, q}), string(q))
			}
			return token{kind: kind, text: text}
		case c == '\\' && kind == tokString && !t.noBackslash:
			t.i += 2
		default:
			t.i++
		}
	}
	return token{kind: tokBad}
}
