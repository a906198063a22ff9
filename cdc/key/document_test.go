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
	"| column | folds | as | callers write |\n|---|---|---|---|\n" +
	"| TINYINT to BIGINT, BOOL, the generated invisible key | exact | number | `-42`: no leading zeros (ZEROFILL neither), plus sign, point or space |\n" +
	"| DECIMAL | exact | number at the column's scale | `1.50` in a DECIMAL(10,2) |\n" +
	"| YEAR | exact | stored number | `2026` |\n" +
	"| DATE | exact | stored number | `2026-01-31` |\n" +
	"| TIME(n) | exact | stored number | `-12:34:56`, with n digits after a point |\n" +
	"| DATETIME(n) | exact | stored number | `2026-01-31 12:34:56`, with n digits after a point |\n" +
	"| TIMESTAMP(n) | exact | instant | the same, in UTC |\n" +
	"| BIT | exact | unsigned number | `5` |\n" +
	"| ENUM | exact; coarse when two members read alike under the collation; wide when the collation is wide | number | the member's name as declared |\n" +
	"| SET | exact when all members are of ASCII letters, digits, space, `-` and `_` and differ under the collation; else coarse; wide when the collation is wide | number | names as declared and in that order: `a%2Cb` |\n" +
	"| BINARY | exact | bytes, padded to the length | `0x` and all bytes in hex |\n" +
	"| VARBINARY, BLOB (as a group column) | exact | bytes | `0x` and hex |\n" +
	"| CHAR, VARCHAR, TEXT (as a group column) | by collation, below | weights, trailing pad removed | the text in UTF-8, percent-encoded where a printed key needs it |\n" +
	"| FLOAT, DOUBLE, JSON, GEOMETRY, VECTOR | wide | | not read |\n" +
	"| prefix key parts, `KEY (c(10))`; expressions | wide | | not read |\n\n" +
	"A caller's value that is not written so is refused, with a word on what would be right: `042`, ` 42`, `42.0` and `42x` all match the integer 42 in a query, and none of them is its key.\n\n" +
	"A row whose bytes are not valid in the column's character set is written as all rows.\n\n" +
	"## Collations\n\n"
