package key_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tidegate/cdc/key"
)

func text(s string) key.TextValue { return key.TextValue{Text: s} }

func TestParse(t *testing.T) {
	null := key.TextValue{Null: true}
	for _, tc := range []struct {
		printed string
		want    key.Key
		canon   string // when it differs from printed
	}{
		{"app.posts/42", key.Key{Kind: key.KindRow, Schema: "app", Table: "posts", Values: []key.TextValue{text("42")}}, ""},
		{"app.t/1,foo", key.Key{Kind: key.KindRow, Schema: "app", Table: "t", Values: []key.TextValue{text("1"), text("foo")}}, ""},
		{"app.posts/*", key.Key{Kind: key.KindAnyRow, Schema: "app", Table: "posts"}, ""},
		{"app.posts@author_id/7", key.Key{Kind: key.KindGroup, Schema: "app", Table: "posts", Column: "author_id", Values: []key.TextValue{text("7")}}, ""},
		{"app.posts@author_id/@null", key.Key{Kind: key.KindGroup, Schema: "app", Table: "posts", Column: "author_id", Values: []key.TextValue{null}}, ""},
		{"a.b/%40null", key.Key{Kind: key.KindRow, Schema: "a", Table: "b", Values: []key.TextValue{text("@null")}}, ""},
		{"a.b/", key.Key{Kind: key.KindRow, Schema: "a", Table: "b", Values: []key.TextValue{text("")}}, ""},
		{"a.b/,", key.Key{Kind: key.KindRow, Schema: "a", Table: "b", Values: []key.TextValue{text(""), text("")}}, ""},
		{"a%2Eb.c%2fd/x%2Cy%25%00", key.Key{Kind: key.KindRow, Schema: "a.b", Table: "c/d", Values: []key.TextValue{text("x,y%\x00")}}, "a%2Eb.c%2Fd/x%2Cy%25%00"},
		{"a.b/1.50", key.Key{Kind: key.KindRow, Schema: "a", Table: "b", Values: []key.TextValue{text("1.50")}}, "a.b/1%2E50"},
		{"a.b/0xDEadBEEF", key.Key{Kind: key.KindRow, Schema: "a", Table: "b", Values: []key.TextValue{text("0xDEadBEEF")}}, ""},
		{"a.b/%2A", key.Key{Kind: key.KindRow, Schema: "a", Table: "b", Values: []key.TextValue{text("*")}}, ""},
		{"a.b/2026-01-31 12:34:56", key.Key{Kind: key.KindRow, Schema: "a", Table: "b", Values: []key.TextValue{text("2026-01-31 12:34:56")}}, ""},
		{"ä.表/日本 🙂", key.Key{Kind: key.KindRow, Schema: "ä", Table: "表", Values: []key.TextValue{text("日本 🙂")}}, ""},
		{"a.b/%ff", key.Key{Kind: key.KindRow, Schema: "a", Table: "b", Values: []key.TextValue{text("\xff")}}, "a.b/%FF"},
	} {
		got, err := key.Parse(tc.printed)
		if err != nil {
			t.Errorf("Parse(%q): %v", tc.printed, err)
			continue
		}
		if len(got.Values) == 0 {
			got.Values = nil
		}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("Parse(%q)\n got %+v\nwant %+v", tc.printed, got, tc.want)
		}
		canon := tc.canon
		if canon == "" {
			canon = tc.printed
		}
		if s := got.String(); s != canon {
			t.Errorf("Parse(%q).String() = %q, want %q", tc.printed, s, canon)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, tc := range []struct {
		printed string
		offset  int
		reason  string // a part of it
	}{
		{"", 0, "ends after the schema name"},
		{"posts", 5, "ends after the schema name"},
		{"app.posts", 9, "ends after the table name"},
		{"app.posts@a", 11, "ends after the column name"},
		{".posts/1", 0, "empty schema name"},
		{"app./1", 4, "empty table name"},
		{"app.posts@/1", 10, "empty column name"},
		{"a@b.c/1", 1, `'@' must be written %40`},
		{"a/b.c/1", 1, "begins with schema.table"},
		{"posts/1", 5, "begins with schema.table"},
		{"a.b.c/1", 3, `'.' must be written %2E`},
		{"a.b/1/2", 5, `'/' must be written %2F`},
		{"a.b/x@y", 5, `'@' must be written %40`},
		{"a.b/1,*", 6, `'*' must be written %2A`},
		{"a.b/**", 4, `'*' must be written %2A`},
		{"a.b/x%4", 5, "two hex digits"},
		{"a.b/%zz", 4, "two hex digits"},
		{"a.b/%", 4, "two hex digits"},
		{"a.b/1\n", 5, `'\n' must be written %0A`},
		{"a.b/@nullx", 4, "only a comma may stand"},
		{"a.b/@NULL", 4, `'@' must be written %40`},
		{"a.b@c/1,2", 7, "names one value"},
		{"a.b@c/*", 6, "names one value"},
		{"a%00.b/1", 0, "not valid UTF-8"},
		{"a.%ff/1", 2, "not valid UTF-8"},
		{"a.b/" + strings.Repeat("x", 1<<14), 1 << 14, "longer than"},
	} {
		_, err := key.Parse(tc.printed)
		var pe *key.ParseError
		if !errors.As(err, &pe) {
			t.Errorf("Parse(%.40q) = %v, want a ParseError", tc.printed, err)
			continue
		}
		if pe.Offset != tc.offset || !strings.Contains(pe.Reason, tc.reason) {
			t.Errorf("Parse(%.40q): offset %d %q, want %d %q", tc.printed, pe.Offset, pe.Reason, tc.offset, tc.reason)
		}
	}
}

func TestParseTable(t *testing.T) {
	schema, table, err := key.ParseTable("a%2Eb.c")
	if err != nil || schema != "a.b" || table != "c" {
		t.Errorf("ParseTable = %q, %q, %v", schema, table, err)
	}
	for _, bad := range []string{"", "a", "a.", ".b", "a.b.c", "a.b/1", "a.b@c"} {
		if _, _, err := key.ParseTable(bad); err == nil {
			t.Errorf("ParseTable(%q) has no error", bad)
		}
	}
}

// drawKey draws any key that can be printed.
func drawKey(t *rapid.T) key.Key {
	name := rapid.StringN(1, 12, -1).Filter(func(s string) bool { return !strings.Contains(s, "\x00") })
	k := key.Key{
		Kind:   key.Kind(rapid.IntRange(int(key.KindRow), int(key.KindAnyRow)).Draw(t, "kind")),
		Schema: name.Draw(t, "schema"), Table: name.Draw(t, "table"),
	}
	value := rapid.Custom(func(t *rapid.T) key.TextValue {
		switch rapid.IntRange(0, 9).Draw(t, "shape") {
		case 0:
			return key.TextValue{Null: true}
		case 1:
			return text(string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")))
		case 2:
			return text(rapid.StringOf(rapid.RuneFrom([]rune("%/,.@*null0x\x00\x7f "))).Draw(t, "delimiters"))
		}
		return text(rapid.String().Draw(t, "text"))
	})
	switch k.Kind {
	case key.KindRow:
		k.Values = rapid.SliceOfN(value, 1, 4).Draw(t, "values")
	case key.KindGroup:
		k.Column = name.Draw(t, "column")
		k.Values = rapid.SliceOfN(value, 1, 1).Draw(t, "values")
	}
	return k
}

func TestPrintedRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawKey(t)
		printed := want.String()
		got, err := key.Parse(printed)
		if err != nil {
			t.Fatalf("Parse(%q): %v", printed, err)
		}
		if len(got.Values) == 0 {
			got.Values = nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("Parse(%q)\n got %+v\nwant %+v", printed, got, want)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"app.posts/42", "app.posts/*", "a.b@c/@null", "a%2E.b/0x00,1.5", "a.b/%ff", "a.b/,", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, printed string) {
		k, err := key.Parse(printed)
		if err != nil {
			var pe *key.ParseError
			if !errors.As(err, &pe) || pe.Offset < 0 || pe.Offset > len(printed) || pe.Reason == "" {
				t.Fatalf("Parse(%q): %#v", printed, err)
			}
			return
		}
		canon := k.String()
		again, err := key.Parse(canon)
		if err != nil {
			t.Fatalf("Parse(%q), printed from %q: %v", canon, printed, err)
		}
		if !reflect.DeepEqual(again, k) || again.String() != canon {
			t.Fatalf("%q prints %q, which reads as %+v, not %+v", printed, canon, again, k)
		}
	})
}
