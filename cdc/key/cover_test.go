package key_test

import (
	"errors"
	"strings"
	"testing"

	"tidegate/cdc/key"
)

func posts() *key.Definition {
	d := &key.Definition{
		Schema: "app", Table: "posts", Columns: 3,
		Primary: []key.Column{{Name: "id", Type: key.TypeInt, Length: 8}},
		Groups: []key.Column{
			{Name: "Author", Type: key.TypeVarchar, Collation: "utf8mb4_0900_ai_ci", Nullable: true, Ordinal: 1},
			{Name: "score", Type: key.TypeOther, Ordinal: 2},
		},
	}
	d.Seal()
	return d
}

var hasher = key.NewHasher(key.Secret{1, 2, 3})

func cover(t *testing.T, d *key.Definition, printed string) *key.Cover {
	t.Helper()
	k, err := key.Parse(printed)
	if err != nil {
		t.Fatal(err)
	}
	var c key.Cover
	if err := d.Cover(hasher, &k, &c); err != nil {
		t.Fatalf("Cover(%s): %v", printed, err)
	}
	return &c
}

// form folds one value as the tailer does.
func form(t *testing.T, c *key.Column, v key.Value) []byte {
	t.Helper()
	b, err := c.AppendForm(nil, v)
	if err != nil {
		t.Fatalf("AppendForm(%s, %+v): %v", c.Name, v, err)
	}
	return b
}

func TestCoverMeetsTheWriter(t *testing.T) {
	d := posts()
	scopes := hasher.Table("app", "posts")
	group := scopes.Group(key.FoldName("Author"))
	table := []key.Digest{scopes.AllRows, scopes.Schema, scopes.Everything}

	for _, tc := range []struct {
		printed string
		own     key.Digest
		wide    []key.Digest
		column  key.Digest
		oneRow  bool
	}{
		{"app.posts/42", scopes.Row(form(t, &d.Primary[0], key.Value{Int: 42})), table, key.Digest{}, true},
		{"app.posts/*", scopes.AnyRow, table, key.Digest{}, false},
		{"app.posts@author/JOSÉ", group.Value(form(t, &d.Groups[0], key.Value{Bytes: []byte("jose")})), append([]key.Digest{group.AllRows}, table...), group.AllRows, false},
		{"app.posts@AUTHOR/@null", group.Value(form(t, &d.Groups[0], key.Null())), append([]key.Digest{group.AllRows}, table...), group.AllRows, false},
	} {
		c := cover(t, d, tc.printed)
		if c.Own != tc.own || c.OneRow != tc.oneRow || c.Table != scopes.AnyRow || c.GroupColumn != tc.column {
			t.Errorf("%s: %+v", tc.printed, c)
		}
		if got := c.Wide[:c.NWide]; len(got) != len(tc.wide) {
			t.Errorf("%s: %d wide scopes, want %d", tc.printed, len(got), len(tc.wide))
		} else {
			for i := range got {
				if got[i] != tc.wide[i] {
					t.Errorf("%s: wide scope %d differs", tc.printed, i)
				}
			}
		}
	}
}

func TestCoverOfWideColumns(t *testing.T) {
	d := posts()
	scopes := hasher.Table("app", "posts")
	column := scopes.Group("score").AllRows
	if c := cover(t, d, "app.posts@score/1.5"); c.Own != column || c.GroupColumn != column || c.NWide != 3 || c.OneRow {
		t.Errorf("a wide group column: %+v", c)
	}
	for name, primary := range map[string][]key.Column{
		"no key":     nil,
		"float":      {{Name: "f", Type: key.TypeOther}},
		"prefix key": {{Name: "s", Type: key.TypeVarchar, Collation: "utf8mb4_bin", PrefixLen: 10}},
	} {
		d := &key.Definition{Schema: "app", Table: "posts", Primary: primary}
		d.Seal()
		if d.RowsUsable() {
			t.Errorf("%s: rows are called usable", name)
		}
		if c := cover(t, d, "app.posts/1"); c.Own != scopes.AnyRow || c.NWide != 3 || c.OneRow {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestCoverRefuses(t *testing.T) {
	d := posts()
	for _, tc := range []struct{ printed, column, reason string }{
		{"app.posts/042", "id", "want a whole number from -9223372036854775808 to 9223372036854775807, without leading zeros"},
		{"app.posts/ 42", "id", "want a whole number"},
		{"app.posts/42.0", "id", "want a whole number"},
		{"app.posts/42x", "id", "want a whole number"},
		{"app.posts/1,2", "", "the primary key has 1 columns (id), the key 2 values"},
		{"app.posts/@null", "id", "NOT NULL"},
		{"app.posts@title/1", "title", "not a group column"},
		{"app.posts@author/%ff", "Author", "not valid UTF-8"},
		{"app.comments/1", "", "is not app.posts"},
		{"App.posts/1", "", "is not app.posts"},
	} {
		k, err := key.Parse(tc.printed)
		if err != nil {
			t.Fatal(err)
		}
		var c key.Cover
		err = d.Cover(hasher, &k, &c)
		var ve *key.ValueError
		if !errors.As(err, &ve) || ve.Column != tc.column || !strings.Contains(ve.Reason, tc.reason) {
			t.Errorf("Cover(%s) = %v, want column %q, %q", tc.printed, err, tc.column, tc.reason)
		}
	}
}

func TestCoverFoldsNames(t *testing.T) {
	d := &key.Definition{Schema: "app", Table: "posts", FoldNames: true, Primary: []key.Column{{Name: "id", Type: key.TypeInt}}}
	d.Seal()
	if got, want := cover(t, d, "APP.Posts/1").Own, cover(t, d, "app.posts/1").Own; got != want {
		t.Error("names in different case have different scopes although the primary folds names")
	}
}

func TestCoverDoesNotAllocate(t *testing.T) {
	d := posts()
	for _, printed := range []string{"app.posts/42", "app.posts/*", "app.posts@author/somebody"} {
		var k key.Key
		var c key.Cover
		work := func() {
			if err := k.Parse(printed); err != nil {
				t.Fatal(err)
			}
			if err := d.Cover(hasher, &k, &c); err != nil {
				t.Fatal(err)
			}
		}
		work()
		if n := testing.AllocsPerRun(1000, work); n != 0 {
			t.Errorf("Parse and Cover of %s allocate %v times", printed, n)
		}
	}
}

func BenchmarkCover(b *testing.B) {
	d := posts()
	for _, printed := range []string{"app.posts/42", "app.posts@author/somebody"} {
		b.Run(printed, func(b *testing.B) {
			var k key.Key
			var c key.Cover
			b.ReportAllocs()
			for b.Loop() {
				if err := k.Parse(printed); err != nil {
					b.Fatal(err)
				}
				if err := d.Cover(hasher, &k, &c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
