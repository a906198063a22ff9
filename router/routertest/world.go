package routertest

import (
	"testing"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// UUIDs of the servers a, b and c.
const (
	UUIDA = "aaaaaaaa-0000-0000-0000-000000000001"
	UUIDB = "bbbbbbbb-0000-0000-0000-000000000002"
	UUIDC = "cccccccc-0000-0000-0000-000000000003"
)

// Now is the moment that every world takes for now, by the router's clock.
const Now = int64(1_000 * time.Second)

// World implements router.Snapshot by its fields. It is for many at once as
// long as nobody changes it; Moves is for one.
type World struct {
	IsReady     bool
	ReadyDetail string
	Blind       int64

	States         []*event.ServerState // by place
	ConfirmedSets  []gtid.Set
	Prefixes       []event.Version
	Leases         []int64
	FreshTimes     []int64
	IneligibleFor  []string           // reason; empty: nothing
	ExcludedTables map[int]key.Digest // one a server

	PrimaryIndex  int
	HasPrimary    bool
	PrimaryReason string
	Watermark     int64
	Refused       string // why the newest probe did not count

	DeliveredSet, HorizonSet, LostSet gtid.Set
	LeftSet                           gtid.Set
	Failover                          event.Version
	E                                 gtid.Set
	EAt                               int64

	Defs       map[string]*event.TableDefinition // by schema.table
	StreamDefs map[key.Digest]key.DefVersion
	Groups     map[key.Digest]gtid.Set
	Fold       bool
	Hash       key.Hasher

	Records map[key.Digest]event.Version
	Writers map[event.Version]gtid.GTID
	Learnt  map[event.Version]int64
	Moves   int // so many look-ups find that the records moved on
}

// detail is what a world says where a snapshot explains itself.
const detail = "as the test says"

// Ready implements router.Snapshot, as all that follow.
func (w *World) Ready() (bool, string) { return w.IsReady, w.ReadyDetail }

// BlindSince returns Blind.
func (w *World) BlindSince() int64 { return w.Blind }

// NumServers returns the number of States.
func (w *World) NumServers() int { return len(w.States) }

// ServerIndex looks through States.
func (w *World) ServerIndex(name string) (int, bool) {
	for i, s := range w.States {
		if s != nil && s.Server == name {
			return i, true
		}
	}
	return 0, false
}

// Server returns one of States.
func (w *World) Server(i int) *event.ServerState { return w.States[i] }

// Confirmed returns one of ConfirmedSets.
func (w *World) Confirmed(i int) gtid.Set { return w.ConfirmedSets[i] }

// Prefix returns one of Prefixes.
func (w *World) Prefix(i int) event.Version { return w.Prefixes[i] }

// LeaseAt returns one of Leases.
func (w *World) LeaseAt(i int) int64 { return w.Leases[i] }

// FreshAt returns one of FreshTimes.
func (w *World) FreshAt(i int) int64 { return w.FreshTimes[i] }

// Ineligible returns one of IneligibleFor.
func (w *World) Ineligible(i int) (reason, why string) {
	if w.IneligibleFor[i] == "" {
		return "", ""
	}
	return w.IneligibleFor[i], detail
}

// TableExcluded looks into ExcludedTables.
func (w *World) TableExcluded(i int, table key.Digest) bool {
	d, ok := w.ExcludedTables[i]
	return ok && d == table
}

// Primary returns PrimaryIndex, HasPrimary and PrimaryReason.
func (w *World) Primary() (i int, ok bool, reason, why string) {
	return w.PrimaryIndex, w.HasPrimary, w.PrimaryReason, detail
}

// WatermarkAt returns Watermark.
func (w *World) WatermarkAt() int64 { return w.Watermark }

// WatermarkRefused returns Refused.
func (w *World) WatermarkRefused() string { return w.Refused }

// LearntAt looks into Learnt.
func (w *World) LearntAt(v event.Version) int64 { return w.Learnt[v] }

// Delivered returns DeliveredSet.
func (w *World) Delivered() gtid.Set { return w.DeliveredSet }

// Horizon returns HorizonSet.
func (w *World) Horizon() gtid.Set { return w.HorizonSet }

// Lost returns LostSet.
func (w *World) Lost() gtid.Set { return w.LostSet }

// LastFailover returns Failover.
func (w *World) LastFailover() event.Version { return w.Failover }

// FailoverLeft returns LeftSet.
func (w *World) FailoverLeft() gtid.Set { return w.LeftSet }

// CountedE returns E and EAt.
func (w *World) CountedE() (e gtid.Set, at int64) { return w.E, w.EAt }

// FoldNames returns Fold.
func (w *World) FoldNames() bool { return w.Fold }

// Hasher returns Hash.
func (w *World) Hasher() key.Hasher { return w.Hash }

// GTIDAt looks into Writers.
func (w *World) GTIDAt(v event.Version) (g gtid.GTID, ok bool) { g, ok = w.Writers[v]; return }

// Definition looks into Defs.
func (w *World) Definition(schema, table string) (*event.TableDefinition, bool) {
	d, ok := w.Defs[schema+"."+table]
	return d, ok
}

// StreamDef looks into StreamDefs.
func (w *World) StreamDef(table key.Digest) (v key.DefVersion, ok bool) {
	v, ok = w.StreamDefs[table]
	return v, ok
}

// GroupHorizon looks into Groups.
func (w *World) GroupHorizon(column key.Digest) (s gtid.Set, ok bool) {
	s, ok = w.Groups[column]
	return s, ok
}

// Newest looks into Records, unless Moves says that they moved on.
func (w *World) Newest(scopes []key.Digest, out []event.Version) bool {
	if w.Moves > 0 {
		w.Moves--
		return false
	}
	for i, s := range scopes {
		out[i] = w.Records[s]
	}
	return true
}

// Behind makes server i show the transactions n of a (such as 1-40:50), which
// reach without a gap up to prefix.
func (w *World) Behind(tb testing.TB, i int, n string, prefix int64) {
	tb.Helper()
	w.ConfirmedSets[i] = Set(tb, UUIDA+":"+n)
	w.Prefixes[i] = V(prefix)
}

// CutOff makes it the world of a router that lost the stream a minute ago.
func (w *World) CutOff() {
	ago := Now - int64(time.Minute)
	w.Blind, w.Watermark = ago, ago
	for i := range w.Leases {
		w.Leases[i], w.FreshTimes[i] = ago, ago
	}
}
