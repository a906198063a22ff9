package router_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/router"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// vitess' collations bring glog, whose init starts a flusher for ever.
		goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

const (
	uuidA = "aaaaaaaa-0000-0000-0000-000000000001"
	uuidB = "bbbbbbbb-0000-0000-0000-000000000002"
	uuidC = "cccccccc-0000-0000-0000-000000000003"
)

// epoch0 is the moment "now" of every world, by the router's clock.
const epoch0 = int64(1_000 * time.Second)

// world is a snapshot whose every part a test sets by hand. It implements
// router.Snapshot and nothing of the index.
type world struct {
	ready       bool
	readyDetail string
	blind       int64

	states     []*event.ServerState
	confirmed  []gtid.Set
	prefix     []event.Version
	lease      []int64
	fresh      []int64
	ineligible []string
	excluded   map[int]key.Digest

	primary       int
	primaryOK     bool
	primaryReason string
	watermark     int64

	delivered, horizon, lost gtid.Set
	failover                 event.Version
	e                        gtid.Set
	eAt                      int64

	defs       map[string]*event.TableDefinition
	streamDefs map[key.Digest]key.DefVersion
	groups     map[key.Digest]gtid.Set
	foldNames  bool
	hasher     key.Hasher

	records map[key.Digest]event.Version
	writers map[event.Version]gtid.GTID
	moves   int // so many look-ups find that the records moved on
}

func (w *world) Ready() (bool, string) { return w.ready, w.readyDetail }
func (w *world) BlindSince() int64     { return w.blind }
func (w *world) NumServers() int       { return len(w.states) }
func (w *world) ServerIndex(name string) (int, bool) {
	for i, s := range w.states {
		if s != nil && s.Server == name {
			return i, true
		}
	}
	return 0, false
}
func (w *world) Server(i int) *event.ServerState { return w.states[i] }
func (w *world) Confirmed(i int) gtid.Set        { return w.confirmed[i] }
func (w *world) Prefix(i int) event.Version      { return w.prefix[i] }
func (w *world) LeaseAt(i int) int64             { return w.lease[i] }
func (w *world) FreshAt(i int) int64             { return w.fresh[i] }
func (w *world) Ineligible(i int) (string, string) {
	if w.ineligible[i] == "" {
		return "", ""
	}
	return w.ineligible[i], "as the test says"
}

func (w *world) TableExcluded(i int, table key.Digest) bool {
	d, ok := w.excluded[i]
	return ok && d == table
}

func (w *world) Primary() (int, bool, string, string) {
	return w.primary, w.primaryOK, w.primaryReason, "as the test says"
}
func (w *world) WatermarkAt() int64                            { return w.watermark }
func (w *world) Delivered() gtid.Set                           { return w.delivered }
func (w *world) Horizon() gtid.Set                             { return w.horizon }
func (w *world) Lost() gtid.Set                                { return w.lost }
func (w *world) LastFailover() event.Version                   { return w.failover }
func (w *world) CountedE() (gtid.Set, int64)                   { return w.e, w.eAt }
func (w *world) FoldNames() bool                               { return w.foldNames }
func (w *world) Hasher() key.Hasher                            { return w.hasher }
func (w *world) GTIDAt(v event.Version) (g gtid.GTID, ok bool) { g, ok = w.writers[v]; return }
func (w *world) Definition(schema, table string) (*event.TableDefinition, bool) {
	d, ok := w.defs[schema+"."+table]
	return d, ok
}

func (w *world) StreamDef(table key.Digest) (v key.DefVersion, ok bool) {
	v, ok = w.streamDefs[table]
	return
}

func (w *world) GroupHorizon(column key.Digest) (s gtid.Set, ok bool) {
	s, ok = w.groups[column]
	return
}

func (w *world) Newest(scopes []key.Digest, out []event.Version) bool {
	if w.moves > 0 {
		w.moves--
		return false
	}
	for i, s := range scopes {
		out[i] = w.records[s]
	}
	return true
}

// Scopes of the tables of every world: app.posts (id INT, group author_id).
var (
	hasher   = key.NewHasher(key.Secret{1, 2, 3})
	posts    = hasher.Table("app", "posts")
	authors  = posts.Group("author_id")
	postsDef = func() *event.TableDefinition {
		d := &event.TableDefinition{Definition: key.Definition{
			Schema: "app", Table: "posts", Columns: 3,
			Primary: []key.Column{{Name: "id", Type: key.TypeInt}},
			Groups:  []key.Column{{Name: "author_id", Type: key.TypeInt, Nullable: true, Ordinal: 1}},
		}}
		d.Seal()
		return d
	}()
)

// own returns the scope that a key itself names.
func own(t testing.TB, printed string) key.Digest {
	t.Helper()
	k := mustKey(t, printed)
	var c key.Cover
	if err := postsDef.Cover(hasher, &k, &c); err != nil {
		t.Fatalf("cover %s: %v", printed, err)
	}
	return c.Own
}

func mustKey(t testing.TB, printed string) key.Key {
	t.Helper()
	k, err := key.Parse(printed)
	if err != nil {
		t.Fatalf("parse key %q: %v", printed, err)
	}
	return k
}

func mustSet(t testing.TB, s string) gtid.Set {
	t.Helper()
	set, err := gtid.Parse(s)
	if err != nil {
		t.Fatalf("parse set %q: %v", s, err)
	}
	return set
}

func mustGTID(t testing.TB, s string) gtid.GTID {
	t.Helper()
	g, err := gtid.ParseGTID(s)
	if err != nil {
		t.Fatalf("parse GTID %q: %v", s, err)
	}
	return g
}

// healthy is a world in which everything may be read everywhere: primary a,
// replicas b and c, transactions 1-100 of a at versions 1-100 of timeline 1,
// all delivered and confirmed everywhere.
func healthy(t testing.TB) *world {
	t.Helper()
	all := mustSet(t, uuidA+":1-100")
	w := &world{
		ready: true, primary: 0, primaryOK: true, watermark: epoch0 - int64(50*time.Millisecond),
		delivered: all, e: all, eAt: epoch0 - int64(50*time.Millisecond),
		excluded: map[int]key.Digest{}, ineligible: make([]string, 3),
		defs:       map[string]*event.TableDefinition{"app.posts": postsDef},
		streamDefs: map[key.Digest]key.DefVersion{posts.AnyRow: postsDef.Version},
		groups:     map[key.Digest]gtid.Set{authors.AllRows: {}},
		hasher:     hasher,
		records:    map[key.Digest]event.Version{}, writers: map[event.Version]gtid.GTID{},
	}
	for i, name := range []string{"a", "b", "c"} {
		u, err := gtid.ParseUUID([]string{uuidA, uuidB, uuidC}[i])
		if err != nil {
			t.Fatal(err)
		}
		st := &event.ServerState{
			Server: name, AppAddr: "db-" + name + ":3306", UUID: u, Epoch: event.Epoch(10 + i),
			Alive: true, Role: event.RoleReplica,
		}
		if i == 0 {
			st.Role = event.RolePrimary
		}
		w.states = append(w.states, st)
		w.confirmed = append(w.confirmed, all)
		w.prefix = append(w.prefix, v(100))
		w.lease = append(w.lease, epoch0-int64(20*time.Millisecond))
		w.fresh = append(w.fresh, epoch0-int64(30*time.Millisecond))
	}
	for n := int64(1); n <= 100; n++ {
		w.writers[v(n)] = gtid.GTID{UUID: w.states[0].UUID, Seq: n}
	}
	return w
}

func v(n int64) event.Version { return event.MakeVersion(1, uint64(n)) }

// behind makes server i show only transactions 1 to n.
func (w *world) behind(t testing.TB, i int, n string, prefix int64) {
	t.Helper()
	w.confirmed[i] = mustSet(t, uuidA+":"+n)
	w.prefix[i] = v(prefix)
}

func newRouter(t testing.TB, w *world, change ...func(*router.Options)) *router.Router {
	t.Helper()
	o := router.Options{View: func() router.Snapshot { return w }, Clock: func() int64 { return epoch0 }}
	for _, c := range change {
		c(&o)
	}
	r, err := router.New(o)
	if err != nil {
		t.Fatalf("new router: %v", err)
	}
	return r
}
