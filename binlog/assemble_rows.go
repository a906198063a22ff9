package binlog

import (
	"bytes"
	"errors"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// tableMap takes a TABLE_MAP event.
func (a *assembler) tableMap(body []byte) error {
	idBytes := a.format.tableIDBytes(evTableMap)
	r := reader{b: body}
	id := r.uint(idBytes)
	if r.bad {
		return malformed("table map")
	}
	p := a.plans[id]
	if p == nil || p.changes != a.reg.changes || !bytes.Equal(p.body, body) {
		var err error
		p, err = a.reg.makePlan(body, idBytes, a.mode == Hints)
		if p == nil {
			return err
		}
		if err != nil {
			a.counts.NotUnderstood++
		}
		if len(a.plans) >= maxPlans {
			clear(a.plans)
		}
		a.plans[id] = p
		if n := p.slots; n > len(a.cells) {
			a.cells, a.cells2 = make([]cell, n), make([]cell, n)
		}
	}
	p.seen = a.txn.number
	return nil
}

// planOf returns the plan of the table map with this id in the open transaction.
func (a *assembler) planOf(id uint64) (*plan, error) {
	p := a.plans[id]
	if p == nil || p.seen != a.txn.number {
		return nil, malformed("rows event: table id %d has no table map", id)
	}
	return p, nil
}

// rows takes a rows event.
func (a *assembler) rows(t eventType, body []byte) error {
	if a.txn.skip {
		return nil
	}
	e, err := parseRows(t, body, a.format.tableIDBytes(t))
	if err != nil {
		return err
	}
	p, err := a.planOf(e.table)
	if err != nil {
		return err
	}
	a.txn.touch(p.state)
	a.txn.unlogged = a.txn.unlogged || e.flags&rowsSQLForeignKeys == 0
	if a.mode == Hints {
		return nil
	}
	if e.kind != rowsInsert && e.flags&rowsSQLForeignKeys == 0 {
		a.writeCascade(p)
	}
	if len(a.txn.touched) > a.keyCap {
		a.txn.flags |= event.Capped
		a.writeEverything(CauseCapped)
	}
	switch {
	case a.txn.everything || a.txn.capped || p.state.allRows == a.txn.number:
		return nil // nothing narrower would say more
	case p.def == nil:
		a.writeAllRows(p.state, p.cause)
		if p.broken {
			a.txn.bad = true
		}
		if p.cause == CauseNoKey {
			a.txn.define(p.ref)
		}
		return nil
	}
	a.txn.define(p.ref)
	if e.columns != p.columns || !a.decodeRows(p, &e) {
		a.counts.NotUnderstood++
		a.txn.bad = true
		a.writeAllRows(p.state, CauseNotUnderstood)
	}
	return nil
}

// writeCascade writes all-rows of the tables that the storage engine may have
// changed without a word (rules §3.3).
func (a *assembler) writeCascade(p *plan) {
	if !p.cascadeKnown {
		a.writeEverything(CauseCascade)
		return
	}
	for _, d := range p.cascade {
		a.writeWide(d, CauseCascade)
	}
}

// decodeRows reads the key columns of all rows of an event; false: the bytes
// make no sense.
func (a *assembler) decodeRows(p *plan, e *rowsEvent) bool {
	before := newImage(e.before, p.columns)
	update := e.kind == rowsUpdate || e.kind == rowsPartialUpdate
	var after image
	if update {
		after = newImage(e.after, p.columns)
	}
	cells, cells2 := a.cells[:p.slots], a.cells2[:p.slots]
	for i := 0; i < len(e.rows); {
		var ok bool
		if i, ok = walk(p.steps, e.rows, i, &before, cells); !ok {
			return false
		}
		if !update {
			a.writeRow(p, e.rows, cells)
		} else {
			if e.kind == rowsPartialUpdate {
				if i, ok = partialHead(e.rows, i, p.json); !ok {
					return false
				}
			}
			if i, ok = walk(p.steps, e.rows, i, &after, cells2); !ok {
				return false
			}
			a.writeUpdate(p, e.rows, cells, cells2)
		}
		if a.txn.capped || p.state.allRows == a.txn.number {
			return true
		}
	}
	return true
}

// writeRow writes the scopes of a row that was inserted or deleted.
func (a *assembler) writeRow(p *plan, rows []byte, cells []cell) {
	var cause Cause
	var ok bool
	if a.form, cause, ok = keyForm(a.form[:0], p, rows, cells, cells); !ok {
		a.writeAllRows(p.state, cause)
		return
	}
	a.writeKey(p.state.scopes.Row(a.form))
	for i := range p.groups {
		g := &p.groups[i]
		if c := cells[g.slot]; c.state == cellAbsent {
			a.writeWide(g.scopes.AllRows, CauseImage)
		} else {
			a.writeGroup(g, rows, c)
		}
	}
}

// writeUpdate writes the scopes of a row as it was and as it is. What the image
// after lacks is as before; a group column that either image lacks is written
// whole (rules §3.3).
func (a *assembler) writeUpdate(p *plan, rows []byte, before, after []cell) {
	var cause Cause
	var ok bool
	if a.form, cause, ok = keyForm(a.form[:0], p, rows, before, before); !ok {
		a.writeAllRows(p.state, cause)
		return
	}
	if a.other, cause, ok = keyForm(a.other[:0], p, rows, after, before); !ok {
		a.writeAllRows(p.state, cause)
		return
	}
	a.writeKey(p.state.scopes.Row(a.form))
	if !bytes.Equal(a.form, a.other) {
		a.writeKey(p.state.scopes.Row(a.other))
	}
	for i := range p.groups {
		g := &p.groups[i]
		b, c := before[g.slot], after[g.slot]
		if b.state == cellAbsent || c.state == cellAbsent {
			a.writeWide(g.scopes.AllRows, CauseImage)
			continue
		}
		a.writeGroup(g, rows, b)
		a.writeGroup(g, rows, c)
	}
}

// keyForm appends the compare form of a primary key; a column that cells lack is
// taken from otherwise.
func keyForm(dst []byte, p *plan, rows []byte, cells, otherwise []cell) ([]byte, Cause, bool) {
	for i := range p.keys {
		w := &p.keys[i]
		c := cells[w.slot]
		if c.state == cellAbsent {
			c = otherwise[w.slot]
		}
		if c.state == cellAbsent {
			return dst, CauseImage, false
		}
		var err error
		if dst, err = w.col.AppendForm(dst, valueOf(w.kind, rows, c)); err != nil {
			return dst, valueCause(err), false
		}
	}
	return dst, 0, true
}

func valueCause(err error) Cause {
	if errors.Is(err, key.ErrWide) {
		return CauseNoKey
	}
	return CauseValue
}

func (a *assembler) writeGroup(g *wantedGroup, rows []byte, c cell) {
	if !g.usable {
		a.writeWide(g.scopes.AllRows, CauseNoKey)
		return
	}
	form, err := g.col.AppendForm(a.other[:0], valueOf(g.kind, rows, c))
	if err != nil {
		a.writeWide(g.scopes.AllRows, valueCause(err))
		return
	}
	a.other = form
	a.writeKey(g.scopes.Value(form))
}

// writeKey adds a narrow scope; beyond the cap the transaction writes all-rows
// of each table that it touches (rules §3.3).
func (a *assembler) writeKey(d key.Digest) {
	t := &a.txn
	if t.capped {
		return
	}
	t.narrow.add(d)
	if len(t.narrow.list) > a.keyCap {
		t.capped = true
		t.narrow.reset()
	}
}
