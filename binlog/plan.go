package binlog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// plan is what a table map means for the rows events after it. Plans are kept by
// table id as long as the map's bytes and everything they were made from stay
// the same.
type plan struct {
	body    []byte // of the TABLE_MAP event
	changes uint64 // of the registry, when the plan was made
	seen    uint64 // the last transaction that had this table map

	state   *tableState
	columns int
	json    int
	steps   []step
	slots   int

	// def is nil when no definition is known to be the event's, or the table
	// has no usable key: then cause says which, and rows write all-rows.
	def    *key.Definition
	cause  Cause
	ref    []event.DefRef // of def, one element, shared
	keys   []wanted       // primary key columns in index order
	groups []wantedGroup
	broken bool // the table map could not be read

	cascade      []key.Digest // all-rows of what unlogged cascades may reach
	cascadeKnown bool
}

// wanted is a column whose value is read from rows.
type wanted struct {
	slot int16
	kind valueKind
	col  *key.Column
}

type wantedGroup struct {
	wanted
	scopes key.GroupScopes
	usable bool
}

// maxPlans bounds the cache; a server hands out a new table id each time it
// opens a table.
const maxPlans = 4096

// makePlan decodes a table map. In Hints mode the table's name is all it needs.
func (g *registry) makePlan(body []byte, idBytes int, hints bool) (*plan, error) {
	m, err := parseTableMap(body, idBytes)
	if m == nil {
		return nil, err
	}
	p := &plan{body: bytes.Clone(body), changes: g.changes, state: g.table(g.folded(tableName{m.schema, m.table}))}
	if hints {
		return p, nil
	}
	if tables, ok := g.cascades.closure(p.state.name); ok {
		p.cascadeKnown = true
		for _, n := range tables {
			p.cascade = append(p.cascade, g.table(n).scopes.AllRows)
		}
	}
	if err != nil {
		p.broken, p.cause = true, CauseNotUnderstood
		return p, err
	}
	p.columns, p.json = len(m.columns), m.jsonColumns
	def, err := g.definitionOf(m, p.state)
	if err != nil {
		p.cause = CauseNoDefinition
		return p, nil
	}
	p.ref = []event.DefRef{{Table: p.state.scopes.AnyRow, Version: def.Version}}
	if !def.RowsUsable() {
		p.cause = CauseNoKey
		return p, nil
	}
	if !p.makeSteps(m, def) {
		p.broken, p.cause = true, CauseNotUnderstood
		return p, malformed("table map of %s.%s", m.schema, m.table)
	}
	p.def = def
	return p, nil
}

// makeSteps prepares the walk over row images for the columns of def.
func (p *plan) makeSteps(m *tableMap, def *key.Definition) bool {
	p.steps = make([]step, len(m.columns))
	for i := range m.columns {
		s, ok := stepOf(&m.columns[i])
		if !ok {
			return false
		}
		p.steps[i] = s
	}
	want := func(c *key.Column) wanted {
		s := &p.steps[c.Ordinal]
		if s.slot < 0 {
			s.slot = int16(p.slots)
			p.slots++
		}
		return wanted{slot: s.slot, kind: valueKindOf(c), col: c}
	}
	for i := range def.Primary {
		p.keys = append(p.keys, want(&def.Primary[i]))
	}
	for i := range def.Groups {
		c := &def.Groups[i]
		w := wantedGroup{wanted: want(c), usable: def.GroupUsable(i)}
		name := key.FoldName(c.Name)
		k := slices.IndexFunc(p.state.groups, func(s groupState) bool { return s.column == name })
		if k < 0 {
			return false
		}
		w.scopes = p.state.groups[k].scopes
		p.groups = append(p.groups, w)
	}
	return true
}

// definitionOf returns the definition that wrote the rows behind m: the event's
// own when it carries one, else the one that was looked up, if it is known to
// hold here (rules §4.4).
func (g *registry) definitionOf(m *tableMap, t *tableState) (*key.Definition, error) {
	if m.named {
		return g.describe(m, t)
	}
	if !t.usable || t.looked == nil {
		return nil, errors.New("no definition is known to be this event's")
	}
	def := &t.looked.def
	if err := g.fits(m, def); err != nil {
		return nil, err
	}
	return def, nil
}

// describe makes a definition from a table map with full metadata.
func (g *registry) describe(m *tableMap, t *tableState) (*key.Definition, error) {
	if !m.signed {
		return nil, errors.New("the event does not tell signedness")
	}
	def := &key.Definition{Schema: t.name.schema, Table: t.name.table, FoldNames: g.fold, Columns: len(m.columns)}
	for i, ord := range m.primary {
		col, err := m.describe(ord, g.collations)
		if err != nil {
			return nil, err
		}
		col.PrefixLen = m.prefix[i]
		def.Primary = append(def.Primary, col)
	}
	for _, gs := range t.groups {
		for ord := range m.columns {
			if key.FoldName(m.columns[ord].name) != gs.column {
				continue
			}
			col, err := m.describe(ord, g.collations)
			if err != nil {
				return nil, err
			}
			def.Groups = append(def.Groups, col)
		}
	}
	def.Seal()
	return def, nil
}

// fits tells whether a looked-up definition can have written m at all. A table
// map without names can't prove more.
func (g *registry) fits(m *tableMap, def *key.Definition) error {
	if def.Columns != len(m.columns) {
		return fmt.Errorf("the table had %d columns, the definition has %d", len(m.columns), def.Columns)
	}
	for _, cols := range [][]key.Column{def.Primary, def.Groups} {
		for i := range cols {
			c := &cols[i]
			if c.Ordinal >= len(m.columns) {
				return errors.New("the table had fewer columns")
			}
			seen, err := m.describe(c.Ordinal, g.collations)
			if err != nil {
				return err
			}
			if !sameColumn(&seen, c, m.signed) {
				return fmt.Errorf("column %s is described otherwise", c.Name)
			}
		}
	}
	return nil
}

// sameColumn compares what a table map without names tells.
func sameColumn(seen, def *key.Column, signed bool) bool {
	if seen.Type != def.Type || seen.Nullable != def.Nullable || seen.Precision != def.Precision ||
		seen.Scale != def.Scale || seen.Length != def.Length {
		return false
	}
	if signed && (seen.Type == key.TypeInt || seen.Type == key.TypeDecimal) && seen.Unsigned != def.Unsigned {
		return false
	}
	text := seen.Type == key.TypeChar || seen.Type == key.TypeVarchar
	return !text || strings.EqualFold(seen.Collation, def.Collation)
}
