package binlog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tidegate/binlog/gtid"
)

const (
	uuidA = "aaaaaaaa-0000-0000-0000-000000000001"
	uuidB = "bbbbbbbb-0000-0000-0000-000000000002"
)

func mustSet(t testing.TB, s string) gtid.Set {
	t.Helper()
	set, err := gtid.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func mustGTID(t testing.TB, s string) gtid.GTID {
	t.Helper()
	g, err := gtid.ParseGTID(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestProbeStatement(t *testing.T) {
	text := func(q probeRequest) string { return q.sql() }
	plain, full := text(probeRequest{}), text(probeRequest{Full: true})
	waiting := probeRequest{WaitFor: mustSet(t, uuidA+":5"), Wait: 5 * time.Millisecond}
	wait := text(waiting)
	// Rules §1: the order of evaluation is what makes owned ∪ executed an upper
	// bound.
	order := []string{"server_uuid", "gtid_owned", "gtid_executed", "gtid_mode", "read_only", "super_read_only"}
	at := -1
	for _, name := range order {
		i := strings.Index(plain, name)
		if i <= at {
			t.Errorf("%s is not behind the one before in %q", name, plain)
		}
		at = i
	}
	if strings.Index(full, "'Uptime'") < strings.Index(full, "super_read_only") || !strings.Contains(full, "'Threads_running'") {
		t.Errorf("full probe: %q", full)
	}
	if !strings.HasPrefix(wait, "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?), @@global.server_uuid") {
		t.Errorf("waiting probe: %q", wait)
	}
	if got := fmt.Sprint(waiting.args()); got != "["+uuidA+":5 0.005]" {
		t.Errorf("waits for %s", got)
	}
	if waiting.Wait = 0; waiting.args()[1].(float64) <= 0 {
		t.Error("a wait of no time would last for ever")
	}
}

func TestProbeParse(t *testing.T) {
	row := []string{uuidA, uuidA + ":7#41", uuidA + ":1-6", "ON", "1", "0", "123", "4"}
	var r probeParser
	p, err := r.parse(row, true)
	if err != nil {
		t.Fatal(err)
	}
	if p.UptimeSeconds != 123 || p.ThreadsRunning != 4 || !p.ReadOnly || p.SuperReadOnly || p.Writable() ||
		!p.Owned.Equal(mustSet(t, uuidA+":7")) || !p.Executed.Equal(mustSet(t, uuidA+":1-6")) {
		t.Errorf("got %+v", p)
	}
	for i, bad := range []string{"x", "uuid:1", uuidA + ":1-x", "", "2", "yes", "1.5", ""} {
		if i == 3 {
			continue // any mode is taken as printed; only "ON" counts
		}
		broken := append([]string(nil), row...)
		broken[i] = bad
		if _, err := new(probeParser).parse(broken, true); err == nil {
			t.Errorf("column %d as %q was accepted", i, bad)
		}
	}
	if _, err := r.parse(row[:7], true); err == nil {
		t.Error("a missing column was accepted")
	}
}

func TestParseOwned(t *testing.T) {
	const u, e = "ee9d0cd1-ecfe-11f1-85e4-02fc00000001", "eeeeeeee-0000-0000-0000-00000000000"
	const digits = "01234567-8901-2345-6789-012345678901" // no letter ends the thread before it
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{uuidA + ":5#12", uuidA + ":5"},
		{uuidA + ":5#12#13:6#14", uuidA + ":5-6"},
		{uuidA + ":5#12,\n" + uuidB + ":9#1", uuidA + ":5," + uuidB + ":9"},
		{uuidA + ":tag:3#15", uuidA + ":tag:3"},
		{uuidA + ":1#2:tag:3#15", uuidA + ":1:tag:3"},
		// Of several sources: the first three are what MySQL 9.7.4 printed, the first
		// two shortened. It puts nothing between one source and the next (rules §6.2: E
		// must have all of them).
		{e + "0:2#14" + e + "1:2#13" + e + "2:2#15" + e + "3:3#10", e + "0:2," + e + "1:2," + e + "2:2," + e + "3:3"},
		{u + ":wt0:581#11" + u + ":wt1:583#12" + u + ":wt2:590#13", u + ":wt0:581:wt1:583:wt2:590"},
		{
			digits + ":5#39" + e + "1:5005#40:5001#35:5002#38" + e + "1:s:1#41" + e + "1:t:1001#37:1002#36" + e + "2:t:7#34",
			digits + ":5," + e + "1:5001-5002:5005:s:1:t:1001-1002," + e + "2:t:7",
		},
		{u + ":wt0:581#11" + u + ":7#12", u + ":7:wt0:581"},
		{u + ":1#2#3" + digits + ":4#5" + digits + ":t:6#78" + u + ":9#10", u + ":1:9," + digits + ":4:t:6"},
	} {
		got, err := parseOwned(tt.in)
		if err != nil || !got.Equal(mustSet(t, tt.want)) {
			t.Errorf("parseOwned(%q) = %s, %v; want %s", tt.in, got.OneLine(), err, tt.want)
		}
	}
	for _, in := range []string{
		"x:1#2", uuidA + ":0#1", uuidA + ":a b:1#1", uuidA + ":1x#1",
		uuidA, uuidA + ":5", uuidA + ":1#2:7", uuidA + ":1#2:tag", uuidA + ":1#2" + uuidB, uuidA + ":1#", uuidA + ":1#x",
	} {
		if got, err := parseOwned(in); err == nil {
			t.Errorf("parseOwned(%q) = %s, want an error", in, got.OneLine())
		}
	}
}

func TestSetReader(t *testing.T) {
	// Whatever came before, a text reads as gtid.Parse reads it.
	texts := []string{
		"", uuidA + ":1-5", uuidA + ":1-6", uuidA + ":1-6,\n" + uuidB + ":1", uuidA + ":1-7,\n" + uuidB + ":1-2:5",
		uuidA + ":1-3,\n" + uuidB + ":2:tag:1", uuidB + ":1,\n" + uuidA + ":9", uuidA + ":9,\n" + uuidB + ":1", "", uuidB + ":1-9",
	}
	for _, first := range texts {
		for _, second := range texts {
			var r setReader
			for _, text := range []string{first, second} {
				got, err := r.read(text)
				if want := mustSet(t, text); err != nil || !got.Equal(want) {
					t.Errorf("after %q, %q reads as %s (%v)", first, text, got.OneLine(), err)
				}
			}
		}
	}
	var r setReader
	if _, err := r.read(uuidA + ":1-x"); err == nil {
		t.Error("a malformed set was accepted")
	}
	if got, err := r.read(uuidA + ":1"); err != nil || !got.Equal(mustSet(t, uuidA+":1")) {
		t.Errorf("after an error: %s, %v", got.OneLine(), err)
	}
}

func BenchmarkSetReader(b *testing.B) {
	// 100 sources of 100 intervals, of which one grows.
	var lines []string
	for u := range 100 {
		line := gtid.UUID{1, byte(u)}.String()
		for i := range 100 {
			line += fmt.Sprintf(":%d-%d", i*10+1, i*10+5)
		}
		lines = append(lines, line)
	}
	var r setReader
	n := 0
	for b.Loop() {
		n++
		if _, err := r.read(strings.Join(lines, ",\n") + fmt.Sprintf(":5000-%d", 5000+n)); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzParseOwned(f *testing.F) {
	f.Add(uuidA + ":5#12:6#13,\n" + uuidB + ":t:1#2")
	f.Fuzz(func(t *testing.T, in string) {
		set, err := parseOwned(in)
		if err != nil {
			return
		}
		again, err := gtid.Parse(set.OneLine())
		if err != nil || !again.Equal(set) {
			t.Fatalf("%q gave %s, which does not parse back: %v", in, set.OneLine(), err)
		}
	})
}

func TestRefuse(t *testing.T) {
	for _, tt := range []struct {
		version, comment string
		want             string
	}{
		{"8.0.36", "MySQL Community Server - GPL", ""},
		{"8.4.3", "", ""},
		{"9.7.4-2", "(Debian)", ""},
		{"10.11.6-MariaDB-1", "Debian 12", "MariaDB"},
		{"5.5.5-10.6.1", "MariaDB Server", "MariaDB"},
		{"5.7.44-log", "MySQL", "too old"},
		{"eight", "", "not understood"},
	} {
		err := refuseVersion("a", tt.version, tt.comment)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("refuseVersion(%q) = %v, want %q", tt.version, err, tt.want)
		}
	}
}
