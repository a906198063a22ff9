package binlog_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"tidegate/binlog"
	"tidegate/cdc/event"
)

// wideOddities are writes that do not name rows. @ stands for the schema.
func wideOddities() []oddity {
	two := []string{"CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1),(2,2)", "INSERT INTO u VALUES (1,1)"}
	statement := append([]string{"SET binlog_format=STATEMENT"}, two...)
	merge := []string{
		"CREATE TABLE m1 (id INT PRIMARY KEY, v INT) ENGINE=MyISAM", "CREATE TABLE m2 (id INT PRIMARY KEY, v INT) ENGINE=MyISAM",
		"INSERT INTO m1 VALUES (1,1)", "INSERT INTO m2 VALUES (2,2)", "CREATE TABLE mm (id INT PRIMARY KEY, v INT) ENGINE=MERGE UNION=(m1,m2)",
	}
	ddl := func(name, sql string, want ...string) oddity {
		flags := event.DDL
		if len(want) == 0 {
			flags |= event.Empty // no row of any table
		}
		return oddity{name: name, setup: two, change: []string{sql}, want: want, flags: flags}
	}
	return []oddity{
		ddl("truncate", "TRUNCATE t", "all:@.t"),
		ddl("truncate qualified", "TRUNCATE TABLE `@`.`t`", "all:@.t"),
		ddl("alter", "ALTER TABLE t ADD COLUMN w INT DEFAULT 7", "all:@.t"),
		ddl("alter with a comment before", "/* x; DROP TABLE u */ ALTER /*!50000 TABLE */ t COMMENT='RENAME TO u'", "all:@.t"),
		ddl("alter and rename", "ALTER TABLE t ADD w INT, RENAME TO @.n", "all:@.t", "all:@.n"),
		ddl("alter renames a column", "ALTER TABLE t RENAME COLUMN v TO w", "all:@.t"),
		ddl("drop", "DROP TABLE IF EXISTS t, u, nosuch", "all:@.t", "all:@.u", "all:@.nosuch"),
		ddl("rename in a circle", "RENAME TABLE t TO x, u TO t, x TO u", "all:@.t", "all:@.u", "all:@.x"),
		ddl("index", "CREATE INDEX i USING BTREE ON t (v)", "all:@.t"),
		ddl("create", "CREATE TABLE IF NOT EXISTS n LIKE t", "all:@.n"),
		ddl("optimize", "OPTIMIZE TABLE t, u", "all:@.t", "all:@.u"),
		ddl("analyze", "ANALYZE TABLE t"),
		ddl("view", "CREATE VIEW vv AS SELECT * FROM t"),
		ddl("trigger", "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.v=1"),
		ddl("procedure", "CREATE PROCEDURE p() BEGIN DELETE FROM t; TRUNCATE u; END"),
		ddl("alter schema", "ALTER DATABASE `@` DEFAULT CHARACTER SET latin1", "schema:@"),
		ddl("drop schema", "DROP SCHEMA @", "schema:@"),
		ddl("comment of a newer server", "TRUNCATE TABLE /*!99999 u */ t", "all:@.t"),
		{
			name:   "digits behind an executable comment's version",
			setup:  []string{"CREATE TABLE `1t` (id INT PRIMARY KEY)", "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO `1t` VALUES (1)"},
			change: []string{"TRUNCATE TABLE /*!1t*/", "TRUNCATE TABLE /*!800001t*/", "TRUNCATE TABLE /*!080000 t*/", "TRUNCATE /*!80000TABLE*/ t"},
			want:   []string{"all:@.1t", "all:@.t"}, flags: event.DDL,
		},
		{
			name: "ansi quotes", setup: append([]string{"SET sql_mode='ANSI_QUOTES'", `CREATE TABLE "x""y` + "`" + `z" (id INT PRIMARY KEY)`}, two...),
			change: []string{`ALTER TABLE "t" COMMENT 'a"b', RENAME TO "n"`, `DROP TABLE "u", "x""y` + "`" + `z"`},
			want:   []string{"all:@.t", "all:@.n", "all:@.u", "all:@.x\"y`z"}, flags: event.DDL,
		},
		{
			name: "no backslash escapes", setup: append([]string{"SET sql_mode='NO_BACKSLASH_ESCAPES'"}, two...),
			change: []string{`ALTER TABLE t COMMENT '\', RENAME TO n, ALGORITHM=COPY`, `ALTER TABLE u COMMENT ', RENAME TO n2'`},
			want:   []string{"all:@.t", "all:@.n", "all:@.u"}, flags: event.DDL,
		},
		ddl("grant", "GRANT SELECT ON @.* TO app", "schema:mysql"),
		{
			name: "create table select", setup: two, change: []string{"CREATE TABLE n (PRIMARY KEY (id)) AS SELECT * FROM t"},
			want: []string{"all:@.n", "any:@.n"}, flags: event.DDL,
		},
		{
			name:   "partition operations",
			setup:  []string{"CREATE TABLE t (id INT PRIMARY KEY, v INT) PARTITION BY RANGE(id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))", "CREATE TABLE u (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1),(11,1)", "INSERT INTO u VALUES (2,2)"},
			change: []string{"ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u", "ALTER TABLE t DROP PARTITION p1"},
			want:   []string{"all:@.t", "all:@.u"}, flags: event.DDL,
		},
		{name: "merge table", setup: merge, change: []string{"UPDATE mm SET v=8 WHERE id=2"}, want: []string{"everything", "any:@.mm"}},
		{
			name: "merge table just renamed", setup: merge, change: []string{"RENAME TABLE mm TO n", "UPDATE n SET v=8 WHERE id=2"},
			want: []string{"all:@.mm", "all:@.n", "everything", "any:@.n"},
		},
		{
			name: "merge table just made", setup: merge[:4],
			change: []string{"CREATE TABLE n (id INT PRIMARY KEY, v INT) ENGINE = /* */ 'merge' UNION=(m2)", "UPDATE n SET v=8 WHERE id=2"},
			want:   []string{"all:@.n", "everything", "any:@.n"},
		},
		{
			name: "merge table like another", setup: merge, change: []string{"CREATE TABLE n LIKE mm", "UPDATE n SET v=8 WHERE id=2"},
			want: []string{"all:@.n", "everything", "any:@.n"},
		},
		{
			name: "merge table of a text that nobody reads", setup: merge[:4],
			change: []string{"SET NAMES latin1", "CREATE TABLE n (id INT PRIMARY KEY, v INT) ENGINE=MERGE UNION=(m2) COMMENT='\xe9'", "UPDATE n SET v=8 WHERE id=2"},
			want:   []string{"schema:@", "everything", "any:@.n"},
		},
		{
			name: "merge table renamed by a text that nobody reads", setup: merge,
			change: []string{"SET NAMES latin1", "RENAME TABLE mm TO n /* \xe9 */", "UPDATE n SET v=8 WHERE id=2"},
			want:   []string{"schema:@", "everything", "any:@.n"},
		},
		{
			name: "merge table truncated", setup: merge, change: []string{"TRUNCATE mm"},
			want: []string{"everything"}, flags: event.DDL,
		},
		{
			name: "merge table truncated by a text that nobody reads", setup: merge, change: []string{"SET NAMES latin1", "TRUNCATE mm /* \xe9 */"},
			want: []string{"everything"}, flags: event.DDL | event.NotUnderstood,
		},
		{
			name: "temporary merge table truncated", setup: merge,
			change: []string{"SET binlog_format=STATEMENT", "CREATE TEMPORARY TABLE x LIKE mm", "TRUNCATE x"},
			want:   []string{"everything"}, flags: event.DDL,
		},
		{
			name: "merge table no more", setup: merge, change: []string{"DROP TABLE mm", "UPDATE m2 SET v=8 WHERE id=2"},
			want: []string{"all:@.mm", "any:@.m2", "@.m2/2"},
		},
		{
			name:  "discard and drop",
			setup: []string{"CREATE TABLE t (id INT PRIMARY KEY)"}, change: []string{"ALTER TABLE t DISCARD TABLESPACE", "DROP TABLE t"},
			want: []string{"all:@.t"}, flags: event.DDL,
		},
		{name: "statement format", setup: statement, change: []string{"UPDATE t SET v=v+1"}, want: []string{"schema:@"}, flags: event.Statement},
		{
			name:   "statement format inside a transaction",
			setup:  two,
			change: []string{"BEGIN", "INSERT INTO t VALUES (5,5)", "COMMIT", "SET binlog_format=STATEMENT", "BEGIN", "DELETE FROM u", "INSERT INTO t VALUES (6,6)", "COMMIT"},
			want:   []string{"schema:@", "any:@.t", "@.t/5"}, flags: event.Statement,
		},
		{
			name:   "statement that reaches another schema",
			setup:  append([]string{"CREATE DATABASE IF NOT EXISTS elsewhere", "CREATE TABLE IF NOT EXISTS elsewhere.log (id INT AUTO_INCREMENT PRIMARY KEY)", two[0], "CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW INSERT INTO elsewhere.log VALUES ()"}, two[1:]...),
			change: []string{"SET binlog_format=STATEMENT", "INSERT INTO t VALUES (7,7)"},
			want:   []string{"schema:@", "schema:elsewhere"}, flags: event.Statement,
		},
		{
			name:   "load data as a statement",
			setup:  append([]string{"SET binlog_format=STATEMENT"}, two...),
			change: []string{"SELECT 100+id, v INTO OUTFILE '" + outfile + "' FROM u", "LOAD DATA INFILE '" + outfile + "' INTO TABLE t"},
			want:   []string{"schema:@"}, flags: event.Statement,
		},
		{
			name:   "savepoints",
			setup:  two,
			change: []string{"BEGIN", "INSERT INTO t VALUES (8,8)", "SAVEPOINT `a b`", "INSERT INTO t VALUES (9,9)", "ROLLBACK TO `a b`", "INSERT INTO u VALUES (8,8)", "RELEASE SAVEPOINT `a b`", "COMMIT"},
			want:   []string{"any:@.t", "any:@.u", "@.t/8", "@.u/8"},
		},
		{
			name:   "temporary tables",
			setup:  two,
			change: []string{"CREATE TEMPORARY TABLE x (id INT)", "INSERT INTO x VALUES (1)", "INSERT INTO t SELECT id+10, 1 FROM x", "DROP TEMPORARY TABLE x"},
			want:   []string{"any:@.t", "@.t/11"},
		},
		{name: "empty transaction", setup: two, change: []string{"SET gtid_next='aaaaaaaa-0000-0000-0000-000000000000:%N'", "BEGIN", "COMMIT", "SET gtid_next=AUTOMATIC"}, want: []string{}, flags: event.Empty},
		{name: "tagged", setup: two, change: []string{"SET gtid_next='AUTOMATIC:tide_1'", "INSERT INTO t VALUES (3,3)", "SET gtid_next=AUTOMATIC", "INSERT INTO t VALUES (4,4)"}, want: []string{"any:@.t", "@.t/3", "@.t/4"}},
	}
}

// wideRuns numbers the runs of all rounds (-count): the servers stay, and have each
// GTID once.
var wideRuns atomic.Int64

func TestWideWrites(t *testing.T) {
	for i, o := range wideOddities() {
		t.Run(o.name, func(t *testing.T) {
			for j, compression := range []bool{false, true} {
				s := newSession(t, servers.Primary())
				settings{"FULL", "MINIMAL", compression}.apply(t, s)
				name := fmt.Sprintf("wide%d_%d", i, j)
				wideRuns.Add(1)
				at := func(list []string) (out []string) {
					for _, q := range list {
						out = append(out, strings.ReplaceAll(strings.ReplaceAll(q, "@", name), "%N", fmt.Sprint(wideRuns.Load())))
					}
					return out
				}
				b := newBedOn(t, s, name, o.groups, at(o.setup)...)
				for _, table := range []string{"n", "x", "nosuch", "mm", "1t", "x\"y`z"} {
					b.n.table(name, table)
				}
				b.n[testHasher.Everything()] = "everything"
				for _, other := range []string{"mysql", "elsewhere"} {
					b.n[testHasher.Schema(other)] = "schema:" + other
				}
				txns, _ := b.change(replaceOutfile(t, name, at(o.change))...)
				if len(txns) == 0 {
					t.Fatal("no transaction")
				}
				want := at(o.want)
				if names := b.n; len(b.defs) > 0 {
					for _, k := range want {
						if table, _, isRow := strings.Cut(strings.TrimPrefix(k, name+"."), "/"); isRow {
							if d, ok := b.defs[table]; ok {
								names.key(t, &d, k)
							}
						}
					}
				}
				got := b.n.names(txns...)
				same(t, o.name, got, want)
				last := txns[len(txns)-1]
				if last.Flags&^event.CascadesLogged != o.flags {
					t.Errorf("flags %b, want %b", last.Flags, o.flags)
				}
				s.exec("DROP DATABASE IF EXISTS " + name)
			}
		})
	}
}

// TestMergeTableBeforeLookup: what a tailer reads of a MERGE table before its first
// look-up of definitions is about rows of other tables too (rules §3.3).
func TestMergeTableBeforeLookup(t *testing.T) {
	const name = "unlooked"
	s := newSession(t, servers.Primary())
	schema(t, s, name)
	s.exec("CREATE TABLE m (id INT PRIMARY KEY, v INT) ENGINE=MyISAM", "INSERT INTO m VALUES (1,1),(2,2)",
		"CREATE TABLE mm (id INT PRIMARY KEY, v INT) ENGINE=MERGE UNION=(m) INSERT_METHOD=LAST", "CREATE TABLE t (id INT PRIMARY KEY)")
	from := executed(t, servers.Primary())
	s.exec("UPDATE mm SET v=8 WHERE id=2", "INSERT INTO mm VALUES (3,3)", "DELETE FROM mm WHERE id=1", "INSERT INTO t VALUES (1)")
	l := startTail(t, servers.Primary(), func(o *binlog.TailerOptions) { o.From = from })
	txns := l.rec.in(l.caughtUp().Subtract(from))
	if len(txns) != 4 {
		t.Fatalf("%d transactions, want 4", len(txns))
	}
	for i, x := range txns {
		want := i < 3 // InnoDB's is not about another table's rows
		if got := slices.Contains(x.Scopes, testHasher.Everything()); got != want {
			t.Errorf("transaction %d writes everything: %v, want %v", i+1, got, want)
		}
	}
}

// TestImportTablespace: an IMPORT exchanges all rows of a table and names none
// (rules §3.3).
func TestImportTablespace(t *testing.T) {
	const name = "imported"
	b := newBed(t, name, map[string][]string{"t": {"g"}},
		"CREATE TABLE t (id INT PRIMARY KEY, g INT, v INT)", "INSERT INTO t VALUES (1,1,1),(2,2,2)",
		"CREATE TABLE src (id INT PRIMARY KEY, g INT, v INT)", "INSERT INTO src VALUES (2,2,20),(3,3,30)")
	dir := filepath.Join(servers.Primary().DataDir(), name)
	copied := map[string][]byte{}
	b.s.exec("FLUSH TABLES src FOR EXPORT")
	for _, ext := range []string{".ibd", ".cfg"} {
		data, err := os.ReadFile(filepath.Join(dir, "src"+ext))
		if err != nil {
			t.Fatal(err)
		}
		copied[ext] = data
	}
	b.s.exec("UNLOCK TABLES")
	before := b.take()
	b.s.exec("ALTER TABLE t DISCARD TABLESPACE")
	for ext, data := range copied {
		if err := os.WriteFile(filepath.Join(dir, "t"+ext), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	from := b.l.caughtUp()
	b.s.exec("ALTER TABLE t IMPORT TABLESPACE")
	txns := b.l.rec.in(b.l.caughtUp().Subtract(from))
	c := diff(before, b.take())
	if ids := c.rows["t"]; len(ids) != 4 { // 1 is gone, 2 is another, twice, 3 is new
		t.Fatalf("the import changed rows %q", ids)
	}
	b.covered(c, txns)
	same(t, "import", b.n.names(txns...), []string{"all:" + name + ".t"})
	if len(txns) != 1 || txns[0].Flags&event.DDL == 0 {
		t.Errorf("%d transactions, want one DDL", len(txns))
	}
	b.s.exec("DROP DATABASE " + name)
}
