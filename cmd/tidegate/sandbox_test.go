package main_test

import (
	"database/sql"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
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

// With --chain each replica follows the one before it, and what is written at the
// head comes to the last.
func TestSandboxChain(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := p.start(t, "sandbox", "--chain", "--replicas", "2", "--json")
	r.until("the sandbox says that it is up", func() bool { return strings.Contains(r.err.String(), "the servers are up") })
	r.until("its servers are named", func() bool { return strings.HasSuffix(r.out.String(), "\n") })
	var box struct {
		User, Password string
		Servers        []struct{ Name, Addr, Role string }
	}
	oneDocument(t, r.out.String(), &box)
	if len(box.Servers) != 3 || box.Servers[0].Role != "primary" {
		t.Fatalf("servers %+v", box.Servers)
	}
	ask := func(i int, user, password, query string) (value string) {
		t.Helper()
		db, err := sql.Open("mysql", fmt.Sprintf("%s:%s@tcp(%s)/?multiStatements=true", user, password, box.Servers[i].Addr))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		if err := db.QueryRowContext(testenvtest.Context(t, stepTimeout), query).Scan(&value); err != nil {
			t.Fatalf("%s: %s: %v", box.Servers[i].Name, query, err)
		}
		return value
	}
	for i := 1; i < len(box.Servers); i++ {
		source := box.Servers[i-1]
		_, port, err := net.SplitHostPort(source.Addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(i, box.User, box.Password, "SELECT GROUP_CONCAT(PORT) FROM performance_schema.replication_connection_configuration"); got != port {
			t.Errorf("%s follows port %s, want %s's %s", box.Servers[i].Name, got, source.Name, port)
		}
	}
	if got := ask(0, testenv.AppUser, testenv.AppPassword, "UPDATE app.posts SET title='new' WHERE id=42; SELECT title FROM app.posts WHERE id=42"); got != "new" {
		t.Errorf("the primary shows %q", got)
	}
	testenvtest.WaitUntil(t, stepTimeout, func() (bool, string) {
		got := ask(2, testenv.AppUser, testenv.AppPassword, "SELECT title FROM app.posts WHERE id=42")
		return got == "new", "the last of the chain shows " + got
	})
	procs := r.descendants()
	r.end(syscall.SIGINT).want(t, exitOK)
	p.nothingLeft(t, procs)
}
