package event_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

func TestMessageRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := generator{t}.message()
		prefix := []byte("kept")
		b := m.AppendBinary(bytes.Clone(prefix))
		if !bytes.HasPrefix(b, prefix) {
			t.Fatalf("the prefix was overwritten: %x", b)
		}
		b = b[len(prefix):]
		bound := event.HeaderBound
		for _, it := range m.Items {
			bound += event.SizeBound(it)
		}
		if len(b) > bound {
			t.Fatalf("%d bytes, bound %d", len(b), bound)
		}
		got, err := event.DecodeMessage(b)
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		if got.Digest != event.DigestOf(b) {
			t.Fatalf("digest %x of a message with digest %x", got.Digest, event.DigestOf(b))
		}
		m.Digest, m.Format = got.Digest, event.Format
		wantEqual(t, got, m)
	})
}

func TestItemsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := generator{t}
		items := []event.Item{g.announcement(), &event.Definitions{Defs: g.defs()}}
		got, err := event.DecodeItems(event.EncodeItems(items), event.Format)
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		wantEqual(t, got, items)
	})
}

func TestServerStateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := generator{t}.state()
		got, err := event.DecodeServerState(s.AppendBinary(nil))
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		wantEqual(t, got, s)
		// Whatever was said of the server before, and that stays as it was.
		last := generator{t}.state()
		before := last.AppendBinary(nil)
		got, err = event.DecodeServerStateAfter(s.AppendBinary(nil), last)
		if err != nil {
			t.Fatalf("decode after another: %v", err)
		}
		wantEqual(t, got, s)
		if !bytes.Equal(last.AppendBinary(nil), before) {
			t.Fatal("the state before was changed")
		}
	})
}

func TestTableDefinitionRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := generator{t}.definition()
		got, err := event.DecodeTableDefinition(d.AppendBinary(nil))
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		wantEqual(t, got, d)
	})
}

// TestUnknownColumnType: a type of a later version decodes, and folds wide, sealed
// or not: all rows of the table, and none by its key.
func TestUnknownColumnType(t *testing.T) {
	for typ := key.TypeChar + 1; typ != 0; typ++ {
		d := exampleDefinition()
		d.Primary[1].Type, d.Groups[0].Type = typ, typ
		got, err := event.DecodeTableDefinition(d.AppendBinary(nil))
		if err != nil {
			t.Fatalf("type %d: %v", typ, err)
		}
		for _, sealed := range []bool{false, true} {
			if sealed {
				got.Seal()
			}
			if got.Primary[1].Type != typ || got.Primary[1].Fold() != key.Wide || got.RowsUsable() || got.GroupUsable(0) {
				t.Errorf("type %d (sealed %v) is read as %d and folds %v; rows usable %v, group usable %v",
					typ, sealed, got.Primary[1].Type, got.Primary[1].Fold(), got.RowsUsable(), got.GroupUsable(0))
			}
		}
	}
}

// decoder is one encoding.
type decoder struct {
	example func() []byte
	decode  func([]byte) error
}

// decoders are the three encodings with an example of each.
var decoders = map[string]decoder{
	"message":    {func() []byte { return example().AppendBinary(nil) }, func(b []byte) error { _, err := event.DecodeMessage(b); return err }},
	"state":      {func() []byte { return exampleState().AppendBinary(nil) }, func(b []byte) error { _, err := event.DecodeServerState(b); return err }},
	"definition": {func() []byte { return exampleDefinition().AppendBinary(nil) }, func(b []byte) error { _, err := event.DecodeTableDefinition(b); return err }},
}

func TestDecodeRefuses(t *testing.T) {
	for name, d := range decoders {
		good := d.example()
		if err := d.decode(good); err != nil {
			t.Fatalf("%s: the example itself: %v", name, err)
		}
		changed := func(at int, v byte) []byte {
			b := bytes.Clone(good)
			b[at] = v
			return b
		}
		for _, c := range []struct {
			what string
			in   []byte
			want error
		}{
			{"nothing", nil, event.ErrCorrupt},
			{"one byte", good[:1], event.ErrCorrupt},
			{"next format", changed(0, event.Format+1), event.ErrNewerFormat},
			{"far future", changed(0, 255), event.ErrNewerFormat},
			{"format zero", changed(0, 0), event.ErrCorrupt},
			{"another kind", changed(1, 9), event.ErrCorrupt},
			{"a byte more", append(bytes.Clone(good), 0), event.ErrCorrupt},
		} {
			if err := d.decode(c.in); !errors.Is(err, c.want) {
				t.Errorf("%s, %s: got %v, want %v", name, c.what, err, c.want)
			}
		}
		for n := 2; n < len(good); n++ {
			if err := d.decode(good[:n]); !errors.Is(err, event.ErrCorrupt) {
				t.Errorf("%s cut to %d of %d bytes: got %v, want %v", name, n, len(good), err, event.ErrCorrupt)
			}
		}
	}
}

var update = flag.Bool("update", false, "write the golden encodings of the current format")

// TestOldFormats decodes the encodings that earlier versions wrote, of each
// format that is still accepted, and holds the current encoder to its own.
func TestOldFormats(t *testing.T) {
	for name, d := range decoders {
		for format := event.Format - 1; format <= event.Format; format++ {
			testOldFormat(t, name, d, format)
		}
	}
}

func testOldFormat(t *testing.T, name string, d decoder, format uint8) {
	file := filepath.Join("testdata", fmt.Sprintf("format%d", format), name+".hex")
	if *update && format == event.Format {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(hex.EncodeToString(d.example())+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	old, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.decode(old); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	if old[0] != format {
		t.Errorf("%s: is of format %d", file, old[0])
	}
	if format == event.Format && !bytes.Equal(old, d.example()) {
		t.Errorf("%s: the encoder writes other bytes under the same format number", file)
	}
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add(example().AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := event.DecodeMessage(b)
		if err != nil {
			return
		}
		again, err := event.DecodeMessage(m.AppendBinary(nil))
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		again.Digest, again.Format = m.Digest, m.Format
		wantEqual(t, again, m)
	})
}

func FuzzDecodeItems(f *testing.F) {
	f.Add(event.EncodeItems(example().Items[3:]))
	f.Fuzz(func(t *testing.T, b []byte) {
		items, err := event.DecodeItems(b, event.Format)
		if err != nil {
			return
		}
		again, err := event.DecodeItems(event.EncodeItems(items), event.Format)
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		wantEqual(t, again, items)
	})
}

func FuzzDecodeServerState(f *testing.F) {
	f.Add(exampleState().AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := event.DecodeServerState(b)
		if err != nil {
			return
		}
		again, err := event.DecodeServerState(s.AppendBinary(nil))
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		wantEqual(t, again, s)
	})
}

func FuzzDecodeTableDefinition(f *testing.F) {
	f.Add(exampleDefinition().AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := event.DecodeTableDefinition(b)
		if err != nil {
			return
		}
		again, err := event.DecodeTableDefinition(d.AppendBinary(nil))
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		wantEqual(t, again, d)
	})
}

func g(seq int64) gtid.GTID {
	return gtid.GTID{UUID: gtid.UUID{0x3e, 0x11, 15: 0x62}, Seq: seq}
}

// example is a message with each kind of item. The first three are as common
// as transactions are.
func example() *event.Message {
	table, def := []key.Digest{{1}}, []event.DefRef{{Table: key.Digest{1}, Version: 77}}
	tagged := g(9)
	tagged.Tag = "app"
	set := gtid.Of(g(1), g(2), tagged)
	ann := event.Announcement{
		Server: "a", ServerUUID: g(1).UUID, Epoch: 3, History: 2, Executed: set, Had: set.Union(gtid.Of(g(3))), Lost: gtid.Of(g(9)),
		LostIDs: []event.Identity{{GTID: g(9), OriginalCommit: 1_700_000_000_000_000}}, NewlyLost: gtid.Of(g(9)),
		Timelines: []event.TimelineStart{{Number: 1, First: 1}, {Number: 2, First: 40}},
		Groups:    []event.GroupColumn{{Schema: "app", Table: "posts", Column: "author_id", Before: set}}, FoldNames: true,
	}
	return &event.Message{
		Header: event.Header{
			Incarnation: [16]byte{1, 2, 3}, Count: 42, Prev: [16]byte{4, 5}, Generation: 6, Timeline: 2, Fold: 1, SecretPrint: [8]byte{7},
		},
		First: 41,
		Items: []event.Item{
			&event.Transaction{GTID: g(3), OriginalCommit: 1_700_000_000_000_000, ImmediateCommit: 1_700_000_000_000_123, SizeBytes: 300, Tables: table, Scopes: []key.Digest{{2}, {3}}, Defs: def},
			&event.Transaction{GTID: g(4), OriginalCommit: 1_700_000_000_000_050, ImmediateCommit: 1_700_000_000_000_173, SizeBytes: 300, Tables: table, Scopes: []key.Digest{{4}}, Defs: def},
			&event.Transaction{GTID: tagged, OriginalCommit: -1, Flags: event.XAPrepare | event.Statement | event.Unchanged, XID: "X'61',X'',1"},
			&event.Chunk{GTID: g(5), Number: 0, Scopes: []key.Digest{{5}, {6}}},
			&event.Chunk{GTID: g(5), Number: 1, Total: 2, Digest: [16]byte{8}, Last: &event.Transaction{GTID: g(5), OriginalCommit: 5, Tables: table}},
			&event.Hole{GTIDs: gtid.Of(g(6), g(7)), Headers: []event.HoleHeader{{Identity: event.Identity{GTID: g(7), OriginalCommit: 9}, Empty: true}}, Reason: "purged"},
			&ann,
			&event.Checkpoint{
				History: 2, Delivered: set, Holes: gtid.Of(g(1)), Lost: ann.Lost, LostIDs: ann.LostIDs, LossAt: 12, KnownEmpty: gtid.Of(g(2)),
				Announced: ann, Timelines: ann.Timelines, Defs: def, Groups: ann.Groups,
				Open: []event.OpenXA{{XID: "X'61',X'',1", GTID: tagged, Tables: table, Scopes: []key.Digest{{7}}}},
			},
			&event.Definitions{Defs: []event.DefRef{{Table: key.Digest{9}, Version: 1}}},
			&event.Part{Number: 1, Total: 2, Digest: [16]byte{1}, Bytes: []byte("bytes")},
		},
	}
}

func exampleState() *event.ServerState {
	set := gtid.Of(g(1), g(2), g(4))
	return &event.ServerState{
		Server: "b", AppAddr: "db-b:3306", UUID: g(1).UUID, Epoch: 9, DataSet: 10, History: 2, LossSeen: 11, Alive: true,
		Role: event.RoleReplica, Drained: true, GTIDMode: "ON", Follow: "binlog", Owned: gtid.Of(g(5)), Executed: set,
		Unproven: gtid.Of(g(4)), Base: gtid.Of(g(1)), Received: set, Hinted: gtid.Of(g(5)),
		Ticks:  []event.RouterTick{{Router: [16]byte{1}, Tick: 99}},
		Taints: []event.Taint{{Table: key.Digest{1}, Name: "app.posts", GTID: g(2), Reason: "no rows"}, {All: true, Reason: "identity"}},
		Errant: gtid.Of(g(7)), Excluded: []string{"channels"}, Filtered: []string{"app.%"}, FilteredTables: []key.Digest{{3}},
		BinlogFile: "binlog.000003", BinlogPos: 4711, BinlogMark: 1_800_000_000<<32 | 17, Ends: []event.RunEnd{{Epoch: 7, File: "binlog.000002"}, {Epoch: 8}}, SourceUUID: g(1).UUID, IORunning: true, SQLRunning: true,
		UptimeSeconds: 60, ThreadsRunning: 2, ServerVersion: "9.7.4", ProbedUnixMicro: 1_700_000_000_000_000, Process: 41, Connection: 12,
	}
}

func exampleDefinition() *event.TableDefinition {
	return &event.TableDefinition{
		Definition: key.Definition{
			Schema: "app", Table: "posts", Version: 77, Columns: 4, FoldNames: true,
			Primary: []key.Column{{Name: "id", Type: key.TypeInt, Unsigned: true}, {Name: "lang", Type: key.TypeChar, Collation: "utf8mb4_0900_ai_ci", Ordinal: 3}},
			Groups:  []key.Column{{Name: "kind", Type: key.TypeEnum, Nullable: true, Collation: "utf8mb4_0900_ai_ci", Members: []string{"a", "b"}, Ordinal: 2}},
		},
		Cascades: []string{"app.comments"}, Engine: "InnoDB",
	}
}

// singles is a message of n single-row transactions as a busy primary makes
// them.
func singles(n int) *event.Message {
	m := &event.Message{First: 1}
	table, def := []key.Digest{{1}}, []event.DefRef{{Table: key.Digest{1}, Version: 77}}
	for i := range n {
		m.Items = append(m.Items, &event.Transaction{
			GTID: g(int64(i + 1)), OriginalCommit: 1_700_000_000_000_000 + int64(i)*37, ImmediateCommit: 1_700_000_000_000_090 + int64(i)*37,
			SizeBytes: 312, Tables: table, Scopes: []key.Digest{{byte(i), byte(i >> 8), 3}}, Defs: def,
		})
	}
	return m
}

func BenchmarkMessage(b *testing.B) {
	const n = 100
	m := singles(n)
	encoded := m.AppendBinary(nil)
	perTx := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/txn")
		b.ReportMetric(float64(len(encoded))/n, "bytes/txn")
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			buf = m.AppendBinary(buf[:0])
		}
		perTx(b)
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := event.DecodeMessage(encoded); err != nil {
				b.Fatal(err)
			}
		}
		perTx(b)
	})
}

// TestUnknownFlags: a decoder does not pass over what it can't mean.
func TestUnknownFlags(t *testing.T) {
	m := event.Message{First: 1, Items: []event.Item{&event.Transaction{
		GTID: gtid.GTID{UUID: gtid.UUID{1}, Seq: 1}, Flags: event.Unchanged << 1,
	}}}
	if _, err := event.DecodeMessage(m.AppendBinary(nil)); !errors.Is(err, event.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
	m.Items[0].(*event.Transaction).Flags = event.Unchanged<<1 - 1
	if _, err := event.DecodeMessage(m.AppendBinary(nil)); err != nil {
		t.Errorf("all flags that there are: %v", err)
	}
}
