package key

import (
	"fmt"
	"strings"
)

// document is COLLATIONS.md.
func document(collations []serverCollation, folds map[string]FoldKind) string {
	var b strings.Builder
	b.WriteString(documentHead)
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
	fmt.Fprintf(&b, "Of the %d collations of MySQL 9.7, %d are exact, %d coarse, %d wide (`binary` is no collation of text and stands above).\n\n",
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
	"| column | folds | as |\n|---|---|---|\n" +
	"| TINYINT to BIGINT, BOOL, the generated invisible key | exact | number |\n" +
	"| DECIMAL | exact | number at the column's scale |\n" +
	"| YEAR, DATE, TIME, DATETIME | exact | stored number |\n" +
	"| TIMESTAMP | exact | instant; callers write UTC |\n" +
	"| BIT | exact | unsigned number |\n" +
	"| ENUM, SET | exact | number; coarse when two members (or sets) read alike under the collation; wide when the collation is wide |\n" +
	"| BINARY | exact | bytes, padded to the length |\n" +
	"| VARBINARY, BLOB (as a group column) | exact | bytes |\n" +
	"| CHAR, VARCHAR, TEXT (as a group column) | by collation, below | weights, trailing pad removed |\n" +
	"| FLOAT, DOUBLE, JSON, GEOMETRY, VECTOR | wide | |\n" +
	"| prefix key parts, `KEY (c(10))`; expressions | wide | |\n\n" +
	"A row whose bytes are not valid in the column's character set is written as all rows.\n\n" +
	"## Collations\n\n"
