package gtid

import (
	"bytes"
	"encoding/binary"
)

// uuidTextLen is the length of a UUID in its printed form.
const uuidTextLen = 36

const hexDigits = "0123456789abcdef"

// UUID is the 16 bytes of a server's UUID (or of a replication group's name),
// in the order in which they are printed. The zero value is the nil UUID,
// which MySQL accepts in sets but no server carries.
type UUID [16]byte

// ParseUUID reads the forms that MySQL reads in GTID sets: 36 characters with
// dashes, the same in braces, or 32 hexadecimal digits; letters of either
// case. Anything else, surrounding white space included, is a [*ParseError].
func ParseUUID(s string) (UUID, error) {
	p := scanner{in: s}
	u, err := p.uuid()
	if err != nil {
		return UUID{}, err
	}
	if !p.atEnd() {
		return UUID{}, p.fail("expected the end of the UUID")
	}
	return u, nil
}

// String returns the lower-case form with dashes, as MySQL prints it.
func (u UUID) String() string {
	var buf [uuidTextLen]byte
	return string(u.append(buf[:0]))
}

// IsZero reports whether u is the nil UUID.
func (u UUID) IsZero() bool { return u == UUID{} }

// Compare orders UUIDs bytewise, as MySQL does when it prints a set.
func (u UUID) Compare(o UUID) int { return bytes.Compare(u[:], o[:]) }

// MarshalText implements [encoding.TextMarshaler] with the form of String.
func (u UUID) MarshalText() ([]byte, error) { return u.append(nil), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] as [ParseUUID].
func (u *UUID) UnmarshalText(text []byte) error {
	v, err := ParseUUID(string(text))
	if err != nil {
		return err
	}
	*u = v
	return nil
}

func (u UUID) append(dst []byte) []byte {
	for i, b := range u {
		switch i {
		case 4, 6, 8, 10:
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[b>>4], hexDigits[b&0xf])
	}
	return dst
}

// high returns the first eight bytes as a number that orders as they do.
func (u *UUID) high() uint64 { return binary.BigEndian.Uint64(u[:8]) }
