package binlog

import (
	"math/bits"

	"tidegate/cdc/key"
)

// Flags of a rows event.
const (
	rowsStatementEnd = 0x01
	// rowsSQLForeignKeys: the server carried cascades out above the storage
	// engine, so that they have rows events of their own (MySQL 9.6 and later
	// without innodb_native_foreign_keys).
	rowsSQLForeignKeys = 0x10
)

// rowsKind tells which images a rows event holds.
type rowsKind uint8

const (
	rowsInsert rowsKind = iota + 1
	rowsDelete
	rowsUpdate
	rowsPartialUpdate // the image after may hold JSON columns as differences
)

// rowsEvent is the head of a rows event; rows is what follows it.
type rowsEvent struct {
	kind          rowsKind
	table         uint64
	flags         uint16
	columns       int
	before, after []byte // which columns the images have; before only for inserts and deletes
	rows          []byte
}

func rowsKindOf(t eventType) (k rowsKind, v2 bool) {
	switch t {
	case evWriteRowsV1, evWriteRows:
		k = rowsInsert
	case evDeleteRowsV1, evDeleteRows:
		k = rowsDelete
	case evUpdateRowsV1, evUpdateRows:
		k = rowsUpdate
	case evPartialUpdate:
		k = rowsPartialUpdate
	}
	return k, t >= evWriteRows
}

// parseRows reads the head of a rows event. It does not allocate and keeps parts
// of body.
func parseRows(t eventType, body []byte, idBytes int) (rowsEvent, error) {
	kind, v2 := rowsKindOf(t)
	r := reader{b: body}
	e := rowsEvent{kind: kind, table: r.uint(idBytes), flags: uint16(r.uint(2))}
	if v2 {
		if extra := r.uint(2); extra >= 2 {
			r.skip(int(extra) - 2)
		} else {
			r.bad = true
		}
	}
	n := r.packed()
	if r.bad || n == 0 || n > maxColumns {
		return e, malformed("rows event of %d columns", n)
	}
	e.columns = int(n)
	e.before = r.bytes((n + 7) / 8)
	if kind == rowsUpdate || kind == rowsPartialUpdate {
		e.after = r.bytes((n + 7) / 8)
	}
	if r.bad {
		return e, malformed("rows event")
	}
	e.rows = body[r.i:]
	return e, nil
}

// stepKind says how a column's value is stored in a row image.
type stepKind uint8

const (
	stepFixed   stepKind = iota // n bytes
	stepPrefix1                 // a length of 1, 2, 3 or 4 bytes, and so many bytes
	stepPrefix2
	stepPrefix3
	stepPrefix4
)

// step takes the walk over one column of an image.
type step struct {
	kind stepKind
	json bool
	slot int16 // where the value is wanted; -1: skipped
	n    uint16
}

// stepOf tells how a column is stored.
func stepOf(c *mapColumn) (step, bool) {
	s := step{kind: stepFixed, n: uint16(c.length), slot: -1}
	switch c.kind {
	case colNull:
		s.n = 0
	case colString:
		s.kind = stepPrefix1
		if c.length > 255 {
			s.kind = stepPrefix2
		}
	case colVarchar, colVarString:
		s.kind = stepPrefix1
		if c.length > 255 {
			s.kind = stepPrefix2
		}
	case colBlob, colGeometry, colJSON, colVector:
		if c.length < 1 || c.length > 4 {
			return s, false
		}
		s.kind = stepPrefix1 + stepKind(c.length-1)
		s.json = c.kind == colJSON
	}
	return s, true
}

// cell is where one wanted value lies in the rows of an event.
type cell struct {
	state    cellState
	off, end int
}

type cellState uint8

const (
	cellAbsent cellState = iota // not in the image
	cellNull
	cellValue
)

// image is one kind of image of an event: which columns it has.
type image struct {
	present []byte
	count   int
	full    bool // all columns
}

func newImage(present []byte, columns int) image {
	m := image{present: present}
	for i, b := range present {
		if i == len(present)-1 && columns%8 != 0 {
			b &= 1<<(columns%8) - 1
		}
		m.count += bits.OnesCount8(b)
	}
	m.full = m.count == columns
	return m
}

// walk goes over the image that begins at rows[i], notes where the wanted values
// lie, and returns where the next image begins; ok is false when the bytes make
// no sense. It does not allocate.
func walk(steps []step, rows []byte, i int, m *image, cells []cell) (next int, ok bool) {
	if !m.full {
		for k := range cells {
			cells[k] = cell{}
		}
	}
	nulls := i
	i += (m.count + 7) / 8
	if i > len(rows) {
		return 0, false
	}
	seen := 0
	for c := range steps {
		if !m.full && m.present[c>>3]>>(c&7)&1 == 0 {
			continue
		}
		null := rows[nulls+seen>>3]>>(seen&7)&1 != 0
		seen++
		s := &steps[c]
		if null {
			if s.slot >= 0 {
				cells[s.slot] = cell{state: cellNull}
			}
			continue
		}
		n := int(s.n)
		if s.kind != stepFixed {
			if n, i, ok = prefixed(s.kind, rows, i); !ok {
				return 0, false
			}
		}
		if n > len(rows)-i {
			return 0, false
		}
		if s.slot >= 0 {
			cells[s.slot] = cell{cellValue, i, i + n}
		}
		i += n
	}
	return i, true
}

// prefixed reads a length and returns where the value begins.
func prefixed(kind stepKind, rows []byte, i int) (n, at int, ok bool) {
	w := int(kind-stepPrefix1) + 1
	if w > len(rows)-i {
		return 0, 0, false
	}
	for k := w - 1; k >= 0; k-- {
		n = n<<8 | int(rows[i+k])
	}
	return n, i + w, true
}

// partialHead skips the head of an image after of a PARTIAL_UPDATE event: the
// options and, if JSON columns are differences, a bit for each JSON column of
// the table. A difference is stored behind a length like a whole document, so
// the walk needs no more of it.
func partialHead(rows []byte, i, jsonColumns int) (next int, ok bool) {
	r := reader{b: rows, i: i}
	const partialJSON = 1
	if r.packed()&partialJSON != 0 {
		r.skip((jsonColumns + 7) / 8)
	}
	return r.i, !r.bad
}

// valueKind says how the bytes of a value become a [key.Value].
type valueKind uint8

const (
	valueBytes  valueKind = iota // as they are
	valueSigned                  // little-endian, sign-extended
	valueLittle                  // little-endian
	valueBig                     // big-endian
)

func valueKindOf(c *key.Column) valueKind {
	switch c.Type {
	case key.TypeInt:
		if c.Unsigned {
			return valueLittle
		}
		return valueSigned
	case key.TypeYear, key.TypeDate, key.TypeEnum, key.TypeSet:
		return valueLittle
	case key.TypeTime, key.TypeDatetime, key.TypeTimestamp, key.TypeBit:
		return valueBig
	}
	return valueBytes
}

// valueOf makes the value of a cell of an image in rows.
func valueOf(kind valueKind, rows []byte, c cell) key.Value {
	if c.state == cellNull {
		return key.Value{Null: true}
	}
	b := rows[c.off:c.end:c.end]
	if kind == valueBytes {
		return key.Value{Bytes: b}
	}
	var u uint64
	if kind == valueBig {
		for _, x := range b {
			u = u<<8 | uint64(x)
		}
		return key.Value{Uint: u}
	}
	for i, x := range b {
		u |= uint64(x) << (8 * (i & 7))
	}
	if kind == valueSigned && len(b) < 8 && len(b) > 0 {
		shift := 64 - 8*len(b)
		return key.Value{Int: int64(u<<shift) >> shift}
	}
	return key.Value{Int: int64(u), Uint: u}
}
