package binlog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// findings collects what is found on one server.
type findings struct {
	server string
	list   []Finding
}

func (f *findings) add(s Severity, what, why, mend string) {
	f.list = append(f.list, Finding{f.server, s, what, why, mend})
}

// Findings judges one server by itself, the worst first.
func (in *Inspection) Findings() []Finding {
	f := &findings{server: in.cfg.Name}
	if in.refused != nil {
		f.add(Broken, in.refused.Reason, "nothing can be promised of it (P1)", in.refused.Mend)
		return f.list
	}
	in.checkGTIDs(f)
	in.checkBinlog(f)
	in.checkRows(f)
	in.checkPrivileges(f)
	in.checkDurability(f)
	in.checkRetention(f)
	if in.facts != nil {
		in.checkGroup(f)
		in.checkReplication(f)
		in.checkFilters(f)
	}
	in.checkKeys(f)
	in.checkEngines(f)
	slices.SortStableFunc(f.list, func(a, b Finding) int { return int(b.Severity) - int(a.Severity) })
	return f.list
}

func (in *Inspection) checkGTIDs(f *findings) {
	if mode := in.vars["gtid_mode"]; mode != "ON" {
		f.add(Broken, "gtid_mode is "+mode, "what has no GTID can't be confirmed; the primary's watermark stops (P1, P2)",
			gtidModeSteps(mode))
	}
	if v := in.vars["enforce_gtid_consistency"]; v != "ON" && v != "1" {
		f.add(Broken, "enforce_gtid_consistency is "+v, "gtid_mode=ON needs it (P1)", "SET PERSIST enforce_gtid_consistency = ON")
	}
	if !in.on("performance_schema") {
		f.add(Warning, "performance_schema is OFF", "runs of mysqld are told apart by it: without it a restart is seen by uptime and connection numbers alone (P4)", "start mysqld with performance-schema=ON")
	}
}

// gtidModeSteps are the steps from a mode to ON: MySQL goes one at a time, and
// refuses OFF_PERMISSIVE to a replica that uses auto-position.
func gtidModeSteps(mode string) string {
	sql := "SET PERSIST enforce_gtid_consistency = ON"
	modes := []string{"OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"}
	for _, m := range modes[slices.Index(modes, mode)+1:] {
		sql += "; SET PERSIST gtid_mode = " + m
	}
	return sql
}

func (in *Inspection) checkBinlog(f *findings) {
	executedOnly := in.cfg.Follow == FollowExecuted
	if !in.on("log_bin") {
		if executedOnly {
			f.add(Advice, "follow: executed, log_bin is OFF", "positions alone prove it: an injected, skipped or filtered transaction counts as shown, and a restart with relaxed durability leaves no evidence (P1)",
				"start mysqld with log-bin and log-replica-updates, and configure follow: binlog")
		} else {
			f.add(Broken, "log_bin is OFF", "there is no binlog to follow (P1)", "start mysqld with log-bin and log-replica-updates, or configure follow: executed")
		}
		return
	}
	if executedOnly {
		f.add(Warning, "follow: executed although the server has a binlog", "what the binlog would show is not looked at: injected, skipped and filtered transactions count as shown (P1)", "configure follow: binlog")
	}
	if v, ok := in.either("log_replica_updates", "log_slave_updates"); ok && v != "ON" && v != "1" {
		f.add(Broken, "log_replica_updates is OFF", "its binlog does not show what it replicates, so that nothing of it is confirmed (P1)", "start mysqld with log-replica-updates=ON")
	}
	if v := in.vars["binlog_error_action"]; v != "" && v != "ABORT_SERVER" {
		f.add(Warning, "binlog_error_action is "+v, "when the binlog can't be written, commits go on without it, and are outside every promise (P2, P5)", "SET PERSIST binlog_error_action = ABORT_SERVER")
	}
	if v := in.vars["binlog_order_commits"]; v == "OFF" {
		f.add(Advice, "binlog_order_commits is OFF", "promises hold; transactions become visible later after their hint", "SET PERSIST binlog_order_commits = ON")
	}
}

func (in *Inspection) checkRows(f *findings) {
	if !in.on("log_bin") {
		return
	}
	if v := in.vars["binlog_format"]; v != "" && v != "ROW" {
		f.add(Broken, "binlog_format is "+v, "the tailer refuses to start: statements name no rows, and each would be a write of every table in the databases that it may touch", "SET PERSIST binlog_format = ROW")
	}
	if v := in.vars["binlog_row_metadata"]; v != "FULL" {
		f.add(Warning, "binlog_row_metadata is "+v, "events do not carry names and keys; a definition that was looked up counts only later, and until then events write all-rows (P2 holds, at a cost)", "SET PERSIST binlog_row_metadata = FULL")
	}
	if v := in.vars["binlog_row_image"]; v != "FULL" {
		f.add(Warning, "binlog_row_image is "+v, "a column that was not changed is not in the event: each such write is a write of all values of that group column", "SET PERSIST binlog_row_image = FULL")
	}
	if v := in.vars["binlog_row_value_options"]; v != "" {
		f.add(Advice, "binlog_row_value_options is "+v, "JSON columns arrive as differences; rows for pipelines lack them whole", "SET PERSIST binlog_row_value_options = ''")
	}
	if in.on("binlog_transaction_compression") {
		f.add(Advice, "binlog_transaction_compression is ON", "works; unpacking costs the tailer time", "")
	}
	if in.on("innodb_native_foreign_keys") && in.cascades > 0 {
		f.add(Warning, fmt.Sprintf("innodb_native_foreign_keys is ON, and %d foreign keys cascade", in.cascades), "cascaded changes are not logged: each write of a parent writes all-rows of its children (P2 holds, at a cost)", "start mysqld with innodb-native-foreign-keys=OFF")
	} else if v, ok := parseVersion(in.version); ok && !v.atLeast(9, 6, 0) && in.cascades > 0 {
		f.add(Advice, fmt.Sprintf("%d foreign keys cascade", in.cascades), "before 9.6 cascaded changes are not logged: each write of a parent writes all-rows of its children", "")
	}
}

func (in *Inspection) checkPrivileges(f *findings) {
	if len(in.missing) == 0 {
		return
	}
	f.add(Broken, "account "+in.cfg.User+" lacks "+strings.Join(in.missing, ", "), "roles, runs and confirmation can't be read (P3)", grantFor(in.cfg.User))
}

func (in *Inspection) checkDurability(f *findings) {
	flush, sync := in.vars["innodb_flush_log_at_trx_commit"], in.vars["sync_binlog"]
	if flush != "1" {
		f.add(Warning, "innodb_flush_log_at_trx_commit is "+flush, "after a crash the server may have the GTID and not the row, and replication does not repair it; it stays excluded after an unclean stop until it is rebuilt or accepted (P1)", "SET PERSIST innodb_flush_log_at_trx_commit = 1")
	}
	if in.on("log_bin") && sync != "1" {
		f.add(Warning, "sync_binlog is "+sync, "after a crash a primary may give GTIDs of lost transactions to others; required of every server that can become primary (P2, P5)", "SET PERSIST sync_binlog = 1")
	}
}

// leastRetention is the shortest time for which binlogs should be kept: a
// tailer or a replica that is away for a weekend should find what it needs.
const leastRetention = 72 * time.Hour

func (in *Inspection) checkRetention(f *findings) {
	if !in.on("log_bin") || in.vars["binlog_expire_logs_auto_purge"] == "OFF" {
		return
	}
	seconds, err := strconv.ParseInt(in.vars["binlog_expire_logs_seconds"], 10, 64)
	if err != nil || seconds == 0 {
		return // kept for ever
	}
	if kept := time.Duration(seconds) * time.Second; kept < leastRetention {
		f.add(Warning, fmt.Sprintf("binlogs are kept for %s", kept), "whoever is away for longer finds a hole: a write of everything for the stream, a rebuild for a replica (P5)",
			fmt.Sprintf("SET PERSIST binlog_expire_logs_seconds = %d", int64(leastRetention.Seconds())))
	}
}

func (in *Inspection) checkReplication(f *findings) {
	facts := in.facts
	for _, x := range facts.exclusions(0, false) {
		f.add(Broken, x, "the server is not eligible (P1)", "keep one asynchronous channel: STOP REPLICA FOR CHANNEL '...'; RESET REPLICA ALL FOR CHANNEL '...'")
	}
	if !in.replicates() {
		return
	}
	if x := facts.newTablesElsewhere(); x != "" {
		f.add(Broken, x, "the server is not eligible (P1)", "SET PERSIST default_storage_engine = InnoDB; STOP REPLICA; START REPLICA")
	}
	c := facts.source()
	if !c.auto {
		f.add(Warning, "the channel does not use SOURCE_AUTO_POSITION", "after a failover it may skip or repeat transactions (P1)", "STOP REPLICA; CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION = 1; START REPLICA")
	}
	if !facts.readOnly {
		what, mend := "a replica is writable", "SET PERSIST super_read_only = ON"
		if c.running() {
			what = "a replica is writable while its channel runs"
		}
		f.add(Warning, what, "local writes are errant: their tables are excluded there, or the whole server (P1)", mend)
	} else if !in.on("super_read_only") {
		f.add(Advice, "super_read_only is OFF on a replica", "administrators can still write there, and such writes are errant (P1)", "SET PERSIST super_read_only = ON")
	}
	workers, _ := in.either("replica_parallel_workers", "slave_parallel_workers")
	if v, ok := in.either("replica_preserve_commit_order", "slave_preserve_commit_order"); ok && v != "ON" && v != "1" && workers != "0" && workers != "1" {
		f.add(Warning, "replica_preserve_commit_order is OFF", "promises hold; gaps make answers for groups and scans no until they close", "STOP REPLICA SQL_THREAD; SET PERSIST replica_preserve_commit_order = ON; START REPLICA SQL_THREAD")
	}
	if v, ok := in.either("replica_skip_errors", "slave_skip_errors"); ok && v != "OFF" && v != "" {
		f.add(Warning, "replica_skip_errors is "+v, "a skipped error leaves the GTID executed and the rows absent; the tables it touched are tainted (P1)", "start mysqld with replica-skip-errors=OFF")
	}
	if e := c.errors(); e != "" {
		f.add(Warning, "replication has stopped: "+e, "the server falls behind, and answers for it become no", "")
	} else if c.io == "OFF" || c.sql == "OFF" {
		f.add(Warning, "replication is stopped", "the server falls behind, and answers for it become no", "START REPLICA")
	}
	if c.delay > 0 {
		f.add(Advice, fmt.Sprintf("SOURCE_DELAY is %d s", c.delay), "the server is always that much behind; answers for recent writes are no there", "STOP REPLICA SQL_THREAD; CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 0; START REPLICA SQL_THREAD")
	}
}

// checkGroup: decisions/group-replication.md.
func (in *Inspection) checkGroup(f *findings) {
	if in.facts.group.state == "" {
		return
	}
	f.add(Warning, "member of a replication group", "a secondary may show a transaction before the primary owns it: a session that moves between members may go back (P4)",
		"read at level strong where a session must not go back")
}

func (in *Inspection) checkFilters(f *findings) {
	rules := in.facts.rules()
	for _, x := range rules.printed() {
		if in.primary() && strings.HasPrefix(x, "binlog-") {
			f.add(Broken, x, "on a primary such writes are not logged at all: they are outside every promise, and no replica gets them (P2, P5)", "start mysqld without "+x[:strings.IndexByte(x, ':')])
			continue
		}
		f.add(Warning, x, "the tables that it filters are excluded on this server (P1)", "STOP REPLICA SQL_THREAD; CHANGE REPLICATION FILTER ...; START REPLICA SQL_THREAD, then rebuild the server or tidegate accept")
	}
}

func (in *Inspection) checkKeys(f *findings) {
	if len(in.noKey) > 0 && in.primary() {
		f.add(Advice, "tables without a primary key: "+some(in.noKey), "each write of them is a write of all their rows", "ALTER TABLE ... ADD PRIMARY KEY")
	}
	if len(in.floatKey) > 0 && in.primary() {
		f.add(Advice, "tables with FLOAT or DOUBLE in their primary key: "+some(in.floatKey), "each write of them is a write of all their rows", "use an exact type")
	}
}

// checkEngines names tables whose rows do not follow from what is executed.
func (in *Inspection) checkEngines(f *findings) {
	byEngine := map[string][]string{}
	for _, t := range in.tables {
		engine := strings.ToUpper(t.Engine)
		byEngine[engine] = append(byEngine[engine], t.Schema+"."+t.Table)
	}
	for _, n := range byEngine[mergeEngine] {
		f.add(Warning, "table "+n+" is a MERGE table", "it has no definition, so that answers for it are unknown_table; a write of it is a write of everything, for the tables below it are not named (P2 holds, at a cost)",
			"write the tables below it by their own names, and ask for those; or make it a partitioned InnoDB table")
	}
	if in.primary() {
		return
	}
	for _, engine := range []string{"MEMORY", "BLACKHOLE", "FEDERATED"} {
		if names := byEngine[engine]; len(names) > 0 {
			f.add(Warning, "tables with engine "+engine+": "+some(names), event.RowsElsewhere(engine)+"; they are excluded on this server, and reads that name no keys with them (P1)",
				"on the primary: ALTER TABLE ... ENGINE = InnoDB, then rebuild the server, or tidegate accept --table")
		}
	}
}

func some(names []string) string {
	if len(names) > maxNoKey {
		return strings.Join(names[:maxNoKey], ", ") + " and more"
	}
	return strings.Join(names, ", ")
}

// CompareServers judges the servers of one cluster beside each other. unread are
// the names of those that could not be inspected.
func CompareServers(servers []*Inspection, unread ...string) []Finding {
	f := &findings{}
	var primaries []*Inspection
	byUUID := map[[16]byte]string{}
	for _, in := range servers {
		f.server = in.cfg.Name
		if in.refused != nil {
			unread = append(unread, in.cfg.Name)
			continue
		}
		if in.facts == nil {
			unread = append(unread, in.cfg.Name)
		}
		if other, twice := byUUID[in.uuid]; twice {
			f.add(Broken, "claims the server_uuid of "+other, "two servers under one UUID can't be told apart; both are refused (P1)", "stop mysqld, remove auto.cnf from the data folder of the copy, start it")
		} else {
			byUUID[in.uuid] = in.cfg.Name
		}
		if in.primary() {
			primaries = append(primaries, in)
		}
	}
	switch len(primaries) {
	case 0:
		f.server = "cluster"
		if len(unread) > 0 {
			// One of them may well be the primary; to make another server writable
			// for want of one would be a second.
			f.add(Warning, "which server is the primary is not known: "+some(unread)+" could not be read", "servers can't be compared before (P3)", "first what is broken there, then check again; change no server's read_only for this")
			return f.list
		}
		f.add(Broken, "no server is a primary", "every level but bounded and eventual is refused (P3)", "on the server that is to take the writes, once no other does: SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF")
		return f.list
	case 1:
	default:
		var names []string
		for _, p := range primaries {
			names = append(names, p.cfg.Name)
		}
		f.server = "cluster"
		f.add(Broken, "more than one primary: "+strings.Join(names, ", "), "two primaries are refused when seen (P3)", "on all but one: SET PERSIST super_read_only = ON, then START REPLICA")
		return f.list
	}
	f.server = primaries[0].cfg.Name
	primaries[0].checkGroups(f)
	for _, in := range servers {
		if in != primaries[0] && in.refused == nil && in.facts != nil {
			f.server = in.cfg.Name
			in.compare(f, primaries[0])
		}
	}
	slices.SortStableFunc(f.list, func(a, b Finding) int { return int(b.Severity) - int(a.Severity) })
	return f.list
}

// compare judges a replica beside the primary.
func (in *Inspection) compare(f *findings, p *Inspection) {
	if a, b := in.vars["lower_case_table_names"], p.vars["lower_case_table_names"]; a != b {
		f.add(Broken, fmt.Sprintf("lower_case_table_names is %s, and %s on %s", a, b, p.cfg.Name), "one name is two tables there; the server is not eligible (P2)", "set at initialisation only: rebuild with lower-case-table-names="+b)
	}
	if gone := p.purged.Subtract(in.executed); !gone.IsEmpty() && in.replicates() {
		f.add(Broken, fmt.Sprintf("%s has purged %s, which this server has not applied", p.cfg.Name, gone.Brief(4)), "it can't catch up any more", "rebuild the server from a copy")
	}
	if extra := in.executed.Subtract(p.executed); !extra.IsEmpty() {
		// A source of which the primary has some may just have gone on.
		var errant gtid.Set
		for source, iv := range extra.All() {
			if source.UUID == in.uuid || p.executed.Max(source) == 0 {
				errant = errant.AddInterval(source, iv)
			}
		}
		if !errant.IsEmpty() {
			f.add(Warning, "has executed "+errant.Brief(4)+", which "+p.cfg.Name+" had not when it was asked", "transactions that no other server has are errant: tables that they wrote, or the whole server, are excluded (P1)", "rebuild the server, or tidegate accept --gtids")
		}
	}
	engines := map[[2]string]string{}
	for _, t := range p.tables {
		engines[[2]string{t.Schema, t.Table}] = t.Engine
	}
	for _, t := range in.tables {
		if e, ok := engines[[2]string{t.Schema, t.Table}]; ok && !strings.EqualFold(e, t.Engine) {
			f.add(Warning, fmt.Sprintf("table %s.%s has engine %s, and %s on %s", t.Schema, t.Table, t.Engine, e, p.cfg.Name), "the table is excluded on this server (P1)", fmt.Sprintf("rebuild the table: ALTER TABLE %s.%s ENGINE = %s, with its rows", quoteName(t.Schema), quoteName(t.Table), e))
		}
	}
}
