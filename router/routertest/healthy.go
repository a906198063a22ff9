package routertest

import (
	"testing"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// Hasher makes the digests of every world.
func Hasher() key.Hasher { return key.NewHasher(key.Secret{1, 2, 3}) }

// Posts returns the scopes of app.posts, the one table of every world: primary
// key id INT, group column author_id INT.
func Posts() key.TableScopes { return Hasher().Table("app", "posts") }

// Authors returns the scopes of its group column.
func Authors() key.GroupScopes {
	t := Posts()
	return t.Group("author_id")
}

// PostsDef returns its definition.
func PostsDef() *event.TableDefinition {
	d := &event.TableDefinition{Definition: key.Definition{
		Schema: "app", Table: "posts", Columns: 3,
		Primary: []key.Column{{Name: "id", Type: key.TypeInt}},
		Groups:  []key.Column{{Name: "author_id", Type: key.TypeInt, Nullable: true, Ordinal: 1}},
	}}
	d.Seal()
	return d
}

// Own returns the scope that a printed key of app.posts itself names.
func Own(tb testing.TB, printed string) key.Digest {
	tb.Helper()
	k := Key(tb, printed)
	var c key.Cover
	if err := PostsDef().Cover(Hasher(), &k, &c); err != nil {
		tb.Fatalf("cover %s: %v", printed, err)
	}
	return c.Own
}

// Key parses a key that the test wrote.
func Key(tb testing.TB, printed string) key.Key {
	tb.Helper()
	k, err := key.Parse(printed)
	if err != nil {
		tb.Fatalf("parse key %q: %v", printed, err)
	}
	return k
}

// Set parses a set that the test wrote.
func Set(tb testing.TB, s string) gtid.Set {
	tb.Helper()
	set, err := gtid.Parse(s)
	if err != nil {
		tb.Fatalf("parse set %q: %v", s, err)
	}
	return set
}

// V is the version of the n-th transaction: timeline 1, ordinal n.
func V(n int64) event.Version { return event.MakeVersion(1, uint64(n)) }

// Healthy returns a world in which everything may be read everywhere: primary
// a, replicas b and c, transactions 1-100 of a at versions V(1) to V(100), all
// delivered and confirmed everywhere, no record.
func Healthy(tb testing.TB) *World {
	tb.Helper()
	all := Set(tb, UUIDA+":1-100")
	def, posts, authors := PostsDef(), Posts(), Authors()
	w := &World{
		IsReady: true, HasPrimary: true, Watermark: Now - int64(50*time.Millisecond),
		DeliveredSet: all, E: all, EAt: Now - int64(50*time.Millisecond),
		ExcludedTables: map[int]key.Digest{}, IneligibleFor: make([]string, 3),
		Defs:       map[string]*event.TableDefinition{"app.posts": def},
		StreamDefs: map[key.Digest]key.DefVersion{posts.AnyRow: def.Version},
		Groups:     map[key.Digest]gtid.Set{authors.AllRows: {}},
		Hash:       Hasher(),
		Records:    map[key.Digest]event.Version{}, Writers: map[event.Version]gtid.GTID{},
	}
	for i, name := range []string{"a", "b", "c"} {
		u, err := gtid.ParseUUID([]string{UUIDA, UUIDB, UUIDC}[i])
		if err != nil {
			tb.Fatal(err)
		}
		st := &event.ServerState{
			Server: name, AppAddr: "db-" + name + ":3306", UUID: u, Epoch: event.Epoch(10 + i),
			Alive: true, Role: event.RoleReplica, ServerVersion: "9.7.4", Follow: "binlog",
		}
		if i == 0 {
			st.Role = event.RolePrimary
		}
		w.States = append(w.States, st)
		w.ConfirmedSets = append(w.ConfirmedSets, all)
		w.Prefixes = append(w.Prefixes, V(100))
		w.Leases = append(w.Leases, Now-int64(20*time.Millisecond))
		w.FreshTimes = append(w.FreshTimes, Now-int64(30*time.Millisecond))
	}
	for n := int64(1); n <= 100; n++ {
		w.Writers[V(n)] = gtid.GTID{UUID: w.States[0].UUID, Seq: n}
	}
	return w
}
