package binlog

import (
	"strings"
	"testing"
	"time"

	"tidegate/cdc/event"
)

func mustUUID(t testing.TB, s string) [16]byte {
	t.Helper()
	return mustGTID(t, s+":1").UUID
}

func TestJudge(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	files := func(names ...string) []binlogFile {
		var out []binlogFile
		for _, n := range names {
			out = append(out, binlogFile{n, 1000})
		}
		return out
	}
	base := func() (*remembered, *runFacts) {
		was := &remembered{
			state: &event.ServerState{
				UUID: mustUUID(t, uuidA), Follow: FollowBinlog, Executed: mustSet(t, uuidA+":1-10"),
				BinlogFile: "binlog.000003", BinlogPos: 900, Epoch: 7,
				UptimeSeconds: 100, ProbedUnixMicro: now.Add(-10 * time.Second).UnixMicro(), Process: 41, Connection: 20,
			},
			run:        &runFacts{UUID: mustUUID(t, uuidA), Process: 41, ConnectionID: 20},
			lastUptime: 100 * time.Second, uptimeAt: int64(50 * time.Second),
		}
		return was, &runFacts{
			UUID: mustUUID(t, uuidA), Process: 41, ConnectionID: 31, Uptime: 110 * time.Second, AskedAt: int64(60 * time.Second), Now: now,
			Executed: mustSet(t, uuidA+":1-12"), Files: files("binlog.000002", "binlog.000003"), LogBin: true,
		}
	}
	for _, tt := range []struct {
		name    string
		change  func(*remembered, *runFacts)
		dataSet bool // a new one
		run     bool // a new one
		stopped bool
	}{
		{"connection lost and restored", func(*remembered, *runFacts) {}, false, false, false},
		{"never seen", func(w *remembered, _ *runFacts) { *w = remembered{} }, true, true, false},
		{"another uuid", func(_ *remembered, f *runFacts) { f.UUID = mustUUID(t, uuidB) }, true, true, true},
		{"executed shrank", func(_ *remembered, f *runFacts) { f.Executed = mustSet(t, uuidA+":1-9:11-20") }, true, true, true},
		{"binlog shorter", func(_ *remembered, f *runFacts) { f.Files[1].Size = 899 }, true, true, true},
		{"binlog reset", func(_ *remembered, f *runFacts) { f.Files = files("binlog.000001") }, true, true, true},
		{"binlog renamed", func(_ *remembered, f *runFacts) { f.Files = files("other.000004") }, true, true, true},
		{"binlog gone", func(_ *remembered, f *runFacts) { f.Files = nil }, true, true, true},
		{"another binlog of that name", func(w *remembered, f *runFacts) { w.state.BinlogMark, f.Mark = 1<<32, 2<<32 }, true, true, true},
		{"the same binlog", func(w *remembered, f *runFacts) { w.state.BinlogMark, f.Mark = 1<<32, 1<<32 }, false, false, false},
		{"mark never published", func(_ *remembered, f *runFacts) { f.Mark = 2 << 32 }, false, false, false},
		{"binlog purged", func(_ *remembered, f *runFacts) { f.Files = files("binlog.000004", "binlog.000005") }, false, false, false},
		{"another process", func(_ *remembered, f *runFacts) { f.Process = 42 }, false, true, true},
		{"same process number, connections from the start", func(_ *remembered, f *runFacts) { f.ConnectionID = 9 }, false, true, true},
		{"same process number, short uptime", func(_ *remembered, f *runFacts) { f.Uptime = 108 * time.Second }, false, true, true},
		{"a host that slept for an hour, and a restart meanwhile", func(_ *remembered, f *runFacts) {
			f.AskedAt, f.Uptime = int64(time.Hour+50*time.Second), 30*time.Minute
		}, false, true, true},
		{"follow executed ignores the binlog", func(w *remembered, f *runFacts) { w.state.Follow, f.Files = FollowExecuted, nil }, false, false, false},
		{"tailer restarted, server not", func(w *remembered, _ *runFacts) { w.run = nil }, false, true, false},
		{"tailer restarted, server too", func(w *remembered, f *runFacts) { w.run, f.Uptime = nil, 5*time.Second }, false, true, true},
		{"tailer restarted, server too, by a clock that was set back to hide it", func(w *remembered, f *runFacts) {
			w.run, f.Uptime, f.Now = nil, 5*time.Second, now.Add(-105*time.Second)
		}, false, true, true},
		{"tailer restarted, server too, as another process", func(w *remembered, f *runFacts) { w.run, f.Process = nil, 42 }, false, true, true},
		{"tailer restarted, server too, its connections counted from the start", func(w *remembered, f *runFacts) { w.run, f.ConnectionID = nil, 20 }, false, true, true},
		{"tailer restarted, the server's clock was set", func(w *remembered, f *runFacts) { w.run, f.Now = nil, now.Add(time.Hour) }, false, true, true},
		{"tailer restarted, server seen for two seconds alone", func(w *remembered, f *runFacts) {
			w.run, w.state.UptimeSeconds, f.Uptime = nil, 2, 12*time.Second
		}, false, true, true},
		{"tailer restarted, uptime never seen", func(w *remembered, _ *runFacts) { w.run, w.state.UptimeSeconds = nil, 0 }, false, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			was, facts := base()
			tt.change(was, facts)
			j := judge(was, facts)
			if j.newDataSet != tt.dataSet || j.newRun != tt.run || j.stopped != tt.stopped {
				t.Errorf("got data set %v, run %v, stopped %v (%s); want %v, %v, %v", j.newDataSet, j.newRun, j.stopped, j.why, tt.dataSet, tt.run, tt.stopped)
			}
			if (tt.dataSet || tt.run) && j.why == "" {
				t.Error("no reason")
			}
		})
	}
}

func TestRestartExclusion(t *testing.T) {
	a := mustUUID(t, uuidA)
	for _, tt := range []struct {
		name    string
		follow  string
		relaxed bool
		j       judgement
		files   string // name=end, in order; the last is being written
		uuid    [16]byte
		want    string
	}{
		{"durable", FollowBinlog, false, judgement{stopped: true, from: 0}, "f.1= f.2", a, ""},
		{"clean stop", FollowBinlog, true, judgement{stopped: true, from: 0}, "f.1=Stop f.2", a, ""},
		{"killed", FollowBinlog, true, judgement{stopped: true, from: 0}, "f.1= f.2", a, "f.1"},
		{"rotated only", FollowBinlog, true, judgement{from: 0}, "f.1=Rotate f.2=Rotate f.3", a, ""},
		{"killed later, unseen", FollowBinlog, true, judgement{from: 1, newRun: true}, "f.1= f.2=Rotate f.3= f.4=Stop f.5", a, "f.3"},
		{"killed before it was seen", FollowBinlog, true, judgement{from: 2, newRun: true}, "f.1= f.2= f.3=Stop f.4", a, ""},
		{"rebuilt under the same uuid", FollowBinlog, true, judgement{newDataSet: true, stopped: true, from: -1}, "f.1", a, ""},
		{"crash cut the binlog itself", FollowBinlog, true, judgement{newDataSet: true, stopped: true, from: 0}, "f.1= f.2", a, "f.1"},
		{"another uuid", FollowBinlog, true, judgement{newDataSet: true, stopped: true, from: 0}, "f.1= f.2", mustUUID(t, uuidB), ""},
		{"evidence purged", FollowBinlog, true, judgement{stopped: true, newRun: true, from: -1}, "f.9", a, "purged"},
		{"no binlog, restarted", FollowExecuted, true, judgement{stopped: true, newRun: true, from: -1}, "", a, "without a binlog"},
		{"no binlog, same run", FollowExecuted, true, judgement{from: -1}, "", a, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ends := map[string]string{}
			run := &runFacts{UUID: tt.uuid}
			for _, f := range strings.Fields(tt.files) {
				name, end, _ := strings.Cut(f, "=")
				ends[name] = end
				run.Files = append(run.Files, binlogFile{Name: name, Size: 100})
			}
			st := &event.ServerState{UUID: a, Follow: tt.follow, BinlogFile: "f.1"}
			got, err := restartExclusion(st, tt.j, run, tt.relaxed, func(f, _ binlogFile) (string, error) { return ends[f.Name], nil })
			if err != nil {
				t.Fatal(err)
			}
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) || got != "" && !IsRestartExclusion(got) {
				t.Errorf("got %q, want %q in it", got, tt.want)
			}
		})
	}
	if got, err := restartExclusion(nil, judgement{}, &runFacts{}, true, nil); got != "" || err != nil {
		t.Errorf("first sight: %q, %v", got, err)
	}
}

func TestPositions(t *testing.T) {
	for _, tt := range []struct {
		a, b  Position
		after bool
	}{
		{Position{"b.000002", 4}, Position{"b.000001", 900}, true},
		{Position{"b.000001", 900}, Position{"b.000002", 4}, false},
		{Position{"b.000002", 5}, Position{"b.000002", 4}, true},
		{Position{"b.000002", 4}, Position{"b.000002", 4}, false},
		{Position{"b.1000000", 4}, Position{"b.999999", 4}, true},
	} {
		if got := tt.a.after(tt.b); got != tt.after {
			t.Errorf("%v after %v: %v", tt.a, tt.b, got)
		}
	}
}

// TestMarkOf: a file's mark stays while the file lives, and another file of its
// name has another one, made in the same second or not.
func TestMarkOf(t *testing.T) {
	mark := func(checksum string, change func(description []byte), previous string) fileMark {
		s := newEventScript(t)
		description := s.format(checksum)
		if change != nil {
			change(description)
		}
		m, err := markOf(description, s.event(evPreviousGTIDs, 0, []byte(previous)))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	inUse := func(d []byte) { d[headerBytes-2] |= 1; d[len(d)-1]++ }
	later := func(d []byte) { d[0]++ }
	otherServer := func(d []byte) { d[5]++ }
	for _, checksum := range []string{"crc32", "off"} {
		first := mark(checksum, nil, "one set")
		if got := mark(checksum, inUse, "one set"); got != first {
			t.Errorf("checksum %s: in use %x, else %x", checksum, got, first)
		}
		for what, got := range map[string]fileMark{
			"a second later":      mark(checksum, later, "one set"),
			"of another server":   mark(checksum, otherServer, "one set"),
			"at another GTID set": mark(checksum, nil, "two sets"),
		} {
			if got == first {
				t.Errorf("checksum %s: a file made %s has the same mark", checksum, what)
			}
		}
	}
	d := newEventScript(t).format("crc32")
	for n := range len(d) {
		if _, err := markOf(d[:n], d); err == nil {
			t.Errorf("a mark of a FORMAT_DESCRIPTION cut to %d bytes", n)
		}
	}
	if _, err := markOf(d, d[:headerBytes]); err == nil {
		t.Error("a mark of a PREVIOUS_GTIDS cut to its header")
	}
}
