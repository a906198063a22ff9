package binlog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// healthy is a primary without a finding.
func healthy(t *testing.T) *Inspection {
	return &Inspection{
		cfg: &ServerConfig{Name: "a", User: "tidegate", Follow: FollowBinlog}, version: "9.7.4", uuid: mustUUID(t, uuidA),
		executed: mustSet(t, uuidA+":1-10"),
		vars: map[string]string{
			"gtid_mode": "ON", "enforce_gtid_consistency": "ON", "log_bin": "ON", "log_replica_updates": "ON",
			"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL", "binlog_row_value_options": "",
			"binlog_transaction_compression": "OFF", "binlog_expire_logs_seconds": "2592000", "binlog_expire_logs_auto_purge": "ON",
			"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1", "binlog_error_action": "ABORT_SERVER",
			"super_read_only": "OFF", "replica_preserve_commit_order": "ON", "replica_parallel_workers": "4", "replica_skip_errors": "OFF",
			"lower_case_table_names": "0", "performance_schema": "ON", "binlog_order_commits": "ON",
		},
		facts: &serverFacts{},
	}
}

// healthyReplica follows a.
func healthyReplica(t *testing.T) *Inspection {
	in := healthy(t)
	in.cfg = &ServerConfig{Name: "b", User: "tidegate", Follow: FollowBinlog}
	in.uuid = mustUUID(t, uuidB)
	in.vars["super_read_only"] = "ON"
	in.facts = &serverFacts{readOnly: true, channels: []channel{{io: "ON", sql: "ON", auto: true, sourceUUID: mustUUID(t, uuidA)}}}
	return in
}

func TestFindings(t *testing.T) {
	set := func(k, v string) func(*Inspection) { return func(in *Inspection) { in.vars[k] = v } }
	for _, tt := range []struct {
		name    string
		replica bool
		change  func(*Inspection)
		want    string // severity and a part of what
		mend    string // a part of the SQL
	}{
		{"gtid_mode", false, set("gtid_mode", "OFF_PERMISSIVE"), "broken: gtid_mode is OFF_PERMISSIVE", "SET PERSIST gtid_mode = ON"},
		{"enforce", false, set("enforce_gtid_consistency", "OFF"), "broken: enforce_gtid_consistency", "SET PERSIST enforce_gtid_consistency = ON"},
		{"log_bin", false, set("log_bin", "OFF"), "broken: log_bin is OFF", "follow: executed"},
		{"log_replica_updates", true, set("log_replica_updates", "OFF"), "broken: log_replica_updates", "log-replica-updates"},
		{"format", false, set("binlog_format", "MIXED"), "broken: binlog_format is MIXED", "binlog_format = ROW"},
		{"image", false, set("binlog_row_image", "MINIMAL"), "warning: binlog_row_image is MINIMAL", "FULL"},
		{"metadata", false, set("binlog_row_metadata", "MINIMAL"), "warning: binlog_row_metadata", "FULL"},
		{"partial json", false, set("binlog_row_value_options", "PARTIAL_JSON"), "advice: binlog_row_value_options", "''"},
		{"compression", false, set("binlog_transaction_compression", "ON"), "advice: binlog_transaction_compression", ""},
		{"retention", false, set("binlog_expire_logs_seconds", "3600"), "warning: binlogs are kept for 1h", "259200"},
		{"sync_binlog", false, set("sync_binlog", "0"), "warning: sync_binlog is 0", "sync_binlog = 1"},
		{"flush", true, set("innodb_flush_log_at_trx_commit", "2"), "warning: innodb_flush_log_at_trx_commit is 2", "= 1"},
		{"error action", false, set("binlog_error_action", "IGNORE_ERROR"), "warning: binlog_error_action", "ABORT_SERVER"},
		{"performance schema", false, set("performance_schema", "OFF"), "warning: performance_schema", "performance-schema=ON"},
		{"skip errors", true, set("replica_skip_errors", "1062"), "warning: replica_skip_errors", "OFF"},
		{"commit order", true, set("replica_preserve_commit_order", "OFF"), "warning: replica_preserve_commit_order", "ON"},
		{"super_read_only", true, set("super_read_only", "OFF"), "advice: super_read_only", "super_read_only = ON"},
		{"writable replica", true, func(in *Inspection) { in.facts.readOnly = false }, "warning: a replica is writable while its channel runs", "super_read_only = ON"},
		{"channels", true, func(in *Inspection) { in.facts.channels = append(in.facts.channels, channel{name: "x", auto: true}) }, "broken: 2 asynchronous", "RESET REPLICA ALL"},
		{"default engine", true, func(in *Inspection) { in.facts.newTables = "BLACKHOLE" }, "broken: default_storage_engine is BLACKHOLE: it keeps no rows", "default_storage_engine = InnoDB"},
		{"auto position", true, func(in *Inspection) { in.facts.channels[0].auto = false }, "warning: the channel does not use", "SOURCE_AUTO_POSITION = 1"},
		{"delay", true, func(in *Inspection) { in.facts.channels[0].delay = 60 }, "advice: SOURCE_DELAY is 60", "SOURCE_DELAY = 0"},
		{"stopped", true, func(in *Inspection) { in.facts.channels[0].sqlError = "applier: error 1032: gone" }, "warning: replication has stopped: applier: error 1032", ""},
		{"stopped by hand", true, func(in *Inspection) { in.facts.channels[0].sql = "OFF" }, "warning: replication is stopped", "START REPLICA"},
		{"receiver stopped by hand", true, func(in *Inspection) { in.facts.channels[0].io = "OFF" }, "warning: replication is stopped", "START REPLICA"},
		{"filters", true, func(in *Inspection) { in.facts.filters = []replicationFilter{{kind: "REPLICATE_DO_DB", rule: "x"}} }, "warning: replicate-do-db: x", "CHANGE REPLICATION FILTER"},
		{"binlog-ignore-db on a primary", false, func(in *Inspection) { in.facts.ignoreDB = []string{"x"} }, "broken: binlog-ignore-db: x", "without binlog-ignore-db"},
		{"privileges", false, func(in *Inspection) { in.missing, in.facts = []string{"REPLICATION SLAVE"}, nil }, "broken: account tidegate lacks REPLICATION SLAVE", "GRANT REPLICATION SLAVE"},
		{"no primary key", false, func(in *Inspection) { in.noKey = []string{"app.x"} }, "advice: tables without a primary key: app.x", "ADD PRIMARY KEY"},
		{"float key", false, func(in *Inspection) { in.floatKey = []string{"app.f"} }, "advice: tables with FLOAT", ""},
		{"native foreign keys", false, func(in *Inspection) { in.vars["innodb_native_foreign_keys"], in.cascades = "ON", 2 }, "warning: innodb_native_foreign_keys is ON, and 2", "OFF"},
		{"cascades of an old version", false, func(in *Inspection) { in.version, in.cascades = "8.0.36", 1 }, "advice: 1 foreign keys cascade", ""},
		{"MariaDB", false, func(in *Inspection) { in.refused = &RefusedError{Server: "a", Reason: "this is MariaDB"} }, "broken: this is MariaDB", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := healthy(t)
			if tt.replica {
				in = healthyReplica(t)
			}
			if got := in.Findings(); len(got) != 0 {
				t.Fatalf("a healthy server has %v", got)
			}
			tt.change(in)
			got := in.Findings()
			found := slices.ContainsFunc(got, func(f Finding) bool {
				return strings.Contains(fmt.Sprintf("%s: %s", f.Severity, f.What), tt.want) && strings.Contains(f.Mend, tt.mend) && f.Why != "" && f.Server != ""
			})
			if !found {
				t.Errorf("got %v, want %q mended by %q", got, tt.want, tt.mend)
			}
		})
	}
	in := healthyReplica(t)
	in.cfg.Follow, in.vars["log_bin"] = FollowExecuted, "OFF"
	if got := in.Findings(); len(got) != 1 || got[0].Severity != Advice {
		t.Errorf("follow: executed: %v", got)
	}
}

func TestCompareServers(t *testing.T) {
	const otherUUID = "99999999-0000-0000-0000-000000000009"
	for _, tt := range []struct {
		name   string
		change func(a, b *Inspection)
		want   string
	}{
		{"healthy", func(*Inspection, *Inspection) {}, ""},
		{"one UUID", func(a, b *Inspection) { b.uuid = a.uuid }, "b: broken: claims the server_uuid of a"},
		{"no primary", func(a, _ *Inspection) { a.facts.readOnly = true }, "cluster: broken: no server is a primary"},
		{"no primary among those that could be read", func(a, _ *Inspection) {
			a.missing, a.facts = []string{"SELECT"}, nil
		}, "cluster: warning: which server is the primary is not known: a could not be read"},
		{"no primary, and one refused", func(a, _ *Inspection) { a.refused = &RefusedError{Server: "a"} }, "cluster: warning: which server is the primary is not known: a"},
		{"two primaries", func(_, b *Inspection) { b.facts = &serverFacts{} }, "cluster: broken: more than one primary: a, b"},
		{"names", func(_, b *Inspection) { b.vars["lower_case_table_names"] = "1" }, "b: broken: lower_case_table_names is 1, and 0 on a"},
		{"purged", func(a, b *Inspection) { a.purged, b.executed = mustSet(t, uuidA+":1-9"), mustSet(t, uuidA+":1-5") }, "b: broken: a has purged " + uuidA + ":6-9"},
		{"errant", func(_, b *Inspection) { b.executed = mustSet(t, uuidA+":1-10,"+uuidB+":1") }, "b: warning: has executed " + uuidB + ":1"},
		{"errant of nobody", func(_, b *Inspection) { b.executed = mustSet(t, uuidA+":1-10,"+otherUUID+":4") }, "b: warning: has executed " + otherUUID + ":4"},
		{"ahead of the primary's answer", func(a, b *Inspection) {
			a.executed, b.executed = mustSet(t, uuidA+":1-10,"+otherUUID+":1-4"), mustSet(t, uuidA+":1-11,"+otherUUID+":1-5")
		}, ""},
		{"engine", func(a, b *Inspection) {
			a.tables, b.tables = []tableFact{{"app", "t", "InnoDB"}}, []tableFact{{"app", "t", "BLACKHOLE"}}
		}, "b: warning: table app.t has engine BLACKHOLE, and InnoDB on a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := healthy(t), healthyReplica(t)
			tt.change(a, b)
			got := CompareServers([]*Inspection{a, b})
			if tt.want == "" {
				if len(got) != 0 {
					t.Errorf("got %v", got)
				}
				return
			}
			if len(got) != 1 || !strings.HasPrefix(got[0].String(), tt.want) {
				t.Errorf("got %v, want %q", got, tt.want)
			}
		})
	}
}

// TestCheckEngines: each MERGE table is named on every server, and on replicas what
// the others' engines do not keep.
func TestCheckEngines(t *testing.T) {
	tables := []tableFact{{"app", "t", "InnoDB"}, {"app", "m", "MRG_MYISAM"}, {"app", "n", "MRG_MYISAM"}, {"app", "mem", "MEMORY"}, {"b", "mem", "MEMORY"}, {"app", "fed", "FEDERATED"}}
	merges := []string{"warning: table app.m is a MERGE table", "warning: table app.n is a MERGE table"}
	for _, tt := range []struct {
		in   *Inspection
		want []string
	}{
		{healthy(t), merges},
		{healthyReplica(t), append(slices.Clone(merges), "warning: tables with engine MEMORY: app.mem, b.mem", "warning: tables with engine FEDERATED: app.fed")},
	} {
		tt.in.tables = tables
		var got []string
		for _, f := range tt.in.Findings() {
			got = append(got, fmt.Sprintf("%s: %s", f.Severity, f.What))
			if f.Why == "" || f.Mend == "" {
				t.Errorf("%s: why %q, mend %q", f.What, f.Why, f.Mend)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.in.cfg.Name, got, tt.want)
		}
	}
}

// TestCompareWithServersThatCouldNotBeRead: one of them may be the primary, and
// nobody is to be told to make a replica writable.
func TestCompareWithServersThatCouldNotBeRead(t *testing.T) {
	for _, tt := range []struct {
		name    string
		servers []*Inspection
	}{
		{"none could", nil},
		{"a replica could", []*Inspection{healthyReplica(t)}},
	} {
		got := CompareServers(tt.servers, "a", "c")
		if len(got) != 1 || got[0].Severity == Broken || strings.Contains(got[0].Mend, "SET ") || !strings.Contains(got[0].What, "a, c could not be read") {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
	if got := CompareServers([]*Inspection{healthy(t), healthyReplica(t)}, "c"); len(got) != 0 {
		t.Errorf("the primary is known: got %v", got)
	}
}
