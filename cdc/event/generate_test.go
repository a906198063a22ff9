package event_test

import (
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// generator draws values of this package at random.
type generator struct{ *rapid.T }

func (g generator) n(most int) int       { return rapid.IntRange(0, most).Draw(g.T, "n") }
func (g generator) bool() bool           { return rapid.Bool().Draw(g.T, "bool") }
func (g generator) u64() uint64          { return rapid.Uint64().Draw(g.T, "u64") }
func (g generator) i64() int64           { return rapid.Int64().Draw(g.T, "i64") }
func (g generator) text() string         { return rapid.StringN(0, 12, 40).Draw(g.T, "text") }
func (g generator) version() uint64      { return rapid.Uint64Max(1<<63-1).Draw(g.T, "version") }
func (g generator) ordinal() uint64      { return rapid.Uint64Max(1<<43-1).Draw(g.T, "ordinal") }
func (g generator) timeline() uint32     { return rapid.Uint32Max(1<<20-1).Draw(g.T, "timeline") }
func (g generator) digest() (d [16]byte) { d[0] = byte(g.n(3)); d[15] = byte(g.n(255)); return d }
func (g generator) uuid() (u gtid.UUID)  { u[0] = byte(g.n(2)); u[15] = byte(g.n(2)); return u }
func (g generator) def() key.DefVersion  { return key.DefVersion(g.u64()) }
func (g generator) seq() int64           { return rapid.Int64Range(1, gtid.MaxSeq).Draw(g.T, "seq") }
func (g generator) identity() event.Identity {
	return event.Identity{GTID: g.gtid(), OriginalCommit: g.i64()}
}

func list[T any](g generator, most int, draw func() T) []T {
	n := g.n(most)
	if n == 0 {
		return nil
	}
	out := make([]T, n)
	for i := range out {
		out[i] = draw()
	}
	return out
}

func (g generator) gtid() gtid.GTID {
	v := gtid.GTID{UUID: g.uuid(), Tag: rapid.SampledFrom([]string{"", "", "a", "app_1"}).Draw(g.T, "tag")}
	v.Seq = int64(1 + g.n(20))
	if g.n(5) == 0 {
		v.Seq = g.seq()
	}
	return v
}

func (g generator) set() gtid.Set { return gtid.Of(list(g, 5, g.gtid)...) }

func (g generator) digests(most int) []key.Digest {
	return list(g, most, func() key.Digest { return g.digest() })
}

func (g generator) defs() []event.DefRef {
	return list(g, 20, func() event.DefRef { return event.DefRef{Table: g.digest(), Version: g.def()} })
}

func (g generator) transaction() *event.Transaction {
	return &event.Transaction{
		GTID: g.gtid(), OriginalCommit: g.i64(), ImmediateCommit: g.i64(), SizeBytes: g.u64(),
		Flags: event.Flags(g.n(1<<10 - 1)), XID: g.text(), Tables: g.digests(20), Scopes: g.digests(5), Defs: g.defs(),
	}
}

func (g generator) timelines() []event.TimelineStart {
	return list(g, 3, func() event.TimelineStart {
		return event.TimelineStart{Number: g.timeline(), First: g.ordinal()}
	})
}

func (g generator) groups() []event.GroupColumn {
	return list(g, 3, func() event.GroupColumn {
		return event.GroupColumn{Schema: g.text(), Table: g.text(), Column: g.text(), Before: g.set()}
	})
}

func (g generator) announcement() *event.Announcement {
	return &event.Announcement{
		Server: g.text(), ServerUUID: g.uuid(), Epoch: event.Epoch(g.u64()), History: event.History(g.u64()),
		Executed: g.set(), Had: g.set(), Lost: g.set(), LostIDs: list(g, 3, g.identity), NewlyLost: g.set(),
		Timelines: g.timelines(), Groups: g.groups(), FoldNames: g.bool(),
	}
}

func (g generator) item() event.Item {
	switch g.n(12) {
	case 0:
		c := &event.Chunk{GTID: g.gtid(), Number: uint32(g.n(1000)), Scopes: g.digests(8)}
		if g.bool() {
			c.Last, c.Total, c.Digest = g.transaction(), uint32(g.n(1000)), g.digest()
		}
		return c
	case 1:
		return &event.Hole{GTIDs: g.set(), Anonymous: g.bool(), Reason: g.text(), Headers: list(g, 3, func() event.HoleHeader {
			return event.HoleHeader{Identity: g.identity(), Empty: g.bool()}
		})}
	case 2:
		return g.announcement()
	case 3:
		return &event.Checkpoint{
			History: event.History(g.u64()), Delivered: g.set(), Holes: g.set(), Lost: g.set(), LostIDs: list(g, 3, g.identity),
			LossAt: event.Version(g.version()), KnownEmpty: g.set(), Announced: *g.announcement(), Timelines: g.timelines(),
			Open: list(g, 3, func() event.OpenXA {
				return event.OpenXA{XID: g.text(), GTID: g.gtid(), Tables: g.digests(3), Scopes: g.digests(3)}
			}),
			Defs: g.defs(), Groups: g.groups(),
		}
	case 4:
		return &event.Definitions{Defs: g.defs()}
	case 5:
		return &event.Part{Number: uint32(g.n(9)), Total: uint32(g.n(9)), Digest: g.digest(), Bytes: append([]byte{1}, g.text()...)}
	}
	return g.transaction()
}

func (g generator) message() *event.Message {
	return &event.Message{
		Header: event.Header{
			Incarnation: g.digest(), Count: g.u64(), Prev: g.digest(), Generation: event.Generation(g.u64()),
			Timeline: g.timeline(), Fold: uint16(g.n(1<<16 - 1)), SecretPrint: [8]byte{byte(g.n(255))},
		},
		First: g.ordinal(),
		Items: list(g, 30, g.item),
	}
}

func (g generator) state() *event.ServerState {
	return &event.ServerState{
		Server: g.text(), AppAddr: g.text(), UUID: g.uuid(), Epoch: event.Epoch(g.u64()), DataSet: g.u64(),
		History: event.History(g.u64()), LossSeen: event.Version(g.version()), Alive: g.bool(), Down: g.text(),
		Role: event.Role(g.n(2)), Writable: g.bool(), Drained: g.bool(), GTIDMode: g.text(), Follow: g.text(),
		Owned: g.set(), Executed: g.set(), Unproven: g.set(), Base: g.set(), Received: g.set(), Hinted: g.set(),
		Ticks: list(g, 3, func() event.RouterTick { return event.RouterTick{Router: g.digest(), Tick: g.u64()} }),
		Taints: list(g, 3, func() event.Taint {
			t := event.Taint{All: g.bool(), Table: g.digest(), Name: g.text(), Reason: g.text()}
			if g.bool() {
				t.GTID = g.gtid()
			}
			return t
		}),
		Errant: g.set(), Excluded: list(g, 3, g.text), Filtered: list(g, 3, g.text), FilteredTables: g.digests(3),
		BinlogFile: g.text(), BinlogPos: g.u64(), BinlogMark: g.u64(), Ends: list(g, 3, func() event.RunEnd { return event.RunEnd{Epoch: event.Epoch(g.u64()), File: g.text()} }), SourceUUID: g.uuid(), IORunning: g.bool(), SQLRunning: g.bool(),
		ReplicationErr: g.text(), UptimeSeconds: g.i64(), ThreadsRunning: g.i64(), ServerVersion: g.text(),
		RelaxedDurable: g.bool(), Grouped: g.bool(), ProbedUnixMicro: g.i64(), Process: g.i64(), Connection: g.u64(),
	}
}

func (g generator) columns() []key.Column {
	return list(g, 3, func() key.Column {
		return key.Column{
			Name: g.text(), Type: key.Type(g.n(13)), Unsigned: g.bool(), Nullable: g.bool(), Precision: g.n(65), Scale: g.n(30),
			Length: g.n(255), PrefixLen: g.n(255), Collation: g.text(), Members: list(g, 3, g.text), Ordinal: g.n(4095),
		}
	})
}

func (g generator) definition() *event.TableDefinition {
	return &event.TableDefinition{
		Definition: key.Definition{
			Schema: g.text(), Table: g.text(), Version: g.def(), Primary: g.columns(), Groups: g.columns(),
			FoldNames: g.bool(), Columns: g.n(4096),
		},
		Dropped: g.bool(), Cascades: list(g, 3, g.text), Engine: g.text(),
	}
}

var setType = reflect.TypeFor[gtid.Set]()

// difference compares field by field; sets by content. Empty: equal.
func difference(path string, a, b reflect.Value) string {
	if a.Kind() == reflect.Interface {
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				return path + ": one is nil"
			}
			return ""
		}
		a, b = a.Elem(), b.Elem()
	}
	if a.Type() != b.Type() {
		return fmt.Sprintf("%s: %v and %v", path, a.Type(), b.Type())
	}
	if a.Type() == setType {
		if x, y := a.Interface().(gtid.Set), b.Interface().(gtid.Set); !x.Equal(y) {
			return fmt.Sprintf("%s: %v and %v", path, x, y)
		}
		return ""
	}
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				return path + ": one is nil"
			}
			return ""
		}
		return difference(path, a.Elem(), b.Elem())
	case reflect.Struct:
		for i := range a.NumField() {
			if d := difference(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i)); d != "" {
				return d
			}
		}
		return ""
	case reflect.Slice:
		if a.Len() != b.Len() {
			return fmt.Sprintf("%s: %d and %d elements", path, a.Len(), b.Len())
		}
		for i := range a.Len() {
			if d := difference(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i)); d != "" {
				return d
			}
		}
		return ""
	}
	if x, y := a.Interface(), b.Interface(); x != y {
		return fmt.Sprintf("%s: %v and %v", path, x, y)
	}
	return ""
}

func wantEqual(t interface{ Fatalf(string, ...any) }, got, want any) {
	if d := difference("", reflect.ValueOf(got), reflect.ValueOf(want)); d != "" {
		t.Fatalf("got and want differ at %s", d)
	}
}

// TestDifferenceSeesEveryField guards the comparison of the other tests.
func TestDifferenceSeesEveryField(t *testing.T) {
	for _, pair := range [][2]any{
		{&event.Transaction{}, &event.Transaction{XID: "x"}},
		{&event.Checkpoint{}, &event.Checkpoint{Announced: event.Announcement{FoldNames: true}}},
		{&event.ServerState{}, &event.ServerState{Hinted: gtid.Of(gtid.GTID{Seq: 1})}},
		{&event.Message{Items: []event.Item{&event.Hole{}}}, &event.Message{Items: []event.Item{&event.Part{}}}},
	} {
		if difference("", reflect.ValueOf(pair[0]), reflect.ValueOf(pair[1])) == "" {
			t.Errorf("%+v and %+v are taken for equal", pair[0], pair[1])
		}
	}
}
