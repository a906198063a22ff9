package key

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
	TypeChar           // CHAR, VARCHAR, TINYTEXT to LONGTEXT: text under Collation
	TypeBinary         // BINARY(Length): padded with zero bytes to Length
	TypeVarbinary      // VARBINARY, TINYBLOB to LONGBLOB: bytes as they are
)

// Column is one column of a key or one group column, with what folding needs.
type Column struct {
	Name      string
	Type      Type
	Unsigned  bool
	Nullable  bool
	Precision int      // DECIMAL digits, BIT bits
	Scale     int      // DECIMAL digits after the point, fractional-second digits
	Length    int      // BINARY: bytes
	PrefixLen int      // characters or bytes of a prefix key part; 0: the whole column
	Collation string   // TypeChar, TypeEnum, TypeSet: the collation's name, e.g. utf8mb4_0900_ai_ci
	Members   []string // TypeEnum, TypeSet: in order, as utf8
	Ordinal   int      // position of the column in the table, from 0
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
}
