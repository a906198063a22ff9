package key

// Value is one column value as a row event carries it, decoded without any
// conversion: the bytes of the row image, read as a number where the type is a
// number. Which field holds it depends on [Column.Type]; the others are not
// looked at:
//
//	TypeInt        Int (sign-extended from its 1, 2, 3, 4 or 8 little-endian
//	               bytes), or Uint when Column.Unsigned
//	TypeDecimal    Bytes: MySQL's packed binary form as it stands in the image,
//	               DecimalSize(Precision, Scale) bytes
//	TypeYear       Uint: the stored byte (0 is 0000, else year - 1900)
//	TypeDate       Uint: the 3 stored bytes, little-endian
//	               (year<<9 | month<<5 | day)
//	TypeTime       Uint: all stored bytes of TIME2, 3 + (Scale+1)/2, read as one
//	               big-endian number
//	TypeDatetime   Uint: all stored bytes of DATETIME2, 5 + (Scale+1)/2, big-endian
//	TypeTimestamp  Uint: all stored bytes of TIMESTAMP2, 4 + (Scale+1)/2, big-endian
//	TypeBit        Uint: the (Precision+7)/8 stored bytes, big-endian
//	TypeEnum       Uint: the number of the member, from 1; 0 is the error value ''
//	               (1 or 2 bytes, little-endian)
//	TypeSet        Uint: the bit mask (1, 2, 3, 4 or 8 bytes, little-endian)
//	TypeChar,      Bytes: the text without its length prefix, in the column's own
//	TypeVarchar    character set
//	TypeBinary     Bytes: without its length prefix; trailing zero bytes may be
//	               missing (they are in row images)
//	TypeVarbinary  Bytes: without its length prefix (BLOB too)
//	TypeOther      nothing: such columns fold wide
//
// Temporal columns in the formats of before MySQL 5.6 have no place here: the
// tailer describes them as TypeOther.
//
// Bytes is only read, and not kept.
type Value struct {
	Null  bool
	Int   int64
	Uint  uint64
	Bytes []byte
}

// Null is the value NULL of whatever type.
func Null() Value { return Value{Null: true} }
