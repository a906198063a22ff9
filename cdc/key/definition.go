package key

import (
	"encoding/binary"

	"github.com/dchest/siphash"
)

// FoldVersion names the folding rules of this package. It travels in the stream
// and is stored in the index; a mismatch rebuilds the index (rules §4.2).
const FoldVersion uint16 = 1

// DefVersion is a hash of everything in a [Definition] that folding uses, the
// fold version included. Zero means "not known": the table's events write
// all-rows.
type DefVersion uint64

// Type is a MySQL column type as far as folding needs to tell types apart.
type Type uint8

// The column types. TypeOther is everything that can not be part of a usable
// key (JSON, GEOMETRY, VECTOR, FLOAT, DOUBLE and types not yet known).
const (
	TypeOther     Type = iota
	TypeInt            // TINYINT to BIGINT, BOOL, and the generated invisible key; see Column.Unsigned
	TypeDecimal        // DECIMAL(Precision, Scale)
	TypeYear           // YEAR
	TypeDate           // DATE
	TypeTime           // TIME(Scale)
	TypeDatetime       // DATETIME(Scale)
	TypeTimestamp      // TIMESTAMP(Scale), always UTC here
	TypeBit            // BIT(Precision)
	TypeEnum           // ENUM, by number; names in Members
	TypeSet            // SET, by bit mask; names in Members
	TypeVarchar        // VARCHAR, TINYTEXT to LONGTEXT: text under Collation (that is not binary)
	TypeBinary         // BINARY(Length): padded with zero bytes to Length
	TypeVarbinary      // VARBINARY, TINYBLOB to LONGBLOB: bytes as they are
	TypeChar           // CHAR: text under Collation, stored without spaces at its end
)

// Column is one column of a key or one group column, with what folding needs.
// A column whose description is not complete for its type folds wide.
type Column struct {
	Name      string
	Type      Type
	Unsigned  bool
	Nullable  bool
	Precision int      // DECIMAL digits, BIT bits
	Scale     int      // DECIMAL digits after the point, fractional-second digits
	Length    int      // BINARY: bytes; TypeInt: bytes of the type (1, 2, 3, 4, 8), 0 when not known, then 8
	PrefixLen int      // characters or bytes of a prefix key part; 0: the whole column
	Collation string   // TypeChar, TypeVarchar, TypeEnum, TypeSet: the collation's name, e.g. utf8mb4_0900_ai_ci
	Members   []string // TypeEnum, TypeSet: in order, as utf8
	Ordinal   int      // position of the column in the table, from 0

	sealed *resolved // by Definition.Seal; nil: resolved at each use
}

// resolved is what follows from a column's description.
type resolved struct {
	name     string // folded
	fold     FoldKind
	coll     *collation // TypeChar, TypeVarchar, TypeEnum, TypeSet
	byNumber bool       // TypeEnum, TypeSet: numbers stand for the texts
}

// Definition is what folding knows of one table. A Definition is immutable once
// it is shared.
type Definition struct {
	Schema, Table string     // names as the primary compares them (folded by lower_case_table_names)
	Version       DefVersion // set by Seal
	Primary       []Column   // the primary key in index order; empty: no usable key, every write is all-rows
	Groups        []Column   // the configured group columns that the table has, by name
	// FoldNames tells that the primary compares names without case
	// (lower_case_table_names is not 0); callers' names fold likewise.
	FoldNames bool
	// Columns is the number of the table's columns, invisible and generated
	// ones included.
	Columns int

	scopes *TableScopes // by Prepare; nil: worked out at each use
}

// Seal sets Version and prepares the columns for quick folding. Call it once
// when the definition is complete (a tailer), or after decoding one: then Seal
// of the same folding rules gives the version that came with it. Nothing may
// change afterwards.
func (d *Definition) Seal() {
	for _, columns := range [][]Column{d.Primary, d.Groups} {
		for i := range columns {
			columns[i].sealed = columns[i].newResolved()
		}
	}
	d.Version = DefVersion(max(siphash.Hash(0x7469646567617465, uint64(FoldVersion), d.appendIdentity(nil)), 1))
}

// Prepare works out the scopes of the table under h, so that [Definition.Cover]
// with the same h hashes no names. Like Seal it is called before the definition
// is shared.
func (d *Definition) Prepare(h Hasher) {
	t := h.Table(d.Schema, d.Table)
	d.scopes = &t
}

// tableScopes returns the scopes of the table under h.
func (d *Definition) tableScopes(h Hasher) TableScopes {
	if d.scopes != nil && d.scopes.h == h {
		return *d.scopes
	}
	return h.Table(d.Schema, d.Table)
}

// appendIdentity appends everything of which Version is the hash; each part
// tells its own length.
func (d *Definition) appendIdentity(b []byte) []byte {
	b = appendString(b, d.Schema)
	b = appendString(b, d.Table)
	b = appendFlag(b, d.FoldNames)
	b = binary.AppendVarint(b, int64(d.Columns))
	for _, columns := range [][]Column{d.Primary, d.Groups} {
		b = binary.AppendUvarint(b, uint64(len(columns)))
		for i := range columns {
			b = columns[i].appendIdentity(b)
		}
	}
	return b
}

func (c *Column) appendIdentity(b []byte) []byte {
	b = appendString(b, c.Name)
	b = append(b, byte(c.Type))
	b = appendFlag(b, c.Unsigned)
	b = appendFlag(b, c.Nullable)
	for _, n := range [...]int{c.Precision, c.Scale, c.Length, c.PrefixLen, c.Ordinal} {
		b = binary.AppendVarint(b, int64(n))
	}
	b = appendString(b, c.Collation)
	b = binary.AppendUvarint(b, uint64(len(c.Members)))
	for _, m := range c.Members {
		b = appendString(b, m)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendFlag(b []byte, f bool) []byte {
	if f {
		return append(b, 1)
	}
	return append(b, 0)
}

// RowsUsable tells whether the table's rows have keys of their own; otherwise
// each write of the table is all-rows.
func (d *Definition) RowsUsable() bool {
	for i := range d.Primary {
		if d.Primary[i].Fold() == Wide {
			return false
		}
	}
	return len(d.Primary) > 0
}

// GroupUsable tells whether values of group column i are recorded; otherwise
// each row write is all-rows of that group column.
func (d *Definition) GroupUsable(i int) bool { return d.Groups[i].Fold() != Wide }

// Group returns the place of a group column in Groups; the name may have any
// case.
func (d *Definition) Group(column string) (i int, ok bool) {
	column = FoldName(column)
	for i := range d.Groups {
		if d.Groups[i].resolve().name == column {
			return i, true
		}
	}
	return 0, false
}

// Fold says what the column's forms are worth.
func (c *Column) Fold() FoldKind { return c.resolve().fold }

func (c *Column) resolve() *resolved {
	if c.sealed != nil {
		return c.sealed
	}
	return c.newResolved()
}

func (c *Column) newResolved() *resolved {
	r := &resolved{name: FoldName(c.Name), fold: c.describedFold()}
	switch c.Type {
	case TypeChar, TypeVarchar, TypeEnum, TypeSet:
		if r.coll = lookupCollation(c.Collation); r.coll == nil {
			r.fold = Wide
		}
	}
	if r.fold == Wide {
		return r
	}
	switch c.Type {
	case TypeChar, TypeVarchar:
		r.fold = r.coll.fold
	case TypeEnum, TypeSet:
		if r.byNumber = c.membersByNumber(r.coll); !r.byNumber {
			r.fold = Coarse
		}
	}
	return r
}

// describedFold is what the type promises, collations aside. Prefix keys hold
// several values under one (rules §4.2).
func (c *Column) describedFold() FoldKind {
	complete := c.PrefixLen == 0
	switch c.Type {
	case TypeInt, TypeYear, TypeDate, TypeChar, TypeVarchar, TypeVarbinary:
	case TypeDecimal:
		complete = complete && c.Precision >= 1 && c.Precision <= 65 && c.Scale >= 0 && c.Scale <= min(c.Precision, 30)
	case TypeTime, TypeDatetime, TypeTimestamp:
		complete = complete && c.Scale >= 0 && c.Scale <= 6
	case TypeBit:
		complete = complete && c.Precision >= 1 && c.Precision <= 64
	case TypeBinary:
		complete = complete && c.Length >= 0 && c.Length <= 255
	case TypeEnum, TypeSet:
		complete = complete && len(c.Members) > 0
	default:
		complete = false
	}
	if !complete {
		return Wide
	}
	return Exact
}
