package gtid_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"tidegate/binlog/gtid"
)

// wide returns a set of n UUIDs with n intervals each, and their sources. The
// UUIDs are spread as real ones are.
func wide(n int) (gtid.Set, []gtid.Source) {
	var b gtid.Builder
	src := make([]gtid.Source, n)
	state := uint64(1)
	for i := range src {
		for k := 0; k < 16; k += 8 {
			state = state*6364136223846793005 + 1442695040888963407
			binary.BigEndian.PutUint64(src[i].UUID[k:], state)
		}
		for k := range int64(n) {
			first := 1 + k*1_000_000
			b.AddInterval(src[i], gtid.Interval{First: first, Last: first + 900_000})
		}
	}
	return b.Set(), src
}

// floorOf returns a set of one interval near the end for each of n sources.
func floorOf(src []gtid.Source, n int, seq int64) gtid.Set {
	var b gtid.Builder
	for i := range n {
		b.AddInterval(src[i*len(src)/n], gtid.Interval{First: seq, Last: seq + 3})
	}
	return b.Set()
}

func BenchmarkContainsSet(b *testing.B) {
	s, src := wide(100)
	for _, c := range []struct {
		name string
		sub  gtid.Set
	}{
		{"1 interval", floorOf(src, 1, 99_500_000)},
		{"8 intervals, newest", floorOf(src, 8, 99_500_000)},
		{"8 intervals, old", floorOf(src, 8, 37_500_000)},
		{"8 intervals of one source", func() gtid.Set {
			var f gtid.Builder
			for k := range int64(8) {
				f.AddInterval(src[50], gtid.Interval{First: 1 + k*11_000_000, Last: 100 + k*11_000_000})
			}
			return f.Set()
		}()},
		{"all, shared parts", s.AddInterval(src[3], gtid.Interval{First: 99_950_000, Last: 99_950_000}).Intersect(s)},
		{"all, parsed anew", gtid.MustParse(s.String())},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !s.ContainsSet(c.sub) {
					b.Fatal("not contained")
				}
			}
		})
	}
	// One question over and over teaches the processor its answer; requests
	// differ.
	const many = 256
	floors := make([]gtid.Set, many)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range floors {
		var f gtid.Builder
		for range 8 {
			first := 1 + 1_000_000*rnd.Int64N(100)
			f.AddInterval(src[rnd.IntN(len(src))], gtid.Interval{First: first, Last: first + 800_000})
		}
		floors[i] = f.Set()
	}
	b.Run("8 intervals, another each time", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if !s.ContainsSet(floors[i%many]) {
				b.Fatal("not contained")
			}
		}
	})
}

func BenchmarkContains(b *testing.B) {
	s, src := wide(100)
	g := gtid.GTID{UUID: src[50].UUID, Seq: 42_500_000}
	b.ReportAllocs()
	for b.Loop() {
		if !s.Contains(g) {
			b.Fatal("not contained")
		}
	}
}

// BenchmarkBuilder adds transactions of one source and takes a snapshot every
// few: what an index does at each message of the stream.
func BenchmarkBuilder(b *testing.B) {
	s, src := wide(100)
	for _, every := range []int{1, 4, 32} {
		b.Run(fmt.Sprintf("snapshot every %d", every), func(b *testing.B) {
			bld := gtid.NewBuilder(s)
			g := gtid.GTID{UUID: src[50].UUID, Seq: s.Max(src[50])}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				g.Seq++
				bld.Add(g)
				if n++; n%every == 0 {
					bld.Set()
				}
			}
		})
	}
	// An applier without commit order: gaps open and close behind the newest.
	b.Run("out of order, snapshot every 4", func(b *testing.B) {
		bld := gtid.NewBuilder(s)
		base := s.Max(src[50]) + 1
		n := int64(0)
		b.ReportAllocs()
		for b.Loop() {
			g := gtid.GTID{UUID: src[50].UUID, Seq: base + (n ^ 5)}
			bld.Add(g)
			if n++; n%4 == 0 {
				bld.Set()
			}
		}
	})
}

func BenchmarkAlgebra(b *testing.B) {
	s, src := wide(100)
	f := floorOf(src, 8, 99_950_000) // not in s
	bld := gtid.NewBuilder(s)
	bld.Add(gtid.GTID{UUID: src[50].UUID, Seq: 1 << 40})
	next := bld.Set()
	for _, c := range []struct {
		name string
		do   func() gtid.Set
	}{
		{"union with a floor", func() gtid.Set { return s.Union(f) }},
		{"union with its successor", func() gtid.Set { return s.Union(next) }},
		{"successor less it", func() gtid.Set { return next.Subtract(s) }},
		{"intersect with a floor", func() gtid.Set { return s.Intersect(f) }},
		{"add one", func() gtid.Set { return s.Add(gtid.GTID{UUID: src[50].UUID, Seq: 1 << 40}) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.do()
			}
		})
	}
}

func BenchmarkText(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		s, src := wide(n)
		text := s.String()
		b.Run(fmt.Sprintf("parse %dx%d", n, n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := gtid.Parse(text); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("print %dx%d", n, n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				dst = s.AppendString(dst[:0])
			}
		})
		wire := s.AppendBinary(nil)
		b.Run(fmt.Sprintf("decode %dx%d", n, n), func(b *testing.B) {
			b.SetBytes(int64(len(wire)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := gtid.DecodeBinary(wire); err != nil {
					b.Fatal(err)
				}
			}
		})
		// The next state of a server: one of its sources has grown.
		grown := s.AddInterval(src[0], gtid.Interval{First: gtid.MaxSeq - 9, Last: gtid.MaxSeq - 9})
		wire = s.AddInterval(src[0], gtid.Interval{First: gtid.MaxSeq - 9, Last: gtid.MaxSeq}).AppendBinary(nil)
		b.Run(fmt.Sprintf("decode like the last %dx%d", n, n), func(b *testing.B) {
			b.SetBytes(int64(len(wire)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := gtid.DecodeBinaryLike(wire, grown); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
