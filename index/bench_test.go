package index_test

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"

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
