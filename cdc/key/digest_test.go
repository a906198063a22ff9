package key_test

import (
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"

	"tidegate/cdc/key"
)

// TestDigestsStay pins what stands in streams and indexes. The hash itself is
// held against its authors' vectors by the library.
func TestDigestsStay(t *testing.T) {
	var secret key.Secret
	for i := range secret {
		secret[i] = byte(i)
	}
	h := key.NewHasher(secret)
	scopes := h.Table("app", "posts")
	group := scopes.Group("author_id")
	for name, tc := range map[string]struct {
		got  key.Digest
		want string
	}{
		"everything":   {h.Everything(), goldenEverything},
		"schema":       {h.Schema("app"), goldenSchema},
		"table":        {scopes.AllRows, goldenTable},
		"any row":      {scopes.AnyRow, goldenAnyRow},
		"row":          {scopes.Row([]byte("form")), goldenRow},
		"group column": {group.AllRows, goldenGroupColumn},
		"group value":  {group.Value([]byte("form")), goldenGroupValue},
	} {
		if got := hex.EncodeToString(tc.got[:]); got != tc.want {
			t.Errorf("%s: %s, want %s: streams hold such digests", name, got, tc.want)
		}
	}
	if scopes.Schema != h.Schema("app") || scopes.Everything != h.Everything() {
		t.Error("a table names other wide scopes than the hasher")
	}
}

// TestDigestsDiffer: no two scopes of different meaning meet, even when their
// names run into each other.
func TestDigestsDiffer(t *testing.T) {
	name := rapid.SampledFrom([]string{"", "a", "b", "ab", "aab", "a\x00", "\x00a", "\x01a"})
	type scope struct{ kind, schema, table, column, form string }
	draw := func(t *rapid.T, label string) (scope, key.Digest) {
		s := scope{
			kind:   rapid.SampledFrom([]string{"everything", "schema", "all", "any", "row", "column", "value"}).Draw(t, label),
			schema: name.Draw(t, "schema"), table: name.Draw(t, "table"), column: name.Draw(t, "column"), form: name.Draw(t, "form"),
		}
		scopes := hasher.Table(s.schema, s.table)
		group := scopes.Group(s.column)
		switch s.kind {
		case "everything":
			return scope{kind: s.kind}, hasher.Everything()
		case "schema":
			return scope{kind: s.kind, schema: s.schema}, hasher.Schema(s.schema)
		case "all":
			return scope{kind: s.kind, schema: s.schema, table: s.table}, scopes.AllRows
		case "any":
			return scope{kind: s.kind, schema: s.schema, table: s.table}, scopes.AnyRow
		case "row":
			return scope{kind: s.kind, schema: s.schema, table: s.table, form: s.form}, scopes.Row([]byte(s.form))
		case "column":
			return scope{kind: s.kind, schema: s.schema, table: s.table, column: s.column}, group.AllRows
		}
		return s, group.Value([]byte(s.form))
	}
	rapid.Check(t, func(t *rapid.T) {
		a, da := draw(t, "a")
		b, db := draw(t, "b")
		if (a == b) != (da == db) {
			t.Fatalf("%+v: %x\n%+v: %x", a, da, b, db)
		}
	})
}

func TestSecretsDiffer(t *testing.T) {
	a, b := key.Secret{1}, key.Secret{2}
	if a.Print() == b.Print() {
		t.Error("two secrets have one fingerprint")
	}
	if a.Print() != (key.Secret{1}).Print() {
		t.Error("one secret has two fingerprints")
	}
	if key.NewHasher(a).Everything() == key.NewHasher(b).Everything() {
		t.Error("digests do not depend on the secret")
	}
}

func TestDigestsDoNotAllocate(t *testing.T) {
	form := []byte("0123456789")
	scopes := hasher.Table("app", "posts")
	group := scopes.Group("author_id")
	var sink key.Digest
	for name, work := range map[string]func(){
		"Table": func() { sink = hasher.Table("app", "posts").AnyRow },
		"Group": func() { sink = scopes.Group("author_id").AllRows },
		"Row":   func() { sink = scopes.Row(form) },
		"Value": func() { sink = group.Value(form) },
	} {
		if n := testing.AllocsPerRun(1000, work); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	_ = sink
}

func BenchmarkRowDigest(b *testing.B) {
	form := make([]byte, 9)
	scopes := hasher.Table("app", "posts")
	b.ReportAllocs()
	for b.Loop() {
		form[8]++
		_ = scopes.Row(form)
	}
}

func BenchmarkTableScopes(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = hasher.Table("app", "posts")
	}
}
