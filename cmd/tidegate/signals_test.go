package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidegate/testenv"
	"tidegate/testenv/checker"
	"tidegate/testenv/testenvtest"
)

// However a sandbox is told to end, no process and no file of it is left.
func TestSandboxEnds(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			r := p.start(t, "sandbox", "--json", "--replicas", "0")
			r.until("the sandbox is up", func() bool { return strings.HasSuffix(r.out.String(), "}\n") })
			var up struct {
				Version, User, Password string
				Servers                 []struct{ Name, Addr, Socket, Role string }
			}
			oneDocument(t, r.out.String(), &up)
			if len(up.Servers) != 1 || up.Servers[0].Role != "primary" || up.Servers[0].Addr == "" || up.Version == "" {
				t.Errorf("it says %+v", up)
			}
			procs := r.descendants()
			if len(mysqlds(procs)) != 1 || len(procs) < 2 {
				t.Fatalf("it runs %v, want a mysqld and a guard", procs)
			}
			got := r.end(signal)
			p.nothingLeft(t, procs)
			if polite := signal == syscall.SIGINT || signal == syscall.SIGTERM; polite && got.code != exitOK || !polite && got.code != -1 {
				t.Errorf("exit code %d\n%s", got.code, got.err)
			}
			if left := listing(t, p.dir); left != "" {
				t.Errorf("it left %s", left)
			}
		})
	}
}

// A second signal does not wait for a server that does not end.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := p.start(t, "sandbox", "--replicas", "0")
	r.until("the sandbox is up", func() bool { return strings.Contains(r.out.String(), "name: a") })
	procs := r.descendants()
	frozen := mysqlds(procs)
	if len(frozen) != 1 {
		t.Fatalf("it runs %v", procs)
	}
	if err := syscall.Kill(frozen[0].pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testenvtest.WaitUntil(t, callTimeout, func() (bool, string) {
		select {
		case <-r.ended:
			return true, ""
		default:
			err := r.cmd.Process.Signal(syscall.SIGINT)
			return errors.Is(err, os.ErrProcessDone), "it still runs"
		}
	})
	<-r.ended
	if s, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v, want the signal's own end\n%s", r.cmd.ProcessState, r.err.String())
	}
	p.nothingLeft(t, procs)
}

// A sandbox that is told to end before it is up says so, and is no success. Its
// server makes no data folder, and so it never is up.
func TestSandboxEndsEarly(t *testing.T) {
	p := newPlace(t)
	begun := filepath.Join(t.TempDir(), "begun")
	script := filepath.Join(t.TempDir(), "mysqld")
	text := "#!/bin/sh\ncase \"$*\" in *--version*) echo 'mysqld  Ver 8.4.9 for Linux on x86_64'; exit;; esac\n: > '" + begun + "'\nexec sleep 600\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(testenv.EnvMySQLD, script)
	t.Setenv("TIDEGATE_CACHE", t.TempDir()) // what it makes is no data folder for others
	r := p.start(t, "sandbox")
	r.until("it waits for its server", func() bool {
		_, err := os.Stat(begun)
		return err == nil
	})
	procs := r.descendants()
	got := r.end(syscall.SIGTERM)
	p.nothingLeft(t, procs)
	if got.code != exitFound || got.out != "" || !strings.Contains(got.err, "ended before the servers were up") {
		t.Errorf("exit code %d, standard output %q, standard error %q", got.code, got.out, got.err)
	}
}

// A sandbox in a folder of the caller's leaves that folder, and nothing running.
func TestSandboxKeepsItsFolder(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := p.start(t, "sandbox", "--replicas", "0", "--dir", "kept", "--json")
	r.until("the sandbox is up", func() bool { return strings.HasSuffix(r.out.String(), "}\n") })
	procs := r.descendants()
	if got := r.end(syscall.SIGTERM); got.code != exitOK {
		t.Errorf("exit code %d\n%s", got.code, got.err)
	}
	p.nothingLeft(t, procs)
	if listing(t, filepath.Join(p.dir, "kept")) == "" {
		t.Error("the folder is empty")
	}
	before := listing(t, filepath.Join(p.dir, "kept"))
	again := p.call(t, "sandbox", "--replicas", "1", "--dir", "kept").want(t, exitUsage)
	if !strings.Contains(again.err, "kept holds the servers of an earlier sandbox") || again.out != "" {
		t.Errorf("a second sandbox in the folder says %q, %q", again.out, again.err)
	}
	if after := listing(t, filepath.Join(p.dir, "kept")); after != before {
		t.Errorf("it made %s of %s", after, before)
	}
}

// A demo prints its result as one document and leaves nothing. How one ends that
// is told to is cmd/internal/demo's test.
func TestDemo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := p.start(t, "demo", "--json", "--seed", "7", "--seconds", "10")
	var procs []process
	r.until("three servers run", func() bool {
		procs = r.descendants()
		return len(mysqlds(procs)) >= 3
	})
	got := r.wait().want(t, exitOK)
	p.nothingLeft(t, procs)
	var res map[string]json.RawMessage
	oneDocument(t, got.out, &res)
	if len(res) == 0 {
		t.Errorf("result %s", got.out)
	}
	if left := listing(t, p.dir); left != "" {
		t.Errorf("it left %s", left)
	}
}

// torture prints its verdict as one document, leaves its history alone, and ends
// as its verdict demands; replay judges the history alike. Whether a run violates a
// promise is chance: that the broken routers are caught is cmd/internal/torture's
// test.
func TestTortureAndReplay(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := p.call(t, strings.Fields("torture --router window --faults receiver --seconds 3 --after 1s --replicas 2 --seed 7 --history h.jsonl --json")...)
	var v verdict
	oneDocument(t, r.out, &v)
	if v.Seed != 7 || r.code != v.code() {
		t.Errorf("exit code %d, want %d, verdict %s", r.code, v.code(), r.out)
	}
	if replay := p.call(t, "torture", "replay", "h.jsonl", "--json").want(t, r.code); replay.out != r.out {
		t.Errorf("replay says\n%s, and torture\n%s", replay.out, r.out)
	}
	if table := p.call(t, "torture", "replay", "h.jsonl").want(t, r.code); !strings.Contains(table.out, "violations: ") || !strings.HasPrefix(table.out, "router window") {
		t.Errorf("table:\n%s", table.out)
	}
	p.nothingLeft(t, nil)
	if left := listing(t, p.dir); left != "h.jsonl" {
		t.Errorf("it left %s", left)
	}
	for name, want := range map[string]int{"shown": exitOK, "missing": exitFound} {
		t.Run(name, func(t *testing.T) {
			p.smallHistory(t, "h.jsonl", name+".jsonl", name == "shown")
			replay := p.call(t, "torture", "replay", name+".jsonl", "--json").want(t, want)
			var v verdict
			oneDocument(t, replay.out, &v)
			if v.Reads != 1 || v.code() != want {
				t.Errorf("verdict %s", replay.out)
			}
		})
	}
}

// verdict is what torture --json prints, as far as its exit code depends on it.
type verdict struct {
	Whole      bool
	Reads      int
	Seed       uint64
	Violations map[string]int
	Faults     []struct {
		Struck, Reads int
		Errors        []string
	}
}

// code is the exit code that help and README promise for the verdict.
func (v *verdict) code() int {
	if !v.Whole || v.Reads == 0 {
		return exitFound
	}
	for _, n := range v.Violations {
		if n > 0 {
			return exitFound
		}
	}
	for _, f := range v.Faults {
		if f.Struck == 0 || f.Reads == 0 || len(f.Errors) > 0 {
			return exitFound
		}
	}
	return exitOK
}

// smallHistory writes a history of one write and one read after a yes, which shows
// the write or lacks it. Its head is that of the history like, without faults.
func (p place) smallHistory(t *testing.T, like, name string, shown bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, like))
	if err != nil {
		t.Fatal(err)
	}
	var head checker.Line
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&head); err != nil || head.Head == nil {
		t.Fatalf("the head of %s: %v", like, err)
	}
	head.Head.Faults = nil
	const ms = checker.Moment(time.Millisecond)
	row := checker.ShownRow{Key: 0}
	if shown {
		row.V, row.W = 1, 1
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, l := range []checker.Line{
		head,
		{Identity: &checker.Identity{Server: "b", UUID: "uuid-b"}},
		{Write: &checker.Write{Session: 2, ID: 1, Begin: 899 * ms, End: 900 * ms, GTID: "u:1", Rows: []checker.WrittenRow{{Key: 0, V: 1}}}},
		{Read: &checker.Read{
			Session: 1, Level: checker.LevelKey, Keys: []checker.Key{0}, Group: -1, Asked: 1000 * ms, Answered: 1000 * ms, Yes: true, Server: "b", Replica: true,
			UUID: "uuid-b", WatermarkAge: 50 * time.Millisecond, Staleness: checker.Unknown, Begin: 1001 * ms, End: 1002 * ms, ReadUUID: "uuid-b", Rows: []checker.ShownRow{row},
		}},
		{End: &checker.End{At: 10_000 * ms}},
	} {
		if err := enc.Encode(l); err != nil {
			t.Fatal(err)
		}
	}
	p.file(t, name, out.String())
}

// bench prints its figures as one document.
func TestBench(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var figures []struct {
		Name, Unit string
		Value      float64
	}
	r := p.call(t, "bench", "--quick", "--only", "memory", "--json").want(t, exitOK)
	oneDocument(t, r.out, &figures)
	if len(figures) == 0 || !strings.HasPrefix(figures[0].Name, "memory.") || figures[0].Value <= 0 {
		t.Errorf("figures %v", figures)
	}
	p.nothingLeft(t, nil)
}

// A torture says how long it will take and which fault strikes; told to end in
// the middle of a strike it says so, ends without waiting for the strike's end,
// and names what judges the history.
func TestTortureEndsInsideAStrike(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := p.start(t, "torture", "--router", "window", "--faults", "delay,applier,lossy-failover", "--seconds", "1", "--seed", "7", "--history", "h.jsonl")
	r.until("a fault strikes", func() bool { return strings.Contains(r.err.String(), "fault 1 of 3: ") })
	if said := r.err.String(); !strings.Contains(said, "3 fault(s) strike at least once each, with 10s of peace after each: 30s at the least") {
		t.Errorf("it says\n%s", said)
	}
	procs := r.descendants()
	got := r.end(syscall.SIGINT)
	p.nothingLeft(t, procs)
	if got.code != exitFound || got.out != "" {
		t.Errorf("exit code %d, standard output %q", got.code, got.out)
	}
	for _, want := range []string{"ending...\n", "tidegate: torture: ended before its time", "tidegate torture replay h.jsonl\n"} {
		if !strings.Contains(got.err, want) {
			t.Errorf("%q is missing in\n%s", want, got.err)
		}
	}
	if strings.Contains(got.err, "fault 2") {
		t.Errorf("it went on after the signal\n%s", got.err)
	}
	replay := p.call(t, "torture", "replay", "h.jsonl")
	// The strike that was broken off held for seconds: replay lists it as one that
	// ended with an error, whatever the verdict.
	history, err := os.ReadFile(filepath.Join(p.dir, "h.jsonl"))
	if err != nil || !regexp.MustCompile(`(?m)^{"fault":.*context canceled`).Match(history) {
		t.Errorf("the history (%v) does not tell of a strike that was broken off", err)
	}
	if replay.code != exitOK && replay.code != exitFound || !strings.HasPrefix(replay.out, "router window") {
		t.Errorf("replay: exit code %d, %q, %q", replay.code, replay.out, replay.err)
	}
}
