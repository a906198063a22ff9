package binlog

import (
	"context"
	"errors"
	"strings"
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
)

// lookedTables makes a look-up's result: tables with an INT key in the column of
// the given number.
func lookedTables(r lookupRequest, executed gtid.Set, primary map[string]int) *lookupResult {
	res := &lookupResult{request: r, executed: executed, tables: map[tableName]*lookedTable{}}
	for table, ord := range primary {
		n := tableName{"app", table}
		if !r.covers(n) {
			continue
		}
		def := key.Definition{Schema: "app", Table: table, Columns: 2, Primary: []key.Column{{Name: "id", Type: key.TypeInt, Nullable: true, Ordinal: ord}}}
		def.Seal()
		res.tables[n] = &lookedTable{def: def}
	}
	return res
}

func parsed(t testing.TB, s string) gtid.Set {
	t.Helper()
	set, err := gtid.Parse(strings.ReplaceAll(s, "A", scriptUUID))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// scopeWords says for each transaction whether it wrote rows or all-rows.
func scopeWords(lines []string) (out []string) {
	h := key.NewHasher(key.Secret{1})
	for _, l := range lines {
		f := strings.Fields(l)
		switch {
		case f[0] == "definition":
			out = append(out, strings.TrimPrefix(f[1], "app."))
		case strings.Contains(l, hexOf(h.Table("app", "t").AllRows)):
			out = append(out, "all")
		default:
			out = append(out, "row")
		}
	}
	return out
}

func hexOf(d key.Digest) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for _, x := range d {
		b.WriteByte(digits[x>>4])
		b.WriteByte(digits[x&15])
	}
	return b.String()
}

const rowOfT = "query BEGIN\nmap 1 app.t ii - -\nwrite 1 (1,2)\nxid\n"

// gate is a look-up whose answers a test gives, by number.
type gate struct {
	answers []func(lookupRequest) (*lookupResult, error)
	asked   []lookupRequest
}

func (g *gate) look(_ context.Context, _ lookupNames, r lookupRequest) (*lookupResult, error) {
	n := len(g.asked)
	g.asked = append(g.asked, r)
	if n >= len(g.answers) {
		return nil, errors.New("no more answers")
	}
	return g.answers[n](r)
}

func answer(t testing.TB, executed string, primary map[string]int) func(lookupRequest) (*lookupResult, error) {
	return func(r lookupRequest) (*lookupResult, error) {
		return lookedTables(r, parsed(t, executed), primary), nil
	}
}

// playGated plays a script whose events wait until the running look-up has
// answered, so that the order is certain.
func playGated(t *testing.T, text string, g *gate) *listHandler {
	t.Helper()
	return playGatedFrom(t, text, gtid.Set{}, g)
}

// playGatedFrom is playGated behind what was delivered before.
func playGatedFrom(t *testing.T, text string, from gtid.Set, g *gate) *listHandler {
	t.Helper()
	s := newScriptServer(t, text)
	h, _, err := play(t, s, func(tl *Tailer, o *TailerOptions) {
		o.Dial = func(ctx context.Context, from gtid.Set) (*Session, error) {
			se, err := s.dial(ctx, from)
			if err == nil {
				se.Source = &patientSource{scriptSource: se.Source.(*scriptSource)}
			}
			return se, err
		}
		o.From = from
		if tl != nil {
			tl.defs.look = g.look
			tl.o.Dial = o.Dial
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// patientSource says "nothing yet" before each transaction until the tailer has
// nothing to do but to wait.
type patientSource struct {
	*scriptSource
	waited int
}

func (s *patientSource) Next(ctx context.Context) (Raw, error) {
	if s.i < len(s.events) && eventType(s.events[s.i][4]) == evGTID && s.waited != s.i {
		// In a synctest bubble a second passes only when everybody else waits.
		s.waited = s.i
		if err := sleep(ctx, maxPause*4); err != nil {
			s.waited = -1
			return Raw{}, err
		}
	}
	return s.scriptSource.Next(ctx)
}

// TestLookedUpDefinitionWaits: rules §4.4. What was looked up at A:3 says nothing
// of the events up to A:3.
func TestLookedUpDefinitionWaits(t *testing.T) {
	g := &gate{answers: []func(lookupRequest) (*lookupResult, error){answer(t, "A:1-3", map[string]int{"t": 0})}}
	h := playGated(t, "gtid $A:1\n"+rowOfT+"gtid $A:2\n"+rowOfT+"gtid $A:3\n"+rowOfT+"gtid $A:4\n"+rowOfT, g)
	if got := strings.Join(scopeWords(h.lines), " "); got != "all all all t row" {
		t.Errorf("wrote %s", got)
	}
	if !g.asked[0].all || !g.asked[0].after.IsEmpty() {
		t.Errorf("asked %+v", g.asked[0])
	}
}

// TestFirstLookupWaitsForWhatWasDelivered: the newest of what is not read again
// may be DDL that the server is still committing (rules §4.4, §11.1).
func TestFirstLookupWaitsForWhatWasDelivered(t *testing.T) {
	g := &gate{answers: []func(lookupRequest) (*lookupResult, error){answer(t, "A:1-2", map[string]int{"t": 0})}}
	playGatedFrom(t, "gtid $A:3\n"+rowOfT, parsed(t, "A:1-2"), g)
	if len(g.asked) == 0 || !g.asked[0].after.Equal(parsed(t, "A:1-2")) {
		t.Errorf("asked %+v, want the first to wait for A:1-2", g.asked)
	}
}

// TestUnreadVoidsLookup: what nobody could read may have been DDL on any table.
func TestUnreadVoidsLookup(t *testing.T) {
	for name, unread := range map[string]string{
		"incident":      "gtid $A:3\nquery BEGIN\nincident lost\n",
		"unknown event": "gtid $A:3\nquery BEGIN\nraw 200 0\nxid\n",
	} {
		t.Run(name, func(t *testing.T) {
			g := &gate{answers: []func(lookupRequest) (*lookupResult, error){
				answer(t, "A:1", map[string]int{"t": 0}),
				answer(t, "A:1-4", map[string]int{"t": 1}),
			}}
			h := playGated(t, "gtid $A:1\n"+rowOfT+"gtid $A:2\n"+rowOfT+unread+"gtid $A:4\n"+rowOfT+"gtid $A:5\n"+rowOfT, g)
			if len(g.asked) != 2 || !g.asked[1].all || !g.asked[1].after.ContainsSet(parsed(t, "A:3")) {
				t.Fatalf("asked %+v, want a second look-up of everything behind A:3", g.asked)
			}
			if def := h.defs[len(h.defs)-1]; def.Primary[0].Ordinal != 1 {
				t.Errorf("the definition is still %+v", def)
			}
			words := scopeWords(h.lines)
			if got := strings.Join(words[len(words)-3:], " "); got != "all t row" {
				t.Errorf("wrote %q, want all rows until the look-up is passed", words)
			}
		})
	}
}

// TestDDLVoidsLookup: a DDL that the tail meets before it has passed the look-up
// may be newer or older than what was found; the table is looked up again.
func TestDDLVoidsLookup(t *testing.T) {
	g := &gate{answers: []func(lookupRequest) (*lookupResult, error){
		answer(t, "A:1-3", map[string]int{"t": 0, "u": 0}),
		answer(t, "A:1-4", map[string]int{"t": 1, "u": 0}),
	}}
	h := playGated(t, "gtid $A:1\n"+rowOfT+"gtid $A:2\nquery app|app|ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)\n"+
		"gtid $A:3\n"+rowOfT+"gtid $A:4\n"+rowOfT+"gtid $A:5\n"+rowOfT, g)
	// u is usable at once, t only after the second look-up was passed.
	if got := strings.Join(scopeWords(h.lines), " "); got != "all all all u all t row" {
		t.Errorf("wrote %s", got)
	}
	if len(g.asked) != 2 || g.asked[1].all || len(g.asked[1].tables) != 1 || g.asked[1].tables[0].table != "t" {
		t.Fatalf("asked %+v", g.asked)
	}
	// The DDL must be executed before the look-up reads (rules §11.1).
	if !g.asked[1].after.Contains(gtid.GTID{UUID: gtid.UUID(parsedUUID(t)), Seq: 2}) {
		t.Errorf("second look-up does not wait for the DDL: %s", g.asked[1].after)
	}
	// The table map of the last row is the one of the first, byte for byte; the
	// key is another column (rules §4.4).
	def := h.defs[len(h.defs)-1]
	if def.Primary[0].Ordinal != 1 {
		t.Fatalf("%+v", def)
	}
	form, err := def.Primary[0].AppendForm(nil, key.Value{Int: 2})
	if err != nil {
		t.Fatal(err)
	}
	s := key.NewHasher(key.Secret{1}).Table("app", "t")
	if last := h.lines[len(h.lines)-1]; !strings.Contains(last, hexOf(s.Row(form))) {
		t.Errorf("the row was written as %s", last)
	}
}

func parsedUUID(t testing.TB) gtid.UUID {
	t.Helper()
	u, err := gtid.ParseUUID(scriptUUID)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestDroppedTableIsPublished: also when it was dropped and made again, and when
// its whole schema went.
func TestDroppedTableIsPublished(t *testing.T) {
	g := &gate{answers: []func(lookupRequest) (*lookupResult, error){
		answer(t, "A:1", map[string]int{"t": 0, "u": 0}),
		answer(t, "A:1-2", map[string]int{"u": 0}),
		answer(t, "A:1-3", map[string]int{}),
	}}
	h := playGated(t, "gtid $A:1\n"+rowOfT+"gtid $A:2\nquery app|app|DROP TABLE t\ngtid $A:3\nquery app|app|DROP DATABASE app\ngtid $A:4\n"+rowOfT+"gtid $A:5\n"+rowOfT, g)
	var dropped []string
	for _, d := range h.defs {
		if d.Dropped {
			dropped = append(dropped, d.Table)
		}
	}
	if strings.Join(dropped, " ") != "t u" {
		t.Errorf("dropped %q of %q", dropped, h.lines)
	}
}

// TestLookupFailsAndComesAgain: errors are retried, and what they asked for is
// not forgotten.
func TestLookupFailsAndComesAgain(t *testing.T) {
	boom := func(lookupRequest) (*lookupResult, error) { return nil, errors.New("boom") }
	late := func(lookupRequest) (*lookupResult, error) { return nil, errNotYet }
	g := &gate{answers: []func(lookupRequest) (*lookupResult, error){
		boom, late, boom,
		answer(t, "A:1", map[string]int{"t": 0}),
	}}
	h := playGated(t, "gtid $A:1\n"+rowOfT+"gtid $A:2\n"+rowOfT+"gtid $A:3\n"+rowOfT, g)
	if got := strings.Join(scopeWords(h.lines), " "); got != "all t row row" || len(g.asked) != 4 {
		t.Errorf("wrote %s after %d look-ups", got, len(g.asked))
	}
	for _, r := range g.asked {
		if !r.all {
			t.Errorf("asked %+v", r)
		}
	}
}

// lookedUpBy lets a tailer of a scripted server wait for a scripted look-up.
func lookedUpBy(g *gate, s *scriptServer, tl *Tailer, o *TailerOptions) {
	o.Dial = func(ctx context.Context, from gtid.Set) (*Session, error) {
		se, err := s.dial(ctx, from)
		if err == nil {
			se.Source = &patientSource{scriptSource: se.Source.(*scriptSource)}
		}
		return se, err
	}
	if tl != nil {
		tl.defs.look = g.look
	}
}

// TestUnknownGroupColumn: refused at the start, with what the table has.
func TestUnknownGroupColumn(t *testing.T) {
	g := &gate{answers: []func(lookupRequest) (*lookupResult, error){func(r lookupRequest) (*lookupResult, error) {
		res := lookedTables(r, gtid.Set{}, map[string]int{"t": 0})
		res.tables[tableName{"app", "t"}].columns = []string{"id", "author_id"}
		return res, nil
	}}}
	s := newScriptServer(t, "gtid $A:1\n"+rowOfT)
	h, _, err := play(t, s, func(tl *Tailer, o *TailerOptions) {
		o.Groups = map[string][]string{"app.t": {"authorid"}}
		lookedUpBy(g, s, tl, o)
	})
	const want = `keys: table app.t has no column "authorid"; it has "id", "author_id"`
	if err == nil || err.Error() != want || ClassOf(err) != Stop {
		t.Errorf("Run: %v, lines %q", err, h.lines)
	}
}

// TestCascadeClosure: what unlogged cascades may reach, after a look-up, and
// after DDL since then.
func TestCascadeClosure(t *testing.T) {
	r := newRegistry(key.NewHasher(key.Secret{}), nil)
	n := func(s string) tableName { return tableName{"app", s} }
	looked := func(s string) *lookedTable {
		return &lookedTable{def: key.Definition{Schema: "app", Table: s}}
	}
	if _, ok := r.cascades.closure(n("a")); ok {
		t.Error("known before any look-up")
	}
	defs, again := r.accept(&lookupResult{
		request: lookupRequest{all: true},
		tables:  map[tableName]*lookedTable{n("a"): looked("a"), n("b"): looked("b"), n("c"): looked("c"), n("d"): looked("d")},
		children: map[tableName][]tableName{
			n("a"): {n("b")}, n("b"): {n("c"), n("a")},
		},
	})
	if len(again) > 0 || len(defs) != 4 || strings.Join(defs[0].Cascades, " ") != "app.a app.b app.c" || defs[3].Cascades != nil {
		t.Errorf("accepted %+v, again %v", defs, again)
	}
	names := func(start string) string {
		list, ok := r.cascades.closure(n(start))
		if !ok {
			return "unknown"
		}
		var out []string
		for _, x := range list {
			out = append(out, x.table)
		}
		return strings.Join(out, " ")
	}
	if got := names("b"); got != "c a b" {
		t.Errorf("closure of b: %s", got)
	}
	if got := names("d"); got != "" {
		t.Errorf("closure of d: %s", got)
	}
	r.touch(&effect{reach: reachTables, tables: []tableName{n("e")}})
	if got := names("d"); got != "e" {
		t.Errorf("closure of d after DDL on e: %s", got)
	}
	r.touch(&effect{reach: reachSchemas, schemas: []string{"other"}})
	if got := names("d"); got != "unknown" {
		t.Errorf("closure of d after DDL on a schema: %s", got)
	}
}
