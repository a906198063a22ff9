package binlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// Severity says how much a finding breaks.
type Severity uint8

const (
	// Advice: works, and costs something.
	Advice Severity = iota
	// Warning: a promise does not hold in some event that the finding names, or
	// answers are needlessly no.
	Warning
	// Broken: the server can not be used as it is, or is not eligible.
	Broken
)

func (s Severity) String() string {
	switch s {
	case Advice:
		return "advice"
	case Warning:
		return "warning"
	}
	return "broken"
}

// Finding is one thing about a server that breaks or weakens a promise.
type Finding struct {
	Server   string
	Severity Severity
	What     string // what was found
	Why      string // which promise it touches, and how
	Mend     string // SQL, or the setting, that mends it; empty: nothing can be run
}

func (f Finding) String() string {
	s := fmt.Sprintf("%s: %s: %s: %s", f.Server, f.Severity, f.What, f.Why)
	if f.Mend != "" {
		s += " [" + f.Mend + "]"
	}
	return s
}

// Inspection is what was read of one server, to be judged by itself and beside
// the others. It is immutable once made.
type Inspection struct {
	cfg      *ServerConfig
	refused  *RefusedError // the server can not be followed at all
	version  string
	uuid     gtid.UUID
	vars     map[string]string
	facts    *serverFacts
	executed gtid.Set
	purged   gtid.Set
	// missing are the privileges that the account lacks.
	missing  []string
	tables   []tableFact
	noKey    []string // tables without a primary key, schema.table; at most maxNoKey
	floatKey []string // tables whose primary key holds a FLOAT or DOUBLE
	cascades int      // foreign keys that cascade
	// groups are the configured group columns, looked is what is there of their
	// tables; nil: not asked, or in vain, for lookErr.
	groups  map[tableName][]string
	looked  *lookupResult
	lookErr error
}

// maxNoKey bounds how many tables a finding names.
const maxNoKey = 8

// checkVariables are the settings that findings look at.
var checkVariables = []string{
	"server_uuid", "server_id", "gtid_mode", "enforce_gtid_consistency", "gtid_executed", "gtid_purged", "log_bin",
	"log_replica_updates", "log_slave_updates", "binlog_format", "binlog_row_image",
	"binlog_row_metadata", "binlog_row_value_options", "binlog_transaction_compression",
	"binlog_expire_logs_seconds", "binlog_expire_logs_auto_purge", "sync_binlog",
	"innodb_flush_log_at_trx_commit", "binlog_error_action", "read_only", "super_read_only",
	"replica_preserve_commit_order", "slave_preserve_commit_order", "replica_parallel_workers",
	"slave_parallel_workers", "innodb_native_foreign_keys", "lower_case_table_names",
	"performance_schema", "replica_skip_errors", "slave_skip_errors", "max_connections",
	"rpl_semi_sync_source_enabled", "rpl_semi_sync_source_wait_point", "binlog_order_commits",
	"session_track_gtids",
}

// Gather reads one server for [Inspection.Findings], which say what breaks a
// promise there (rules §12), and [CompareServers]. db is a pool of connections
// with the account of cfg. An error means that the server could not be reached
// or read; what it is and what it lacks are findings. It changes nothing on the
// server.
func Gather(ctx context.Context, db *sql.DB, cfg *ServerConfig) (*Inspection, error) {
	in := &Inspection{cfg: cfg, vars: map[string]string{}}
	v, err := queryRow(ctx, db, "SELECT VERSION(), @@global.version_comment")
	if in.refused = refuseTLS(cfg, err); in.refused != nil {
		return in, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", cfg, err)
	}
	in.version = v[0]
	if err := refuseVersion(cfg.Name, v[0], v[1]); err != nil {
		if errors.As(err, &in.refused) {
			return in, nil
		}
		return nil, err
	}
	if err := in.readVariables(ctx, db); err != nil {
		return nil, fmt.Errorf("inspect %s: %w", cfg, err)
	}
	if err := in.readPrivileges(ctx, db); err != nil {
		return nil, fmt.Errorf("inspect %s: %w", cfg, err)
	}
	if len(in.missing) > 0 {
		return in, nil // the rest would only fail for that
	}
	b := &sqlBackend{cfg: cfg, db: db}
	if in.facts, err = b.facts(ctx); err != nil {
		return nil, fmt.Errorf("inspect %s: %w", cfg, err)
	}
	if in.tables, err = b.tables(ctx); err != nil {
		return nil, fmt.Errorf("inspect %s: %w", cfg, err)
	}
	if err := in.readKeys(ctx, db); err != nil {
		return nil, fmt.Errorf("inspect %s: %w", cfg, err)
	}
	return in, nil
}

func (in *Inspection) readVariables(ctx context.Context, db querier) error {
	rows, err := queryRows(ctx, db, "SELECT VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.global_variables WHERE VARIABLE_NAME IN ('"+
		strings.Join(checkVariables, "', '")+"')")
	if err != nil {
		return err
	}
	for _, r := range rows {
		in.vars[strings.ToLower(r.values[0])] = r.values[1]
	}
	if in.uuid, err = gtid.ParseUUID(in.vars["server_uuid"]); err != nil {
		return fmt.Errorf("server_uuid: %w", err)
	}
	// The performance schema cuts values at 1024 bytes; sets are read whole.
	cols, err := queryRow(ctx, db, "SELECT @@global.gtid_executed, @@global.gtid_purged")
	if err != nil {
		return err
	}
	if in.executed, err = gtid.Parse(cols[0]); err != nil {
		return fmt.Errorf("gtid_executed: %w", err)
	}
	if in.purged, err = gtid.Parse(cols[1]); err != nil {
		return fmt.Errorf("gtid_purged: %w", err)
	}
	return nil
}

// readPrivileges tries what needs each privilege, so that roles and partial
// revokes count as they do in service.
func (in *Inspection) readPrivileges(ctx context.Context, db querier) error {
	type try struct{ privilege, statement string }
	tries := []try{
		{"REPLICATION CLIENT", "SHOW REPLICA STATUS"},
		{"SELECT", "SELECT 1 FROM performance_schema.replication_connection_status LIMIT 1"},
		{"SELECT", "SELECT 1 FROM mysql.db LIMIT 1"}, // any table that only a global SELECT opens
	}
	if in.on("log_bin") {
		tries = append(tries, try{"REPLICATION SLAVE", "SHOW BINLOG EVENTS LIMIT 1"})
	}
	for _, t := range tries {
		_, err := queryRows(ctx, db, t.statement)
		switch {
		case err == nil:
		case isMySQL(err, errDBAccessDenied, errTableDenied, errColumnDenied, errNeedsPrivilege, errNoPrivilege):
			if len(in.missing) == 0 || in.missing[len(in.missing)-1] != t.privilege {
				in.missing = append(in.missing, t.privilege)
			}
		case isMySQL(err, errSyntax) && t.privilege == "REPLICATION CLIENT": // before 8.0.22
		default:
			return fmt.Errorf("%s: %w", t.statement, err)
		}
	}
	return nil
}

const noKeySQL = "SELECT t.TABLE_SCHEMA, t.TABLE_NAME FROM information_schema.TABLES t WHERE t.TABLE_TYPE = 'BASE TABLE' " +
	"AND t.TABLE_SCHEMA NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema') " +
	"AND NOT EXISTS (SELECT 1 FROM information_schema.STATISTICS s WHERE s.TABLE_SCHEMA = t.TABLE_SCHEMA " +
	"AND s.TABLE_NAME = t.TABLE_NAME AND s.INDEX_NAME = 'PRIMARY') ORDER BY 1, 2 LIMIT 9"

const floatKeySQL = "SELECT DISTINCT c.TABLE_SCHEMA, c.TABLE_NAME FROM information_schema.COLUMNS c " +
	"WHERE c.COLUMN_KEY = 'PRI' AND c.DATA_TYPE IN ('float', 'double') " +
	"AND c.TABLE_SCHEMA NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema') ORDER BY 1, 2 LIMIT 9"

const cascadesSQL = "SELECT COUNT(*) FROM information_schema.REFERENTIAL_CONSTRAINTS " +
	"WHERE DELETE_RULE NOT IN ('NO ACTION', 'RESTRICT') OR UPDATE_RULE NOT IN ('NO ACTION', 'RESTRICT')"

func (in *Inspection) readKeys(ctx context.Context, db querier) error {
	for _, q := range []struct {
		sql string
		to  *[]string
	}{{noKeySQL, &in.noKey}, {floatKeySQL, &in.floatKey}} {
		rows, err := queryRows(ctx, db, q.sql)
		if err != nil {
			return err
		}
		for _, r := range rows {
			*q.to = append(*q.to, r.values[0]+"."+r.values[1])
		}
	}
	cols, err := queryRow(ctx, db, cascadesSQL)
	if err != nil {
		return err
	}
	_, err = fmt.Sscan(cols[0], &in.cascades)
	return err
}

// on reads a switch; a variable that the version does not have is off.
func (in *Inspection) on(name string) bool {
	v := strings.ToUpper(in.vars[name])
	return v == "ON" || v == "1"
}

// either returns the value under the new name or the old one.
func (in *Inspection) either(names ...string) (string, bool) {
	for _, n := range names {
		if v, ok := in.vars[n]; ok {
			return v, true
		}
	}
	return "", false
}

// replicates tells whether the server has an asynchronous channel.
func (in *Inspection) replicates() bool { return in.facts != nil && in.facts.source() != nil }

// primary tells whether the server is a primary by itself (rules §1).
func (in *Inspection) primary() bool {
	if in.facts == nil {
		return false
	}
	return decideRole(roleInput{writable: !in.facts.readOnly, executed: in.executed, facts: in.facts}).role == event.RolePrimary
}
