package binlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"tidegate/binlog/gtid"
)

const settingsSQL = "SELECT @@global.server_uuid, @@global.read_only OR @@global.super_read_only, @@global.gtid_mode, " +
	"@@global.lower_case_table_names, @@global.innodb_flush_log_at_trx_commit, @@global.sync_binlog, @@global.log_bin, " +
	processSQL + ", @@global.version, @@global.performance_schema, @@global.default_storage_engine"

// Channels come from the performance schema: it needs no privilege but SELECT,
// has one name for each column in all versions, and does not wait behind STOP
// REPLICA as SHOW does.
const channelsSQL = "SELECT c.*, a.*, s.SERVICE_STATE AS io_state, s.SOURCE_UUID AS source_uuid, " +
	"s.RECEIVED_TRANSACTION_SET AS received, s.LAST_ERROR_NUMBER AS io_errno, s.LAST_ERROR_MESSAGE AS io_error, " +
	"p.SERVICE_STATE AS sql_state " +
	"FROM performance_schema.replication_connection_configuration c " +
	"LEFT JOIN performance_schema.replication_connection_status s USING (CHANNEL_NAME) " +
	"LEFT JOIN performance_schema.replication_applier_configuration a USING (CHANNEL_NAME) " +
	"LEFT JOIN performance_schema.replication_applier_status p USING (CHANNEL_NAME)"

const applierErrorsSQL = "SELECT CHANNEL_NAME AS ch, LAST_ERROR_NUMBER AS no, LAST_ERROR_MESSAGE AS msg " +
	"FROM performance_schema.replication_applier_status_by_coordinator WHERE LAST_ERROR_NUMBER <> 0 " +
	"UNION ALL SELECT CHANNEL_NAME, LAST_ERROR_NUMBER, LAST_ERROR_MESSAGE " +
	"FROM performance_schema.replication_applier_status_by_worker WHERE LAST_ERROR_NUMBER <> 0"

const filtersSQL = "SELECT CHANNEL_NAME AS ch, FILTER_NAME AS kind, FILTER_RULE AS rule, CONFIGURED_BY AS configured " +
	"FROM performance_schema.replication_applier_filters"

// filterColumns are the kinds of filters with their columns in SHOW REPLICA STATUS.
var filterColumns = [][2]string{
	{"REPLICATE_DO_DB", "Replicate_Do_DB"},
	{"REPLICATE_IGNORE_DB", "Replicate_Ignore_DB"},
	{"REPLICATE_DO_TABLE", "Replicate_Do_Table"},
	{"REPLICATE_IGNORE_TABLE", "Replicate_Ignore_Table"},
	{"REPLICATE_WILD_DO_TABLE", "Replicate_Wild_Do_Table"},
	{"REPLICATE_WILD_IGNORE_TABLE", "Replicate_Wild_Ignore_Table"},
	{"REPLICATE_REWRITE_DB", "Replicate_Rewrite_DB"},
}

const groupSQL = "SELECT m.MEMBER_STATE AS state, m.MEMBER_ROLE AS role, " +
	"(SELECT COUNT(*) FROM performance_schema.replication_group_members x WHERE x.MEMBER_ROLE = 'PRIMARY') AS primaries, " +
	"COALESCE((SELECT s.COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE FROM performance_schema.replication_group_member_stats s " +
	"WHERE s.MEMBER_ID = m.MEMBER_ID), 0) AS waiting " +
	"FROM performance_schema.replication_group_members m WHERE m.MEMBER_ID = @@global.server_uuid"

func (b *sqlBackend) facts(ctx context.Context) (*serverFacts, error) {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", b.cfg, err)
	}
	f, err := readFacts(ctx, conn)
	if err != nil {
		return nil, errors.Join(refuseRights(b.cfg, "read the replication status of", err), conn.Close())
	}
	if err := conn.Close(); err != nil {
		return nil, fmt.Errorf("return connection to %s: %w", b.cfg, err)
	}
	return f, nil
}

func readFacts(ctx context.Context, db *sql.Conn) (*serverFacts, error) {
	f := &serverFacts{}
	cols, err := queryRow(ctx, db, settingsSQL)
	if err != nil {
		return nil, err
	}
	logBin, err := f.parseSettings(cols)
	if err != nil {
		return nil, err
	}
	if err := f.readChannels(ctx, db); err != nil {
		return nil, err
	}
	if err := f.readFilters(ctx, db, cols[9] == "1", cols[8]); err != nil {
		return nil, err
	}
	rows, err := queryRows(ctx, db, groupSQL)
	if err != nil {
		return nil, err
	}
	if err := f.parseGroup(rows); err != nil {
		return nil, err
	}
	if logBin {
		if err := f.readBinlogStatus(ctx, db, cols[8]); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *serverFacts) parseSettings(cols []string) (logBin bool, err error) {
	if f.uuid, err = gtid.ParseUUID(cols[0]); err != nil {
		return false, fmt.Errorf("server_uuid: %w", err)
	}
	if f.readOnly, err = parseBool(cols[1]); err != nil {
		return false, fmt.Errorf("read_only: %w", err)
	}
	f.gtidMode = cols[2]
	if f.lowerCase, err = strconv.Atoi(cols[3]); err != nil {
		return false, fmt.Errorf("lower_case_table_names: %w", err)
	}
	if logBin, err = parseBool(cols[6]); err != nil {
		return false, fmt.Errorf("log_bin: %w", err)
	}
	f.newTables = cols[10]
	f.relaxed = cols[4] != "1" || logBin && cols[5] != "1"
	f.process, _ = strconv.ParseInt(cols[7], 10, 64) // 0 without the performance schema
	return logBin, nil
}

func (f *serverFacts) readChannels(ctx context.Context, db querier) error {
	rows, err := queryRows(ctx, db, channelsSQL)
	if err != nil {
		return err
	}
	if f.channels, err = parseChannels(rows); err != nil {
		return err
	}
	if rows, err = queryRows(ctx, db, applierErrorsSQL); err != nil {
		return err
	}
	for _, r := range rows {
		for i := range f.channels {
			if c := &f.channels[i]; c.name == r.get("ch") && c.sqlError == "" {
				c.sqlError = "applier: error " + r.get("no") + ": " + r.get("msg")
			}
		}
	}
	return nil
}

// readFilters reads the replication filters. Without the performance schema its
// table of filters is empty, unlike those of the channels, whatever is filtered.
func (f *serverFacts) readFilters(ctx context.Context, db querier, performanceSchema bool, version string) error {
	if performanceSchema {
		rows, err := queryRows(ctx, db, filtersSQL)
		for _, r := range rows {
			f.filters = append(f.filters, replicationFilter{r.get("ch"), r.get("kind"), r.get("rule"), r.get("configured")})
		}
		return err
	}
	rows, err := queryRows(ctx, db, replicaStatusStatement(version))
	for _, r := range rows {
		for _, c := range filterColumns {
			if rule := r.get(c[1]); rule != "" {
				f.filters = append(f.filters, replicationFilter{r.get("Channel_Name"), c[0], rule, ""})
			}
		}
	}
	return err
}

// replicaStatusStatement: 8.0.22 renamed it, 8.4 removed the old name.
func replicaStatusStatement(version string) string {
	if v, ok := parseVersion(version); ok && !v.atLeast(8, 0, 22) {
		return "SHOW SLAVE STATUS"
	}
	return "SHOW REPLICA STATUS"
}

func parseChannels(rows []textRow) ([]channel, error) {
	var out []channel
	for _, r := range rows {
		c := channel{
			name: r.get("CHANNEL_NAME"), host: r.get("HOST"), port: r.get("PORT"),
			io: r.get("io_state"), sql: r.get("sql_state"),
			auto: r.get("AUTO_POSITION") == "1",
		}
		if t := r.get("ASSIGN_GTIDS_TO_ANONYMOUS_TRANSACTIONS_TYPE"); t != "" && t != "OFF" {
			c.anonymous = true
		}
		if u := r.get("source_uuid"); u != "" {
			uuid, err := gtid.ParseUUID(u)
			if err != nil {
				return nil, fmt.Errorf("channel %q: source uuid: %w", c.name, err)
			}
			c.sourceUUID = uuid
		}
		var err error
		if c.received, err = gtid.Parse(r.get("received")); err != nil {
			return nil, fmt.Errorf("channel %q: received set: %w", c.name, err)
		}
		if d := r.get("DESIRED_DELAY"); d != "" {
			if c.delay, err = strconv.ParseInt(d, 10, 64); err != nil {
				return nil, fmt.Errorf("channel %q: delay: %w", c.name, err)
			}
		}
		if n := r.get("io_errno"); n != "" && n != "0" {
			c.ioError = "receiver: error " + n + ": " + r.get("io_error")
		}
		out = append(out, c)
	}
	return out, nil
}

func (f *serverFacts) parseGroup(rows []textRow) error {
	// A server that is in no group still has a line, OFFLINE and without a role.
	if len(rows) == 0 || rows[0].get("state") == "" || rows[0].get("state") == "OFFLINE" {
		return nil
	}
	r := &rows[0]
	f.group.state, f.group.role = r.get("state"), r.get("role")
	primaries, err := strconv.Atoi(r.get("primaries"))
	if err != nil {
		return fmt.Errorf("group members: %w", err)
	}
	f.group.multi = primaries > 1
	if f.group.applierWait, err = strconv.ParseInt(r.get("waiting"), 10, 64); err != nil {
		return fmt.Errorf("group member statistics: %w", err)
	}
	return nil
}

// readBinlogStatus reads where the binlog ends and what is kept out of it.
func (f *serverFacts) readBinlogStatus(ctx context.Context, db querier, version string) error {
	rows, err := queryRows(ctx, db, binlogStatusStatement(version))
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return nil
	}
	r := &rows[0]
	f.binlogFile.File = r.get("File")
	if f.binlogFile.Pos, err = strconv.ParseUint(r.get("Position"), 10, 64); err != nil {
		return fmt.Errorf("binary log status: %w", err)
	}
	f.doDB, f.ignoreDB = splitRule(r.get("Binlog_Do_DB")), splitRule(r.get("Binlog_Ignore_DB"))
	return nil
}

// binlogStatusStatement: 8.2 renamed it, 8.4 removed the old name.
func binlogStatusStatement(version string) string {
	if v, ok := parseVersion(version); ok && !v.atLeast(8, 2, 0) {
		return "SHOW MASTER STATUS"
	}
	return "SHOW BINARY LOG STATUS"
}

// isMySQL tells whether the server itself refused, with one of these numbers.
func isMySQL(err error, numbers ...uint16) bool {
	var my *mysql.MySQLError
	if !errors.As(err, &my) {
		return false
	}
	for _, n := range numbers {
		if my.Number == n {
			return true
		}
	}
	return false
}

// quoteName quotes an identifier.
func quoteName(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }
