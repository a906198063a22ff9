package binlog

import (
	"slices"
	"strings"
	"testing"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

func TestDecideRole(t *testing.T) {
	old := uuidB + ":1-5"
	running := channel{name: "", io: "ON", sql: "ON", received: mustSet(t, old)}
	stopped := channel{name: "", io: "OFF", sql: "OFF", received: mustSet(t, old)}
	for _, tt := range []struct {
		name       string
		writable   bool
		executed   string
		facts      *serverFacts
		was, other bool
		role       event.Role
		drained    bool
		detail     string
	}{
		{name: "not looked at yet", writable: true, role: event.RoleUnknown, drained: true, detail: "not read"},
		{name: "primary", writable: true, facts: &serverFacts{}, role: event.RolePrimary, drained: true},
		{name: "replica", facts: &serverFacts{readOnly: true, channels: []channel{running}}, executed: old, role: event.RoleReplica, drained: true},
		{name: "replica that is behind", facts: &serverFacts{readOnly: true, channels: []channel{running}}, role: event.RoleReplica},
		{name: "read-only without a channel", facts: &serverFacts{readOnly: true}, role: event.RoleReplica, drained: true},
		{name: "writable with a running channel", writable: true, executed: old, facts: &serverFacts{channels: []channel{running}}, role: event.RoleReplica, drained: true, detail: "running"},
		{name: "applier stopped, receiver connecting", writable: true, executed: old, facts: &serverFacts{channels: []channel{{io: "CONNECTING", sql: "OFF", received: mustSet(t, old)}}}, role: event.RoleReplica, drained: true, detail: "running"},
		{name: "promoted, channel stopped and drained", writable: true, executed: old, facts: &serverFacts{channels: []channel{stopped}}, role: event.RolePrimary, drained: true, detail: "still configured"},
		{name: "promoted before its relay log is drained", writable: true, executed: uuidB + ":1-4", facts: &serverFacts{channels: []channel{stopped}}, role: event.RolePrimary, detail: "to apply"},
		{name: "stopped channel beside another primary", writable: true, executed: old, facts: &serverFacts{channels: []channel{stopped}}, other: true, role: event.RoleReplica, drained: true, detail: "beside"},
		{name: "was primary, another shows up: two are seen", writable: true, executed: old, facts: &serverFacts{channels: []channel{stopped}}, was: true, other: true, role: event.RolePrimary, drained: true, detail: "still"},
		{name: "no channel beside another primary: two are seen", writable: true, facts: &serverFacts{}, other: true, role: event.RolePrimary, drained: true},
		{name: "became writable since the look", writable: true, facts: &serverFacts{readOnly: true, channels: []channel{running}}, executed: old, role: event.RoleUnknown, drained: true, detail: "just"},
		{name: "group primary", writable: true, facts: &serverFacts{group: groupMember{state: "ONLINE", role: "PRIMARY"}, channels: []channel{{name: "group_replication_applier", sql: "ON", io: "ON"}}}, role: event.RolePrimary, drained: true},
		{name: "group primary with a queue", writable: true, facts: &serverFacts{group: groupMember{state: "ONLINE", role: "PRIMARY", applierWait: 3}}, role: event.RolePrimary},
		{name: "group secondary", facts: &serverFacts{readOnly: true, group: groupMember{state: "ONLINE", role: "SECONDARY"}}, role: event.RoleReplica, drained: true},
		{name: "group member recovering", writable: true, facts: &serverFacts{group: groupMember{state: "RECOVERING", role: "SECONDARY"}}, role: event.RoleReplica, drained: true, detail: "RECOVERING"},
		{name: "left the group: only its own channels remain", writable: true, facts: &serverFacts{channels: []channel{{name: "group_replication_recovery", io: "OFF", sql: "OFF"}}}, role: event.RolePrimary, drained: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := decideRole(roleInput{writable: tt.writable, executed: mustSet(t, tt.executed), facts: tt.facts, wasPrimary: tt.was, otherPrimary: tt.other})
			if got.role != tt.role || got.drained != tt.drained || !strings.Contains(got.detail, tt.detail) {
				t.Errorf("got %s, drained %v, %q; want %s, %v, %q", roleName(got.role), got.drained, got.detail, roleName(tt.role), tt.drained, tt.detail)
			}
		})
	}
}

func TestExclusions(t *testing.T) {
	f := &serverFacts{lowerCase: 0, channels: []channel{{name: "x"}, {name: "y", anonymous: true}, {name: "group_replication_applier"}}}
	got := strings.Join(f.exclusions(1, true), "\n")
	for _, want := range []string{"2 asynchronous", `channel "y"`, "lower_case_table_names is 0 here and 1"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	f = &serverFacts{lowerCase: 1, channels: []channel{{name: "x"}, {name: "group_replication_applier"}}}
	if got := f.exclusions(1, true); len(got) != 0 {
		t.Errorf("got %q for a healthy server", got)
	}
	f.lowerCase = 2
	if got := f.exclusions(1, true); len(got) != 0 {
		t.Errorf("got %q for a server that compares names as the primary does", got)
	}
	f.lowerCase = 0
	if got := f.exclusions(1, false); len(got) != 0 {
		t.Errorf("got %q while the primary's is not known", got)
	}
}

func TestFilters(t *testing.T) {
	for _, tt := range []struct {
		filters  string // kind=rule, separated by spaces; BY: by CHANGE REPLICATION FILTER
		fold     bool
		filtered string
		passed   string
	}{
		{"REPLICATE_IGNORE_DB=a,b", false, "a.t b.t", "c.t A.t"},
		{"REPLICATE_IGNORE_DB=a", true, "A.t", "c.t"},
		{"REPLICATE_DO_DB=a", false, "b.t", "a.t"},
		{"REPLICATE_DO_TABLE=a.t", false, "a.u b.t", "a.t"},
		{"REPLICATE_IGNORE_TABLE=a.t", false, "a.t", "a.u"},
		{"REPLICATE_WILD_DO_TABLE=a%.t_", false, "a.t b.tx ab.txx", "ab.tx a.ty"},
		{"REPLICATE_WILD_IGNORE_TABLE=a.log\\_%", false, "a.log_x", "a.logx a.t"},
		{"REPLICATE_DO_TABLE=a.t REPLICATE_IGNORE_TABLE=a.t", false, "a.u", "a.t"},
		{"REPLICATE_IGNORE_TABLE=a.t REPLICATE_WILD_DO_TABLE=a.%", false, "a.t b.t", "a.u"},
		{"REPLICATE_WILD_DO_TABLE=a.% REPLICATE_WILD_IGNORE_TABLE=a.t", false, "b.t", "a.t"},
		{"REPLICATE_REWRITE_DB=(a,b),(c,d)", false, "a.t b.t c.t d.t", "e.t"},
		// One option of that value names one schema, two options name two.
		{"REPLICATE_DO_DB=a,b", false, "a.t b.t c.t", ""},
		{"REPLICATE_DO_TABLE=a.t,a.u", false, "a.t a.u", ""},
		{"BY:REPLICATE_DO_DB=a,b", false, "c.t", "a.t b.t"},
		{"BY:REPLICATE_DO_TABLE=a.t,a.u", false, "a.v", "a.t a.u"},
		{"BY:REPLICATE_WILD_DO_TABLE=a.%,b.%", false, "a.t b.t c.t", ""},
		{"", false, "", "a.t"},
	} {
		f := &serverFacts{}
		for _, x := range strings.Fields(tt.filters) {
			kind, rule, _ := strings.Cut(x, "=")
			by := "STARTUP_OPTIONS"
			if k, stated := strings.CutPrefix(kind, "BY:"); stated {
				kind, by = k, "CHANGE_REPLICATION_FILTER"
			}
			f.filters = append(f.filters, replicationFilter{kind: kind, rule: rule, by: by})
		}
		r := f.rules()
		if r.active() != (tt.filters != "") {
			t.Errorf("%q: active %v", tt.filters, r.active())
		}
		for want, names := range map[bool]string{true: tt.filtered, false: tt.passed} {
			for _, n := range strings.Fields(names) {
				schema, table, _ := strings.Cut(n, ".")
				if got := r.filters(schema, table, tt.fold); got != want {
					t.Errorf("%q on %s: %v, want %v", tt.filters, n, got, want)
				}
			}
		}
	}
}

func TestLikeIsNotSlow(t *testing.T) {
	if likeName(strings.Repeat("%a", 60)+"b", strings.Repeat("a", 4000), false) {
		t.Error("matched")
	}
	for p, s := range map[string]string{"%": "", "a%b%c": "axxbyybzc", `\%x`: "%x", "_": "é"[:1], "a%": "a"} {
		if !likeName(p, s, false) {
			t.Errorf("%q does not match %q", p, s)
		}
	}
	for p, s := range map[string]string{"": "x", "_": "", `\%x`: "ax", "a%b": "a"} {
		if likeName(p, s, false) {
			t.Errorf("%q matches %q", p, s)
		}
	}
}

func TestExcludeTables(t *testing.T) {
	h := key.NewHasher(key.Secret{1})
	own := []tableFact{{"app", "posts", "InnoDB"}, {"app", "Logs", "BLACKHOLE"}, {"tmp", "x", "InnoDB"}}
	def := func(schema, table, engine string) event.TableDefinition {
		return event.TableDefinition{Definition: key.Definition{Schema: schema, Table: table}, Engine: engine}
	}
	known := []event.TableDefinition{def("app", "posts", "InnoDB"), def("app", "logs", "InnoDB"), def("tmp", "only_there", "InnoDB")}
	f := &serverFacts{filters: []replicationFilter{{kind: "REPLICATE_IGNORE_DB", rule: "tmp"}}}
	v := excludeTables(f.rules(), own, known, h, true)
	var names []string
	for _, d := range v.digests {
		names = append(names, v.names[d])
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "app.logs tmp.only_there tmp.x" {
		t.Errorf("excluded %q", got)
	}
	if got := strings.Join(v.printed, "; "); got != "app.logs: engine BLACKHOLE here, InnoDB on the primary; replicate-ignore-db: tmp" {
		t.Errorf("printed %q", got)
	}
}

// TestExcludeEngines: on a replica the rows of some engines do not follow from what
// was executed there, whatever the primary's engine is.
func TestExcludeEngines(t *testing.T) {
	h := key.NewHasher(key.Secret{1})
	engines := []string{"InnoDB", "MyISAM", "MEMORY", "MRG_MYISAM", "BLACKHOLE", "FEDERATED", "memory"}
	var own []tableFact
	var known []event.TableDefinition
	for _, e := range engines {
		own = append(own, tableFact{"here", e, e}, tableFact{"both", e, e})
		for _, schema := range []string{"both", "there"} {
			known = append(known, event.TableDefinition{Definition: key.Definition{Schema: schema, Table: e}, Engine: e})
		}
	}
	excluded := func(f *serverFacts) (names []string, v tableView) {
		v = excludeTables(f.rules(), own, known, h, false)
		for _, d := range v.digests {
			names = append(names, v.names[d])
		}
		slices.Sort(names)
		return names, v
	}
	var want []string
	for _, schema := range []string{"here", "both", "there"} {
		for _, e := range engines[2:] {
			want = append(want, schema+"."+e)
		}
	}
	slices.Sort(want)
	stopped := []channel{{io: "OFF", sql: "OFF"}}
	for what, f := range map[string]*serverFacts{
		"replica": {readOnly: true, channels: []channel{{io: "ON", sql: "ON"}}}, "writable replica": {channels: []channel{{io: "ON", sql: "ON"}}},
		"read only": {readOnly: true}, "stopped channel": {channels: stopped},
		"secondary": {readOnly: true, group: groupMember{state: "ONLINE", role: "SECONDARY"}},
	} {
		got, v := excluded(f)
		if !slices.Equal(got, want) {
			t.Errorf("%s: excluded %q, want %q", what, got, want)
		}
		if len(v.printed) != len(want) || !slices.Contains(v.printed, "both.MEMORY: engine MEMORY: a restart of this server empties it") {
			t.Errorf("%s: printed %q", what, v.printed)
		}
	}
	got, v := excluded(&serverFacts{})
	if len(got)+len(v.printed) != 0 {
		t.Errorf("primary: excluded %q, printed %q", got, v.printed)
	}
	if _, named := v.names[h.Table("both", "MEMORY").AnyRow]; named {
		t.Error("primary: a table that is not excluded there any more would be tainted")
	}
	// What was made another engine's since is tainted as before.
	if _, named := v.names[h.Table("both", "InnoDB").AnyRow]; !named {
		t.Error("primary: an ordinary table has no name")
	}
}
