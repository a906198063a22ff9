package binlog

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// printXID prints an XA transaction's name as MySQL logs it: X'..',X'..',n.
func printXID(gtrid, bqual []byte, formatID int32) string {
	b := make([]byte, 0, 2*(len(gtrid)+len(bqual))+20)
	b = append(b, "X'"...)
	b = hex.AppendEncode(b, gtrid)
	b = append(b, "',X'"...)
	b = hex.AppendEncode(b, bqual)
	b = append(b, "',"...)
	return string(strconv.AppendInt(b, int64(formatID), 10))
}

// parseXID reads what printXID prints, in either case and with blanks, and
// prints it again, so that one transaction has one name.
func parseXID(s string) (string, bool) {
	parts := strings.Split(s, ",")
	if len(parts) != 3 {
		return "", false
	}
	gtrid, ok1 := hexLiteral(strings.TrimSpace(parts[0]))
	bqual, ok2 := hexLiteral(strings.TrimSpace(parts[1]))
	format, err := strconv.ParseInt(strings.TrimSpace(parts[2]), 10, 64)
	if !ok1 || !ok2 || err != nil || len(gtrid) > 64 || len(bqual) > 64 {
		return "", false
	}
	return printXID(gtrid, bqual, int32(format)), true
}

func hexLiteral(s string) ([]byte, bool) {
	if len(s) < 3 || s[0] != 'X' && s[0] != 'x' || s[1] != '\'' || s[len(s)-1] != '\'' {
		return nil, false
	}
	b, err := hex.DecodeString(s[2 : len(s)-1])
	return b, err == nil
}

// xaVerb is one of the XA statements that a binlog holds.
type xaVerb uint8

const (
	xaNone xaVerb = iota
	xaStart
	xaEnd
	xaCommit
	xaOnePhase
	xaRollback
)

// parseXA reads an XA statement as the server logs it.
func parseXA(text string) (v xaVerb, xid string, ok bool) {
	rest, found := cutWord(text, "XA")
	if !found {
		return xaNone, "", false
	}
	for _, w := range [...]struct {
		word string
		verb xaVerb
	}{{"START", xaStart}, {"BEGIN", xaStart}, {"END", xaEnd}, {"COMMIT", xaCommit}, {"ROLLBACK", xaRollback}} {
		name, found := cutWord(rest, w.word)
		if !found {
			continue
		}
		v = w.verb
		if v == xaCommit {
			if n, phase := cutSuffixFold(name, "ONE PHASE"); phase {
				name, v = n, xaOnePhase
			}
		}
		xid, ok = parseXID(name)
		return v, xid, ok
	}
	return xaNone, "", false
}

// cutWord takes a word and the blanks around it off the front of s.
func cutWord(s, word string) (rest string, found bool) {
	s = strings.TrimLeft(s, " \t\r\n")
	if len(s) < len(word) || !strings.EqualFold(s[:len(word)], word) {
		return "", false
	}
	rest = s[len(word):]
	if rest != "" && isNameByte(rest[0]) {
		return "", false
	}
	return strings.TrimLeft(rest, " \t\r\n"), true
}

func cutSuffixFold(s, suffix string) (string, bool) {
	s = strings.TrimRight(s, " \t\r\n")
	if len(s) < len(suffix) || !strings.EqualFold(s[len(s)-len(suffix):], suffix) {
		return s, false
	}
	return s[:len(s)-len(suffix)], true
}

func isNameByte(c byte) bool {
	return c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
