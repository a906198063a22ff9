package binlog

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// tableName names a table; in an effect not yet folded.
type tableName struct{ schema, table string }

// reach says how far a statement's changes go.
type reach uint8

const (
	reachNothing    reach = iota // no row of any table
	reachTables                  // the tables named
	reachSchemas                 // every table of the schemas named
	reachEverything              // unknown
)

// effect is what a logged statement may have changed.
type effect struct {
	reach   reach
	tables  []tableName
	schemas []string
	ddl     bool // changes definitions, or is logged like it
	// write: rows were changed by a statement that does not tell which.
	write bool
	// empties: all rows of the tables are deleted, those of the tables below a MERGE
	// table.
	empties bool
	// understood is false for statements of which nobody knows what they do.
	understood bool
}

// systemSchema holds accounts, privileges, plugins and routines.
const systemSchema = "mysql"

// classify tells what a logged statement changed from its head alone. The rest
// of the text needs no understanding; what the head does not tell exactly is
// widened to the databases that the server listed, and without such a list to
// everything (rules §3.3).
func classify(q *queryEvent, charsetName string) effect {
	text := string(q.text)
	c := classifier{
		q: q,
		t: sqlTokens{s: text, ansiQuotes: q.sqlMode&modeANSIQuotes != 0, noBackslash: q.sqlMode&modeNoBackslashEscapes != 0},
	}
	if !readableAs(text, charsetName) {
		// A byte of such a character may look like a quote.
		return c.unknown(effect{ddl: true})
	}
	return c.statement()
}

// readableAs tells whether text can be cut into tokens byte by byte, with names
// in UTF-8.
func readableAs(text, charset string) bool {
	if charset == "swe7" {
		// The only client character set that reads ASCII bytes otherwise: to it
		// @ [ \ ] ^ { | } ~ and the backquote are letters.
		return false
	}
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			switch charset {
			case "utf8mb4", "utf8mb3", "utf8":
				return utf8.ValidString(text)
			}
			return false
		}
	}
	return true
}

type classifier struct {
	q *queryEvent
	t sqlTokens
}

// unknown is the effect of a statement whose head can not be read: it is counted,
// and as wide as the databases that the server listed; of a TRUNCATE, which may
// empty the tables below a MERGE table, it lists that table's alone.
func (c *classifier) unknown(e effect) effect {
	e.understood = false
	if truncateWord.Match(c.q.text) {
		e.reach = reachEverything
		return e
	}
	return c.widen(e)
}

// truncateWord is spelt with the same bytes in each character set of a client.
var truncateWord = regexp.MustCompile(`(?i)TRUNCATE`)

// widen gives e the databases that the server listed, or everything.
func (c *classifier) widen(e effect) effect {
	if !c.q.known {
		e.reach = reachEverything
		return e
	}
	e.reach = reachSchemas
	e.schemas = e.schemas[:0]
	for _, d := range c.q.databases {
		e.schemas = append(e.schemas, string(d))
	}
	return e
}

func (c *classifier) statement() effect {
	first := c.t.next()
	if first.punct('(') {
		return c.widen(effect{write: true, understood: true})
	}
	ddl := effect{ddl: true, understood: true}
	switch word := strings.ToUpper(first.text); {
	case first.kind != tokWord:
		return effect{reach: reachEverything, ddl: true}
	case word == "CREATE":
		return c.create(ddl)
	case word == "ALTER":
		return c.alter(ddl)
	case word == "DROP":
		return c.drop(ddl)
	case word == "RENAME":
		return c.rename(ddl)
	case word == "TRUNCATE":
		return c.truncate(ddl)
	default:
		return c.other(word, ddl)
	}
}

func (c *classifier) other(word string, ddl effect) effect {
	switch word {
	case "INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "DO", "SELECT", "WITH", "TABLE", "VALUES":
		return c.widen(effect{write: true, understood: true})
	case "ANALYZE", "FLUSH", "CHECK", "CHECKSUM":
		return ddl
	case "OPTIMIZE", "REPAIR":
		return c.maintenance(ddl)
	case "GRANT", "REVOKE", "SET", "INSTALL", "UNINSTALL":
		return system(ddl)
	case "IMPORT":
		return c.widen(ddl)
	}
	return effect{reach: reachEverything, ddl: true}
}

func system(e effect) effect {
	e.reach, e.schemas = reachSchemas, []string{systemSchema}
	return e
}

// isObjectModifier tells what may stand between CREATE, ALTER or DROP and the
// kind of object without changing it.
func isObjectModifier(word string) bool {
	switch word {
	case "OR", "REPLACE", "UNIQUE", "FULLTEXT", "AGGREGATE", "LOADABLE", "UNDO", "ONLINE", "OFFLINE", "IGNORE", "EXTERNAL":
		return true
	}
	return false
}

// isRowlessObject tells kinds of objects whose definition holds no row.
func isRowlessObject(word string) bool {
	switch word {
	case "VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "SERVER", "TABLESPACE", "LOGFILE", "RESOURCE", "LIBRARY", "INSTANCE",
		"DEFINER", "ALGORITHM", "SQL", "JSON", "MATERIALIZED", "PREPARE", "MASKING":
		// DEFINER, ALGORITHM and SQL SECURITY begin views and stored programs only.
		return true
	}
	return false
}

// object reads on to the kind of object that a CREATE, ALTER or DROP is about,
// and classifies the kinds that all three treat alike. own is asked about the
// others; it returns false for a kind that its verb does not know.
func (c *classifier) object(e effect, own func(kind string) (effect, bool)) effect {
	for {
		w := c.t.next()
		if w.kind != tokWord {
			return c.unknown(e)
		}
		switch kind := strings.ToUpper(w.text); {
		case isObjectModifier(kind):
		case isRowlessObject(kind):
			return e
		case kind == "DATABASE", kind == "SCHEMA":
			return c.database(e)
		case kind == "USER", kind == "ROLE":
			return system(e)
		default:
			if known, ok := own(kind); ok {
				return known
			}
			return c.unknown(e)
		}
	}
}

func (c *classifier) create(e effect) effect {
	return c.object(e, func(kind string) (effect, bool) {
		switch kind {
		case "SPATIAL": // INDEX or REFERENCE SYSTEM
			if n := c.t.next(); n.is("INDEX") {
				return c.indexOn(e), true
			}
			return system(e), true
		case "TEMPORARY":
			return e, true // seen by its session alone
		case "TABLE":
			return c.tableList(e, false), true
		case "INDEX":
			return c.indexOn(e), true
		}
		return e, false
	})
}

func (c *classifier) alter(e effect) effect {
	return c.object(e, func(kind string) (effect, bool) {
		if kind != "TABLE" {
			return e, false
		}
		return c.alterTable(e), true
	})
}

// alterTable adds the other tables that an ALTER TABLE may touch: the new name,
// and the table whose rows are exchanged.
func (c *classifier) alterTable(e effect) effect {
	name, ok := c.tableName(c.t.next())
	if !ok {
		return c.unknown(e)
	}
	e.reach, e.tables = reachTables, append(e.tables, name)
	depth := 0
	for {
		w := c.t.next()
		switch {
		case w.kind == tokEnd:
			return e
		case w.kind == tokBad:
			return c.unknown(e)
		case w.punct('('):
			depth++
		case w.punct(')'):
			depth--
		case depth > 0:
		case w.is("RENAME"):
			if !c.alterRename(&e) {
				return c.unknown(e)
			}
		case w.is("EXCHANGE"):
			if !c.alterExchange(&e) {
				return c.unknown(e)
			}
		}
	}
}

// alterRename reads what follows RENAME: COLUMN, INDEX, KEY, or a new name of
// the table.
func (c *classifier) alterRename(e *effect) bool {
	w := c.t.next()
	switch {
	case w.is("COLUMN"), w.is("INDEX"), w.is("KEY"):
		return true
	case w.is("TO"), w.is("AS"), w.punct('='):
		w = c.t.next()
	}
	name, ok := c.tableName(w)
	e.tables = append(e.tables, name)
	return ok
}

// alterExchange reads PARTITION p WITH TABLE t.
func (c *classifier) alterExchange(e *effect) bool {
	if !c.t.next().is("PARTITION") || !c.t.next().name() || !c.t.next().is("WITH") || !c.t.next().is("TABLE") {
		return false
	}
	name, ok := c.tableName(c.t.next())
	e.tables = append(e.tables, name)
	return ok
}

func (c *classifier) drop(e effect) effect {
	return c.object(e, func(kind string) (effect, bool) {
		switch kind {
		case "SPATIAL": // REFERENCE SYSTEM
			return system(e), true
		case "TEMPORARY":
			return e, true
		case "TABLE", "TABLES":
			return c.tableList(e, true), true
		case "INDEX":
			return c.indexOn(e), true
		}
		return e, false
	})
}

func (c *classifier) rename(e effect) effect {
	switch w := c.t.next(); {
	case w.is("USER"):
		return system(e)
	case !w.is("TABLE") && !w.is("TABLES"):
		return c.unknown(e)
	}
	e.reach = reachTables
	for {
		from, ok := c.tableName(c.t.next())
		if !ok || !c.t.next().is("TO") {
			return c.unknown(e)
		}
		to, ok := c.tableName(c.t.next())
		if !ok {
			return c.unknown(e)
		}
		e.tables = append(e.tables, from, to)
		switch w := c.t.next(); {
		case w.kind == tokEnd, w.punct(';'):
			return e
		case !w.punct(','):
			return c.unknown(e)
		}
	}
}

func (c *classifier) truncate(e effect) effect {
	w := c.t.next()
	if w.is("TABLE") {
		w = c.t.next()
	}
	name, ok := c.tableName(w)
	if !ok {
		return c.unknown(e)
	}
	e.reach, e.tables, e.empties = reachTables, []tableName{name}, true
	return e
}

// maintenance reads OPTIMIZE and REPAIR.
func (c *classifier) maintenance(e effect) effect {
	w := c.t.next()
	for w.is("NO_WRITE_TO_BINLOG") || w.is("LOCAL") {
		w = c.t.next()
	}
	if !w.is("TABLE") && !w.is("TABLES") {
		return c.unknown(e)
	}
	return c.tableList(e, true)
}

// tableList reads [IF [NOT] EXISTS] t [, t ...]; without list only the first.
func (c *classifier) tableList(e effect, list bool) effect {
	w := c.ifExists()
	e.reach = reachTables
	for {
		name, ok := c.tableName(w)
		if !ok {
			return c.unknown(e)
		}
		e.tables = append(e.tables, name)
		if !list {
			return e
		}
		switch w = c.t.next(); {
		case w.punct(','):
			w = c.t.next()
		case w.kind == tokBad:
			return c.unknown(e)
		default:
			return e // RESTRICT, CASCADE, QUICK, ...: no table follows
		}
	}
}

// ifExists skips IF [NOT] EXISTS and returns the token behind it.
func (c *classifier) ifExists() token {
	w := c.t.next()
	if !w.is("IF") {
		return w
	}
	w = c.t.next()
	if w.is("NOT") {
		w = c.t.next()
	}
	if !w.is("EXISTS") {
		return token{kind: tokBad}
	}
	return c.t.next()
}

// indexOn reads name ... ON t.
func (c *classifier) indexOn(e effect) effect {
	if w := c.ifExists(); !w.name() {
		return c.unknown(e)
	}
	for range 8 {
		switch w := c.t.next(); {
		case w.is("ON"):
			name, ok := c.tableName(c.t.next())
			if !ok {
				return c.unknown(e)
			}
			e.reach, e.tables = reachTables, []tableName{name}
			return e
		case w.kind == tokEnd, w.kind == tokBad:
			return c.unknown(e)
		}
	}
	return c.unknown(e)
}

// database reads [IF [NOT] EXISTS] name; ALTER DATABASE may leave the name out.
func (c *classifier) database(e effect) effect {
	w := c.ifExists()
	e.reach = reachSchemas
	switch {
	case w.kind == tokName:
		e.schemas = []string{w.text}
	case w.kind == tokWord:
		e.schemas = []string{w.text}
		if len(c.q.schema) > 0 { // it may be an option of ALTER DATABASE
			e.schemas = append(e.schemas, string(c.q.schema))
		}
	default:
		return c.unknown(e)
	}
	return e
}

// tableName reads [schema.]table, of which first is the first token.
func (c *classifier) tableName(first token) (tableName, bool) {
	if !first.name() {
		return tableName{}, false
	}
	at := c.t
	if !c.t.next().punct('.') {
		c.t = at
		if len(c.q.schema) == 0 {
			return tableName{}, false
		}
		return tableName{string(c.q.schema), first.text}, true
	}
	table := c.t.next()
	return tableName{first.text, table.text}, table.name()
}
