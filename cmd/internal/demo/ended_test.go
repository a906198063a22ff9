package demo_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"tidegate/cmd/internal/demo"
	"tidegate/testenv/testenvtest"
)

// However a demo ends, no process and no file of it is left; and while it runs,
// the line that it offers to try works.
func TestNothingStays(t *testing.T) {
	for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(how.String(), func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), envChild+"=1", "TMPDIR="+tmp)
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stdout strings.Builder
			cmd.Stdout = &stdout
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			lines := bufio.NewReader(stderr)
			tryCurl(t, untilReads(t, lines))

			family := descendants(t, cmd.Process.Pid)
			servers := 0
			for _, p := range family {
				if strings.Contains(p.command, tmp) {
					servers++
				}
			}
			if servers < 3 {
				t.Fatalf("%d processes with a folder in %s, want the three servers: %v", servers, tmp, family)
			}
			if entries, err := os.ReadDir(tmp); err != nil || len(entries) == 0 {
				t.Fatalf("no file in %s while the demo runs: %v", tmp, err)
			}

			if err := cmd.Process.Signal(how); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(lines)
			err = cmd.Wait()
			if how == syscall.SIGINT {
				var res demo.Result
				if err != nil || json.Unmarshal([]byte(stdout.String()), &res) != nil || res.Policies.Tidegate.Reads == 0 {
					t.Errorf("interrupted: %v, printed %q; want the result\n%s", err, stdout.String(), rest)
				}
			}
			testenvtest.WaitUntil(t, testenvtest.HangTimeout, func() (bool, string) {
				for _, p := range family {
					if now, ok := look(p.pid); ok && now.born == p.born {
						return false, fmt.Sprintf("process %d (%s) still lives", p.pid, p.command)
					}
				}
				entries, err := os.ReadDir(tmp)
				return err == nil && len(entries) == 0, fmt.Sprintf("left in %s: %v, %v", tmp, entries, err)
			})
		})
	}
}

// untilReads reads the display until reads were counted, and returns the URL
// that it offers.
func untilReads(t *testing.T, lines *bufio.Reader) (url string) {
	t.Helper()
	var all strings.Builder
	offer := regexp.MustCompile(`curl -s '(http://[^']*)'`)
	counted := regexp.MustCompile(`^ *\d+ s: [1-9]\d* reads`)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the demo ended before it counted reads: %v\n%s", err, all.String())
		}
		all.WriteString(line)
		if m := offer.FindStringSubmatch(line); m != nil {
			url = m[1]
		}
		if url != "" && counted.MatchString(line) {
			return url
		}
	}
}

func tryCurl(t *testing.T, url string) {
	t.Helper()
	client := http.Client{Timeout: testenvtest.HangTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Serve  *bool  `json:"serve"`
		Reason string `json:"reason"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK || answer.Serve == nil || answer.Reason == "" {
		t.Errorf("%s: status %d, %+v, %v; want an answer", url, resp.StatusCode, answer, err)
	}
}

// process is one at a moment; number and birth together name it for good.
type process struct {
	pid     int
	parent  int
	born    string // in clock ticks since the machine's start
	command string
}

// look reads /proc; ok is false for a process that is gone or only waits for
// its parent to take note.
func look(pid int) (p process, ok bool) {
	dir := filepath.Join("/proc", fmt.Sprint(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return p, false
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return p, false
	}
	command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	p = process{pid: pid, born: fields[19], command: strings.ReplaceAll(string(command), "\x00", " ")}
	_, err = fmt.Sscan(fields[1], &p.parent)
	return p, err == nil
}

// descendants are the process and everything below it.
func descendants(t *testing.T, root int) (out []process) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]process{}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		if p, ok := look(pid); ok {
			children[p.parent] = append(children[p.parent], p)
			if pid == root {
				out = append(out, p)
			}
		}
	}
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i].pid]...)
	}
	return out
}
