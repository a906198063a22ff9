package binlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
)

// lookupRequest asks for definitions.
type lookupRequest struct {
	all    bool
	tables []tableName // folded
	after  gtid.Set    // wait until these are executed: the look-up must see their DDL
	ddl    uint64      // the registry's, when the look-up began
}

// covers tells whether the request asks for a table.
func (r *lookupRequest) covers(n tableName) bool { return r.all || slices.Contains(r.tables, n) }

// merge adds what o asks for.
func (r *lookupRequest) merge(tables []tableName, all bool) {
	r.all = r.all || all
	if r.all {
		r.tables = nil
		return
	}
	for _, n := range tables {
		if !slices.Contains(r.tables, n) {
			r.tables = append(r.tables, n)
		}
	}
	const most = 64 // beyond that one look-up of everything is cheaper
	if len(r.tables) > most {
		r.all, r.tables = true, nil
	}
}

func (r *lookupRequest) empty() bool { return !r.all && len(r.tables) == 0 }

// lookupResult is what information_schema showed.
type lookupResult struct {
	request  lookupRequest
	uuid     gtid.UUID
	tables   map[tableName]*lookedTable // folded names; those of the request that exist
	children map[tableName][]tableName  // by cascading foreign keys, of all tables
	executed gtid.Set                   // read after everything else
}

// lookupFunc reads definitions. Tests replace it.
type lookupFunc func(ctx context.Context, g lookupNames, r lookupRequest) (*lookupResult, error)

// lookupNames is what a look-up needs of the registry; it is immutable.
type lookupNames struct {
	fold   bool
	groups map[tableName][]string
}

func (l *lookupNames) folded(schema, table string) tableName {
	if l.fold {
		return tableName{key.FoldName(schema), key.FoldName(table)}
	}
	return tableName{schema, table}
}

// sqlLookup reads definitions over SQL.
type sqlLookup struct {
	db     *sql.DB
	server *ServerConfig
}

// errNotYet: a transaction that the tail has shown is not executed yet.
var errNotYet = errors.New("the server has not executed what its binlog shows")

// look implements lookupFunc on one connection.
func (s *sqlLookup) look(ctx context.Context, names lookupNames, r lookupRequest) (*lookupResult, error) {
	ctx, cancel := context.WithTimeout(ctx, 6*s.server.queryTimeout())
	defer cancel()
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", s.server, err)
	}
	defer conn.Close()
	if !r.after.IsEmpty() {
		// The tail shows a transaction before it is visible (rules §11.1): without
		// this a look-up could still find what the DDL is about to replace.
		var late bool
		row := conn.QueryRowContext(ctx, "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)", r.after.OneLine(), s.server.queryTimeout().Seconds())
		if err := row.Scan(&late); err != nil {
			return nil, fmt.Errorf("wait for DDL on %s: %w", s.server, err)
		}
		if late {
			return nil, errNotYet
		}
	}
	// Tables with a generated invisible key hide it otherwise.
	if _, err := conn.ExecContext(ctx, "SET SESSION show_gipk_in_create_table_and_information_schema = ON"); err != nil && !unknownVariable(err) {
		return nil, fmt.Errorf("set up look-up on %s: %w", s.server, err)
	}
	res := &lookupResult{request: r, tables: map[tableName]*lookedTable{}, children: map[tableName][]tableName{}}
	l := lookup{conn: conn, names: names, res: res}
	for _, step := range []func(context.Context) error{l.columns, l.primary, l.engines, l.foreignKeys, l.executed} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("look up definitions on %s: %w", s.server, err)
		}
	}
	l.seal()
	return res, nil
}

// lookup is one look-up.
type lookup struct {
	conn  *sql.Conn
	names lookupNames
	res   *lookupResult
	// cols are the columns of the table that is being read.
	all map[tableName][]key.Column
}

// systemSchemas have no rows that readers ask for.
const systemSchemas = "('information_schema','performance_schema','sys')"

// only restricts a query to the tables of the request.
func (l *lookup) only(alias string) (where string, args []any) {
	where = " WHERE " + alias + "TABLE_SCHEMA NOT IN " + systemSchemas
	if l.res.request.all {
		return where, nil
	}
	var list []string
	for _, n := range l.res.request.tables {
		list = append(list, "(?,?)")
		args = append(args, n.schema, n.table)
	}
	return where + " AND (" + alias + "TABLE_SCHEMA," + alias + "TABLE_NAME) IN (" + strings.Join(list, ",") + ")", args
}

func (l *lookup) query(ctx context.Context, q string, args []any, each func(*sql.Rows) error) error {
	rows, err := l.conn.QueryContext(ctx, q, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// mergeEngine is the engine of MERGE tables. Like a view they get no definition: a
// write of a table below them changes their rows and does not name them.
const mergeEngine = "MRG_MYISAM"

func (l *lookup) columns(ctx context.Context) error {
	l.all = map[tableName][]key.Column{}
	where, args := l.only("c.")
	return l.query(ctx, `SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.COLUMN_NAME, c.ORDINAL_POSITION, c.DATA_TYPE, c.COLUMN_TYPE,
 c.IS_NULLABLE='YES', COALESCE(c.NUMERIC_PRECISION,0), COALESCE(c.NUMERIC_SCALE,0), COALESCE(c.DATETIME_PRECISION,0),
 COALESCE(c.CHARACTER_OCTET_LENGTH,0), COALESCE(c.COLLATION_NAME,'')
 FROM information_schema.COLUMNS c JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME)`+where+
		` AND t.TABLE_TYPE='BASE TABLE' AND COALESCE(t.ENGINE,'')<>'`+mergeEngine+`' ORDER BY c.TABLE_SCHEMA, c.TABLE_NAME, c.ORDINAL_POSITION`, args, func(rows *sql.Rows) error {
		var schema, table, dataType, columnType, collation string
		var col key.Column
		var ordinal, precision, scale, fraction int
		var octets uint64
		if err := rows.Scan(&schema, &table, &col.Name, &ordinal, &dataType, &columnType, &col.Nullable,
			&precision, &scale, &fraction, &octets, &collation); err != nil {
			return err
		}
		n := l.names.folded(schema, table)
		col.Ordinal = ordinal - 1
		describeSQL(&col, dataType, columnType, collation, precision, scale, fraction, octets)
		l.all[n] = append(l.all[n], col)
		if l.res.tables[n] == nil {
			l.res.tables[n] = &lookedTable{def: key.Definition{Schema: n.schema, Table: n.table, FoldNames: l.names.fold}}
		}
		return nil
	})
}

func (l *lookup) primary(ctx context.Context) error {
	where, args := l.only("")
	return l.query(ctx, `SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(COLUMN_NAME,''), COALESCE(SUB_PART,0) FROM information_schema.STATISTICS`+where+
		` AND INDEX_NAME='PRIMARY' ORDER BY TABLE_SCHEMA, TABLE_NAME, SEQ_IN_INDEX`, args, func(rows *sql.Rows) error {
		var schema, table, column string
		var part int
		if err := rows.Scan(&schema, &table, &column, &part); err != nil {
			return err
		}
		n := l.names.folded(schema, table)
		t := l.res.tables[n]
		if t == nil {
			return nil // made after the columns were read; its DDL is still to come
		}
		for _, c := range l.all[n] {
			if strings.EqualFold(c.Name, column) {
				c.PrefixLen = part
				t.def.Primary = append(t.def.Primary, c)
				return nil
			}
		}
		return fmt.Errorf("table %s.%s: its primary key has column %q, which the table lacks", schema, table, column)
	})
}

func (l *lookup) engines(ctx context.Context) error {
	where, args := l.only("")
	return l.query(ctx, `SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(ENGINE,'') FROM information_schema.TABLES`+where, args, func(rows *sql.Rows) error {
		var schema, table, engine string
		if err := rows.Scan(&schema, &table, &engine); err != nil {
			return err
		}
		n := l.names.folded(schema, table)
		if t := l.res.tables[n]; t != nil {
			t.engine = engine
		}
		return nil
	})
}

// foreignKeys reads all cascading foreign keys: a DDL on one table changes what
// its ancestors' changes reach.
func (l *lookup) foreignKeys(ctx context.Context) error {
	return l.query(ctx, `SELECT UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME, CONSTRAINT_SCHEMA, TABLE_NAME
 FROM information_schema.REFERENTIAL_CONSTRAINTS
 WHERE UPDATE_RULE IN ('CASCADE','SET NULL','SET DEFAULT') OR DELETE_RULE IN ('CASCADE','SET NULL','SET DEFAULT')`, nil, func(rows *sql.Rows) error {
		var parentSchema, parent, schema, table string
		if err := rows.Scan(&parentSchema, &parent, &schema, &table); err != nil {
			return err
		}
		p, n := l.names.folded(parentSchema, parent), l.names.folded(schema, table)
		if !slices.Contains(l.res.children[p], n) {
			l.res.children[p] = append(l.res.children[p], n)
		}
		return nil
	})
}

// executed is read last: the tail may use the look-up once it has passed it.
func (l *lookup) executed(ctx context.Context) error {
	var uuid, executed string
	if err := l.conn.QueryRowContext(ctx, "SELECT @@GLOBAL.server_uuid, @@GLOBAL.gtid_executed").Scan(&uuid, &executed); err != nil {
		return err
	}
	var err error
	if l.res.uuid, err = gtid.ParseUUID(uuid); err != nil {
		return err
	}
	l.res.executed, err = gtid.Parse(executed)
	return err
}

// seal completes the definitions.
func (l *lookup) seal() {
	for n, t := range l.res.tables {
		cols := l.all[n]
		t.def.Columns = len(cols)
		groups := l.names.groups[n]
		for _, want := range groups {
			for _, c := range cols {
				if key.FoldName(c.Name) == want {
					t.def.Groups = append(t.def.Groups, c)
				}
			}
		}
		if len(groups) > 0 {
			for _, c := range cols {
				t.columns = append(t.columns, c.Name)
			}
		}
		t.def.Seal()
	}
	l.all = nil
}

// describeSQL fills in what folding needs from a row of COLUMNS. It must agree
// with tableMap.describe, or every event with full metadata would seem to have
// another definition.
func describeSQL(c *key.Column, dataType, columnType, collation string, precision, scale, fraction int, octets uint64) {
	switch dataType = strings.ToLower(dataType); dataType {
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		c.Type, c.Unsigned = key.TypeInt, hasUnsigned(columnType)
	case "decimal":
		c.Type, c.Precision, c.Scale, c.Unsigned = key.TypeDecimal, precision, scale, hasUnsigned(columnType)
	case "year":
		c.Type = key.TypeYear
	case "date":
		c.Type = key.TypeDate
	case "time":
		c.Type, c.Scale = key.TypeTime, fraction
	case "datetime":
		c.Type, c.Scale = key.TypeDatetime, fraction
	case "timestamp":
		c.Type, c.Scale = key.TypeTimestamp, fraction
	case "bit":
		c.Type, c.Precision = key.TypeBit, precision
	case "enum", "set":
		c.Type = key.TypeEnum
		if dataType == "set" {
			c.Type = key.TypeSet
		}
		c.Collation, c.Members = collation, parseMembers(columnType)
	case "char":
		c.Type, c.Collation = key.TypeChar, collation
	case "varchar", "tinytext", "text", "mediumtext", "longtext":
		c.Type, c.Collation = key.TypeVarchar, collation
	case "binary":
		c.Type, c.Length = key.TypeBinary, int(octets)
	case "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		c.Type = key.TypeVarbinary
	}
}

func hasUnsigned(columnType string) bool {
	return strings.Contains(strings.ToLower(columnType), "unsigned")
}

// parseMembers reads enum('a','b') as information_schema prints it.
func parseMembers(columnType string) (members []string) {
	i := strings.IndexByte(columnType, '(')
	if i < 0 {
		return nil
	}
	var b []byte
	inside := false
	for i++; i < len(columnType); i++ {
		switch c := columnType[i]; {
		case !inside:
			inside = c == '\''
		case c == '\'' && i+1 < len(columnType) && columnType[i+1] == '\'':
			b = append(b, '\'')
			i++
		case c == '\'':
			members = append(members, string(b))
			b, inside = b[:0], false
		case c == '\\' && i+1 < len(columnType):
			i++
			b = append(b, unescaped(columnType[i]))
		default:
			b = append(b, c)
		}
	}
	return members
}

// unescaped is what the server writes with a backslash.
func unescaped(c byte) byte {
	switch c {
	case '0':
		return 0
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	}
	return c
}

// unknownVariable tells whether err is a variable that an older server lacks.
func unknownVariable(err error) bool {
	var my *mysql.MySQLError
	return errors.As(err, &my) && my.Number == 1193
}
