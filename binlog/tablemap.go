package binlog

import (
	"bytes"
	"fmt"

	"tidegate/cdc/key"
)

// Column types of a table map. The numbers are MySQL's.
const (
	colTiny       byte = 1
	colShort      byte = 2
	colLong       byte = 3
	colFloat      byte = 4
	colDouble     byte = 5
	colNull       byte = 6
	colTimestamp  byte = 7
	colLongLong   byte = 8
	colInt24      byte = 9
	colDate       byte = 10
	colTime       byte = 11
	colDatetime   byte = 12
	colYear       byte = 13
	colNewDate    byte = 14
	colVarchar    byte = 15
	colBit        byte = 16
	colTimestamp2 byte = 17
	colDatetime2  byte = 18
	colTime2      byte = 19
	colVector     byte = 242
	colJSON       byte = 245
	colNewDecimal byte = 246
	colEnum       byte = 247
	colSet        byte = 248
	colBlob       byte = 252
	colVarString  byte = 253
	colString     byte = 254
	colGeometry   byte = 255
)

// maxColumns is MySQL's own limit.
const maxColumns = 4096

// collationBinary is the collation of columns that hold bytes, not text.
const collationBinary = 63

// mapColumn is one column as a table map describes it.
type mapColumn struct {
	kind      byte // the real type: ENUM and SET, which travel as STRING, included
	nullable  bool
	unsigned  bool
	collation uint16 // 0: not told
	length    int    // bytes of a fixed value, bytes of the length prefix, or the maximum of a string
	precision int
	scale     int
	name      string
	members   [][]byte // in the column's character set
}

// tableMap is a decoded TABLE_MAP event.
type tableMap struct {
	id            uint64
	schema, table string // as they stand in the event
	columns       []mapColumn
	jsonColumns   int
	// named tells that names (and all other optional metadata) are there:
	// binlog_row_metadata=FULL.
	named bool
	// signed tells that signedness was told, or that no column has any.
	signed  bool
	primary []int // column numbers in index order; only when named
	prefix  []int // for each of primary: characters of a prefix, 0: all
}

// parseTableMap reads a TABLE_MAP event. Nothing of body is kept. Together with
// an error it returns what names the table, if that could be read.
func parseTableMap(body []byte, idBytes int) (*tableMap, error) {
	r := reader{b: body}
	m := &tableMap{id: r.uint(idBytes)}
	r.skip(2) // flags
	m.schema = string(r.bytes(uint64(r.byte())))
	r.skip(1)
	m.table = string(r.bytes(uint64(r.byte())))
	r.skip(1)
	if r.bad {
		return nil, malformed("table map")
	}
	n := r.packed()
	if r.bad || n > maxColumns {
		return m, malformed("table map of %d columns", n)
	}
	types := r.bytes(n)
	meta := reader{b: r.bytes(r.packed())}
	nulls := r.bytes((n + 7) / 8)
	if r.bad {
		return m, malformed("table map")
	}
	m.columns = make([]mapColumn, n)
	for i := range m.columns {
		c := &m.columns[i]
		if err := c.read(types[i], &meta); err != nil {
			return m, err
		}
		c.nullable = nulls[i/8]>>(i%8)&1 != 0
		if c.kind == colJSON {
			m.jsonColumns++
		}
	}
	if meta.bad || meta.left() > 0 {
		return m, malformed("table map: metadata of columns")
	}
	return m, m.readOptional(&r)
}

// read takes a column's metadata off meta.
func (c *mapColumn) read(kind byte, meta *reader) error {
	c.kind = kind
	switch kind {
	case colTiny, colYear:
		c.length = 1
	case colShort:
		c.length = 2
	case colInt24, colDate, colNewDate, colTime:
		c.length = 3
	case colLong, colTimestamp:
		c.length = 4
	case colLongLong, colDatetime:
		c.length = 8
	case colNull:
	case colFloat, colDouble, colBlob, colGeometry, colJSON, colVector:
		c.length = int(meta.byte())
	case colTimestamp2, colDatetime2, colTime2:
		c.scale = int(meta.byte())
		if c.scale > 6 {
			return malformed("table map: %d fractional digits", c.scale)
		}
		c.length = (c.scale + 1) / 2
		switch kind {
		case colTimestamp2:
			c.length += 4
		case colDatetime2:
			c.length += 5
		default:
			c.length += 3
		}
	case colNewDecimal:
		c.precision, c.scale = int(meta.byte()), int(meta.byte())
		if c.precision > 65 || c.scale > 30 || c.scale > c.precision {
			return malformed("table map: DECIMAL(%d,%d)", c.precision, c.scale)
		}
		c.length = key.DecimalSize(c.precision, c.scale)
	case colBit:
		bits, whole := int(meta.byte()), int(meta.byte())
		c.precision = whole*8 + bits
		c.length = (c.precision + 7) / 8
		if c.length > 8 {
			return malformed("table map: BIT(%d)", c.precision)
		}
	case colVarchar, colVarString:
		c.length = int(meta.uint(2))
	case colString:
		c.readString(meta.byte(), meta.byte())
	default:
		return malformed("table map: column type %d", kind)
	}
	return nil
}

// readString reads the metadata of STRING: the real type, or, for CHAR and
// BINARY, a length whose high bits hide in the type.
func (c *mapColumn) readString(hi, lo byte) {
	switch {
	case hi&0x30 != 0x30:
		c.length = int(lo) | int(hi&0x30^0x30)<<4
		hi |= 0x30
	default:
		c.length = int(lo)
	}
	if hi == colEnum || hi == colSet {
		c.kind = hi
	}
}

// numeric and character columns are those that the optional metadata counts.
func (c *mapColumn) numeric() bool {
	switch c.kind {
	case colTiny, colShort, colInt24, colLong, colLongLong, colNewDecimal, colFloat, colDouble, colYear:
		return true
	}
	return false
}

func (c *mapColumn) character() bool {
	switch c.kind {
	case colString, colVarString, colVarchar, colBlob:
		return true
	}
	return false
}

func (c *mapColumn) listed() bool { return c.kind == colEnum || c.kind == colSet }

// Optional metadata fields.
const (
	optSignedness = iota + 1
	optDefaultCharset
	optColumnCharset
	optNames
	optSetMembers
	optEnumMembers
	optGeometry
	optPrimary
	optPrimaryPrefix
	optListedDefaultCharset
	optListedCharset
)

func (m *tableMap) readOptional(r *reader) error {
	m.signed = true
	for i := range m.columns {
		if m.columns[i].numeric() {
			m.signed = false
		}
	}
	for r.left() > 0 {
		field := r.byte()
		v := reader{b: r.bytes(r.packed())}
		if r.bad {
			return malformed("table map: optional metadata")
		}
		m.optional(field, &v)
		if v.bad {
			return malformed("table map: optional metadata field %d", field)
		}
	}
	return nil
}

func (m *tableMap) optional(field byte, v *reader) {
	switch field {
	case optSignedness:
		m.readSignedness(v)
	case optDefaultCharset:
		m.readDefaultCharset(v, (*mapColumn).character)
	case optColumnCharset:
		m.readCharsets(v, (*mapColumn).character)
	case optListedDefaultCharset:
		m.readDefaultCharset(v, (*mapColumn).listed)
	case optListedCharset:
		m.readCharsets(v, (*mapColumn).listed)
	case optNames:
		for i := range m.columns {
			m.columns[i].name = string(v.bytes(uint64(v.byte())))
		}
		m.named = !v.bad && v.left() == 0
		v.bad = !m.named
	case optSetMembers:
		m.readMembers(v, colSet)
	case optEnumMembers:
		m.readMembers(v, colEnum)
	case optPrimary, optPrimaryPrefix:
		m.readPrimary(v, field == optPrimaryPrefix)
	}
}

func (m *tableMap) readSignedness(v *reader) {
	k := 0
	for i := range m.columns {
		c := &m.columns[i]
		if !c.numeric() {
			continue
		}
		if k/8 >= len(v.b) {
			v.bad = true
			return
		}
		c.unsigned = v.b[k/8]<<(k%8)&0x80 != 0
		k++
	}
	m.signed = true
}

// readDefaultCharset reads the most frequent collation and the exceptions.
func (m *tableMap) readDefaultCharset(v *reader, counts func(*mapColumn) bool) {
	other := make(map[uint64]uint16)
	def := uint16(v.packed())
	for v.left() > 0 && !v.bad {
		i := v.packed()
		other[i] = uint16(v.packed())
	}
	k := uint64(0)
	for i := range m.columns {
		c := &m.columns[i]
		if !counts(c) {
			continue
		}
		c.collation = def
		if o, ok := other[k]; ok {
			c.collation = o
		}
		k++
	}
}

func (m *tableMap) readCharsets(v *reader, counts func(*mapColumn) bool) {
	for i := range m.columns {
		if c := &m.columns[i]; counts(c) {
			c.collation = uint16(v.packed())
		}
	}
}

func (m *tableMap) readMembers(v *reader, kind byte) {
	for i := range m.columns {
		c := &m.columns[i]
		if c.kind != kind {
			continue
		}
		n := v.packed()
		if n > uint64(v.left()) {
			v.bad = true
			return
		}
		c.members = make([][]byte, 0, n)
		for range n {
			c.members = append(c.members, bytes.Clone(v.bytes(v.packed())))
		}
	}
}

func (m *tableMap) readPrimary(v *reader, prefixes bool) {
	m.primary, m.prefix = nil, nil
	for v.left() > 0 && !v.bad {
		i, p := v.packed(), uint64(0)
		if prefixes {
			p = v.packed()
		}
		if i >= uint64(len(m.columns)) || p > 1<<16 {
			v.bad = true
			return
		}
		m.primary = append(m.primary, int(i))
		m.prefix = append(m.prefix, int(p))
	}
}

// describe returns what folding needs of column i, as far as the event tells;
// for enumerations collation and members are left out when names are.
func (m *tableMap) describe(i int, collations map[uint16]string) (key.Column, error) {
	c := &m.columns[i]
	col := key.Column{Name: c.name, Nullable: c.nullable, Ordinal: i}
	switch c.kind {
	case colTiny, colShort, colInt24, colLong, colLongLong:
		col.Type, col.Unsigned = key.TypeInt, c.unsigned
	case colNewDecimal:
		col.Type, col.Precision, col.Scale, col.Unsigned = key.TypeDecimal, c.precision, c.scale, c.unsigned
	case colYear:
		col.Type = key.TypeYear
	case colDate, colNewDate:
		col.Type = key.TypeDate
	case colTime2:
		col.Type, col.Scale = key.TypeTime, c.scale
	case colDatetime2:
		col.Type, col.Scale = key.TypeDatetime, c.scale
	case colTimestamp2:
		col.Type, col.Scale = key.TypeTimestamp, c.scale
	case colBit:
		col.Type, col.Precision = key.TypeBit, c.precision
	case colEnum, colSet:
		col.Type = key.TypeEnum
		if c.kind == colSet {
			col.Type = key.TypeSet
		}
		return col, m.describeListed(c, &col, collations)
	case colString, colVarchar, colVarString, colBlob:
		return col, describeString(c, &col, collations)
	}
	return col, nil // TypeOther
}

func describeString(c *mapColumn, col *key.Column, collations map[uint16]string) error {
	switch {
	case c.collation == 0:
		return fmt.Errorf("the event does not tell the collation of column %d", col.Ordinal+1)
	case c.collation != collationBinary:
		name, ok := collations[c.collation]
		if !ok {
			return fmt.Errorf("collation %d is not known", c.collation)
		}
		col.Type, col.Collation = key.TypeVarchar, name
		if c.kind == colString {
			col.Type = key.TypeChar
		}
	case c.kind == colString:
		col.Type, col.Length = key.TypeBinary, c.length
	default:
		col.Type = key.TypeVarbinary
	}
	return nil
}

func (m *tableMap) describeListed(c *mapColumn, col *key.Column, collations map[uint16]string) error {
	if !m.named {
		return nil
	}
	name, ok := collations[c.collation]
	if !ok {
		return fmt.Errorf("collation %d is not known", c.collation)
	}
	col.Collation = name
	for _, b := range c.members {
		s, err := memberText(name, b)
		if err != nil {
			return err
		}
		col.Members = append(col.Members, s)
	}
	return nil
}
