package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidegate/testenv/testenvtest"
)

// program is the real binary, built once.
var program string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	// Under nohup it is ignored, and so in every child; a handler is not inherited.
	if hangup := make(chan os.Signal, 1); signal.Ignored(syscall.SIGHUP) {
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
	}
	dir, err := os.MkdirTemp("", "tidegate-cli-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "tidegate")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: build the program: %v\n%s", err, out)
		return 1
	}
	if code := m.Run(); code != 0 {
		return code
	}
	if err := goleak.Find(
		// A library that testenv brings logs with glog, whose flusher never ends.
		goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon")); err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: %v\n", err)
		return 1
	}
	return 0
}

// What the program ends with; see exit.go.
const (
	exitOK    = 0
	exitFound = 1
	exitUsage = 2
)

// result is one finished call of the program.
type result struct {
	code     int
	out, err string
}

// place is where a call runs: a working folder, and a folder of its own for
// temporary files.
type place struct{ dir, tmp string }

func newPlace(t testing.TB) place { return place{t.TempDir(), t.TempDir()} }

// command prepares a call. env is added to this process's own.
func (p place) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = p.dir
	cmd.Env = append(append(os.Environ(), "TMPDIR="+p.tmp), env...)
	return cmd
}

// callTimeout bounds a call that is expected to end by itself.
const callTimeout = testenvtest.HangTimeout

// call runs the program to its end.
func (p place) call(t testing.TB, args ...string) result {
	t.Helper()
	return p.callWith(t, nil, args...)
}

func (p place) callWith(t testing.TB, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	cmd := p.command(ctx, env, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("tidegate %q: %v", args, err)
	}
	if ctx.Err() != nil {
		t.Fatalf("tidegate %q did not end within %v\n%s\n%s", args, callTimeout, &out, &errs)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// want holds a result against an exit code.
func (r result) want(t testing.TB, code int) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", r.code, code, r.out, r.err)
	}
	return r
}

// oneDocument decodes text, which must be one JSON document and nothing else.
func oneDocument(t testing.TB, text string, into any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	if err := dec.Decode(into); err != nil {
		t.Fatalf("standard output is no JSON: %v\n%s", err, text)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("standard output holds more than one JSON document:\n%s", text)
	}
}

// file writes a file into the place's working folder.
func (p place) file(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// buffer is what a running program has printed so far.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// running is a program that was started and has not been waited for.
type running struct {
	t        testing.TB
	cmd      *exec.Cmd
	out, err buffer
	ended    chan struct{} // closed when it was waited for
}

// start starts a call that goes on until it is told to end.
func (p place) start(t testing.TB, args ...string) *running {
	t.Helper()
	r := &running{t: t, cmd: p.command(context.Background(), nil, args...), ended: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.err
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
	})
	return r
}

// until waits until ok, and fails when the program ends before.
func (r *running) until(what string, ok func() bool) {
	r.t.Helper()
	testenvtest.WaitUntil(r.t, stepTimeout, func() (bool, string) {
		select {
		case <-r.ended:
			r.t.Fatalf("%q ended before %s: %v\nstdout:\n%s\nstderr:\n%s", r.cmd.Args[1:], what, r.cmd.ProcessState, r.out.String(), r.err.String())
		default:
		}
		return ok(), what + "\n" + r.err.String()
	})
}

// end sends a signal and returns how the program ended.
func (r *running) end(signal syscall.Signal) result {
	r.t.Helper()
	if err := r.cmd.Process.Signal(signal); err != nil {
		r.t.Fatal(err)
	}
	return r.wait()
}

func (r *running) wait() result {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(callTimeout):
		r.t.Fatalf("%q did not end within %v\n%s", r.cmd.Args[1:], callTimeout, r.err.String())
	}
	return result{r.cmd.ProcessState.ExitCode(), r.out.String(), r.err.String()}
}

// process is one process, told from a later one of the same number by when it
// started.
type process struct {
	pid   int
	start string
}

// mysqld tells whether it is a MySQL server (which may run by way of the
// loader of its own C library).
func (p process) mysqld() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(strings.Split(string(text), "\x00"), func(arg string) bool { return filepath.Base(arg) == "mysqld" })
}

func mysqlds(procs []process) (out []process) {
	for _, p := range procs {
		if p.mysqld() {
			out = append(out, p)
		}
	}
	return out
}

// stat reads /proc/PID/stat; ok is false when there is no such process, or
// nothing of it but its status.
func stat(pid int) (p process, parent int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, 0, false
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(f) < 20 || f[0] == "Z" {
		return p, 0, false
	}
	parent, err = strconv.Atoi(f[1])
	return process{pid, f[19]}, parent, err == nil
}

// descendants are all processes that the program has started, and theirs.
func (r *running) descendants() []process {
	r.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		r.t.Fatal(err)
	}
	children := map[int][]process{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, parent, ok := stat(pid); ok {
				children[parent] = append(children[parent], p)
			}
		}
	}
	var out []process
	for next := []int{r.cmd.Process.Pid}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			out, next = append(out, p), append(next, p.pid)
		}
	}
	return out
}

// nothingLeft waits until none of the processes lives and the place's folder for
// temporary files is empty.
func (p place) nothingLeft(t testing.TB, procs []process) {
	t.Helper()
	testenvtest.WaitUntil(t, stepTimeout, func() (bool, string) {
		for _, was := range procs {
			if is, _, ok := stat(was.pid); ok && is == was {
				return false, fmt.Sprintf("process %d still lives", was.pid)
			}
		}
		left, err := os.ReadDir(p.tmp)
		if err != nil {
			return false, err.Error()
		}
		if len(left) > 0 {
			return false, fmt.Sprintf("%s holds %v", p.tmp, left)
		}
		return true, ""
	})
}
