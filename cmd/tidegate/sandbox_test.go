package main_test

import (
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// What the head of a sandbox's configuration says to type works, and the rest is
// a configuration.
func TestSandboxConfiguration(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := p.start(t, "sandbox", "--replicas", "1")
	r.until("the sandbox says that it is up", func() bool { return strings.Contains(r.err.String(), "the servers are up") })
	// The two streams of a process are read one beside the other.
	r.until("its configuration is there", func() bool { return strings.Count(r.out.String(), "{name: ") == 2 })
	out := r.out.String()

	script := "shopt -s expand_aliases\n"
	for _, m := range regexp.MustCompile(`(?m)^#   (alias .*)$`).FindAllStringSubmatch(out, -1) {
		script += m[1] + "\n"
	}
	commands := regexp.MustCompile(`(?m)^#   (mysql .*)$`).FindAllStringSubmatch(out, -1)
	if len(commands) != 2 {
		t.Fatalf("%d commands, want one that writes and one that lets a replica lag:\n%s", len(commands), out)
	}
	typed := func(command string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-c", script+command)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		got, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, stderr.String())
		}
		return strings.TrimSpace(string(got))
	}
	write := commands[0][1]
	if got := typed(write + ` -N -e "UPDATE posts SET title='new' WHERE id=42; SELECT COUNT(*), SUM(title='new') FROM posts"`); got != "100\t1" {
		t.Errorf("rows, and changed ones: %q", got)
	}
	typed(commands[1][1])

	file := p.file(t, "tidegate.yaml", out)
	p.call(t, "config", "-c", file).want(t, exitOK)
	if got := p.call(t, "check", "-c", file).want(t, exitOK); !strings.Contains(got.out, "b: warning: replication is stopped") {
		t.Errorf("check of servers one of which was stopped: %s", got.out)
	}
	procs := r.descendants()
	if got := r.end(syscall.SIGINT); got.code != exitOK {
		t.Errorf("exit code %d\n%s", got.code, got.err)
	}
	p.nothingLeft(t, procs)
}
