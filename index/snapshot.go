package index

import (
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// Snapshot is one consistent, immutable state of the index. It satisfies the
// view that the router declares. Every method may be called at once by many,
// none blocks, none allocates.
type Snapshot struct {
	tab *table
	gen uint64 // evictions that the horizon here covers

	ready      bool
	detail     string
	blindSince int64

	servers []serverView
	names   map[string]int
	primary primaryView
	markAt  int64
	// markRefused says why the newest probe of a primary did not count.
	markRefused string
	arrived     []arrival
	newest      *probe

	delivered, horizon, lost gtid.Set
	failover                 event.Version
	left                     gtid.Set // see FailoverLeft
	ordinals                 ordinalView

	defs       *[shards]map[nameKey]*event.TableDefinition
	streamDefs *[shards]map[key.Digest]key.DefVersion
	groups     map[key.Digest]gtid.Set
	foldNames  bool
	hasher     key.Hasher
}

// serverView is what a snapshot says of one server.
type serverView struct {
	name             string
	state            *event.ServerState // nil: never heard of
	conf             gtid.Set
	prefix           event.Version
	leaseAt, freshAt int64
	reason, detail   string
	tables           map[key.Digest]struct{}
	horizonShown     bool // H is within C or lost
}

// primaryView is what a snapshot says of the primary.
type primaryView struct {
	i              int
	ok             bool
	reason, detail string
}

// Ready tells whether the index is caught up with the stream and knows the
// announced primary; detail says what it waits for when not.
func (s *Snapshot) Ready() (ok bool, detail string) { return s.ready, s.detail }

// BlindSince tells since when the router is cut off from the stream; 0: it is
// not.
func (s *Snapshot) BlindSince() int64 { return s.blindSince }

// NumServers is how many servers are configured or were heard of.
func (s *Snapshot) NumServers() int { return len(s.servers) }

// ServerIndex finds a server by its configured name.
func (s *Snapshot) ServerIndex(name string) (i int, ok bool) {
	i, ok = s.names[name]
	return i, ok
}

// Server is the newest state of a server; nil: configured, never heard of. The
// caller must not modify it.
func (s *Snapshot) Server(i int) *event.ServerState { return s.servers[i].state }

// Confirmed is C(X) of rules §2.2; for the announced primary it is what it has
// executed.
func (s *Snapshot) Confirmed(i int) gtid.Set { return s.servers[i].conf }

// Prefix is the newest version up to which every delivered transaction is
// confirmed on server i.
func (s *Snapshot) Prefix(i int) event.Version { return s.servers[i].prefix }

// LeaseAt is when the newest tick that the state of server i names was sent;
// 0: none, or its connection is lost.
func (s *Snapshot) LeaseAt(i int) int64 { return s.servers[i].leaseAt }

// FreshAt is when the newest tick was sent whose E is within what server i has
// confirmed, or lost; 0: none.
func (s *Snapshot) FreshAt(i int) int64 { return s.servers[i].freshAt }

// Ineligible says what excludes server i apart from lease and role: a reason of
// the router's list, and a detail. Empty: nothing does.
func (s *Snapshot) Ineligible(i int) (reason, detail string) {
	return s.servers[i].reason, s.servers[i].detail
}

// TableExcluded tells whether a table, by its any-row scope, is tainted or
// filtered on server i.
func (s *Snapshot) TableExcluded(i int, table key.Digest) bool {
	_, ok := s.servers[i].tables[table]
	return ok
}

// Primary is the announced primary when it is known, live by its own state and
// alone. Otherwise ok is false and reason says which of catching_up or
// no_primary it is.
func (s *Snapshot) Primary() (i int, ok bool, reason, detail string) {
	p := &s.primary
	return p.i, p.ok, p.reason, p.detail
}

// WatermarkAt is when W's tick was sent; 0: no watermark.
func (s *Snapshot) WatermarkAt() int64 { return s.markAt }

// WatermarkRefused says why the newest probe of a primary did not count, which
// keeps W where it is; empty: it did, or there was none.
func (s *Snapshot) WatermarkRefused() string { return s.markRefused }

// LearntAt is when this router learnt of a version, at the earliest; 0: it is not
// known. It is a hint for people.
func (s *Snapshot) LearntAt(v event.Version) int64 { return when(s.arrived, v) }

// Delivered is D, Horizon is H, Lost is what a failover lost and nobody gave
// again.
func (s *Snapshot) Delivered() gtid.Set { return s.delivered }

// Horizon is every GTID for which the index may lack records (rules §5.1).
func (s *Snapshot) Horizon() gtid.Set { return s.horizon }

// HorizonWithin tells whether H, what is lost aside, is within Confirmed(i). It
// is worked out when the snapshot is made, for it is asked in each decision at
// level key (rules §7) and may be large.
func (s *Snapshot) HorizonWithin(i int) bool { return s.servers[i].horizonShown }

// Lost is every GTID that is lost and was not seen again (rules §10).
func (s *Snapshot) Lost() gtid.Set { return s.lost }

// LastFailover is the version of the newest announcement with another primary
// or with losses.
func (s *Snapshot) LastFailover() event.Version { return s.failover }

// FailoverLeft is what failovers left, whether the stream has come to it or not:
// what the announced primary had executed when it was announced, or by the last
// counted probe at which it had more from other servers than before.
func (s *Snapshot) FailoverLeft() gtid.Set { return s.left }

// CountedE is the newest counted E (rules §6.2) and when its tick was sent; 0:
// none.
func (s *Snapshot) CountedE() (e gtid.Set, tickAt int64) {
	if s.newest == nil {
		return gtid.Set{}, 0
	}
	return s.newest.e, s.newest.at
}

// Definition returns the newest definition of a table, by folded names. The
// caller must not modify it.
func (s *Snapshot) Definition(schema, table string) (*event.TableDefinition, bool) {
	if s.defs == nil {
		return nil, false
	}
	k := nameKey{schema, table}
	d, ok := s.defs[k.shard()][k]
	if !ok || d.Dropped {
		return nil, false
	}
	return d, true
}

// FoldNames tells whether names fold without case on the announced primary.
func (s *Snapshot) FoldNames() bool { return s.foldNames }

// StreamDef is the version with which the stream last folded rows of a table;
// ok is false when it named none.
func (s *Snapshot) StreamDef(table key.Digest) (v key.DefVersion, ok bool) {
	if s.streamDefs == nil {
		return 0, false
	}
	v, ok = s.streamDefs[digestShard(table)][table]
	return v, ok
}

// GroupHorizon is what had passed before a group column was announced; ok is
// false for a column that is not announced.
func (s *Snapshot) GroupHorizon(column key.Digest) (gtid.Set, bool) {
	before, ok := s.groups[column]
	return before, ok
}

// Hasher makes digests under the secret of the stream.
func (s *Snapshot) Hasher() key.Hasher { return s.hasher }

// Newest looks up the newest versions of scopes into out, which has the same
// length; 0: no record. It returns false when the records have moved on from
// this snapshot: take a new one and ask again.
func (s *Snapshot) Newest(scopes []key.Digest, out []event.Version) bool {
	for i := range scopes {
		out[i] = s.tab.get(&scopes[i])
	}
	// After the look-ups: what an eviction took away under them is seen here.
	return s.tab.gen.Load() <= s.gen
}

// GTIDAt is the transaction at a version; ok is false when it is no longer
// known, or when the version is not a transaction's.
func (s *Snapshot) GTIDAt(v event.Version) (gtid.GTID, bool) { return s.ordinals.gtidAt(v) }
