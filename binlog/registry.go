package binlog

import (
	"fmt"
	"sort"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// registry is what the tailer knows of tables: their scopes, and which looked-up
// definition may be used for their events (rules §4.4). It belongs to the
// tailer's goroutine.
type registry struct {
	hasher     key.Hasher
	fold       bool // lower_case_table_names is not 0
	foldKnown  bool
	collations map[uint16]string
	configured map[string][]string // group columns as configured, by printed table

	tables     map[tableName]*tableState
	groups     map[tableName][]string // configured, folded
	everything key.Digest
	// changes counts everything that makes a plan outdated.
	changes uint64

	// ddl counts the statements that changed definitions, in binlog order; the
	// number of the last one that may have changed a table's is the largest of
	// its own, its schema's and allDDL.
	ddl       uint64
	allDDL    uint64
	schemaDDL map[string]uint64

	cascades cascadeGraph
}

// tableState is one table. It is never removed while the tailer runs, so that
// plans may point at it; its number is bounded by the tables that exist or are
// written.
type tableState struct {
	name   tableName // folded
	scopes key.TableScopes
	groups []groupState

	looked *lookedTable // newest look-up; nil: none, or dropped
	usable bool         // looked holds for the events that the tail reads now
	ddl    uint64
	// allRows and touched are the numbers of the last transaction that wrote
	// the table's all-rows scope, and a row.
	allRows, touched uint64
}

type groupState struct {
	column string // folded
	scopes key.GroupScopes
}

// lookedTable is a table as information_schema shows it.
type lookedTable struct {
	def     key.Definition // sealed
	engine  string
	columns []string // of tables with group columns
}

func newRegistry(h key.Hasher, configured map[string][]string) *registry {
	return &registry{
		hasher: h, configured: configured,
		tables: map[tableName]*tableState{}, groups: map[tableName][]string{},
		schemaDDL:  map[string]uint64{},
		everything: h.Everything(),
	}
}

// begin takes over what a new session says of the server. Names that fold
// otherwise than before would make other scopes: the server was replaced.
func (g *registry) begin(f *Facts, server string) error {
	if g.foldKnown && g.fold != f.FoldNames {
		return &RefusedError{Server: server, Reason: "lower_case_table_names changed", Mend: "restart Tidegate's tailer; servers of one cluster must agree on it"}
	}
	g.collations = f.Collations
	g.changes++
	if g.foldKnown {
		return nil
	}
	g.fold, g.foldKnown = f.FoldNames, true
	for printed, columns := range g.configured {
		schema, table, err := key.ParseTable(printed)
		if err != nil {
			return fmt.Errorf("keys: %q: %w", printed, err)
		}
		n := g.folded(tableName{schema, table})
		for _, c := range columns {
			g.groups[n] = append(g.groups[n], key.FoldName(c))
		}
		sort.Strings(g.groups[n])
	}
	return nil
}

func (g *registry) folded(n tableName) tableName {
	if g.fold {
		return tableName{key.FoldName(n.schema), key.FoldName(n.table)}
	}
	return n
}

func (g *registry) schema(name string) string {
	if g.fold {
		return key.FoldName(name)
	}
	return name
}

// table returns the state of a table by its folded name.
func (g *registry) table(n tableName) *tableState {
	if t, ok := g.tables[n]; ok {
		return t
	}
	t := &tableState{name: n, scopes: g.hasher.Table(n.schema, n.table)}
	for _, c := range g.groups[n] {
		t.groups = append(t.groups, groupState{c, t.scopes.Group(c)})
	}
	g.tables[n] = t
	return t
}

// lastDDL is the number of the last statement that may have changed t.
func (g *registry) lastDDL(t *tableState) uint64 {
	return max(g.allDDL, g.schemaDDL[t.name.schema], t.ddl)
}

// touch notes that a statement may have changed definitions: those of the tables
// that it reaches are unknown from here on.
func (g *registry) touch(e *effect) {
	if e.reach == reachNothing {
		return
	}
	g.ddl++
	g.changes++
	switch e.reach {
	case reachTables:
		for _, n := range e.tables {
			t := g.table(g.folded(n))
			t.ddl, t.usable = g.ddl, false
			g.cascades.touch(t.name)
		}
	case reachSchemas:
		for _, s := range e.schemas {
			s = g.schema(s)
			g.schemaDDL[s] = g.ddl
			for _, t := range g.tables {
				if t.name.schema == s {
					t.usable = false
				}
			}
		}
		g.cascades.known = false
	case reachEverything:
		g.allDDL = g.ddl
		for _, t := range g.tables {
			t.usable = false
		}
		g.cascades.known = false
	}
}

// names returns the tables of e as far as they are named, for a look-up; all is
// true when that is not enough.
func (g *registry) names(e *effect) (names []tableName, all bool) {
	switch e.reach {
	case reachTables:
		for _, n := range e.tables {
			names = append(names, g.folded(n))
		}
		return names, false
	case reachNothing:
		return nil, false
	}
	return nil, true
}

// definitionRefs appends a reference without version for each table that e
// reaches and that is known: no definition holds for them now.
func (g *registry) definitionRefs(e *effect, refs []event.DefRef) []event.DefRef {
	switch e.reach {
	case reachTables:
		for _, n := range e.tables {
			refs = addRef(refs, event.DefRef{Table: g.table(g.folded(n)).scopes.AnyRow})
		}
	case reachSchemas:
		for _, s := range e.schemas {
			s = g.schema(s)
			for _, t := range g.tables {
				if t.name.schema == s {
					refs = addRef(refs, event.DefRef{Table: t.scopes.AnyRow})
				}
			}
		}
	}
	return refs
}

// addRef adds a reference, or replaces the one of the same table.
func addRef(refs []event.DefRef, r event.DefRef) []event.DefRef {
	for i := range refs {
		if refs[i].Table == r.Table {
			refs[i].Version = r.Version
			return refs
		}
	}
	return append(refs, r)
}

// cascadeGraph holds which tables a change of a table may change without rows
// events of their own. It is exact after a look-up that the tail has passed; DDL
// since then makes it coarser, never wrong.
type cascadeGraph struct {
	known    bool
	children map[tableName][]tableName
	// touched are tables that DDL named since: any table may have become their
	// parent.
	touched map[tableName]struct{}
}

func (c *cascadeGraph) touch(n tableName) {
	if c.touched == nil {
		c.touched = map[tableName]struct{}{}
	}
	c.touched[n] = struct{}{}
}

// closure returns the tables that a change of n may change too, n itself only
// if a cycle leads back to it; ok is false when that is not known.
func (c *cascadeGraph) closure(n tableName) (tables []tableName, ok bool) {
	if !c.known {
		return nil, false
	}
	seen := map[tableName]struct{}{}
	var reach func(tableName)
	reach = func(p tableName) {
		if _, done := seen[p]; done {
			return
		}
		seen[p] = struct{}{}
		tables = append(tables, p)
		for _, child := range c.children[p] {
			reach(child)
		}
	}
	for _, child := range c.children[n] {
		reach(child)
	}
	for t := range c.touched {
		reach(t)
	}
	return tables, true
}
