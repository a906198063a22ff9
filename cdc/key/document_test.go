package key

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// document is COLLATIONS.md.
func document(t *testing.T, collations []serverCollation, folds map[string]FoldKind) string {
	var b strings.Builder
	b.WriteString(documentHead)
	b.WriteString(documentTypes(t, folds))
	b.WriteString(documentTail)
	charsets := map[string]map[FoldKind][]string{}
	var order []string
	count := map[FoldKind]int{}
	for _, c := range collations {
		if c.name == "binary" {
			continue
		}
		if charsets[c.charset] == nil {
			charsets[c.charset] = map[FoldKind][]string{}
			order = append(order, c.charset)
		}
		fold := folds[c.name]
		charsets[c.charset][fold] = append(charsets[c.charset][fold], "`"+c.name+"`")
		count[fold]++
	}
	fmt.Fprintf(&b, "Of the %d collations of MySQL 9.7, %d are exact, %d coarse, %d wide (`binary` is no collation of text: columns of bytes stand above).\n\n",
		count[Exact]+count[Coarse]+count[Wide], count[Exact], count[Coarse], count[Wide])
	b.WriteString("| character set | exact | coarse | wide |\n|---|---|---|---|\n")
	for _, cs := range order {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", cs, list(charsets[cs][Exact]), list(charsets[cs][Coarse]), list(charsets[cs][Wide]))
	}
	return b.String()
}

func list(names []string) string {
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, " ")
}

const documentHead = "# How key columns fold\n\n" +
	"Written and checked by `go test ./cdc/key -run TestCollations` against a real server; do not edit by hand.\n\n" +
	"- **exact**: two values have one compare form if and only if MySQL calls them equal. A primary key of exact columns names one row.\n" +
	"- **coarse**: equal values have one form, some different ones share it. Such a key counts as many rows, and a read may wait for a write of another row.\n" +
	"- **wide**: not folded. Writes are recorded as \"all rows\" of the table (a primary key) or of the group column; a read waits for every write of the table.\n\n" +
	"## Types\n\n" +
	"Each kind is what `Column.Fold` says of the columns that `TestTypes` compares with the server (how many: last column): of all of them, and for text, ENUM and SET under every collation of each kind (their lists are below).\n\n"

const documentTail = "\nA caller's value that is not written so is refused, with a word on what would be right: `042`, ` 42`, `42.0` and `42x` all match the integer 42 in a query, and none of them is its key.\n\n" +
	"A row whose bytes are not valid in the column's character set is written as all rows.\n\n" +
	"## Collations\n\n"

// documentRow is one line of the table of types: the columns of which it tells,
// and what no program computes.
type documentRow struct {
	name, as, callers string
	has               func(c *Column) bool
}

func documentRows() []documentRow {
	of := func(types ...Type) func(*Column) bool {
		return func(c *Column) bool { return c.PrefixLen == 0 && slices.Contains(types, c.Type) }
	}
	members := func(typ Type, differ bool) func(*Column) bool {
		return func(c *Column) bool {
			plain := !slices.Contains(c.Members, "")
			for i, m := range c.Members {
				plain = plain && !slices.Contains(c.Members[:i], m) && (typ == TypeEnum || plainMember(m))
			}
			return c.PrefixLen == 0 && c.Type == typ && plain == differ
		}
	}
	return []documentRow{
		{"TINYINT to BIGINT, BOOL, the generated invisible key", "number", "`-42`: no leading zeros (ZEROFILL neither), plus sign, point or space", of(TypeInt)},
		{"DECIMAL", "number at the column's scale", "`1.50` in a DECIMAL(10,2)", of(TypeDecimal)},
		{"YEAR", "stored number", "`2026`", of(TypeYear)},
		{"DATE", "stored number", "`2026-01-31`", of(TypeDate)},
		{"TIME(n)", "stored number", "`-12:34:56`, with n digits after a point", of(TypeTime)},
		{"DATETIME(n)", "stored number", "`2026-01-31 12:34:56`, with n digits after a point", of(TypeDatetime)},
		{"TIMESTAMP(n)", "instant", "the same, in UTC", of(TypeTimestamp)},
		{"BIT", "unsigned number", "`5`", of(TypeBit)},
		{"BINARY", "bytes, padded to the length", "`0x` and all bytes in hex", of(TypeBinary)},
		{"VARBINARY, BLOB (as a group column)", "bytes", "`0x` and hex", of(TypeVarbinary)},
		{"VARCHAR, TEXT (as a group column)", "weights, trailing pad removed", "the text in UTF-8, percent-encoded where a printed key needs it", of(TypeVarchar)},
		{"CHAR", "weights, trailing pad removed", "the same; under a NO PAD collation without spaces at its end", of(TypeChar)},
		{"ENUM whose members differ under the collation", "number", "the member's name as declared", members(TypeEnum, true)},
		{"ENUM with members that read alike, or an empty one", "text", "the same", members(TypeEnum, false)},
		{"SET whose members differ, and are of ASCII letters, digits, space, `-` and `_`", "number", "names as declared and in that order: `a%2Cb`", members(TypeSet, true)},
		{"SET of others", "text", "the same", members(TypeSet, false)},
		{"FLOAT, DOUBLE, JSON, GEOMETRY, VECTOR", "-", "not read", of(TypeOther)},
		{"prefix key parts, `KEY (c(10))`; expressions", "-", "not read", func(c *Column) bool { return c.PrefixLen > 0 }},
	}
}

// documentTypes is the table key type x collation x exact, coarse or wide. It
// fails when a column that the server is asked about has no line, or a line no
// column.
func documentTypes(t *testing.T, folds map[string]FoldKind) string {
	rows := documentRows()
	columns := make([][]Column, len(rows))
	// The wide ones have no value to compare.
	all := []Column{{Type: TypeOther}}
	for _, tc := range typeCases() {
		all = append(all, tc.column)
		if tc.column.Type == TypeChar || tc.column.Type == TypeVarchar || tc.column.Type == TypeVarbinary || tc.column.Type == TypeBinary {
			prefix := tc.column
			prefix.PrefixLen = 1
			all = append(all, prefix)
		}
	}
	for _, c := range all {
		i := slices.IndexFunc(rows, func(r documentRow) bool { return r.has(&c) })
		if i < 0 {
			t.Errorf("no line of %s tells of %+v", documentFile, c)
			continue
		}
		columns[i] = append(columns[i], c)
	}
	var b strings.Builder
	b.WriteString("| column | no collation | exact collation | coarse collation | wide collation | as | callers write | compared |\n|---|---|---|---|---|---|---|---|\n")
	for i, r := range rows {
		if len(columns[i]) == 0 {
			t.Errorf("no column stands for %q", r.name)
		}
		var cells [4]string
		for under := range cells {
			cells[under] = kinds(columns[i], under, folds)
		}
		compared := "-"
		if r.as != "-" {
			compared = fmt.Sprint(len(columns[i]))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.name, strings.Join(cells[:], " | "), r.as, r.callers, compared)
	}
	return b.String()
}

// kinds are the kinds of the columns under each collation of one kind: 0 those
// of columns that have none, then exact, coarse, wide.
func kinds(columns []Column, under int, folds map[string]FoldKind) string {
	found := map[FoldKind]bool{}
	take := func(c Column) {
		d := Definition{Primary: []Column{c}}
		d.Seal()
		found[d.Primary[0].Fold()] = true
	}
	for _, c := range columns {
		if c.Type != TypeChar && c.Type != TypeVarchar && c.Type != TypeEnum && c.Type != TypeSet {
			if under == 0 {
				take(c)
			}
			continue
		}
		for name, fold := range folds {
			if name != "binary" && under > 0 && fold == [...]FoldKind{Exact, Coarse, Wide}[under-1] && canHave(name, c.Members) {
				c.Collation = name
				take(c)
			}
		}
	}
	var names []string
	for _, k := range []FoldKind{Exact, Coarse, Wide} {
		if found[k] {
			names = append(names, k.String())
		}
	}
	if names == nil {
		return "-"
	}
	return strings.Join(names, " or ")
}

// canHave tells whether the collation's character set has the members' letters;
// of a collation that is not known, nothing is asked.
func canHave(collation string, members []string) bool {
	coll := lookupCollation(collation)
	for _, m := range members {
		if coll == nil {
			return true
		}
		if _, err := coll.appendUTF8(nil, m); err != nil {
			return false
		}
	}
	return true
}
