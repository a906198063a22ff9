package key_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"tidegate/cdc/key"
)

const ai = "utf8mb4_0900_ai_ci"

// columns are one of each kind that folds.
func columns() []key.Column {
	all := []key.Column{
		{Name: "tiny", Type: key.TypeInt, Length: 1},
		{Name: "big", Type: key.TypeInt},
		{Name: "ubig", Type: key.TypeInt, Unsigned: true, Length: 8},
		{Name: "dec", Type: key.TypeDecimal, Precision: 10, Scale: 2},
		{Name: "dec0", Type: key.TypeDecimal, Precision: 20},
		{Name: "frac", Type: key.TypeDecimal, Precision: 3, Scale: 3},
		{Name: "year", Type: key.TypeYear},
		{Name: "date", Type: key.TypeDate},
		{Name: "time", Type: key.TypeTime},
		{Name: "time3", Type: key.TypeTime, Scale: 3},
		{Name: "dt", Type: key.TypeDatetime},
		{Name: "dt6", Type: key.TypeDatetime, Scale: 6},
		{Name: "ts", Type: key.TypeTimestamp},
		{Name: "ts1", Type: key.TypeTimestamp, Scale: 1},
		{Name: "bit", Type: key.TypeBit, Precision: 9},
		{Name: "enum", Type: key.TypeEnum, Members: []string{"draft", "done"}, Collation: ai},
		{Name: "set", Type: key.TypeSet, Members: []string{"a", "b", "c"}, Collation: ai},
		{Name: "char", Type: key.TypeChar, Collation: ai},
		{Name: "latin1", Type: key.TypeChar, Collation: "latin1_swedish_ci"},
		{Name: "utf16", Type: key.TypeVarchar, Collation: "utf16_bin"},
		{Name: "bin", Type: key.TypeBinary, Length: 3},
		{Name: "varbin", Type: key.TypeVarbinary},
	}
	for i := range all {
		all[i].Nullable = true
	}
	return all
}

func column(t testing.TB, name string) *key.Column {
	for _, c := range columns() {
		if c.Name == name {
			return &c
		}
	}
	t.Fatalf("no column %q", name)
	return nil
}

func TestParseValueAccepts(t *testing.T) {
	for name, texts := range map[string][]string{
		"tiny":   {"0", "-128", "127"},
		"big":    {"-9223372036854775808", "9223372036854775807", "42"},
		"ubig":   {"18446744073709551615", "0"},
		"dec":    {"0.00", "-0.01", "12345678.90", "-99999999.99"},
		"dec0":   {"0", "12345678901234567890", "-1"},
		"frac":   {"0.000", "-0.999"},
		"year":   {"0000", "1901", "2155"},
		"date":   {"2026-01-31", "0000-00-00", "2026-02-31", "9999-12-31"},
		"time":   {"00:00:00", "-838:59:59", "12:34:56", "-00:00:01"},
		"time3":  {"00:00:00.000", "-00:00:00.500", "838:59:59.000"},
		"dt":     {"2026-01-31 23:59:59", "0000-00-00 00:00:00"},
		"dt6":    {"2026-01-31 23:59:59.999999"},
		"ts":     {"1970-01-01 00:00:01", "2038-01-19 03:14:07", "0000-00-00 00:00:00"},
		"ts1":    {"2024-02-29 12:00:00.5"},
		"bit":    {"0", "511"},
		"enum":   {"draft", "done", ""},
		"set":    {"", "a", "a,c", "a,b,c"},
		"char":   {"", "x", "日本 🙂", "0x41", "@null"},
		"latin1": {"é", "€", "padded  "},
		"utf16":  {"🙂"},
		"bin":    {"0x000000", "0xFFffFF"},
		"varbin": {"0x", "0x00"},
	} {
		for _, s := range texts {
			c := column(t, name)
			v, reason := c.ParseValue(nil, text(s))
			if reason != "" {
				t.Errorf("%s %q: %s", name, s, reason)
				continue
			}
			if _, err := c.AppendForm(nil, v); err != nil {
				t.Errorf("%s %q has no form: %v", name, s, err)
			}
		}
	}
}

func TestParseValueRefuses(t *testing.T) {
	for _, tc := range []struct {
		column, reason string
		texts          []string
	}{
		{"tiny", "want a whole number from -128 to 127", []string{"128", "-129", "042", " 42", "42 ", "42.0", "42x", "+42", "-0", "--1", "", "4_2", "0x2a", "1e1", "４２"}},
		{"big", "want a whole number from -9223372036854775808", []string{"9223372036854775808", "00"}},
		{"ubig", "want a whole number from 0 to 18446744073709551615", []string{"-1", "18446744073709551616", "01", ""}},
		{"dec", "want a number with 2 digits after the point and at most 8 before it", []string{"1", "1.5", "1.500", "01.50", ".50", "+1.50", "123456789.00", "1,50", "1.5O", "", "-", "-.50", "1 .50", "1e2"}},
		{"dec", "zero has no sign", []string{"-0.00"}},
		{"dec0", "want a number with 0 digits after the point", []string{"1.", "1.0", "", "-", "007"}},
		{"frac", "at most 0 before it", []string{"1.000", ".000"}},
		{"year", "want a year of four digits", []string{"26", "1900", "2156", "02026", "", "20 6"}},
		{"date", "want a date such as", []string{"2026-1-31", "2026/01/31", "20260131", "2026-13-01", "2026-01-32", "2026-01-31 00:00:00", ""}},
		{"time", "want a time such as 12:34:56", []string{"1:00:00", "839:00:00", "00:60:00", "00:00:60", "00:00:00.0", "012:00:00", "+12:00:00", "", "-", "12:00"}},
		{"time3", "want a time such as 12:34:56.005", []string{"00:00:00", "00:00:00.00", "838:59:59.001"}},
		{"time", "zero has no sign", []string{"-00:00:00"}},
		{"dt", "want a date and time such as 2026-01-31 12:34:56", []string{"2026-01-31T00:00:00", "2026-01-31", "2026-01-31 24:00:00", "2026-01-31 00:00:00Z", "2026-01-31 00:00:00.0"}},
		{"ts", "want a date and time in UTC", []string{"1970-01-01 00:00:00", "2038-01-19 03:14:08", "2026-02-30 00:00:00", "2026-01-31 00:00:00+00"}},
		{"bit", "want a whole number from 0 to 511", []string{"512", "-1", "b'1'", ""}},
		{"enum", `ENUM members are written as declared: "draft"`, []string{"DRAFT"}},
		{"enum", `not a member of the ENUM; want one of its names, such as "draft"`, []string{"1", "other", "draft "}},
		{"set", `"x" is not a member`, []string{"a,x"}},
		{"set", "in the order of their declaration", []string{"b,a", "a,a"}},
		{"char", "not valid UTF-8", []string{"\xff", "\xed\xa0\x80", "a\xc0\x80"}},
		{"char", "want the text without spaces at its end", []string{"a ", " ", "日本  "}},
		{"latin1", `has characters that the column's character set lacks: '日' is not in latin1`, []string{"日"}},
		{"bin", "want 0x and 6 hex digits", []string{"", "000000", "abc", "0x0000g0", "0x00000", "0X000000"}},
		{"bin", "want all 3 bytes of the column, as 0x and 6 hex digits", []string{"0x", "0x00", "0x00000000"}},
		{"varbin", "want 0x and an even number of hex digits", []string{"", "0x0", "ab", "0xzz"}},
	} {
		for _, s := range tc.texts {
			if v, reason := column(t, tc.column).ParseValue(nil, text(s)); !strings.Contains(reason, tc.reason) {
				t.Errorf("%s %q: %+v, reason %q, want %q", tc.column, s, v, reason, tc.reason)
			}
		}
	}
}

func TestParseValueOfNull(t *testing.T) {
	for _, c := range columns() {
		v, reason := c.ParseValue(nil, key.TextValue{Null: true})
		if reason != "" || !v.Null {
			t.Errorf("%s: %+v, %s", c.Name, v, reason)
		}
		null := form(t, &c, v)
		for _, other := range []string{"", "0", "0x", "00:00:00"} {
			if v, reason := c.ParseValue(nil, text(other)); reason == "" && bytes.Equal(form(t, &c, v), null) {
				t.Errorf("%s: %q and NULL have one form", c.Name, other)
			}
		}
		c.Nullable = false
		if _, reason := c.ParseValue(nil, key.TextValue{Null: true}); !strings.Contains(reason, "NOT NULL") {
			t.Errorf("%s NOT NULL takes NULL: %q", c.Name, reason)
		}
	}
}

// FuzzParseValue looks for texts that are read although they are not what is
// printed, for panics, and for values without a form.
func FuzzParseValue(f *testing.F) {
	for i, s := range []string{"42", "-1.50", "2026-01-31 12:34:56.5", "-838:59:59", "0xab", "a,b", "ß", "", "0000"} {
		f.Add(uint8(i), s)
	}
	all := columns()
	f.Fuzz(func(t *testing.T, i uint8, s string) {
		c := &all[int(i)%len(all)]
		v, reason := c.ParseValue(nil, text(s))
		if reason != "" {
			if !utf8.ValidString(reason) {
				t.Fatalf("%s %q: reason %q is not text", c.Name, s, reason)
			}
			return
		}
		first, err := c.AppendForm(nil, v)
		if err != nil {
			t.Fatalf("%s %q: value %+v has no form: %v", c.Name, s, v, err)
		}
		switch c.Type {
		case key.TypeChar, key.TypeVarchar, key.TypeVarbinary, key.TypeBinary:
			return // several texts have one form
		}
		// One number, one text: nothing that looks different may mean the same.
		for _, other := range []string{"0" + s, " " + s, s + " ", "+" + s, s + "0", s + ".0", strings.TrimPrefix(s, "-")} {
			if other == s {
				continue
			}
			if v, reason := c.ParseValue(nil, text(other)); reason == "" {
				if second, _ := c.AppendForm(nil, v); bytes.Equal(first, second) {
					t.Fatalf("%s: %q and %q are one value", c.Name, s, other)
				}
			}
		}
	})
}

// drawValue draws a value that a row event may carry.
func drawValue(t *rapid.T, c *key.Column) key.Value {
	bits := func(n int) uint64 { return rapid.Uint64Range(0, 1<<n-1).Draw(t, "bits") }
	if c.Nullable && rapid.IntRange(0, 9).Draw(t, "null") == 0 {
		return key.Null()
	}
	switch c.Type {
	case key.TypeInt:
		return key.Value{Int: rapid.Int64().Draw(t, "int"), Uint: rapid.Uint64().Draw(t, "uint")}
	case key.TypeDecimal:
		n := key.DecimalSize(c.Precision, c.Scale)
		return key.Value{Bytes: rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "packed")}
	case key.TypeEnum:
		return key.Value{Uint: rapid.Uint64Range(0, uint64(len(c.Members))).Draw(t, "member")}
	case key.TypeSet:
		return key.Value{Uint: bits(len(c.Members))}
	case key.TypeBinary:
		return key.Value{Bytes: rapid.SliceOfN(rapid.Byte(), 0, c.Length).Draw(t, "bytes")}
	case key.TypeVarbinary:
		return key.Value{Bytes: rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")}
	case key.TypeChar, key.TypeVarchar:
		v, reason := c.ParseValue(nil, text(rapid.StringOf(rapid.RuneFrom([]rune("aAáåÅßs \x00éE"))).Draw(t, "text")))
		if reason != "" {
			v, _ = c.ParseValue(nil, text("plain"))
		}
		return v
	}
	return key.Value{Uint: bits(56)}
}

// TestFormsTellTheirLength: keys of several columns have the same form only when
// each column has, whatever its length.
func TestFormsTellTheirLength(t *testing.T) {
	all := columns()
	rapid.Check(t, func(t *rapid.T) {
		a, b := &all[rapid.IntRange(0, len(all)-1).Draw(t, "a")], &all[rapid.IntRange(0, len(all)-1).Draw(t, "b")]
		var forms [2][2][]byte
		var joined [2][]byte
		for i := range forms {
			for j, c := range []*key.Column{a, b} {
				v := drawValue(t, c)
				one, err := c.AppendForm(nil, v)
				if err != nil {
					t.Fatalf("%s %+v: %v", c.Name, v, err)
				}
				forms[i][j] = one
				if joined[i], err = c.AppendForm(joined[i], v); err != nil {
					t.Fatal(err)
				}
			}
		}
		same := bytes.Equal(forms[0][0], forms[1][0]) && bytes.Equal(forms[0][1], forms[1][1])
		if bytes.Equal(joined[0], joined[1]) != same {
			t.Fatalf("%s, %s: %x and %x join to %x and %x", a.Name, b.Name, forms[0], forms[1], joined[0], joined[1])
		}
	})
}

// TestFormsDoNotDependOnRoom: a form is the same whatever stands before it and
// however much room there is (the collations write into free room directly).
func TestFormsDoNotDependOnRoom(t *testing.T) {
	all := columns()
	sealed := key.Definition{Primary: columns()}
	sealed.Seal()
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(all)-1).Draw(t, "column")
		v := drawValue(t, &all[i])
		want, err := all[i].AppendForm(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		before := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "before")
		dst := make([]byte, len(before), len(before)+rapid.IntRange(0, 80).Draw(t, "room"))
		copy(dst, before)
		got, err := sealed.Primary[i].AppendForm(dst, v)
		if err != nil || !bytes.Equal(got[:len(before)], before) || !bytes.Equal(got[len(before):], want) {
			t.Fatalf("%s: %x after %x, want %x (%v)", all[i].Name, got, before, want, err)
		}
	})
}

func TestEqualValuesOfRowsAndCallersMeet(t *testing.T) {
	for _, tc := range []struct {
		column, text string
		row          key.Value
	}{
		{"tiny", "-128", key.Value{Int: -128}},
		{"ubig", "18446744073709551615", key.Value{Uint: 1<<64 - 1}},
		{"dec", "-1.50", key.Value{Bytes: []byte{0x7f, 0xff, 0xff, 0xfe, 0xcd}}},
		{"dec", "0.00", key.Value{Bytes: []byte{0x7f, 0xff, 0xff, 0xff, 0xff}}}, // a zero with a sign
		{"year", "2026", key.Value{Uint: 126}},
		{"date", "2026-01-31", key.Value{Uint: 2026<<9 | 1<<5 | 31}},
		{"time", "-00:00:01", key.Value{Uint: 0x7fffff}},
		{"time3", "-00:00:00.500", key.Value{Uint: 0x7fffff_ec78}},
		{"ts1", "1970-01-01 00:00:01.5", key.Value{Uint: 1<<8 | 50}},
		{"enum", "done", key.Value{Uint: 2}},
		{"set", "a,c", key.Value{Uint: 5}},
		{"bin", "0xab0000", key.Value{Bytes: []byte{0xab}}},
		{"char", "STRASSE", key.Value{Bytes: []byte("straße")}},
		{"char", "E\u0301", key.Value{Bytes: []byte("e")}},
		{"latin1", "É  ", key.Value{Bytes: []byte{0xe9}}},
		{"utf16", "a ", key.Value{Bytes: []byte{0, 'a'}}},
	} {
		c := column(t, tc.column)
		v, reason := c.ParseValue(nil, text(tc.text))
		if reason != "" {
			t.Errorf("%s %q: %s", tc.column, tc.text, reason)
			continue
		}
		if got, want := form(t, c, v), form(t, c, tc.row); !bytes.Equal(got, want) {
			t.Errorf("%s: text %q has form %x, row %+v has %x", tc.column, tc.text, got, tc.row, want)
		}
	}
}

func TestAppendFormOfMalformedValues(t *testing.T) {
	for _, tc := range []struct {
		column string
		v      key.Value
	}{
		{"dec", key.Value{Bytes: []byte{1, 2}}},
		{"dec", key.Value{}},
		{"enum", key.Value{Uint: 3}},
		{"set", key.Value{Uint: 8}},
		{"bin", key.Value{Bytes: make([]byte, 4)}},
		{"char", key.Value{Bytes: []byte("a\xff")}},
		{"utf16", key.Value{Bytes: []byte{0xd8, 0, 0, 'a'}}},
		{"utf16", key.Value{Bytes: []byte{0}}},
	} {
		dst := []byte("before")
		got, err := column(t, tc.column).AppendForm(dst, tc.v)
		if err == nil || string(got) != "before" {
			t.Errorf("%s %+v: %x, %v", tc.column, tc.v, got, err)
		}
	}
}

func TestAppendFormDoesNotAllocate(t *testing.T) {
	d := key.Definition{Primary: columns()}
	d.Seal()
	dst := make([]byte, 0, 256)
	for i := range d.Primary {
		c := &d.Primary[i]
		v := key.Value{Int: 1, Uint: 1, Bytes: []byte("abc")}
		switch c.Type {
		case key.TypeDecimal:
			v.Bytes = make([]byte, key.DecimalSize(c.Precision, c.Scale))
		case key.TypeChar, key.TypeVarchar:
			v, _ = c.ParseValue(nil, text("some text"))
		}
		n := testing.AllocsPerRun(100, func() {
			if _, err := c.AppendForm(dst, v); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", c.Name, n)
		}
	}
}

func BenchmarkAppendForm(b *testing.B) {
	d := key.Definition{Primary: columns()}
	d.Seal()
	for _, name := range []string{"big", "dec", "char", "latin1"} {
		for i := range d.Primary {
			c := &d.Primary[i]
			if c.Name != name {
				continue
			}
			b.Run(name, func(b *testing.B) {
				v := key.Value{Int: 42, Bytes: make([]byte, key.DecimalSize(10, 2))}
				if c.Type == key.TypeChar || c.Type == key.TypeVarchar {
					v.Bytes = []byte("somebody@example.com")
				}
				dst := make([]byte, 0, 256)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.AppendForm(dst, v); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func ExampleColumn_ParseValue() {
	id := key.Column{Name: "id", Type: key.TypeInt, Length: 4}
	for _, s := range []string{"42", "042"} {
		_, reason := id.ParseValue(nil, key.TextValue{Text: s})
		fmt.Printf("%s: %q\n", s, reason)
	}
	// Output:
	// 42: ""
	// 042: "want a whole number from -2147483648 to 2147483647, without leading zeros, plus sign or spaces"
}
