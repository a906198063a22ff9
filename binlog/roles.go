package binlog

import (
	"fmt"
	"strings"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// serverFacts is what changes seldom on a server; read beside the probes.
type serverFacts struct {
	uuid    gtid.UUID
	process int64 // as in runFacts, to be sure that the facts are this run's

	readOnly   bool
	gtidMode   string
	lowerCase  int    // lower_case_table_names
	newTables  string // default_storage_engine
	relaxed    bool
	channels   []channel
	filters    []replicationFilter
	group      groupMember
	binlogFile Position // where the binlog ends
	doDB       []string // binlog-do-db
	ignoreDB   []string // binlog-ignore-db
}

// channel is one replication channel.
type channel struct {
	name       string
	host       string
	port       string
	sourceUUID gtid.UUID
	io         string // ON, OFF, CONNECTING
	sql        string // ON, OFF
	received   gtid.Set
	delay      int64 // seconds
	ioError    string
	sqlError   string
	auto       bool // SOURCE_AUTO_POSITION
	anonymous  bool // ASSIGN_GTIDS_TO_ANONYMOUS_TRANSACTIONS is not OFF
}

// ofGroup tells Group Replication's own two channels, which are not asynchronous.
// Any other name that begins alike is an operator's.
func (c *channel) ofGroup() bool {
	return c.name == "group_replication_applier" || c.name == "group_replication_recovery"
}
func (c *channel) running() bool { return c.io == "ON" || c.io == "CONNECTING" || c.sql == "ON" }

// errors prints what stops the channel.
func (c *channel) errors() string {
	var parts []string
	for _, e := range []string{c.ioError, c.sqlError} {
		if e != "" {
			parts = append(parts, e)
		}
	}
	return strings.Join(parts, "; ")
}

// groupMember is the server's place in Group Replication; zero: in none.
type groupMember struct {
	state       string // ONLINE, RECOVERING, ...
	role        string // PRIMARY, SECONDARY
	multi       bool   // multi-primary mode
	applierWait int64  // transactions of the group that are still to be applied
}

// standing is what a server is at the moment.
type standing struct {
	role    event.Role
	drained bool
	detail  string // why it is not simply a primary or a replica; for people
}

// roleInput is all that the role depends on.
type roleInput struct {
	writable bool // by the probe
	executed gtid.Set
	facts    *serverFacts
	// wasPrimary: this run already was the primary. It stays it, though another
	// shows up, so that two primaries are seen as two (rules §6.2).
	wasPrimary bool
	// otherPrimary: another reachable server is a primary.
	otherPrimary bool
}

// decideRole finds the role of a server (rules §1): a primary is writable and
// has no replication channel, or only stopped and drained ones when no other
// server is primary. A writable server with a running channel is a replica.
func decideRole(in roleInput) standing {
	f := in.facts
	if f == nil {
		return standing{role: event.RoleUnknown, drained: true, detail: "replication status not read yet"}
	}
	if f.group.state != "" {
		return decideGroupRole(in)
	}
	var asynchronous, running int
	drained := true
	for i := range f.channels {
		c := &f.channels[i]
		if c.ofGroup() {
			continue
		}
		asynchronous++
		if c.running() {
			running++
		}
		if !in.executed.ContainsSet(c.received) {
			drained = false
		}
	}
	switch {
	case !in.writable:
		return standing{role: event.RoleReplica, drained: drained}
	case f.readOnly:
		// The facts are older than the probe: it has just become writable. What
		// its channels are now is not known.
		return standing{role: event.RoleUnknown, drained: drained, detail: "just became writable"}
	case asynchronous == 0:
		return standing{role: event.RolePrimary, drained: true}
	case running > 0:
		return standing{role: event.RoleReplica, drained: drained, detail: "writable with a running replication channel"}
	case in.otherPrimary && !in.wasPrimary:
		return standing{role: event.RoleReplica, drained: drained, detail: "writable with a stopped replication channel beside another primary"}
	case !drained:
		return standing{role: event.RolePrimary, drained: false, detail: "its old channel has transactions to apply"}
	}
	return standing{role: event.RolePrimary, drained: true, detail: "its old replication channel is stopped and drained, and still configured"}
}

func decideGroupRole(in roleInput) standing {
	g := &in.facts.group
	switch {
	case g.state != "ONLINE":
		return standing{role: event.RoleReplica, drained: g.applierWait == 0, detail: "group member is " + g.state}
	case in.writable && g.multi:
		return standing{role: event.RolePrimary, drained: g.applierWait == 0, detail: "multi-primary group: more than one primary"}
	case in.writable && g.role == "PRIMARY":
		return standing{role: event.RolePrimary, drained: g.applierWait == 0}
	}
	return standing{role: event.RoleReplica, drained: g.applierWait == 0}
}

// source is where the server replicates from: the first asynchronous channel.
func (f *serverFacts) source() *channel {
	for i := range f.channels {
		if !f.channels[i].ofGroup() {
			return &f.channels[i]
		}
	}
	return nil
}

// received is what all channels have retrieved.
func (f *serverFacts) received() gtid.Set {
	var set gtid.Set
	for i := range f.channels {
		set = set.Union(f.channels[i].received)
	}
	return set
}

// exclusions are the reasons, found in the facts, for which a server is not
// eligible at all (rules §2.4, §4.3).
func (f *serverFacts) exclusions(primaryLowerCase int, known bool) []string {
	var out []string
	n := 0
	for i := range f.channels {
		if !f.channels[i].ofGroup() {
			n++
		}
	}
	if n > 1 {
		out = append(out, fmt.Sprintf("%d asynchronous replication channels: a GTID set can not tell which of them applied what", n))
	}
	for i := range f.channels {
		if f.channels[i].anonymous {
			out = append(out, fmt.Sprintf("channel %q gives GTIDs of its own to anonymous transactions", f.channels[i].name))
		}
	}
	if known && (f.lowerCase != 0) != (primaryLowerCase != 0) { // 1 and 2 compare alike
		out = append(out, fmt.Sprintf("lower_case_table_names is %d here and %d on the primary", f.lowerCase, primaryLowerCase))
	}
	return out
}

// newTablesElsewhere excludes a replica where a table that it makes without an
// engine's name, or with one that it lacks, does not keep what is written to it:
// between that DDL and the next look at the server's tables nothing else tells.
func (f *serverFacts) newTablesElsewhere() string {
	if why := event.RowsElsewhere(f.newTables); why != "" {
		return fmt.Sprintf("default_storage_engine is %s: %s", f.newTables, why)
	}
	return ""
}

// replicationError prints what stops replication, empty when nothing does.
func (f *serverFacts) replicationError() string {
	var parts []string
	for i := range f.channels {
		if e := f.channels[i].errors(); e != "" {
			parts = append(parts, e)
		}
	}
	return strings.Join(parts, "; ")
}
