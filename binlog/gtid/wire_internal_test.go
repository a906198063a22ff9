package gtid

import (
	"testing"

	"pgregory.net/rapid"
)

// What the array of a set is sized by is exact for an encoding, whatever
// follows it, and bounded by the bytes for anything else.
func TestIntervalsIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Builder
		for range rapid.IntRange(0, 40).Draw(t, "intervals") {
			src := Source{UUID: UUID{rapid.Byte().Draw(t, "uuid") % 4}, Tag: rapid.SampledFrom([]string{"", "a", "tag_1"}).Draw(t, "tag")}
			first := rapid.OneOf(rapid.Int64Range(1, 200), rapid.Int64Range(1, MaxSeq-200)).Draw(t, "first")
			b.AddInterval(src, Interval{first, first + rapid.Int64Range(0, 100).Draw(t, "more")})
		}
		s := b.Set()
		wire := append(s.AppendBinary(nil), rapid.SliceOf(rapid.Byte()).Draw(t, "behind")...)
		if got, want := intervalsIn(wire), s.NumIntervals(); got != want {
			t.Fatalf("counted %d intervals, want %d", got, want)
		}
		for range 3 {
			wire[rapid.IntRange(0, len(wire)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		wire = wire[:rapid.IntRange(0, len(wire)).Draw(t, "cut")]
		if got := intervalsIn(wire); got < 0 || got > len(wire)/minIntervalBytes {
			t.Fatalf("counted %d intervals in %d bytes", got, len(wire))
		}
	})
}

// What did not change is shared, and costs nothing.
func TestDecodeBinaryLikeShares(t *testing.T) {
	var b Builder
	for u := range 20 {
		for n := range int64(20) {
			b.AddInterval(Source{UUID: UUID{byte(u)}}, Interval{10*n + 1, 10*n + 5})
		}
	}
	like := b.Set()
	wire := like.AppendBinary(nil)
	if got, _, err := DecodeBinaryLike(wire, like); err != nil || got.b != like.b {
		t.Errorf("the same set is made anew (%v)", err)
	}
	grown := like.AddInterval(Source{UUID: UUID{7}}, Interval{196, 199})
	got, _, err := DecodeBinaryLike(grown.AppendBinary(nil), like)
	if err != nil || !got.Equal(grown) {
		t.Fatalf("got %v, %v", got, err)
	}
	for i, r := range got.b.runs {
		if was := like.b.runs[i]; (r == was) != (i != 7) || &r.head[0] != &was.head[0] {
			t.Errorf("source %d: not shared", i)
		}
	}
}
