package key

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
)

// rowImages reads the rows that were inserted into one table of (id INT, k ...)
// from the server's newest binlog file: id -> image of k, nil for NULL. It knows
// no more of the binlog than this test needs.
func (s *server) rowImages(table string, c *Column, lengthBytes int) map[uint32][]byte {
	s.Helper()
	var file string
	var ignored [4]any
	s.each("SHOW BINARY LOG STATUS", func() {}, &file, &ignored[0], &ignored[1], &ignored[2], &ignored[3])
	b, err := os.ReadFile(filepath.Join(s.home.DataDir(), file))
	if err != nil {
		s.Fatal(err)
	}
	images := map[uint32][]byte{}
	var tableID uint64
	const (
		headerBytes, checksumBytes = 19, 4
		tableMapEvent, writeRows   = 19, 30
	)
	for at := 4; at+headerBytes < len(b); {
		kind, size := b[at+4], int(binary.LittleEndian.Uint32(b[at+9:]))
		body := b[at+headerBytes : at+size-checksumBytes]
		at += size
		switch kind {
		case tableMapEvent:
			schemaBytes := int(body[8])
			rest := body[8+1+schemaBytes+1:]
			if string(rest[1:1+rest[0]]) == table {
				tableID = tableNumber(body)
			}
		case writeRows:
			if tableNumber(body) != tableID || tableID == 0 {
				continue
			}
			extra := int(binary.LittleEndian.Uint16(body[8:]))
			s.readRows(body[8+extra:], c, lengthBytes, images)
		}
	}
	return images
}

func tableNumber(body []byte) uint64 {
	var n [8]byte
	copy(n[:6], body)
	return binary.LittleEndian.Uint64(n[:])
}

// readRows reads rows of two columns: bitmap of present columns, then for each
// row a bitmap of NULLs, the id and the value.
func (s *server) readRows(b []byte, c *Column, lengthBytes int, images map[uint32][]byte) {
	s.Helper()
	b = b[1+1:]
	for len(b) > 0 {
		null := b[0]&2 != 0
		id := binary.LittleEndian.Uint32(b[1:])
		b = b[5:]
		if null {
			images[id] = nil
			continue
		}
		n := imageBytes(c)
		if n < 0 {
			var length [8]byte
			copy(length[:], b[:lengthBytes])
			n = int(binary.LittleEndian.Uint64(length[:]))
			b = b[lengthBytes:]
		}
		images[id] = append([]byte{}, b[:n]...)
		b = b[n:]
	}
}

// imageBytes is the size of a value in a row image; -1: it has a length prefix.
func imageBytes(c *Column) int {
	switch c.Type {
	case TypeInt:
		return c.Length
	case TypeDecimal:
		return DecimalSize(c.Precision, c.Scale)
	case TypeYear, TypeEnum:
		return 1
	case TypeDate, TypeTime:
		return 3 + fractionBytes(c.Scale)
	case TypeDatetime:
		return 5 + fractionBytes(c.Scale)
	case TypeTimestamp:
		return 4 + fractionBytes(c.Scale)
	case TypeBit:
		return (c.Precision + 7) / 8
	case TypeSet:
		if n := (len(c.Members) + 7) / 8; n <= 4 {
			return n
		}
		return 8
	}
	return -1
}

// imageValue decodes an image as the documentation of Value says.
func imageValue(c *Column, image []byte) Value {
	if image == nil {
		return Null()
	}
	var n [8]byte
	little := func() uint64 { copy(n[:], image); return binary.LittleEndian.Uint64(n[:]) }
	big := func() uint64 { copy(n[8-len(image):], image); return binary.BigEndian.Uint64(n[:]) }
	switch c.Type {
	case TypeInt:
		v := Value{Uint: little()}
		if !c.Unsigned {
			shift := 64 - 8*len(image)
			v = Value{Int: int64(v.Uint) << shift >> shift}
		}
		return v
	case TypeYear, TypeDate, TypeEnum, TypeSet:
		return Value{Uint: little()}
	case TypeTime, TypeDatetime, TypeTimestamp, TypeBit:
		return Value{Uint: big()}
	case TypeDecimal, TypeChar, TypeVarchar, TypeBinary, TypeVarbinary:
		return Value{Bytes: image}
	}
	panic(fmt.Sprintf("type %d has no image here", c.Type))
}
