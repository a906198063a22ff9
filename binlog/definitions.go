package binlog

import (
	"errors"
	"slices"
	"sort"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// printedTable is schema.table as keys print it.
func (n tableName) String() string { return string(key.AppendTable(nil, n.schema, n.table)) }

func compareNames(a, b tableName) int {
	if a.schema != b.schema {
		if a.schema < b.schema {
			return -1
		}
		return 1
	}
	switch {
	case a.table < b.table:
		return -1
	case a.table > b.table:
		return 1
	}
	return 0
}

// accept takes a look-up over that the tail has passed (rules §4.4): for each
// table without DDL since the look-up began, what it found holds for the events
// from here on. It returns the definitions that are new, changed or gone, by
// name, and the tables that have to be looked up again.
func (g *registry) accept(r *lookupResult) (defs []event.TableDefinition, again []tableName) {
	before := g.cascadesOf()
	changed := map[tableName]bool{}
	for n, looked := range r.tables {
		t := g.table(n)
		if g.lastDDL(t) > r.request.ddl {
			again = append(again, n)
			continue
		}
		changed[n] = t.looked == nil || t.looked.def.Version != looked.def.Version || !t.usable
		t.looked, t.usable = looked, true
	}
	for n, t := range g.tables {
		if _, found := r.tables[n]; found || !r.request.covers(n) {
			continue
		}
		if g.lastDDL(t) > r.request.ddl {
			again = append(again, n)
			continue
		}
		if t.looked != nil || !r.request.all && t.ddl > 0 {
			changed[n] = true
		}
		t.looked, t.usable = nil, false
	}
	g.acceptCascades(r)
	after := g.cascadesOf()
	for n, t := range g.tables {
		if t.looked != nil && !slices.Equal(before[n], after[n]) {
			changed[n] = true
		}
	}
	g.changes++
	for n, c := range changed {
		if c {
			defs = append(defs, g.published(n, after[n]))
		}
	}
	sort.Slice(defs, func(i, k int) bool {
		return compareNames(tableName{defs[i].Schema, defs[i].Table}, tableName{defs[k].Schema, defs[k].Table}) < 0
	})
	return defs, again
}

// acceptCascades takes the foreign keys over. Tables with DDL since the look-up
// began stay touched.
func (g *registry) acceptCascades(r *lookupResult) {
	since := map[tableName]struct{}{}
	for n := range g.cascades.touched {
		if g.lastDDL(g.table(n)) > r.request.ddl {
			since[n] = struct{}{}
		}
	}
	known := g.allDDL <= r.request.ddl
	for _, seq := range g.schemaDDL {
		known = known && seq <= r.request.ddl
	}
	g.cascades = cascadeGraph{known: known, children: r.children, touched: since}
}

// cascadesOf prints the closure of each table that has one.
func (g *registry) cascadesOf() map[tableName][]string {
	exact := cascadeGraph{known: true, children: g.cascades.children}
	out := make(map[tableName][]string, len(exact.children))
	for n := range exact.children {
		tables, _ := exact.closure(n)
		for _, t := range tables {
			out[n] = append(out[n], t.String())
		}
		sort.Strings(out[n])
	}
	return out
}

// published makes what STATE says of a table.
func (g *registry) published(n tableName, cascades []string) event.TableDefinition {
	t := g.table(n)
	if t.looked == nil {
		return event.TableDefinition{
			Definition: key.Definition{Schema: n.schema, Table: n.table, FoldNames: g.fold},
			Dropped:    true,
		}
	}
	return event.TableDefinition{Definition: t.looked.def, Cascades: cascades, Engine: t.looked.engine}
}

// checkGroups returns an error for each configured group column that a table of
// r does not have.
func (g *registry) checkGroups(r *lookupResult) error {
	var errs []error
	for n, columns := range g.groups {
		looked := r.tables[n]
		if looked == nil {
			continue // not there yet, or not asked for
		}
		for _, want := range columns {
			if _, ok := looked.def.Group(want); !ok {
				errs = append(errs, &GroupColumnError{Table: n.String(), Column: want, Columns: looked.columns})
			}
		}
	}
	return errors.Join(errs...)
}

// lookupNames returns what a look-up needs to know.
func (g *registry) lookupNames() lookupNames { return lookupNames{fold: g.fold, groups: g.groups} }
