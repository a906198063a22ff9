package gtid_test

import (
	"encoding/json"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"tidegate/binlog/gtid"
)

// Two UUIDs in the forms that the tables below are written in: upper case for
// input, lower case for what is printed.
const (
	upperU = "3E11FA47-71CA-11E1-9E33-C80AA9429562"
	lowerU = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	lowerV = "1e11fa47-71ca-11e1-9e33-c80aa9429562"
)

// expand replaces U, V and u, v, which are no hexadecimal digits, by UUIDs.
func expand(s string) string {
	return strings.NewReplacer("U", upperU, "u", lowerU, "V", strings.ToUpper(lowerV), "v", lowerV).Replace(s)
}

// single reads one GTID written with U and V.
func single(text string) gtid.GTID {
	g, err := gtid.ParseGTID(expand(text))
	if err != nil {
		panic(err)
	}
	return g
}

// TestParseNamed: what MySQL reads as nothing is refused where somebody names GTIDs.
func TestParseNamed(t *testing.T) {
	for _, tt := range []struct {
		text   string
		offset int // -1: it is read, as Parse does
	}{
		{"U:1", -1},
		{" ,U:1-5:7 , V:2,", -1},
		{"U:x:1:2:y:3", -1},
		{"U:1:x:3-4", -1},
		{"", 0},
		{" \t\n", 0},
		{", ,", 0},
		{"U", 36},
		{"U,V:1", 36},
		{"V:1,U", 75},
		{"U:x", 38},
		{"U:1:x", 40},
		{"U:x:y:1", 39},
		{"U:5-3", 37},
		{"U:1-5:11-3", 41},
		{"U:5-0:7", 37},
		{"U:1-x", 39}, // as Parse
	} {
		text := expand(tt.text)
		got, err := gtid.ParseNamed(text)
		if tt.offset < 0 {
			if want := gtid.MustParse(text); err != nil || !got.Equal(want) {
				t.Errorf("%q: %s, %v, want %s", tt.text, got.OneLine(), err, want.OneLine())
			}
			continue
		}
		var pe *gtid.ParseError
		if !errors.As(err, &pe) || pe.Offset != tt.offset {
			t.Errorf("%q: %s, %v, want an error at %d", tt.text, got.OneLine(), err, tt.offset)
		}
	}
}

// accepted are texts that MySQL 9.7 reads, with what it prints of them;
// TestServerParses asks a real server the same.
var accepted = []struct{ text, want string }{
	{"", ""},
	{" \t\n", ""},
	{",", ""},
	{" , ,, ", ""},
	{"U", ""},
	{"U:1", "u:1"},
	{"U:1-5", "u:1-5"},
	{"U:5-5", "u:5"},
	{"U:01-007", "u:1-7"},
	{"U:000000000000000000000000000000000000001", "u:1"},
	{"U:1-5:7:9-11", "u:1-5:7:9-11"},
	{"U:9:1", "u:1:9"},
	{"U:1-3:4-6", "u:1-6"},
	{"U:1:1:1-3:2-9", "u:1-9"},
	{"U:1,U:3,U:2", "u:1-3"},
	{"U:5-3", ""},
	{"U:5-0", ""},
	{"U:5-3:7", "u:7"},
	{"U:9223372036854775806", "u:9223372036854775806"},
	{"U:1-9223372036854775806", "u:1-9223372036854775806"},
	{"\t U : 1 - 5 : 7 \r\n, \v V\f:2 ", "v:2,\nu:1-5:7"},
	{",U:1,,V:2,", "v:2,\nu:1"},
	{"U:tag:1", "u:tag:1"},
	{"U:TAG:1:tAg:3", "u:tag:1:3"},
	{"U: tag : 1", "u:tag:1"},
	{"U:tag", ""},
	{"U:tag,V:1", "v:1"},
	{"U:tag:5-3", ""},
	{"U:tag:other:1", "u:other:1"},
	{"U:1:tag:1,U:3:tag:2", "u:1:3:tag:1-2"},
	{"U:tag:1-3, U:5", "u:5:tag:1-3"},
	{"U:a:1:aa:1:b:1:_:1:a_:1:a1:1:z:1:ab:1:__:1:_a:1", "u:_:1:__:1:_a:1:a:1:a1:1:a_:1:aa:1:ab:1:b:1:z:1"},
	{"U:abcdefghijklmnopqrst_wxyz_012345:1", "u:abcdefghijklmnopqrst_wxyz_012345:1"},
	{"3E11FA4771CA11E19E33C80AA9429562:1", "u:1"},
	{"3E11FA4771CA11E19E33C80AA9429562 :1", "u:1"},
	{"{U}:1", "u:1"},
	{"{U} :tag:1,U:1", "u:1:tag:1"},
	{"00000000-0000-0000-0000-000000000000:1", "00000000-0000-0000-0000-000000000000:1"},
}

// refused are texts that MySQL 9.7 answers with ER_MALFORMED_GTID_SET, with
// the offset that is named here.
var refused = []struct {
	text   string
	offset int
}{
	{"U:", 37},
	{"U:0", 37},
	{"U:0-5", 37},
	{"U:-5", 37},
	{"U:+1", 37},
	{"U:1-", 39},
	{"U:1--3", 39},
	{"U:1-5-7", 40},
	{"U:1-2 -3", 41},
	{"U:0x5", 37},
	{"U:1x:1", 38},
	{"U:1_", 38},
	{"U:1 2", 39},
	{"U 1", 37},
	{"U1", 36},
	{"U::1", 37},
	{"U:1:", 39},
	{"U:1::2", 39},
	{"U:tag:", 41},
	{"U:tag::1", 41},
	{"U:tag:0", 41},
	{"U:9223372036854775807", 37},
	{"U:1-9223372036854775807", 39},
	{"U:18446744073709551615", 37},
	{"U:18446744073709551616", 37},
	{"U:18446744073709551617", 37},
	{"U:1-99999999999999999999999", 39},
	{"U:abcdefghijklmnopqrst_wxyz_0123456:1", 37},
	{"U:a-b:1", 38},
	{"U:a.b:1", 38},
	{"U:ta g:1", 40},
	{"U:\u00e9:1", 37},
	{"U:1\u00a0", 38},
	{"U:1;V:2", 38},
	{"U:1 V:2", 39},
	{"U:1\x00", 38},
	{"U:1,\x00", 39},
	{"+U:1", 0},
	{" + U:1", 1},
	{"ANONYMOUS", 1},
	{"3E11FA47-71CA-11E1-9E33-C80AA942956:1", 35},
	{"3E11FA47-71CA-11E1-9E33-C80AA942956g:1", 35},
	{"3E11FA47_71CA_11E1_9E33_C80AA9429562:1", 8},
	{"3E11FA47-71CA11E1-9E33-C80AA9429562:1", 13},
	{"3E11FA4771CA-11E1-9E33-C80AA9429562:1", 12},
	{"3E11FA47- 71CA-11E1-9E33-C80AA9429562:1", 9},
	{"U0:1", 36},
	{"{U:1", 37},
	{"{U }:1", 37},
	{"{3E11FA4771CA11E19E33C80AA9429562}:1", 9},
}

func TestParse(t *testing.T) {
	for _, c := range accepted {
		s, err := gtid.Parse(expand(c.text))
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if got, want := s.String(), expand(c.want); got != want {
			t.Errorf("%q: printed as %q, want %q", c.text, got, want)
		}
		if got, want := s.OneLine(), strings.ReplaceAll(expand(c.want), "\n", ""); got != want {
			t.Errorf("%q: on one line %q, want %q", c.text, got, want)
		}
	}
	for _, c := range refused {
		text := expand(c.text)
		s, err := gtid.Parse(text)
		var pe *gtid.ParseError
		if !errors.As(err, &pe) {
			t.Errorf("%q: read as %q, err %v; want a ParseError", c.text, s, err)
			continue
		}
		if pe.Offset != c.offset || !strings.HasPrefix(text[pe.Offset:], pe.Excerpt) || pe.Reason == "" {
			t.Errorf("%q: %+v, want offset %d", c.text, pe, c.offset)
		}
	}
}

func TestParseErrorText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"U:1-5-7", `gtid: expected "," at offset 40: "-7"`},
		{"U:", "gtid: expected a sequence number or a tag at the end of the text (offset 37)"},
		{"U:12345678901234567890123456789", `gtid: sequence number out of range at offset 37: "123456789012345678901234"`},
	} {
		if _, err := gtid.Parse(expand(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%q: error %v, want %s", c.text, err, c.want)
		}
	}
}

// TestParseStaysLinear reads texts that are quadratic or huge for a careless
// parser: descending intervals, sources in turns, one tag after another.
func TestParseStaysLinear(t *testing.T) {
	const n = 200_000
	var down, turns, tags strings.Builder
	down.WriteString(lowerU)
	tags.WriteString(lowerU)
	for i := n; i > 0; i-- {
		down.WriteString(":" + strings.Repeat("0", 6) + strconv.Itoa(2*i))
		if i%10 == 0 {
			turns.WriteString(lowerU + ":" + strconv.Itoa(2*i) + "," + lowerV + ":" + strconv.Itoa(2*i) + ",")
		}
		tags.WriteString(":" + string(rune('a'+i%26)) + strconv.Itoa(i) + ":1")
	}
	for _, c := range []struct {
		name, text         string
		intervals, sources int
	}{
		{"descending", down.String(), n, 1},
		{"in turns", turns.String(), n / 5, 2},
		{"tags", tags.String(), n, n},
	} {
		before := allocated()
		s, err := gtid.Parse(c.text)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		used := allocated() - before
		if s.NumIntervals() != c.intervals || s.Sources() != c.sources {
			t.Errorf("%s: %d intervals of %d sources, want %d of %d", c.name, s.NumIntervals(), s.Sources(), c.intervals, c.sources)
		}
		if most := uint64(100 * len(c.text)); used > most {
			t.Errorf("%s: %d bytes allocated for a text of %d, want at most %d", c.name, used, len(c.text), most)
		}
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestParseUUID(t *testing.T) {
	want := gtid.UUID{0x3e, 0x11, 0xfa, 0x47, 0x71, 0xca, 0x11, 0xe1, 0x9e, 0x33, 0xc8, 0x0a, 0xa9, 0x42, 0x95, 0x62}
	for _, text := range []string{lowerU, upperU, "{" + lowerU + "}", strings.ReplaceAll(upperU, "-", "")} {
		u, err := gtid.ParseUUID(text)
		if err != nil || u != want {
			t.Errorf("%q: %v, %v", text, u, err)
		}
	}
	if got := want.String(); got != lowerU {
		t.Errorf("String is %q, want %q", got, lowerU)
	}
	if want.IsZero() || !(gtid.UUID{}).IsZero() {
		t.Error("IsZero is wrong")
	}
	for _, text := range []string{"", " " + lowerU, lowerU + " ", lowerU + "0", lowerU[1:], "{" + lowerU, lowerU + "}"} {
		var pe *gtid.ParseError
		if u, err := gtid.ParseUUID(text); !errors.As(err, &pe) {
			t.Errorf("%q: read as %v, err %v; want a ParseError", text, u, err)
		}
	}
}

// singles are texts of one GTID, with what is printed of them; "" is refused.
// TestServerReadsSingles asks a real server the same.
var singles = []struct{ text, want string }{
	{"u:5", "u:5"},
	{"U:5", "u:5"},
	{" U : 05\t", "u:5"},
	{"U:TAG:5", "u:tag:5"},
	{"U: _a9 : 5", "u:_a9:5"},
	{"U:9223372036854775806", "u:9223372036854775806"},
	{"U:9223372036854775807", ""},
	{"U:99999999999999999999", ""},
	{"U:0", ""},
	{"U:", ""},
	{"U", ""},
	{"U:tag", ""},
	{"U:tag:", ""},
	{"U:tag:tug:5", ""},
	{"U:5-6", ""},
	{"U:5:6", ""},
	{"U:5,", ""},
	{"U:5x", ""},
	{"U:-5", ""},
	{"{U}:5", ""},
	{"3e11fa4771ca11e19e33c80aa9429562:5", ""},
	{"U:abcdefghijklmnopqrst_wxyz_0123456:1", ""},
	{"U:a-b:1", ""},
}

func TestParseGTID(t *testing.T) {
	for _, c := range singles {
		g, err := gtid.ParseGTID(expand(c.text))
		if c.want == "" {
			var pe *gtid.ParseError
			if !errors.As(err, &pe) {
				t.Errorf("%q: read as %v, err %v; want a ParseError", c.text, g, err)
			}
			continue
		}
		if err != nil || g.String() != expand(c.want) || g.Validate() != nil {
			t.Errorf("%q: %v, err %v, %v; want %s", c.text, g, err, g.Validate(), c.want)
		}
		if !gtid.Of(g).Equal(gtid.MustParse(expand(c.want))) {
			t.Errorf("%q: as a set %v", c.text, gtid.Of(g))
		}
	}
}

func TestJSON(t *testing.T) {
	type doc struct {
		Set  gtid.Set  `json:"set"`
		GTID gtid.GTID `json:"gtid"`
		UUID gtid.UUID `json:"uuid"`
	}
	in := doc{Set: gtid.MustParse(expand("U:1-3:tag:5,V:7")), GTID: single("U:tag:5"), UUID: single("V:1").UUID}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"set":"` + expand("v:7,u:1-3:tag:5") + `","gtid":"` + expand("u:tag:5") + `","uuid":"` + lowerV + `"}`
	if got := string(b); got != want {
		t.Fatalf("marshalled %s, want %s", got, want)
	}
	var out doc
	if err := json.Unmarshal(b, &out); err != nil || !out.Set.Equal(in.Set) || out.GTID != in.GTID || out.UUID != in.UUID {
		t.Fatalf("unmarshalled %+v, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"set":"","gtid":""}`), &out); err != nil || !out.Set.IsEmpty() || !out.GTID.IsZero() {
		t.Fatalf("empty texts: %+v, %v", out, err)
	}
	kept := gtid.MustParse(expand("U:1"))
	for _, bad := range []string{
		`{"set":"` + lowerU + `:"}`, `{"gtid":"` + lowerU + `:1-2"}`, `{"uuid":""}`,
	} {
		out := doc{Set: kept}
		if err := json.Unmarshal([]byte(bad), &out); err == nil || !out.Set.Equal(kept) {
			t.Errorf("%s: %+v, %v; want an error and nothing changed", bad, out, err)
		}
	}
}
