package binlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"tidegate/binlog/gtid"
)

// backend is one mysqld as a monitor speaks to it; tests script another.
//
// The link is the pinned connection: its life is the lease's (rules §6.3). All
// other reads go over connections of their own, so that none of them (SHOW
// waits behind STOP REPLICA) delays a probe.
type backend interface {
	// pin opens the pinned connection. The caller closes the link.
	pin(ctx context.Context) (link, error)
	// facts reads what changes seldom: channels, filters, settings.
	facts(ctx context.Context) (*serverFacts, error)
	// tables lists the base tables outside MySQL's own schemas.
	tables(ctx context.Context) ([]tableFact, error)
	// purged reads gtid_purged, and what of it binlog files had.
	purged(ctx context.Context) (purgedSets, error)
	// reuse finds what a primary's binlog may carry a second time.
	reuse(ctx context.Context, lastFile string) (ReuseScope, error)
	// mark tells a binlog file from any other of its name.
	mark(ctx context.Context, file string, of runID) (fileMark, error) // errOtherRun: somebody else answers
	close()
}

// link is a pinned connection; one goroutine uses it.
type link interface {
	// run reads what tells one run of one mysqld from another.
	run(ctx context.Context) (*runFacts, error)
	// fileEnd names the last event of a binlog file that is no longer written
	// to: "Stop", "Rotate", or "" for anything else.
	fileEnd(ctx context.Context, f, next binlogFile) (string, error)
	// probe is the probe of rules §1.
	probe(ctx context.Context, q probeRequest) (Probe, error)
	close() error
}

// sqlBackend speaks to a real server.
type sqlBackend struct {
	cfg *ServerConfig
	db  *sql.DB
	// pins keeps no idle connection, so that each pin is a connection made now.
	// An idle one may be older than the pin before it, which reads as mysqld
	// counting connections from the start; or it may still lead to the server
	// that this address named when it was made.
	pins *sql.DB
}

func newSQLBackend(cfg *ServerConfig) (*sqlBackend, error) {
	db, err := cfg.OpenDB()
	if err != nil {
		return nil, err
	}
	pins, err := cfg.OpenDB()
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	// One for the facts, one for tables and whatever comes.
	db.SetMaxOpenConns(3)
	db.SetMaxIdleConns(2)
	pins.SetMaxIdleConns(-1)
	return &sqlBackend{cfg: cfg, db: db, pins: pins}, nil
}

// close gives all connections up. Of one whose server is gone a pool says that it
// could not take its leave, which matters to nobody.
func (b *sqlBackend) close() { _, _ = b.db.Close(), b.pins.Close() }

// sessionSettings make a connection fit for Tidegate: no statement of it may
// open a snapshot that lasts, be cut short by a global limit, or end for idling.
const sessionSettings = "SET SESSION autocommit = 1, transaction_isolation = 'READ-COMMITTED', " +
	"max_execution_time = 0, wait_timeout = 86400, lock_wait_timeout = 5, sql_mode = ''"

func (b *sqlBackend) pin(ctx context.Context) (link, error) {
	conn, err := b.pins.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", b.cfg, err)
	}
	if _, err := conn.ExecContext(ctx, sessionSettings); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare connection to %s: %w", b.cfg, err), discard(conn))
	}
	return &sqlLink{cfg: b.cfg, conn: conn}, nil
}

// discard closes the connection itself instead of giving it back to the pool.
func discard(conn *sql.Conn) error {
	// The error says only that the connection is now bad, which is the purpose.
	_ = conn.Raw(func(any) error { return errDiscard })
	if err := conn.Close(); err != nil && !errors.Is(err, sql.ErrConnDone) {
		return err
	}
	return nil
}

var errDiscard = fmt.Errorf("discard connection: %w", mysql.ErrInvalidConn)

type sqlLink struct {
	cfg    *ServerConfig
	conn   *sql.Conn
	parser probeParser
	stmts  map[string]*sql.Stmt // by text; they end with the connection
}

func (l *sqlLink) close() error { return discard(l.conn) }

// prepared returns the statement of a probe, prepared on the pinned connection.
func (l *sqlLink) prepared(ctx context.Context, text string) (*sql.Stmt, error) {
	if stmt, ok := l.stmts[text]; ok {
		return stmt, nil
	}
	stmt, err := l.conn.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if l.stmts == nil {
		l.stmts = map[string]*sql.Stmt{}
	}
	l.stmts[text] = stmt
	return stmt, nil
}

func (l *sqlLink) probe(ctx context.Context, q probeRequest) (Probe, error) {
	stmt, err := l.prepared(ctx, q.sql())
	if err != nil {
		return Probe{}, fmt.Errorf("prepare probe of %s: %w", l.cfg, err)
	}
	rows, err := stmt.QueryContext(ctx, q.args()...)
	if err != nil {
		return Probe{}, fmt.Errorf("probe %s: %w", l.cfg, err)
	}
	cols, err := oneRow(readRows(rows))
	if err != nil {
		return Probe{}, fmt.Errorf("probe %s: %w", l.cfg, err)
	}
	if !q.WaitFor.IsEmpty() && len(cols) > 0 {
		cols = cols[1:]
	}
	p, err := l.parser.parse(cols, q.Full)
	if err != nil {
		return Probe{}, fmt.Errorf("%s: %w", l.cfg, err)
	}
	return p, nil
}

// querier is a connection or a pool.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// queryRow returns the columns of the only row as text; NULL is empty.
func queryRow(ctx context.Context, db querier, query string) ([]string, error) {
	return oneRow(queryRows(ctx, db, query))
}

func oneRow(rows []textRow, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	if len(rows) != 1 {
		return nil, fmt.Errorf("%d rows, want 1", len(rows))
	}
	return rows[0].values, nil
}

// textRow is one row with the names of its columns.
type textRow struct {
	names  []string
	values []string
}

// get returns the value of a column by its name, empty when there is none:
// versions differ in what they print.
func (r *textRow) get(name string) string {
	for i, n := range r.names {
		if n == name {
			return r.values[i]
		}
	}
	return ""
}

func queryRows(ctx context.Context, db querier, query string) ([]textRow, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return readRows(rows)
}

// readRows reads all rows as text and closes them.
func readRows(rows *sql.Rows) (out []textRow, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	scan := make([]sql.NullString, len(names))
	ptrs := make([]any, len(names))
	for i := range scan {
		ptrs[i] = &scan[i]
	}
	for rows.Next() {
		if err := rows.Scan(ptrs...); err != nil {
			return nil, err
		}
		values := make([]string, len(names))
		for i, v := range scan {
			values[i] = v.String
		}
		out = append(out, textRow{names, values})
	}
	return out, rows.Err()
}

// runID tells whether two connections lead to one run of mysqld.
type runID struct {
	uuid    gtid.UUID
	process int64 // 0: the server does not tell
}

func (f *runFacts) id() runID { return runID{f.UUID, f.Process} }

// errOtherRun: new connections lead to another run than the one that is watched.
var errOtherRun = &changedError{"another run of mysqld answers at this address"}

// processSQL names the main thread in the server's operating system; NULL without
// the performance schema.
const processSQL = "(SELECT THREAD_OS_ID FROM performance_schema.threads WHERE NAME = 'thread/sql/main' LIMIT 1)"

// runFacts tells one run of one mysqld from another, and one data set from
// another (rules §1).
type runFacts struct {
	UUID           gtid.UUID
	Version        string
	VersionComment string
	// Process is the main thread's number in its operating system: the process.
	// 0: the server does not tell.
	Process      int64
	ConnectionID uint64
	Uptime       time.Duration
	// AskedAt is the monitor's suspend-aware clock before the question, Now the
	// server's own wall clock, to the second.
	AskedAt    int64
	Now        time.Time
	Executed   gtid.Set
	Purged     gtid.Set
	GTIDMode   string
	LogBin     bool
	LogUpdates bool
	Relaxed    bool         // innodb_flush_log_at_trx_commit or sync_binlog is not 1
	Files      []binlogFile // oldest first; empty without a binlog
	// Mark is that of the file in which the last state known stands; 0: none.
	Mark fileMark
}

// binlogFile is one line of SHOW BINARY LOGS.
type binlogFile struct {
	Name string
	Size uint64 // the position of its end
}

const runSQL = "SELECT @@global.server_uuid, @@global.version, @@global.version_comment, CONNECTION_ID(), " +
	"@@global.gtid_executed, @@global.gtid_purged, @@global.gtid_mode, @@global.log_bin, " +
	"@@global.innodb_flush_log_at_trx_commit, @@global.sync_binlog, " +
	"(SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Uptime'), " +
	processSQL + ", UNIX_TIMESTAMP()"

func (l *sqlLink) run(ctx context.Context) (*runFacts, error) {
	f := &runFacts{}
	// The version first, alone: MariaDB has neither server_uuid nor
	// gtid_executed, and must be told apart from a server that lacks rights.
	v, err := queryRow(ctx, l.conn, "SELECT VERSION(), @@global.version_comment")
	if err != nil {
		return nil, fmt.Errorf("read version of %s: %w", l.cfg, err)
	}
	f.Version, f.VersionComment = v[0], v[1]
	if err := refuseVersion(l.cfg.Name, f.Version, f.VersionComment); err != nil {
		return nil, err
	}
	cols, err := queryRow(ctx, l.conn, runSQL)
	if err != nil {
		return nil, refuseRights(l.cfg, "read the state of", err)
	}
	if err := f.parse(cols); err != nil {
		return nil, fmt.Errorf("read state of %s: %w", l.cfg, err)
	}
	if f.LogBin {
		up, err := queryRow(ctx, l.conn, "SELECT "+logUpdatesVariable(f.Version))
		if err != nil {
			return nil, fmt.Errorf("read settings of %s: %w", l.cfg, err)
		}
		f.LogUpdates = up[0] == "1"
		if f.Files, err = binaryLogs(ctx, l.conn); err != nil {
			return nil, refuseRights(l.cfg, "list the binary logs of", err)
		}
	}
	return f, nil
}

// logUpdatesVariable: 8.0.26 renamed it.
func logUpdatesVariable(version string) string {
	if v, ok := parseVersion(version); ok && !v.atLeast(8, 0, 26) {
		return "@@global.log_slave_updates"
	}
	return "@@global.log_replica_updates"
}

func (f *runFacts) parse(cols []string) error {
	var err error
	if f.UUID, err = gtid.ParseUUID(cols[0]); err != nil {
		return fmt.Errorf("server_uuid: %w", err)
	}
	if f.ConnectionID, err = strconv.ParseUint(cols[3], 10, 64); err != nil {
		return fmt.Errorf("connection_id: %w", err)
	}
	if f.Executed, err = gtid.Parse(cols[4]); err != nil {
		return fmt.Errorf("gtid_executed: %w", err)
	}
	if f.Purged, err = gtid.Parse(cols[5]); err != nil {
		return fmt.Errorf("gtid_purged: %w", err)
	}
	f.GTIDMode = cols[6]
	if f.LogBin, err = parseBool(cols[7]); err != nil {
		return fmt.Errorf("log_bin: %w", err)
	}
	f.Relaxed = cols[8] != "1" || f.LogBin && cols[9] != "1"
	up, err := strconv.ParseInt(cols[10], 10, 64)
	if err != nil {
		return fmt.Errorf("uptime: %w", err)
	}
	f.Uptime = time.Duration(up) * time.Second
	// Missing when the performance schema is off: then a run is told by its
	// uptime and connection numbers alone.
	f.Process, _ = strconv.ParseInt(cols[11], 10, 64)
	now, err := strconv.ParseInt(cols[12], 10, 64)
	if err != nil {
		return fmt.Errorf("unix_timestamp: %w", err)
	}
	f.Now = time.Unix(now, 0)
	return nil
}

func binaryLogs(ctx context.Context, db querier) ([]binlogFile, error) {
	rows, err := queryRows(ctx, db, "SHOW BINARY LOGS")
	if err != nil {
		return nil, err
	}
	return parseBinaryLogs(rows)
}

// encryptionHeader is what an encrypted file has in front of position 0.
const encryptionHeader = 512

// parseBinaryLogs reads the list of files. Their sizes are positions here: that of
// an encrypted file is printed with its encryption header, which no position counts.
func parseBinaryLogs(rows []textRow) ([]binlogFile, error) {
	files := make([]binlogFile, 0, len(rows))
	for _, r := range rows {
		size, err := strconv.ParseUint(r.get("File_size"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("SHOW BINARY LOGS: size of %q: %w", r.get("Log_name"), err)
		}
		if r.get("Encrypted") == "Yes" && size >= encryptionHeader {
			size -= encryptionHeader
		}
		files = append(files, binlogFile{r.get("Log_name"), size})
	}
	return files, nil
}

// Sizes of the two events that may end a file: a header of 19 bytes, a position
// of 8 and the next file's name for a rotation, and a checksum of 4 or 0.
const (
	eventHeaderSize   = 19
	rotatePayloadSize = 8
	checksumSize      = 4
)

// fileEnd asks for the one event that would end exactly where the file does.
// The server refuses a position where no event begins, which is the answer no;
// reading the file from its start would cost as much as the file is long.
func (l *sqlLink) fileEnd(ctx context.Context, f, next binlogFile) (string, error) {
	for _, sum := range []uint64{checksumSize, 0} {
		for _, try := range []struct {
			kind string
			size uint64
		}{
			{"Stop", eventHeaderSize + sum},
			{"Rotate", eventHeaderSize + rotatePayloadSize + uint64(len(next.Name)) + sum},
		} {
			if f.Size < try.size+4 {
				continue
			}
			q := fmt.Sprintf("SHOW BINLOG EVENTS IN '%s' FROM %d LIMIT 2", escape(f.Name), f.Size-try.size)
			rows, err := queryRows(ctx, l.conn, q)
			var refused *mysql.MySQLError
			switch {
			case errors.As(err, &refused) && refused.Number == errBinlogRead:
				continue
			case err != nil:
				return "", fmt.Errorf("read the end of binlog %s of %s: %w", f.Name, l.cfg, err)
			}
			if len(rows) == 1 && rows[0].get("Event_type") == try.kind &&
				rows[0].get("End_log_pos") == strconv.FormatUint(f.Size, 10) {
				return try.kind, nil
			}
		}
	}
	return "", nil
}

func escape(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `'`, `\'`) }

// purgedSets is gtid_purged.
type purgedSets struct {
	all gtid.Set
	// logged is what binlog files carried that are no more. The rest came by SET
	// GLOBAL gtid_purged, a clone or a dump: executed, and never shown.
	logged gtid.Set
}

func (p purgedSets) intersect(o gtid.Set) purgedSets {
	return purgedSets{all: p.all.Intersect(o), logged: p.logged.Intersect(o)}
}

// purged reads gtid_purged, then what had been logged when the oldest file that
// is left began: a file purged in between makes the second larger, which the
// first bounds.
func (b *sqlBackend) purged(ctx context.Context) (p purgedSets, err error) {
	cols, err := queryRow(ctx, b.db, "SELECT @@global.gtid_purged")
	if err != nil {
		return p, fmt.Errorf("read gtid_purged of %s: %w", b.cfg, err)
	}
	if p.all, err = gtid.Parse(cols[0]); err != nil || p.all.IsEmpty() {
		return p, err
	}
	files, err := binaryLogs(ctx, b.db)
	if err != nil {
		return p, refuseRights(b.cfg, "list the binary logs of", err)
	}
	if len(files) == 0 {
		return p, nil
	}
	before, err := b.previousGTIDs(ctx, files[0].Name)
	p.logged = p.all.Intersect(before)
	return p, err
}

// tableFact is one base table of a server.
type tableFact struct{ Schema, Table, Engine string }

const tablesSQL = "SELECT TABLE_SCHEMA AS s, TABLE_NAME AS t, ENGINE AS e FROM information_schema.TABLES " +
	"WHERE TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema')"

func (b *sqlBackend) tables(ctx context.Context) ([]tableFact, error) {
	rows, err := queryRows(ctx, b.db, tablesSQL)
	if err != nil {
		return nil, fmt.Errorf("list tables of %s: %w", b.cfg, err)
	}
	out := make([]tableFact, 0, len(rows))
	for _, r := range rows {
		out = append(out, tableFact{r.values[0], r.values[1], r.values[2]})
	}
	return out, nil
}
