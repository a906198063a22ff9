package key

import (
	"bytes"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"
)

// typeCase is one column type with values for it as SQL literals.
type typeCase struct {
	sql    string
	column Column
	// lengthBytes is the size of the length prefix in row images.
	lengthBytes int
	draw        func(r adversary) string
	// selectText prints k as callers write it; empty: k itself.
	selectText string
}

// TestTypes writes random values of each key type, reads their row images from
// the binlog and their text from a SELECT, and demands that both fold to one
// form, and that two forms are equal when (for exact columns: if and only if)
// MySQL joins the values.
func TestTypes(t *testing.T) {
	s := startServer(t, 4*time.Minute)
	adv := newAdversary(t)
	for _, tc := range typeCases() {
		t.Run(tc.sql, func(t *testing.T) {
			s := &server{t, s.ctx, s.conn, s.home}
			s.checkType(tc, adv)
		})
	}
}

const valuesPerType = 80

func (s *server) checkType(tc typeCase, adv adversary) {
	s.exec("DROP TABLE IF EXISTS k")
	s.exec("FLUSH BINARY LOGS")
	s.exec("CREATE TABLE k (id INT NOT NULL PRIMARY KEY, k " + tc.sql + ")")
	var literals []string
	for i := range valuesPerType {
		literal := "NULL"
		if i > 1 {
			literal = tc.draw(adv)
		}
		literals = append(literals, fmt.Sprintf("(%d,%s)", i, literal))
	}
	s.exec("INSERT IGNORE INTO k VALUES " + strings.Join(literals, ","))

	c := tc.column
	c.Name, c.Nullable = "k", true
	d := Definition{Schema: "keytest", Table: "k", Primary: []Column{c}}
	d.Seal()
	column := &d.Primary[0]
	if column.Fold() == Wide {
		s.Fatalf("%s folds wide", tc.sql)
	}
	images := s.rowImages("k", column, tc.lengthBytes)
	forms := s.formsOfTexts(tc, column, images)
	if len(forms) != valuesPerType {
		s.Fatalf("%d forms, want %d", len(forms), valuesPerType)
	}
	s.checkJoin(tc, column, forms)
	if c.Type == TypeChar {
		s.checkPadded(column, forms)
	}
}

// checkPadded reads a CHAR as a session does that has it filled with spaces: the
// text is the row's key, or it is refused with the reason.
func (s *server) checkPadded(column *Column, forms map[uint32][]byte) {
	s.exec("SET sql_mode='PAD_CHAR_TO_FULL_LENGTH'")
	defer s.exec("SET sql_mode=''")
	var id uint32
	var text string
	padded := 0
	s.each("SELECT id, k FROM k WHERE k IS NOT NULL", func() {
		if strings.HasSuffix(text, " ") {
			padded++
		}
		v, reason := column.ParseValue(nil, TextValue{Text: text})
		if reason != "" {
			if len(column.resolve().coll.pad) > 0 || !strings.HasSuffix(text, " ") || !strings.Contains(reason, "PAD_CHAR_TO_FULL_LENGTH") {
				s.Errorf("%q, printed by MySQL: %s", text, reason)
			}
			return
		}
		if form, err := column.AppendForm(nil, v); err != nil || !bytes.Equal(form, forms[id]) {
			s.Errorf("%q: the row has form %x, the text %x (%v)", text, forms[id], form, err)
		}
	}, &id, &text)
	if padded == 0 {
		s.Error("MySQL printed no text with spaces at its end")
	}
}

// formsOfTexts compares the form of each row's image with the form of what
// MySQL prints.
func (s *server) formsOfTexts(tc typeCase, column *Column, images map[uint32][]byte) map[uint32][]byte {
	selectText := tc.selectText
	if selectText == "" {
		selectText = "k"
	}
	forms := map[uint32][]byte{}
	var id uint32
	var text sql.NullString
	s.each("SELECT id, "+selectText+" FROM k", func() {
		image, ok := images[id]
		if !ok {
			s.Errorf("row %d (%q): no row image", id, text.String)
			return
		}
		form, err := column.AppendForm(nil, imageValue(column, image))
		if err != nil {
			s.Errorf("row %d (%q, image %x): %v", id, text.String, image, err)
			return
		}
		forms[id] = form
		named, reason := column.ParseValue(nil, TextValue{Text: text.String, Null: !text.Valid})
		if reason != "" {
			s.Errorf("%q, printed by MySQL: %s", text.String, reason)
			return
		}
		namedForm, err := column.AppendForm(nil, named)
		if err != nil || !bytes.Equal(namedForm, form) {
			s.Errorf("%q: image %x has form %x, the text %x (%v)", text.String, image, form, namedForm, err)
		}
	}, &id, &text)
	return forms
}

func (s *server) checkJoin(tc typeCase, column *Column, forms map[uint32][]byte) {
	var a, b uint32
	equal := map[[2]uint32]bool{}
	s.each("SELECT a.id, b.id FROM k a JOIN k b ON a.k <=> b.k AND a.id < b.id", func() {
		equal[[2]uint32{a, b}] = true
		if !bytes.Equal(forms[a], forms[b]) {
			s.Errorf("rows %d and %d are equal in MySQL, but have forms %x and %x", a, b, forms[a], forms[b])
		}
	}, &a, &b)
	for a := range uint32(valuesPerType) {
		for b := a + 1; b < valuesPerType; b++ {
			if column.Fold() == Exact && bytes.Equal(forms[a], forms[b]) && !equal[[2]uint32{a, b}] {
				s.Errorf("rows %d and %d differ in MySQL, but both have form %x", a, b, forms[a])
			}
		}
	}
	if !equal[[2]uint32{0, 1}] {
		s.Errorf("%s: the two NULLs were not joined", tc.sql)
	}
}

func typeCases() []typeCase {
	var cases []typeCase
	for _, n := range []struct {
		name  string
		bytes int
	}{{"TINYINT", 1}, {"SMALLINT", 2}, {"MEDIUMINT", 3}, {"INT", 4}, {"BIGINT", 8}, {"INT ZEROFILL", 4}} {
		for _, unsigned := range []bool{false, true} {
			name := n.name
			if unsigned {
				name = strings.Replace(name, " ", " UNSIGNED ", 1)
				if name == n.name {
					name += " UNSIGNED"
				}
			}
			cases = append(cases, typeCase{
				sql: name, column: Column{Type: TypeInt, Length: n.bytes, Unsigned: unsigned || strings.Contains(name, "ZEROFILL")},
				draw: drawInt(8 * n.bytes), selectText: "k + 0", // without the zeros of ZEROFILL
			})
		}
	}
	for _, p := range [][2]int{{1, 0}, {5, 5}, {10, 2}, {18, 9}, {20, 10}, {30, 1}, {65, 0}, {65, 30}, {9, 9}, {29, 28}} {
		cases = append(cases, typeCase{
			sql: fmt.Sprintf("DECIMAL(%d,%d)", p[0], p[1]), column: Column{Type: TypeDecimal, Precision: p[0], Scale: p[1]},
			draw: drawDecimal(p[0], p[1]),
		})
	}
	cases = append(cases, temporalCases()...)
	for _, bits := range []int{1, 7, 8, 9, 33, 64} {
		cases = append(cases, typeCase{
			sql: fmt.Sprintf("BIT(%d)", bits), column: Column{Type: TypeBit, Precision: bits}, selectText: "k+0",
			draw: func(r adversary) string { return fmt.Sprint(r.Uint64() >> r.IntN(64) & (^uint64(0) >> (64 - bits))) },
		})
	}
	return append(append(cases, memberCases()...), stringCases()...)
}

func drawInt(bits int) func(adversary) string {
	return func(r adversary) string {
		switch r.IntN(4) {
		case 0: // cut to the edge by INSERT IGNORE
			return fmt.Sprintf("%d00", r.Int64())
		case 1:
			return fmt.Sprintf("-%d00", r.Int64())
		case 2:
			return fmt.Sprint(r.IntN(20) - 10)
		}
		return fmt.Sprint(int64(r.Uint64()) >> (64 - bits))
	}
}

func drawDecimal(precision, scale int) func(adversary) string {
	return func(r adversary) string {
		var b strings.Builder
		if r.IntN(2) == 0 {
			b.WriteByte('-')
		}
		digits := func(n int) {
			for range n {
				b.WriteByte("0000123456789999"[r.IntN(16)])
			}
		}
		b.WriteByte('0')
		if r.IntN(4) > 0 {
			digits(r.IntN(precision - scale + 1))
		}
		b.WriteByte('.')
		if r.IntN(4) > 0 {
			digits(r.IntN(scale + 2))
		} else {
			b.WriteByte('0')
		}
		return "'" + b.String() + "'"
	}
}

func temporalCases() []typeCase {
	date := func(r adversary) string {
		if r.IntN(5) == 0 {
			return "0000-00-00"
		}
		return fmt.Sprintf("%04d-%02d-%02d", []int{0, 1, 1970, 1999, 2026, 2037, 2038, 9999}[r.IntN(8)], r.IntN(13), r.IntN(32))
	}
	clock := func(r adversary) string {
		return fmt.Sprintf("%02d:%02d:%02d.%06d", r.IntN(24), r.IntN(60), r.IntN(60), []int{0, 500000, 999999, 1, 10, r.IntN(1000000)}[r.IntN(6)])
	}
	cases := []typeCase{
		{sql: "YEAR", column: Column{Type: TypeYear}, selectText: "CAST(k AS CHAR)", draw: func(r adversary) string { return fmt.Sprint([]int{0, 1901, 2155, 1900 + r.IntN(256)}[r.IntN(4)]) }},
		{sql: "DATE", column: Column{Type: TypeDate}, draw: func(r adversary) string { return "'" + date(r) + "'" }},
	}
	for scale := range 7 {
		cases = append(cases,
			typeCase{sql: fmt.Sprintf("TIME(%d)", scale), column: Column{Type: TypeTime, Scale: scale}, draw: func(r adversary) string {
				sign := []string{"", "-"}[r.IntN(2)]
				switch r.IntN(4) {
				case 0:
					return fmt.Sprintf("'%s%d:%02d:%02d.%06d'", sign, r.IntN(900), r.IntN(60), r.IntN(60), r.IntN(1000000))
				case 1:
					return fmt.Sprintf("'%s00:00:0%d.%d'", sign, r.IntN(2), r.IntN(10))
				}
				return "'" + sign + clock(r) + "'"
			}},
			typeCase{sql: fmt.Sprintf("DATETIME(%d)", scale), column: Column{Type: TypeDatetime, Scale: scale}, draw: func(r adversary) string {
				return "'" + date(r) + " " + clock(r) + "'"
			}},
			typeCase{sql: fmt.Sprintf("TIMESTAMP(%d) NULL", scale), column: Column{Type: TypeTimestamp, Scale: scale}, draw: func(r adversary) string {
				if r.IntN(3) == 0 {
					return "'" + []string{"1970-01-01 00:00:01", "2038-01-19 03:14:07", "0000-00-00 00:00:00", "2024-02-29 23:59:59.9"}[r.IntN(4)] + "'"
				}
				return "'" + date(r) + " " + clock(r) + "'"
			}})
	}
	return cases
}

func memberCases() []typeCase {
	number := func(limit int) func(adversary) string {
		return func(r adversary) string { return fmt.Sprint(r.IntN(limit)) }
	}
	sixty := make([]string, 60)
	for i := range sixty {
		sixty[i] = fmt.Sprintf("m%d", i)
	}
	var cases []typeCase
	for _, m := range []struct {
		kind    string
		typ     Type
		members []string
		limit   int
	}{
		{"ENUM", TypeEnum, []string{"draft", "Published", "größe"}, 4},
		{"ENUM", TypeEnum, []string{"a", "b", "a", ""}, 5},
		{"SET", TypeSet, []string{"a", "b", "c"}, 8},
		{"SET", TypeSet, []string{"a", "b", "a", ""}, 16},
		{"SET", TypeSet, sixty, 1 << 40},
	} {
		quoted := "'" + strings.Join(m.members, "','") + "'"
		cases = append(cases, typeCase{
			sql:    fmt.Sprintf("%s(%s) COLLATE utf8mb4_0900_ai_ci", m.kind, quoted),
			column: Column{Type: m.typ, Members: m.members, Collation: "utf8mb4_0900_ai_ci"}, draw: number(m.limit),
		})
	}
	return cases
}

func stringCases() []typeCase {
	hexOf := "CONCAT('0x', HEX(k))"
	bytesOf := func(most int) func(adversary) string {
		return func(r adversary) string {
			b := make([]byte, r.IntN(most+1))
			for i := range b {
				b[i] = []byte{0, 0, 1, ' ', 0xff, byte(r.IntN(256))}[r.IntN(6)]
			}
			return fmt.Sprintf("x'%x'", b)
		}
	}
	cases := []typeCase{
		{sql: "BINARY(4)", column: Column{Type: TypeBinary, Length: 4}, lengthBytes: 1, draw: bytesOf(4), selectText: hexOf},
		{sql: "BINARY(16)", column: Column{Type: TypeBinary, Length: 16}, lengthBytes: 1, draw: bytesOf(16), selectText: hexOf},
		{sql: "VARBINARY(5)", column: Column{Type: TypeVarbinary}, lengthBytes: 1, draw: bytesOf(5), selectText: hexOf},
		{sql: "VARBINARY(300)", column: Column{Type: TypeVarbinary}, lengthBytes: 2, draw: bytesOf(3), selectText: hexOf},
		{sql: "BLOB", column: Column{Type: TypeVarbinary}, lengthBytes: 2, draw: bytesOf(3), selectText: hexOf},
	}
	texts := func() func(adversary) string {
		var kept string // mutations beside their texts
		return func(r adversary) string {
			text := kept
			if kept = ""; text == "" || r.IntN(8) == 0 {
				text, kept = r.pair()
			}
			return fmt.Sprintf("_utf8mb4 x'%x'", text)
		}
	}
	for _, collation := range []string{
		"utf8mb4_0900_ai_ci", "utf8mb4_0900_as_cs", "utf8mb4_bin", "utf8mb4_0900_bin", "utf8mb4_general_ci", "utf8mb4_unicode_ci",
		"utf8mb4_unicode_520_ci", "utf8mb4_tr_0900_ai_ci", "utf8mb4_da_0900_as_cs", "utf8mb4_ja_0900_as_cs_ks", "utf8mb4_zh_0900_as_cs",
		"utf8mb3_general_ci", "ascii_general_ci", "ascii_bin", "latin1_swedish_ci", "latin1_bin", "utf16_unicode_ci", "utf16_bin",
		"utf16le_general_ci", "utf32_general_ci", "ucs2_bin", "gb2312_chinese_ci", "cp932_japanese_ci", "gb18030_unicode_520_ci",
	} {
		charset, _, _ := strings.Cut(collation, "_")
		column := Column{Type: TypeVarchar, Collation: collation}
		char := Column{Type: TypeChar, Collation: collation}
		suffix := fmt.Sprintf(" CHARACTER SET %s COLLATE %s", charset, collation)
		// CHAR(60) of utf8mb4 has at most 240 bytes, so one for its length.
		cases = append(cases,
			typeCase{sql: "CHAR(60)" + suffix, column: char, lengthBytes: 1, draw: texts()},
			typeCase{sql: "VARCHAR(200)" + suffix, column: column, lengthBytes: varcharLengthBytes(charset), draw: texts()},
			typeCase{sql: "TEXT" + suffix, column: column, lengthBytes: 2, draw: texts()})
	}
	return cases
}

// varcharLengthBytes is the size of the length prefix of VARCHAR(200).
func varcharLengthBytes(charset string) int {
	switch charset {
	case "latin1", "ascii":
		return 1
	}
	return 2
}
