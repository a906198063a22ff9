package binlog

import (
	"slices"
	"strings"

	"tidegate/cdc/event"
)

// queryEvent takes a QUERY event: the frame of a transaction, DDL, or a write
// that was logged as a statement.
func (a *assembler) queryEvent(body []byte) (outcome, error) {
	if err := parseQuery(evQuery, body, &a.query); err != nil {
		return outcome{}, err
	}
	t := &a.txn
	switch text := a.query.text; {
	case string(text) == "BEGIN":
		t.begun = true
		return outcome{}, nil
	case string(text) == "COMMIT", string(text) == "ROLLBACK":
		// A ROLLBACK stands in a binlog when non-transactional tables were
		// written: their rows stay. The others' are written too, which is no harm.
		a.endWithoutEngine()
		return a.finish(), nil
	}
	text := strings.TrimSpace(string(a.query.text))
	if isSavepoint(text) {
		// What was rolled back to a savepoint stays among the keys: a superset.
		return outcome{}, nil
	}
	if _, isXA := cutWord(text, "XA"); isXA {
		return a.xa(text)
	}
	err := a.statement()
	if err != nil {
		a.misunderstood()
	}
	if t.begun {
		return outcome{}, nil
	}
	return a.finish(), nil
}

// endWithoutEngine takes the end that a transaction has when no engine takes part in
// its commit. MERGE is one that does not. InnoDB does when it changed a row, unless
// of a temporary table.
func (a *assembler) endWithoutEngine() {
	t := &a.txn
	if t.flags&event.Statement != 0 && !t.outside && !t.bad && len(t.touched) == 0 && a.reg.onlyInnoDB() {
		t.flags |= event.Unchanged
	}
	if a.mode != Hints && slices.ContainsFunc(a.txn.touched, a.mayBeMerge) {
		a.writeEverything(CauseCascade)
	}
}

// isSystemSchema tells the schemas whose tables are not all known, or have other
// engines. An empty name stands for schemas that were not listed.
func isSystemSchema(name []byte) bool {
	switch strings.ToLower(string(name)) {
	case "", systemSchema, "information_schema", "performance_schema", "sys":
		return true
	}
	return false
}

// onlyInnoDB tells whether each table of the server outside of the system's schemas
// is known to be InnoDB's: then no other engine can have changed a row. What no
// look-up found is no table, a view, or a MERGE table, which has rows of MyISAM's
// alone. Any schema counts, since the tables below a MERGE table may be in another.
func (g *registry) onlyInnoDB() bool {
	// Foreign keys are known once a look-up of everything holds; from then on DDL
	// leaves the tables that it named among those touched until they are looked up.
	if !g.cascades.known || len(g.cascades.touched) > 0 {
		return false
	}
	for n, t := range g.tables {
		if n.schema != systemSchema && t.looked != nil && (!t.usable || !strings.EqualFold(t.looked.engine, "InnoDB")) {
			return false
		}
	}
	return true
}

// mayBeMerge tells whether the rows of a table may be those of other tables, which may
// be of any schema and which nothing names. A table has its own if a look-up that
// holds found it so. No text of DDL is trusted to tell: a table becomes a MERGE table
// by LIKE or RENAME too, a temporary one is never looked up, and there are texts that
// nobody can read.
func (a *assembler) mayBeMerge(t *tableState) bool { return !t.usable }

func isSavepoint(text string) bool {
	for _, word := range [...]string{"SAVEPOINT", "ROLLBACK", "RELEASE"} {
		if _, ok := cutWord(text, word); ok {
			return true
		}
	}
	return false
}

// xa takes an XA statement. Rules §3.1: PREPARE publishes the keys under the
// xid, COMMIT makes them visible under its own GTID, ROLLBACK drops them.
func (a *assembler) xa(text string) (outcome, error) {
	t := &a.txn
	verb, xid, ok := parseXA(text)
	switch verb {
	case xaStart:
		t.begun = true
		return outcome{}, nil
	case xaEnd:
		return outcome{}, nil
	case xaOnePhase:
		return a.finish(), nil
	case xaCommit:
		t.flags |= event.XACommit
	case xaRollback:
		t.flags |= event.XARollback
	default:
		a.misunderstood()
		return a.finish(), nil
	}
	t.xid = xid
	if !ok {
		// A name that can't be read can't be found among the prepared ones.
		t.xid = text
		a.misunderstood()
	}
	return a.finish(), nil
}

// statement takes a statement that changes rows or definitions.
func (a *assembler) statement() error {
	if err := a.query.readStatus(); err != nil {
		return err
	}
	t := &a.txn
	e := classify(&a.query, a.charset(a.query.charset))
	// FLUSH and the like are logged and change nothing (rules §2.3).
	t.change = t.change || e.write || !e.understood || e.reach != reachNothing
	if !e.understood {
		a.counts.NotUnderstood++
		t.bad = true
	}
	t.outside = t.outside || !e.write || !a.query.known || slices.ContainsFunc(a.query.databases, isSystemSchema)
	cause := CauseDDL
	if e.write {
		t.flags |= event.Statement
		cause = CauseStatement
	}
	if e.ddl {
		t.flags |= event.DDL
	}
	if a.mode == Hints {
		return nil
	}
	a.writeReach(&e, cause)
	if e.empties && slices.ContainsFunc(e.tables, func(n tableName) bool { return a.mayBeMerge(a.reg.table(a.reg.folded(n))) }) {
		a.writeEverything(CauseCascade)
	}
	if e.ddl && !e.empties && !t.skip { // TRUNCATE leaves the definition as it was
		a.reg.touch(&e)
		t.refs = a.reg.definitionRefs(&e, t.refs)
		if e.reach != reachNothing {
			a.ddl = append(a.ddl, e)
		}
	}
	return nil
}

// writeReach writes the wide scopes of what a statement reaches.
func (a *assembler) writeReach(e *effect, c Cause) {
	switch e.reach {
	case reachNothing:
	case reachTables:
		for _, n := range e.tables {
			a.writeAllRows(a.reg.table(a.reg.folded(n)), c)
		}
	case reachSchemas:
		for _, s := range e.schemas {
			a.writeWide(a.reg.hasher.Schema(a.reg.schema(s)), c)
		}
	case reachEverything:
		a.writeEverything(c)
	}
}

// charset names the character set of a collation; empty when it is not known.
func (a *assembler) charset(collation uint16) string {
	name, _, _ := strings.Cut(a.reg.collations[collation], "_")
	return name
}
