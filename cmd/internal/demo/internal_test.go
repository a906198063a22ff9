package demo

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/router"
)

func TestTally(t *testing.T) {
	var y tally
	if r, err := y.result(0); err != nil || r.Policies.Tidegate.OracleShare != 0 {
		t.Errorf("nothing read: %+v, %v; want zeroes and no error", r, err)
	}
	told := 0
	evidence := func() string { told++; return "how it happened" }
	y.add(read{target: [policies]int{1, 0, 2}, stale: [policies]bool{true, false, false}, oracle: true}, evidence)
	y.add(read{target: [policies]int{2, 2, nobody}, stale: [policies]bool{true, true, false}}, evidence)
	r, err := y.result(1230 * time.Millisecond)
	if err != nil || told != 0 {
		t.Fatalf("no stale read by tidegate: error %v, evidence %d", err, told)
	}
	want := Result{Seconds: 1.2, Policies: Policies{
		AnyReplica: PolicyResult{Reads: 2, Stale: 2, ReplicaShare: 1},
		Sticky5s:   PolicyResult{Reads: 2, Stale: 1, ReplicaShare: 0.5},
		Tidegate:   TidegateResult{PolicyResult{Reads: 2, ReplicaShare: 0.5}, 0.5},
	}}
	if r != want {
		t.Errorf("result %+v, want %+v", r, want)
	}
	if c := y.counts(); c.name(tidegate) != "tidegate (1 unanswered)" || c.name(sticky) != sticky.String() {
		t.Errorf("it is called %q, and the other %q: the read without a server is not told of", c.name(tidegate), c.name(sticky))
	}

	for range maxEvidence + 2 {
		y.add(read{target: [policies]int{1, 0, 2}, stale: [policies]bool{tidegate: true}}, evidence)
	}
	r, err = y.result(time.Second)
	var stale *StaleError
	if !errors.As(err, &stale) || stale.Reads != maxEvidence+2 || len(stale.Evidence) != maxEvidence || r.Policies.Tidegate.Stale != maxEvidence+2 {
		t.Fatalf("stale reads by tidegate: %+v, %v", r, err)
	}
	if !strings.Contains(stale.Error(), "7 stale read(s)") || !strings.Contains(stale.Error(), "how it happened") {
		t.Errorf("the error %q lacks number or evidence", stale)
	}
}

func TestLedger(t *testing.T) {
	l := newLedger(3)
	if _, ok := l.news(5); ok {
		t.Error("news before the first write")
	}
	if v := l.newest(3); v.number != 1 || v.known {
		t.Errorf("a first post is %+v, want version 1 by nobody", v)
	}
	id := l.newID()
	if v := l.newest(id); id != 4 || v.number != 0 {
		t.Errorf("new post %d at version %d, want 4 at 0: it is not acknowledged", id, v.number)
	}
	g, err := gtid.ParseGTID("3e11fa47-71ca-11e1-9e33-c80aa9429562:23")
	if err != nil {
		t.Fatal(err)
	}
	l.acknowledge(id, 2, g)
	if v := l.newest(id); v != (version{2, g, true}) {
		t.Errorf("acknowledged: %+v", v)
	}
	if got, ok := l.news(99); !ok || got != id {
		t.Errorf("news %d, %v; want %d", got, ok, id)
	}
	for i := range int64(recentPosts) {
		l.acknowledge(100+i, 1, g)
	}
	for i := range recentPosts {
		if got, _ := l.news(i); got < 100 {
			t.Errorf("news %d is as old as %d writes", got, recentPosts+1)
		}
	}
}

func testPicture() picture {
	c := counts{reads: 200, oracle: 190}
	c.stale = [policies]int64{anyReplica: 40, sticky: 2}
	c.replica = [policies]int64{200, 50, 180}
	return picture{
		mysql: "9.7.4", seed: 77, ran: 9 * time.Second, lasts: 30 * time.Second, counts: c, http: "127.0.0.1:1", resp: "127.0.0.1:2", curl: "curl x",
		servers: []serverState{{"a", 0, 0, "a big thing"}, {"b", 2500 * time.Millisecond, 12, ""}, {"c", router.Unknown, router.Unknown, "applier stopped"}},
	}
}

func TestPicture(t *testing.T) {
	p := testPicture()
	var all string
	for _, l := range p.lines() {
		all += l.text + "\n"
		if red, stale := l.colour == red, strings.HasPrefix(l.text, "any ") || strings.HasPrefix(l.text, "primary for"); red != stale {
			t.Errorf("line %q: red %v", l.text, red)
		}
	}
	for _, want := range []string{
		"seed 77", "9 s of 30 s", "40 ( 20.0 %)", "50 ( 25.0 %)", "180 ( 90.0 %)", "190 ( 95.0 %)", "2.50 s", "12 transactions", "unknown",
		"applier stopped", "http://127.0.0.1:1", "curl x",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	const want = "   9 s: 200 reads; stale: any replica 40, sticky 5 s 2, tidegate 0; on replicas: sticky 5 s 25.0 %, tidegate 90.0 %, possible 95.0 %; " +
		"staleness: b 2.50 s c unknown; a: a big thing; c: applier stopped"
	if got := p.summary(); got != want {
		t.Errorf("summary\n%s\nwant\n%s", got, want)
	}
}

// The last second has one line.
func TestLineDue(t *testing.T) {
	const lasts = 30 * time.Second
	for ran, want := range map[time.Duration]bool{
		2 * time.Second: true, 28*time.Second + 50*time.Millisecond: true, lasts - time.Millisecond: false, lasts: false, lasts + time.Millisecond: false,
	} {
		if got := lineDue(ran, lasts); got != want {
			t.Errorf("after %v of %v: %v", ran, lasts, got)
		}
		if !lineDue(ran, 0) {
			t.Errorf("after %v of a run without an end: none is due", ran)
		}
	}
}

func TestScreenRedrawsInPlace(t *testing.T) {
	var b strings.Builder
	s := screen{w: &b, colour: true}
	s.draw([]line{{"a line too long", red}, {"ok", ""}}, 7)
	const first = "\r\x1b[K\x1b[31ma line\x1b[0m\n\r\x1b[Kok\n\x1b[J"
	if b.String() != first {
		t.Errorf("drew %q, want %q", b.String(), first)
	}
	b.Reset()
	s.colour = false
	s.draw([]line{{"one", red}, {"two", ""}}, 80)
	if want := "\x1b[2A\r\x1b[Kone\n\r\x1b[Ktwo\n\x1b[J"; b.String() != want {
		t.Errorf("redrew %q, want %q", b.String(), want)
	}
}
