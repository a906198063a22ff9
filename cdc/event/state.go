package event

import (
	"strings"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
)

// Role is what a server is at the moment; discovered, never configured.
type Role uint8

const (
	// RoleUnknown: not to be used for anything but `eventual` refusals.
	RoleUnknown Role = iota
	// RolePrimary: writable and without a replication channel (rules §1).
	RolePrimary
	// RoleReplica: everything else that answers.
	RoleReplica
)

// RouterTick is the newest tick of one live router that was seen before the
// probe began. Router is the router's random incarnation.
type RouterTick struct {
	Router [16]byte
	Tick   uint64
}

// Taint tells that a table, or the whole server when All is set, may lack data
// that its GTIDs promise (rules §2.2, §2.3). Taints belong to a data set.
type Taint struct {
	All    bool
	Table  key.Digest // any-row scope
	Name   string     // schema.table for people; empty with All
	GTID   gtid.GTID  // the first transaction that showed it
	Reason string
}

// ServerState is everything that routers know of one server; the latest one
// alone is enough (STATE, subject pos.<server>).
//
// Confirmed is not sent: it is Executed minus Unproven, and a router cuts it to
// what its index has delivered or counts as horizon (rules §2.2).
type ServerState struct {
	Server   string // configured name
	AppAddr  string // what applications connect to
	UUID     gtid.UUID
	Epoch    Epoch
	DataSet  uint64  // random id of the data set
	History  History // the history against which the tailer compared
	LossSeen Version // newest announcement that the tailer had applied
	Alive    bool    // the pinned connection holds; false ends the lease at once
	Down     string  // why not alive
	Role     Role
	Writable bool
	// Drained is false for a writable server whose old channel still has
	// transactions to apply.
	Drained  bool
	GTIDMode string // as the server prints it; only "ON" counts
	Follow   string // "binlog" or "executed"

	// Of one probe, in this order: owned, then executed.
	Owned    gtid.Set
	Executed gtid.Set
	Unproven gtid.Set // the part of Executed that is neither base nor shown
	Base     gtid.Set // executed when the data set was first seen; for the tailer's own resume
	Received gtid.Set // retrieved and not necessarily applied; replicas only
	Hinted   gtid.Set // seen in its binlog beyond Executed
	Ticks    []RouterTick

	Taints   []Taint
	Errant   gtid.Set // GTIDs of its own that nobody else has, as far as known, and accepted ones
	Excluded []string // reasons for which it is not eligible at all, printed
	Filtered []string // schema.table patterns or schemas which it filters, printed
	// FilteredTables are the any-row scopes of known tables that it filters.
	FilteredTables []key.Digest

	BinlogFile     string // newest position whose transactions are in Shown
	BinlogPos      uint64
	BinlogMark     uint64    // tells BinlogFile from another file of its name; 0: not known
	Ends           []RunEnd  // of runs of this data set that are over, oldest first
	SourceUUID     gtid.UUID // replicas: where it replicates from
	IORunning      bool
	SQLRunning     bool
	ReplicationErr string
	UptimeSeconds  int64
	ThreadsRunning int64
	ServerVersion  string
	// Grouped: member of a replication group, whose secondaries may show what its
	// primary neither owns nor has executed yet.
	Grouped        bool
	RelaxedDurable bool // innodb_flush_log_at_trx_commit or sync_binlog is not 1
	// ProbedUnixMicro is when, by the server's own wall clock as it was at the
	// connect, carried on by the tailer's; 0: not known.
	ProbedUnixMicro int64
	// Process is mysqld's process number, Connection the number of the tailer's
	// pinned connection, which the server counts from its start; 0: not known.
	Process    int64
	Connection uint64
}

// RunEnd is a run of a server that is over, and the binlog file that was last when
// it was last seen; empty: not known. Epoch 0 stands for all runs of other data sets,
// with the oldest file of this one. Which runs were announced only the stream
// tells, so a tailer passes the ends of all on to the next (rules §11.2).
type RunEnd struct {
	Epoch Epoch
	File  string
}

// TableDefinition is the newest definition of one table (STATE, subject
// schema.<schema>.<table>). Dropped ones are sent with Dropped set.
type TableDefinition struct {
	key.Definition
	Dropped bool
	// Cascades are the tables that a change of this one may change without
	// rows events of their own, transitively closed: schema.table.
	Cascades []string
	Engine   string
}

// RowsElsewhere tells, for people, why the rows of a table with this engine do not
// follow from what a replica executed (rules §2.4); empty for an engine that keeps
// what was written to it.
func RowsElsewhere(engine string) string {
	switch {
	case engine == "InnoDB":
		return "" // at once: each decision asks for each of its keys
	case strings.EqualFold(engine, "MEMORY"):
		return "a restart of this server empties it"
	case strings.EqualFold(engine, "MRG_MYISAM"):
		return "its rows are those of other tables"
	case strings.EqualFold(engine, "BLACKHOLE"):
		return "it keeps no rows"
	case strings.EqualFold(engine, "FEDERATED"):
		return "its rows are another server's"
	}
	return ""
}
