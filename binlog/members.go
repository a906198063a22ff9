package binlog

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"vitess.io/vitess/go/mysql/collations"
	"vitess.io/vitess/go/mysql/collations/charset"
	"vitess.io/vitess/go/mysql/collations/colldata"
)

// memberText converts the name of an ENUM or SET member from the character set
// of its collation to UTF-8, as information_schema gives it.
func memberText(collation string, b []byte) (string, error) {
	cs, _, _ := strings.Cut(collation, "_")
	switch cs {
	case "utf8mb4", "utf8mb3", "utf8", "ascii", "binary":
		if utf8.Valid(b) {
			return string(b), nil
		}
		return "", fmt.Errorf("enumeration member %q is not valid in %s", b, collation)
	}
	id := collations.NewEnvironment("8.0.40").LookupByName(collation) // made once by the library
	if id == collations.Unknown {
		return "", fmt.Errorf("enumeration members in collation %s can not be read", collation)
	}
	coll := colldata.Lookup(id)
	if coll == nil {
		return "", fmt.Errorf("enumeration members in collation %s can not be read", collation)
	}
	out, err := charset.Convert(nil, charset.Charset_utf8mb4{}, b, coll.Charset())
	if err != nil {
		return "", fmt.Errorf("enumeration member %q is not valid in %s: %w", b, collation, err)
	}
	return string(out), nil
}
