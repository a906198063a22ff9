package key_test

import (
	"bytes"
	"testing"

	"tidegate/cdc/key"
)

func sample() key.Definition {
	return key.Definition{
		Schema: "app", Table: "posts", Columns: 4,
		Primary: []key.Column{
			{Name: "id", Type: key.TypeInt, Length: 8},
			{Name: "slug", Type: key.TypeVarchar, Collation: "utf8mb4_bin", Ordinal: 1},
		},
		Groups: []key.Column{{Name: "state", Type: key.TypeEnum, Members: []string{"a", "b"}, Collation: ai, Ordinal: 2}},
	}
}

func TestSealHashesAllThatFoldingUses(t *testing.T) {
	versions := map[key.DefVersion]string{}
	for name, change := range map[string]func(d *key.Definition){
		"nothing":       func(*key.Definition) {},
		"schema":        func(d *key.Definition) { d.Schema = "app2" },
		"table":         func(d *key.Definition) { d.Table = "post" },
		"moved letter":  func(d *key.Definition) { d.Schema, d.Table = "appp", "osts" },
		"columns":       func(d *key.Definition) { d.Columns = 5 },
		"fold names":    func(d *key.Definition) { d.FoldNames = true },
		"key swapped":   func(d *key.Definition) { d.Primary[0], d.Primary[1] = d.Primary[1], d.Primary[0] },
		"key cut":       func(d *key.Definition) { d.Primary = d.Primary[:1] },
		"no key":        func(d *key.Definition) { d.Primary = nil },
		"key moved":     func(d *key.Definition) { d.Primary[0].Ordinal = 3 },
		"name":          func(d *key.Definition) { d.Primary[0].Name = "key" },
		"type":          func(d *key.Definition) { d.Primary[0].Type = key.TypeYear },
		"unsigned":      func(d *key.Definition) { d.Primary[0].Unsigned = true },
		"nullable":      func(d *key.Definition) { d.Primary[0].Nullable = true },
		"precision":     func(d *key.Definition) { d.Primary[0].Precision = 9 },
		"scale":         func(d *key.Definition) { d.Primary[0].Scale = 9 },
		"length":        func(d *key.Definition) { d.Primary[0].Length = 4 },
		"prefix":        func(d *key.Definition) { d.Primary[1].PrefixLen = 9 },
		"collation":     func(d *key.Definition) { d.Primary[1].Collation = ai },
		"members":       func(d *key.Definition) { d.Groups[0].Members = []string{"b", "a"} },
		"member cut":    func(d *key.Definition) { d.Groups[0].Members = []string{"a"} },
		"group as key":  func(d *key.Definition) { d.Primary, d.Groups = append(d.Primary, d.Groups...), nil },
		"group dropped": func(d *key.Definition) { d.Groups = nil },
	} {
		d := sample()
		change(&d)
		d.Seal()
		if d.Version == 0 {
			t.Errorf("%s: version 0 means not known", name)
		}
		if other, ok := versions[d.Version]; ok {
			t.Errorf("%s and %s have one version", name, other)
		}
		versions[d.Version] = name
		again := d.Version
		d.Seal()
		if d.Version != again {
			t.Errorf("%s: sealed twice, two versions", name)
		}
	}
	// Nobody may change what goes into the hash without a new FoldVersion:
	// indexes and streams hold versions.
	d := sample()
	d.Seal()
	if want := key.DefVersion(goldenVersion); d.Version != want {
		t.Errorf("the version of the sample is %#x, not %#x: raise FoldVersion", d.Version, want)
	}
}

func TestUsable(t *testing.T) {
	d := sample()
	d.Groups = append(d.Groups, key.Column{Name: "j", Type: key.TypeOther})
	d.Seal()
	if !d.RowsUsable() || !d.GroupUsable(0) || d.GroupUsable(1) {
		t.Errorf("rows %v, groups %v %v", d.RowsUsable(), d.GroupUsable(0), d.GroupUsable(1))
	}
	if i, ok := d.Group("STATE"); !ok || i != 0 {
		t.Errorf("Group(STATE) = %d, %v", i, ok)
	}
	if _, ok := d.Group("slug"); ok {
		t.Error("a key column is called a group column")
	}
	d.Primary = nil
	if d.RowsUsable() {
		t.Error("rows without a key are called usable")
	}
}

func TestFold(t *testing.T) {
	for _, tc := range []struct {
		name string
		c    key.Column
		want key.FoldKind
	}{
		{"zero", key.Column{}, key.Wide},
		{"int", key.Column{Type: key.TypeInt}, key.Exact},
		{"type not known", key.Column{Type: 99}, key.Wide},
		{"decimal without precision", key.Column{Type: key.TypeDecimal}, key.Wide},
		{"decimal of too large scale", key.Column{Type: key.TypeDecimal, Precision: 3, Scale: 4}, key.Wide},
		{"bit without length", key.Column{Type: key.TypeBit}, key.Wide},
		{"time of scale 7", key.Column{Type: key.TypeTime, Scale: 7}, key.Wide},
		{"enum without members", key.Column{Type: key.TypeEnum, Collation: ai}, key.Wide},
		{"enum without collation", key.Column{Type: key.TypeEnum, Members: []string{"a"}}, key.Wide},
		{"enum", key.Column{Type: key.TypeEnum, Members: []string{"a", "b"}, Collation: ai}, key.Exact},
		{"enum with equal members", key.Column{Type: key.TypeEnum, Members: []string{"a", "A"}, Collation: ai}, key.Coarse},
		{"enum with an empty member", key.Column{Type: key.TypeEnum, Members: []string{"a", ""}, Collation: ai}, key.Coarse},
		{"set", key.Column{Type: key.TypeSet, Members: []string{"a", "b"}, Collation: ai}, key.Exact},
		{"set with letters of other scripts", key.Column{Type: key.TypeSet, Members: []string{"ä", "b"}, Collation: ai}, key.Coarse},
		{"char", key.Column{Type: key.TypeChar, Collation: ai}, key.Exact},
		{"varchar", key.Column{Type: key.TypeVarchar, Collation: ai}, key.Exact},
		{"varchar, old name of the collation", key.Column{Type: key.TypeVarchar, Collation: "utf8_general_ci"}, key.Exact},
		{"varchar, doubles", key.Column{Type: key.TypeVarchar, Collation: "cp932_japanese_ci"}, key.Coarse},
		{"varchar, not proven", key.Column{Type: key.TypeVarchar, Collation: "gbk_chinese_ci"}, key.Wide},
		{"varchar, unheard of", key.Column{Type: key.TypeVarchar, Collation: "utf8mb4_uca1400_ai_ci"}, key.Wide},
		{"varchar, none", key.Column{Type: key.TypeVarchar}, key.Wide},
		{"prefix", key.Column{Type: key.TypeVarchar, Collation: ai, PrefixLen: 3}, key.Wide},
		{"prefix of bytes", key.Column{Type: key.TypeVarbinary, PrefixLen: 3}, key.Wide},
	} {
		if got := tc.c.Fold(); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		if _, err := tc.c.AppendForm(nil, key.Null()); (err != nil) != (tc.want == key.Wide) {
			t.Errorf("%s: a form of NULL: %v", tc.name, err)
		}
	}
}

// TestMembersThatReadAlike: numbers whose texts MySQL calls equal share a form.
func TestMembersThatReadAlike(t *testing.T) {
	enum := key.Column{Type: key.TypeEnum, Members: []string{"a", "b", "A", ""}, Collation: ai}
	set := key.Column{Type: key.TypeSet, Members: []string{"a", "b", "A", ""}, Collation: ai}
	for _, tc := range []struct {
		c    *key.Column
		a, b uint64
		same bool
	}{
		{&enum, 1, 3, true},
		{&enum, 0, 4, true},
		{&enum, 1, 2, false},
		{&set, 1, 4, true},
		{&set, 0, 8, true},
		{&set, 1, 2, false},
		{&set, 1, 5, false}, // "a" and "a,A"
	} {
		a, b := form(t, tc.c, key.Value{Uint: tc.a}), form(t, tc.c, key.Value{Uint: tc.b})
		if bytes.Equal(a, b) != tc.same {
			t.Errorf("type %d: %d and %d have forms %x and %x", tc.c.Type, tc.a, tc.b, a, b)
		}
	}
}
