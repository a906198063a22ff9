package index_test

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/index"
)

// filled is an index with n rows, each written once, in messages of 100
// single-row transactions.
func filled(tb testing.TB, n int, o index.Options) *world {
	w := started(tb, o, "a:1-10")
	fill(w, 11, n)
	return w
}

func fill(w *world, from, n int) {
	const each = 100
	for i := 0; i < n; i += each {
		var items []event.Item
		for k := i; k < min(i+each, n); k++ {
			items = append(items, single(from, k))
		}
		w.write(items...)
	}
}

func single(from, n int) *event.Transaction {
	return &event.Transaction{
		GTID:   gtid.GTID{UUID: uuidA, Seq: int64(from + n)},
		Tables: []key.Digest{posts.AnyRow}, Scopes: []key.Digest{row(n)},
	}
}

// BenchmarkNewest looks up what a decision for one key needs: the row and the
// three wide scopes that cover it.
func BenchmarkNewest(b *testing.B) {
	for _, n := range []int{1000, 1_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			w := filled(b, n, index.Options{})
			rows := make([]key.Digest, 1<<16)
			for i := range rows {
				rows[i] = row(rand.IntN(2 * n)) // every second one has no record
			}
			s := w.snap()
			scopes := []key.Digest{{}, posts.AllRows, posts.Schema, posts.Everything}
			out := make([]event.Version, len(scopes))
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				scopes[0] = rows[i&(len(rows)-1)]
				i++
				if !s.Newest(scopes, out) {
					b.Fatal("moved on")
				}
			}
		})
	}
}

// BenchmarkApply applies messages of 100 single-row transactions with eight
// servers known.
func BenchmarkApply(b *testing.B) {
	for _, tt := range []struct {
		name string
		keys int
	}{{"new", 1 << 30}, {"hot", 100_000}} {
		b.Run(tt.name, func(b *testing.B) {
			w := started(b, index.Options{MaxRecords: 1 << 20, Servers: []string{"a", "b", "c", "d", "e", "f", "g", "h"}}, "a:1-10")
			w.newTick()
			for _, s := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				w.state(s, "a:1-10")
			}
			const each = 100
			n := 0
			form := make([]byte, 8)
			items := make([]event.Item, each)
			ts := make([]event.Transaction, each)
			tables := []key.Digest{posts.AnyRow}
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for i := range items {
					binary.BigEndian.PutUint64(form, uint64(n%tt.keys))
					ts[i] = event.Transaction{GTID: gtid.GTID{UUID: uuidA, Seq: int64(11 + n)}, Tables: tables, Scopes: []key.Digest{posts.Row(form)}}
					items[i] = &ts[i]
					n++
				}
				b.StartTimer()
				w.write(items...)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "txn/s")
		})
	}
}

// BenchmarkRecordMemory reports the bytes that a million records take over an
// empty index.
func BenchmarkRecordMemory(b *testing.B) {
	const n = 1_000_000
	for b.Loop() {
		w := started(b, index.Options{}, "a:1-10")
		before := heap()
		fill(w, 11, n)
		b.ReportMetric(float64(heap()-before)/n, "bytes/record")
		b.ReportMetric(float64(w.ix.Counters().RecordBytes)/n, "table-bytes/record")
		runtime.KeepAlive(w)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// wide is a set of 100 UUIDs with 100 intervals each; the first 1,000 numbers
// of server a's UUID are in it, and n more.
func wide(n int) gtid.Set {
	var b gtid.Builder
	for u := range 99 {
		for i := range 100 {
			b.AddInterval(gtid.Source{UUID: gtid.UUID{0xf0, byte(u)}}, interval(1+10*i, 5+10*i))
		}
	}
	b.AddInterval(gtid.Source{UUID: uuidA}, interval(1, 1000+n))
	return b.Set()
}

// decoded is a set as it comes from the wire: it shares nothing.
func decoded(tb testing.TB, s gtid.Set) gtid.Set {
	d, _, err := gtid.DecodeBinary(s.AppendBinary(nil))
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// BenchmarkWideSets takes states and messages where sets have 100 UUIDs of 100
// intervals and eight servers are known.
func BenchmarkWideSets(b *testing.B) {
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	world := func() *world {
		w := newWorld(b, index.Options{Servers: names})
		w.seq, w.ord = 1, 1
		if err := w.ix.Start(&event.Checkpoint{History: 1, Delivered: decoded(b, wide(0))}, 1, event.Header{}, event.MakeVersion(1, 1)); err != nil {
			b.Fatal(err)
		}
		a := w.announcement("a", "")
		a.Executed = decoded(b, wide(0))
		w.write(a)
		w.ix.CaughtUp(2, true)
		w.newTick()
		for _, s := range names {
			w.state(s, "", func(s *event.ServerState) { s.Executed = decoded(b, wide(0)) })
		}
		return w
	}
	b.Run("writes", func(b *testing.B) {
		w := world()
		n := 0
		b.ReportAllocs()
		for b.Loop() {
			n++
			w.write(&event.Transaction{GTID: gtid.GTID{UUID: uuidA, Seq: int64(1000 + n)}, Scopes: []key.Digest{row(n)}})
		}
	})
	b.Run("state", func(b *testing.B) {
		w := world()
		var states []*event.ServerState
		for i := range 64 {
			w.write(&event.Transaction{GTID: gtid.GTID{UUID: uuidA, Seq: int64(1001 + i)}, Scopes: []key.Digest{row(i)}})
			for _, s := range []string{"a", "b"} {
				w.state(s, "", func(s *event.ServerState) { s.Executed = decoded(b, wide(1+i)) })
				states = append(states, w.states[s])
			}
		}
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			if err := w.ix.State(states[i%len(states)]); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
}

// BenchmarkRestart opens an index with a million records from Pebble.
func BenchmarkRestart(b *testing.B) {
	fs := vfs.NewMem()
	p := openPebble(b, fs)
	w := started(b, index.Options{Store: p}, "a:1-10")
	fill(w, 11, 1_000_000)
	if err := w.ix.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := p.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		p := openPebble(b, fs)
		n := reopened(b, w, p, index.Options{})
		if got := n.ix.Counters().Records; got != 1_000_001 {
			b.Fatalf("%d records", got)
		}
		b.StopTimer()
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkApplyStored is BenchmarkApply with new keys and a Pebble on disk.
func BenchmarkApplyStored(b *testing.B) {
	p, err := index.OpenPebble(index.PebbleOptions{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	w := started(b, index.Options{Store: p, MaxRecords: 1 << 20}, "a:1-10")
	const each = 100
	n := 0
	items := make([]event.Item, each)
	for b.Loop() {
		for i := range items {
			items[i] = single(11, n)
			n++
		}
		w.write(items...)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "txn/s")
	c := w.ix.Counters()
	b.ReportMetric(float64(c.FlushedBytes)/float64(n), "stored-bytes/txn")
	if err := p.Close(); err != nil {
		b.Fatal(err)
	}
}
