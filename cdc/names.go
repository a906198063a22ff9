package cdc

import (
	"fmt"
	"strings"
)

// names are what one cluster's things are called in NATS.
type names struct {
	writes, state, bucket string // streams and the KV bucket
	writesSubject         string
	posPrefix             string // + token of the server
	schemaPrefix          string // + token of the schema + "." + token of the table
	tick                  string
}

func namesOf(cluster string) names {
	stream, subject := "TIDEGATE_"+streamToken(cluster), "tidegate."+SubjectToken(cluster)
	return names{
		writes: stream + "_WRITES", state: stream + "_STATE", bucket: stream,
		writesSubject: subject + ".writes", posPrefix: subject + ".pos.", schemaPrefix: subject + ".schema.",
		tick: subject + ".tick",
	}
}

const hexDigits = "0123456789ABCDEF"

// escape writes each byte that keep refuses as mark and two hexadecimal
// digits; mark itself is refused too, so that the result can be read back.
func escape(name string, mark byte, keep func(byte) bool) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c != mark && keep(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{mark, hexDigits[c>>4], hexDigits[c&0xf]})
		}
	}
	return b.String()
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// streamToken encodes a cluster's name for names of streams and buckets.
func streamToken(name string) string {
	return escape(name, '_', func(c byte) bool { return alphanumeric(c) || c == '-' })
}

// SubjectToken encodes a name as one token of a subject, reversibly: letters,
// digits, '-', '_' and '$' stand for themselves, every other byte is %XX. The
// empty name is a single '%'.
func SubjectToken(name string) string {
	if name == "" {
		return "%"
	}
	return escape(name, '%', func(c byte) bool { return alphanumeric(c) || c == '-' || c == '_' || c == '$' })
}

// ParseSubjectToken is the inverse of [SubjectToken]. A token that SubjectToken
// does not write is an error.
func ParseSubjectToken(token string) (string, error) {
	if token == "%" {
		return "", nil
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		c := token[i]
		if c == '%' {
			if i+2 >= len(token) {
				return "", fmt.Errorf("parse subject token %q: cut off after byte %d", token, i)
			}
			hi, lo := strings.IndexByte(hexDigits, token[i+1]), strings.IndexByte(hexDigits, token[i+2])
			if hi < 0 || lo < 0 {
				return "", fmt.Errorf("parse subject token %q: byte %d is not %%XX", token, i)
			}
			c = byte(hi<<4 | lo)
			i += 2
		}
		b.WriteByte(c)
	}
	if name := b.String(); SubjectToken(name) == token {
		return name, nil
	}
	return "", fmt.Errorf("parse subject token %q: not in its normal form", token)
}

func (n *names) posSubject(server string) string { return n.posPrefix + SubjectToken(server) }

func (n *names) schemaSubject(schema, table string) string {
	return n.schemaPrefix + SubjectToken(schema) + "." + SubjectToken(table)
}
