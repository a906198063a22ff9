package binlog_test

import (
	"fmt"
	"strings"
	"testing"
)

// keyTypes are column types with values that a key may have.
var keyTypes = []struct {
	sql    string
	values []string
}{
	{"TINYINT", []string{"-128", "127", "0"}},
	{"TINYINT UNSIGNED", []string{"0", "255"}},
	{"SMALLINT", []string{"-32768", "32767", "-1"}},
	{"SMALLINT UNSIGNED ZEROFILL", []string{"0", "65535"}},
	{"MEDIUMINT", []string{"-8388608", "8388607", "-1"}},
	{"MEDIUMINT UNSIGNED", []string{"0", "16777215"}},
	{"INT", []string{"-2147483648", "2147483647"}},
	{"INT UNSIGNED", []string{"0", "4294967295"}},
	{"BIGINT", []string{"-9223372036854775808", "9223372036854775807"}},
	{"BIGINT UNSIGNED", []string{"0", "18446744073709551615"}},
	{"BOOL", []string{"0", "1"}},
	{"DECIMAL(10,3)", []string{"0", "-1234567.891", "1.5", "-0.001"}},
	{"DECIMAL(65,30)", []string{"12345678901234567890123456789012345.123456789012345678901234567890", "-1"}},
	{"DECIMAL(5,0) UNSIGNED", []string{"0", "99999"}},
	{"BIT(1)", []string{"0", "1"}},
	{"BIT(10)", []string{"b'1000000001'", "5"}},
	{"BIT(64)", []string{"0xffffffffffffffff", "0"}},
	{"YEAR", []string{"1901", "2155", "0"}},
	{"DATE", []string{"'2026-02-28'", "'1000-01-01'", "'9999-12-31'"}},
	{"TIME", []string{"'-838:59:59'", "'00:00:00'", "'12:34:56'"}},
	{"TIME(3)", []string{"'-00:00:00.001'", "'838:59:58.999'"}},
	{"TIME(6)", []string{"'-12:34:56.654321'", "'12:34:56.654321'"}},
	{"DATETIME", []string{"'2026-11-30 23:59:59'", "'1000-01-01 00:00:00'"}},
	{"DATETIME(1)", []string{"'2026-11-30 23:59:59.9'"}},
	{"DATETIME(6)", []string{"'2026-11-30 23:59:59.000001'", "'2026-11-30 23:59:59.999999'"}},
	{"TIMESTAMP", []string{"'2026-11-30 23:59:59'", "'1970-01-01 00:00:01'"}},
	{"TIMESTAMP(2)", []string{"'2026-11-30 23:59:59.25'"}},
	{"TIMESTAMP(5)", []string{"'2026-11-30 23:59:59.12345'"}},
	{"ENUM('a','b','it''s','d\\\\e','ä','x,y')", []string{"'a'", "'it''s'", "'ä'", "'d\\\\e'", "'x,y'"}},
	{"ENUM('ä','ö','b') CHARACTER SET latin1", []string{"'ä'", "'ö'"}},
	{`ENUM('n\nl','z\0z','r\rx','t\tb','q"q','%','a\\''')`, []string{`'n\nl'`, `'z\0z'`, `'r\rx'`, `'q"q'`, `'a\\'''`}},
	{"ENUM('a ','  b') CHARACTER SET utf16", []string{"'a'", "'  b'"}},
	{"ENUM('表','ソ') CHARACTER SET sjis", []string{"'表'", "'ソ'"}},
	{"SET('r','w','x')", []string{"''", "'r,x'", "'r,w,x'"}},
	{"BINARY(16)", []string{"0x00112233445566778899aabbccddee00", "0x00000000000000000000000000000000", "'abc'"}},
	{"VARBINARY(300)", []string{"''", "0x00ff00", "REPEAT('z',299)"}},
	{"CHAR(10) COLLATE utf8mb4_0900_ai_ci", []string{"'Straße'", "'ÄÖ'", "''"}},
	{"VARCHAR(20) COLLATE utf8mb4_0900_ai_ci", []string{"'a'", "'B '", "'ひらがな'"}},
	{"VARCHAR(20) COLLATE utf8mb4_0900_as_cs", []string{"'a'", "'Ab'"}},
	{"VARCHAR(20) COLLATE utf8mb4_bin", []string{"'a'", "'A '", "'日本'"}},
	{"VARCHAR(20) COLLATE utf8mb4_0900_bin", []string{"'a'", "'a '"}},
	{"VARCHAR(20) COLLATE utf8mb4_general_ci", []string{"'ä'", "'😀'"}},
	{"VARCHAR(20) COLLATE utf8mb4_unicode_ci", []string{"'ä'", "'ß'"}},
	{"VARCHAR(20) CHARACTER SET ascii", []string{"'a'", "'Zz'"}},
	{"CHAR(36) CHARACTER SET ascii COLLATE ascii_bin", []string{"'2b1f6c1e-0000-0000-0000-000000000000'"}},
	{"VARCHAR(20) CHARACTER SET latin1", []string{"'ä'", "'ÿ'"}},
	{"VARCHAR(20) CHARACTER SET utf8mb3", []string{"'ä'", "'é '"}},
	{"VARCHAR(20) CHARACTER SET utf16", []string{"'ä'", "'😀'"}},
	{"VARCHAR(20) CHARACTER SET gbk", []string{"'中文'", "'a'"}},
	{"VARCHAR(20) COLLATE utf8mb4_da_0900_ai_ci", []string{"'å'", "'aa'"}},
	{"VARCHAR(20) COLLATE utf8mb4_tr_0900_ai_ci", []string{"'I'", "'ı'"}},
	{"VARCHAR(20) COLLATE utf8mb4_ja_0900_as_cs", []string{"'か'"}},
}

// TestKeyTypes writes keys and group values of every type, with and without full
// metadata, among columns that make the metadata's bitmaps uneven.
func TestKeyTypes(t *testing.T) {
	for _, metadata := range []string{"MINIMAL", "FULL"} {
		for i, c := range keyTypes {
			t.Run(metadata+"/"+c.sql, func(t *testing.T) {
				s := newSession(t, servers.Primary())
				settings{"FULL", metadata, false}.apply(t, s)
				name := fmt.Sprintf("types%d%s", i, strings.ToLower(metadata))
				b := newBedOn(t, s, name, map[string][]string{"t": {"G"}},
					"SET sql_mode='ALLOW_INVALID_DATES'",
					fmt.Sprintf("CREATE TABLE t (y YEAR, u INT UNSIGNED, e ENUM('p','q'), f FLOAT UNSIGNED, s VARCHAR(5) COLLATE latin1_bin, id %s NOT NULL, n BIGINT, j JSON, g %s NULL, w VECTOR(3), st SET('k'), PRIMARY KEY (u, id))", c.sql, c.sql))
				defer s.exec("DROP DATABASE " + name)
				var rows []string
				for k, v := range c.values {
					rows = append(rows, fmt.Sprintf("(1999,%d,'q',1.5,'x',%s,7,'{}',%s)", k, v, v))
				}
				insert := "INSERT INTO t (y,u,e,f,s,id,n,j,g) VALUES " + strings.Join(rows, ",")
				for _, change := range []string{insert, "UPDATE t SET u=u+1000, g=NULL ORDER BY u DESC LIMIT 1", "DELETE FROM t"} {
					txns, ch := b.change(change)
					want := b.narrow(ch)
					same(t, change, b.n.names(txns...), want)
					b.sameDefinitions(txns)
				}
			})
		}
	}
}
