package router

import (
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// Snapshot is one consistent, immutable state of the index. Every method may
// be called at once by many and none allocates. Servers are named by their
// place 0..NumServers-1, stable within one snapshot. Times are readings of the
// deciding router's suspend-aware clock in nanoseconds (rules §6.1).
type Snapshot interface {
	// Ready tells whether the index is caught up with the stream; detail says
	// what it is doing when not (rebuild, no announcement, behind by n).
	Ready() (ok bool, detail string)

	// Blind tells since when the router is cut off from the stream; 0: it is not.
	BlindSince() int64

	NumServers() int
	ServerIndex(name string) (i int, ok bool)
	Server(i int) *event.ServerState // nil: configured, never heard of

	// Confirmed is C(X) of rules §2.2 (for the announced primary: executed).
	Confirmed(i int) gtid.Set
	// Prefix is the newest version up to which every delivered transaction is
	// confirmed on i.
	Prefix(i int) event.Version
	// LeaseAt and FreshAt are when the newest tick named by i, and the newest
	// tick whose E is within C(i) ∪ lost, were sent; 0: none.
	LeaseAt(i int) int64
	FreshAt(i int) int64
	// Ineligible says what excludes i apart from lease and role (taint of the
	// whole server, errant GTIDs, lost identities held, duplicate UUID, another
	// history): a reason of router.Reason as text, and a detail. Empty: nothing.
	Ineligible(i int) (reason, detail string)
	// TableExcluded tells whether a table (any-row scope) is tainted or
	// filtered on i.
	TableExcluded(i int, table key.Digest) bool

	// Primary is the announced primary when it is known, live by its own state
	// and alone; otherwise ok is false and reason says which of catching_up or
	// no_primary it is, detail why.
	Primary() (i int, ok bool, reason, detail string)
	// WatermarkAt is when W's tick was sent; 0: no watermark.
	WatermarkAt() int64
	// WatermarkRefused says why the newest probe of a primary did not count;
	// empty: it did, or there was none. It is made when that happens.
	WatermarkRefused() string
	// LearntAt is when the router learnt of a version, at the earliest; 0: not
	// known. For people: no decision depends on it.
	LearntAt(v event.Version) int64

	Delivered() gtid.Set
	Horizon() gtid.Set
	Lost() gtid.Set
	// LastFailover is the version of the newest announcement with another
	// primary or with losses.
	LastFailover() event.Version
	// FailoverLeft is what failovers left, delivered by now or not: what the
	// announced primary had when it became that. Empty: none is announced.
	FailoverLeft() gtid.Set
	// CountedE is the newest counted E (rules §6.2) and when its tick was sent.
	CountedE() (e gtid.Set, tickAt int64)

	// Definition returns the newest definition of a table, by folded names.
	Definition(schema, table string) (*event.TableDefinition, bool)
	// FoldNames tells whether names fold without case on this cluster's primary.
	FoldNames() bool
	// StreamDef is the version with which the stream last folded rows of the
	// table; ok is false when it named none.
	StreamDef(table key.Digest) (v key.DefVersion, ok bool)
	// GroupHorizon is what had passed before a group column was announced; ok
	// is false for a column that is not announced. column is the all-rows scope
	// of the group column.
	GroupHorizon(column key.Digest) (gtid.Set, bool)
	Hasher() key.Hasher

	// Newest looks up the newest versions of scopes into out (same length; 0:
	// no record). It returns false when the records have moved on from this
	// snapshot (eviction, rebuild): take a new snapshot and ask again.
	Newest(scopes []key.Digest, out []event.Version) bool
	// GTIDAt is the transaction at a version; ok is false when it is no longer
	// known (the caller then needs the prefix).
	GTIDAt(v event.Version) (gtid.GTID, bool)
}
