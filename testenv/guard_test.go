package testenv_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// envVictim turns the test binary into a process that starts servers and waits
// to be killed.
const envVictim = "TIDEGATE_TEST_VICTIM"

type victimReport struct {
	Dirs []string
	PIDs []int
}

// victim starts a cluster, says what it started, and waits until it is killed.
func victim() int {
	c, err := testenv.Start(context.Background(), testenv.Options{Servers: 1})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	p, err := testenv.StartProcess(context.Background(), testenv.Program{Argv: []string{"sleep", "600"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	report := victimReport{Dirs: []string{c.Dir(), p.Dir()}, PIDs: []int{p.PID()}}
	for _, s := range c.Servers() {
		report.PIDs = append(report.PIDs, s.PID())
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		return 1
	}
	if os.Getenv(envVictim) == "exit" {
		return 3 // as os.Exit in the middle of everything
	}
	select {}
}

func TestNothingOutlivesTheParent(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"kill", "exit"} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), envVictim+"="+how)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatalf("the victim said nothing: %v", err)
			}
			var report victimReport
			if err := json.Unmarshal([]byte(line), &report); err != nil {
				t.Fatal(err)
			}
			if len(report.PIDs) != 2 || report.PIDs[0] == 0 {
				t.Fatalf("report %+v, want a server and a process", report)
			}
			if how == "kill" {
				if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			_ = cmd.Wait()
			testenvtest.WaitUntil(t, testenvtest.HangTimeout, func() (bool, string) {
				for _, pid := range report.PIDs {
					if alive(pid) {
						return false, fmt.Sprintf("process %d still lives", pid)
					}
				}
				for _, dir := range report.Dirs {
					if _, err := os.Stat(dir); !os.IsNotExist(err) {
						return false, fmt.Sprintf("folder %s: %v", dir, err)
					}
				}
				return true, ""
			})
		})
	}
}

// alive says whether a process runs; one that waits for its parent to read its
// status does not.
func alive(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		return false
	}
	rest := string(data[strings.LastIndexByte(string(data), ')')+1:])
	return len(strings.Fields(rest)) > 0 && strings.Fields(rest)[0] != "Z"
}
