package binlog_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tidegate/cdc/event"
)

// oddity is one way to write to MySQL.
type oddity struct {
	name   string
	groups map[string][]string
	setup  []string
	change []string
	// want are the scopes in place of the rows that changed; nil: exactly those,
	// their groups, and the any-row scopes of their tables.
	want  []string
	flags event.Flags // of the last transaction
}

// exact are oddities whose keys must be exactly those of the rows that changed.
func exactOddities() []oddity {
	return []oddity{
		{
			name: "several rows in several tables", groups: map[string][]string{"t": {"g"}},
			setup:  []string{"CREATE TABLE t (id INT PRIMARY KEY, g INT, v INT)", "CREATE TABLE u (a INT, b INT, PRIMARY KEY (b, a))", "INSERT INTO t VALUES (1,1,1),(2,2,2),(3,NULL,3)"},
			change: []string{"BEGIN", "INSERT INTO u VALUES (1,2),(3,4)", "UPDATE t SET g=g+10, v=0 WHERE id>1", "DELETE FROM t WHERE id=1", "COMMIT"},
		},
		{
			name: "primary key changed", groups: map[string][]string{"t": {"g"}},
			setup:  []string{"CREATE TABLE t (id INT PRIMARY KEY, g INT)", "INSERT INTO t VALUES (1,1),(2,2)"},
			change: []string{"UPDATE t SET id=id+100"},
		},
		{
			name:   "replace and upsert",
			setup:  []string{"CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE, v INT)", "INSERT INTO t VALUES (1,1,1),(2,2,2),(3,3,3)"},
			change: []string{"REPLACE INTO t VALUES (9,1,9),(2,2,5)", "INSERT INTO t VALUES (3,3,3),(4,4,4) ON DUPLICATE KEY UPDATE v=77"},
		},
		{
			name:   "trigger and procedure",
			setup:  []string{"CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE log (id INT AUTO_INCREMENT PRIMARY KEY, what INT)", "CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW INSERT INTO log (what) VALUES (NEW.id)", "CREATE PROCEDURE p() BEGIN INSERT INTO t VALUES (7,7); UPDATE t SET v=8 WHERE id=7; END"},
			change: []string{"INSERT INTO t VALUES (1,1)", "CALL p()"},
		},
		{
			name: "generated and invisible columns", groups: map[string][]string{"t": {"twice", "hidden"}},
			setup:  []string{"CREATE TABLE t (a INT, hidden INT INVISIBLE, id INT GENERATED ALWAYS AS (a+1) STORED PRIMARY KEY, twice INT GENERATED ALWAYS AS (a*2) VIRTUAL, KEY ((a*3)))", "INSERT INTO t (a, hidden) VALUES (1,5),(2,6)"},
			change: []string{"UPDATE t SET a=a+10, hidden=hidden+1 WHERE a=2", "INSERT INTO t (a) VALUES (40)"},
		},
		{
			name: "invisible primary key", setup: []string{"CREATE TABLE t (id INT INVISIBLE PRIMARY KEY, v INT)", "INSERT INTO t (id,v) VALUES (1,1),(2,2)"},
			change: []string{"UPDATE t SET v=9 WHERE id=2"},
		},
		{
			name:   "generated invisible primary key",
			setup:  []string{"SET sql_generate_invisible_primary_key=ON", "CREATE TABLE t (v INT)", "INSERT INTO t VALUES (1),(2)"},
			change: []string{"UPDATE t SET v=3 WHERE v=2", "INSERT INTO t VALUES (9)"},
		},
		{
			name:   "json in part",
			setup:  []string{"CREATE TABLE t (j JSON, id INT PRIMARY KEY, k JSON, v INT)", `INSERT INTO t VALUES ('{"a":1,"b":"xxxxxxxxxxxxxxxxxxxxxxxxxx"}',1,'{"a":1,"b":"xxxxxxxxxxxxxxxxxxxxxxxxxx"}',1),('{"a":1}',2,NULL,2)`, "SET binlog_row_value_options=PARTIAL_JSON"},
			change: []string{`UPDATE t SET j=JSON_SET(j,'$.a',JSON_EXTRACT(j,'$.a')+1), v=v+1`, `UPDATE t SET k=JSON_REPLACE(k,'$.a',5)`, `UPDATE t SET id=7, k=JSON_SET('{}','$.x',3) WHERE id=2`},
		},
		{
			name:   "large columns",
			setup:  []string{"CREATE TABLE t (b LONGBLOB, x TEXT, id VARCHAR(300) PRIMARY KEY, c TINYTEXT, g GEOMETRY)", "INSERT INTO t VALUES (REPEAT('a',400000),'x','one','y',NULL),(NULL,NULL,REPEAT('k',300),NULL,NULL)"},
			change: []string{"UPDATE t SET b=REPEAT('b',700000), g=ST_GeomFromText('POINT(1 1)') WHERE id='one'", "UPDATE t SET x=REPEAT('z',60000)"},
		},
		{
			name:   "non-transactional engine rolled back",
			setup:  []string{"CREATE TABLE t (id INT PRIMARY KEY) ENGINE=MyISAM", "CREATE TABLE i (id INT PRIMARY KEY)"},
			change: []string{"BEGIN", "INSERT INTO t VALUES (1)", "ROLLBACK", "INSERT INTO t VALUES (2)"},
		},
		{
			name:   "partitioned",
			setup:  []string{"CREATE TABLE t (id INT PRIMARY KEY, v INT) PARTITION BY HASH(id) PARTITIONS 4", "INSERT INTO t VALUES (1,1),(2,2),(3,3)"},
			change: []string{"UPDATE t SET id=id+1 WHERE id=3", "DELETE FROM t WHERE id<3"},
		},
		{
			name:   "names of all sorts",
			setup:  []string{"CREATE TABLE `a b.c/d@e*%` (`k,e` INT PRIMARY KEY)", "CREATE TABLE `Ünïcödé` (id INT PRIMARY KEY)", "CREATE TABLE `Upper` (Id INT PRIMARY KEY)"},
			change: []string{"INSERT INTO `a b.c/d@e*%` VALUES (1)", "INSERT INTO `Ünïcödé` VALUES (2)", "INSERT INTO `Upper` VALUES (3)"},
		},
		{
			name:   "no key at all",
			setup:  []string{"CREATE TABLE t (v INT)", "INSERT INTO t VALUES (1),(2)", "CREATE TABLE f (id FLOAT PRIMARY KEY)", "CREATE TABLE p (id TEXT, PRIMARY KEY (id(5)))"},
			change: []string{"UPDATE t SET v=5 WHERE v=2", "INSERT INTO f VALUES (1.5)", "INSERT INTO p VALUES ('abcdefgh')"},
		},
		{
			name: "load data", setup: []string{"CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10))", "CREATE TABLE src (id INT, v VARCHAR(10))", "INSERT INTO src VALUES (1,'a'),(2,'b')"},
			change: []string{"SELECT id, v INTO OUTFILE '" + outfile + "' FROM src", "LOAD DATA INFILE '" + outfile + "' INTO TABLE t"},
		},
	}
}

// outfile is replaced by a file of the test.
const outfile = "%OUTFILE%"

// settings are what sessions may choose, mixed in one binlog.
type settings struct {
	image, metadata string
	compression     bool
}

func (s settings) String() string {
	return fmt.Sprintf("%s-%s-compressed=%t", s.image, s.metadata, s.compression)
}

func allSettings() (all []settings) {
	for _, image := range []string{"FULL", "MINIMAL", "NOBLOB"} {
		for _, metadata := range []string{"MINIMAL", "FULL"} {
			for _, compression := range []bool{false, true} {
				all = append(all, settings{image, metadata, compression})
			}
		}
	}
	return all
}

func (s settings) apply(t testing.TB, c *session) {
	t.Helper()
	c.exec("SET GLOBAL binlog_row_metadata="+s.metadata, "SET binlog_row_image="+s.image, fmt.Sprintf("SET binlog_transaction_compression=%t", s.compression))
	t.Cleanup(func() {
		// The test's own context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		if err := servers.Primary().Exec(ctx, "SET GLOBAL binlog_row_metadata=DEFAULT"); err != nil {
			t.Error(err)
		}
	})
}

// TestExactKeys holds the scopes against the rows that the server says have
// changed, under every row image, kind of metadata, and with and without
// compression.
func TestExactKeys(t *testing.T) {
	for i, o := range exactOddities() {
		t.Run(o.name, func(t *testing.T) {
			for j, set := range allSettings() {
				t.Run(set.String(), func(t *testing.T) {
					s := newSession(t, servers.Primary())
					set.apply(t, s)
					name := fmt.Sprintf("exact%d_%d", i, j)
					b := newBedOn(t, s, name, o.groups, o.setup...)
					defer s.exec("DROP DATABASE " + name)
					txns, c := b.change(replaceOutfile(t, name, o.change)...)
					if len(c.rows) == 0 {
						t.Fatal("nothing changed")
					}
					want := b.narrow(c)
					got := b.n.names(txns...)
					if set.image == "MINIMAL" {
						// What such an image has of a group column depends on the
						// statement; that the values are covered was checked.
						got, want = withoutGroups(got), withoutGroups(want)
					}
					same(t, o.name, got, want)
					b.sameDefinitions(txns)
				})
			}
		})
	}
}

func withoutGroups(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		table, _, _ := strings.Cut(n, "/")
		return strings.Contains(table, "@")
	})
}

func replaceOutfile(t testing.TB, name string, statements []string) (out []string) {
	dir := t.TempDir()
	for _, q := range statements {
		out = append(out, strings.ReplaceAll(q, outfile, dir+"/"+name+".txt"))
	}
	return out
}
