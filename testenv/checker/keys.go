package checker

import (
	"fmt"
	"strings"

	"tidegate/testenv"
)

// The tables that sessions write. Each row holds the version of its key (v),
// counted up under the row's lock so that v is the order in which commits
// changed it, and the number of the write (w), so that a version that was lost
// in a failover is told from one of the same number that came after it.
const (
	rowsPerTable = 32
	numGroups    = 8
	schema       = testenv.AppDatabase
)

// GroupColumn is the group column that a router under test must know of, with
// its table, both as keys print them.
const (
	GroupTable  = schema + ".posts"
	GroupColumn = "author"
)

// table is one of the written tables.
type table struct {
	name   string
	create string
	where  string               // selects one row
	args   func(row int) []any  // values of the key columns
	print  func(row int) string // the key's values, printed
	cols   string               // the key columns
}

// tables cover keys of one integer (with a group column), of a string, and of
// two columns. The first one has the group column.
var tables = []table{
	{
		name: "posts", create: "id INT PRIMARY KEY", cols: "id", where: "id=?",
		args:  func(row int) []any { return []any{row} },
		print: func(row int) string { return fmt.Sprint(row) },
	},
	{
		name: "notes", create: "id VARCHAR(24) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci PRIMARY KEY", cols: "id", where: "id=?",
		args:  func(row int) []any { return []any{noteName(row)} },
		print: noteName,
	},
	{
		name: "pairs", create: "a INT, b INT, PRIMARY KEY (a, b)", cols: "a, b", where: "a=? AND b=?",
		args:  func(row int) []any { return []any{row / 8, row % 8} },
		print: func(row int) string { return fmt.Sprintf("%d,%d", row/8, row%8) },
	},
}

// Tables are the names of the tables whose keys sessions read, as keys print
// them.
func Tables() []string {
	out := make([]string, len(tables))
	for i := range tables {
		out[i] = schema + "." + tables[i].name
	}
	return out
}

func noteName(row int) string { return fmt.Sprintf("Note-%d", row) }

// Key is a row of one of the tables, counted over all of them.
type Key int

// numKeys is how many there are.
var numKeys = len(tables) * rowsPerTable

func (k Key) table() *table  { return &tables[int(k)/rowsPerTable] }
func (k Key) valid() bool    { return k >= 0 && int(k) < numKeys }
func (k Key) row() int       { return int(k) % rowsPerTable }
func (k Key) grouped() bool  { return int(k) < rowsPerTable }
func (k Key) String() string { return schema + "." + k.table().name + "/" + k.table().print(k.row()) }

// firstGroup is the group that a key has before anybody wrote it.
func (k Key) firstGroup() int { return k.row() % numGroups }

// whereText selects the key's row, in SQL.
func (k Key) whereText() string {
	args := k.table().args(k.row())
	for i, a := range args {
		args[i] = fmt.Sprintf("'%v'", a)
	}
	return fmt.Sprintf(strings.ReplaceAll(k.table().where, "?", "%v"), args...)
}

// printGroup is the group key of the rows in group g.
func printGroup(g int) string { return fmt.Sprintf("%s@%s/%d", GroupTable, GroupColumn, g) }

func printKeys(keys []Key, group int) []string {
	if group >= 0 {
		return []string{printGroup(group)}
	}
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k.String()
	}
	return out
}

// sideTable is written by big transactions and DDL only.
const (
	sideTable = schema + ".side"
	sideRows  = 20_000
)

// createStatements make the tables and their rows, version 0 of each key.
func createStatements() []string {
	out := []string{
		"SET SESSION cte_max_recursion_depth = 1000000",
		"CREATE TABLE " + sideTable + " (id INT PRIMARY KEY, n INT NOT NULL, pad VARCHAR(60) NOT NULL)",
		fmt.Sprintf("INSERT INTO %s WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r WHERE i < %d) SELECT i, 0, REPEAT('x', 40) FROM r", sideTable, sideRows),
	}
	for t := range tables {
		tab := &tables[t]
		out = append(out, fmt.Sprintf("CREATE TABLE %s.%s (%s, v BIGINT NOT NULL, w BIGINT NOT NULL, k INT NOT NULL, %s INT NOT NULL, KEY (%s))",
			schema, tab.name, tab.create, GroupColumn, GroupColumn))
		var rows []string
		for row := range rowsPerTable {
			k := Key(t*rowsPerTable + row)
			var vals []string
			for _, a := range tab.args(row) {
				vals = append(vals, fmt.Sprintf("'%v'", a))
			}
			rows = append(rows, fmt.Sprintf("(%s, 0, 0, %d, %d)", strings.Join(vals, ", "), int(k), k.firstGroup()))
		}
		out = append(out, fmt.Sprintf("INSERT INTO %s.%s (%s, v, w, k, %s) VALUES %s", schema, tab.name, tab.cols, GroupColumn, strings.Join(rows, ", ")))
	}
	return out
}

// readSQL reads rows of one table with the server's identity; no row at all
// still tells the identity.
func readSQL(tab *table, where string) string {
	return fmt.Sprintf("SELECT @@server_uuid, t.k, t.v, t.w FROM (SELECT 1) AS one LEFT JOIN %s.%s AS t ON %s", schema, tab.name, where)
}
