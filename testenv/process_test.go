package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

func TestProcess(t *testing.T) {
	t.Parallel()
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	t.Run("life", func(t *testing.T) {
		p, err := testenv.NewProcess(testenv.Program{
			Name: "worker", Argv: []string{"sh", "-c", `echo "$WORD"; : > ready; exec sleep 600`}, Env: []string{"WORD=hello"},
		})
		must(t, err)
		if p.Running() || p.PID() != 0 {
			t.Error("runs before it was started")
		}
		if err := p.Wait(ctx); err == nil {
			t.Error("waited for what never ran")
		}
		must(t, p.Stop(ctx))
		must(t, p.Start(ctx))
		testenvtest.WaitUntil(t, testenvtest.HangTimeout, func() (bool, string) { return strings.Contains(p.Log(), "hello"), p.Log() })
		pid := p.PID()
		must(t, p.Start(ctx)) // runs already
		if p.PID() != pid || pid == 0 {
			t.Errorf("pid %d, then %d", pid, p.PID())
		}
		must(t, p.Kill())
		var exit *exec.ExitError
		if err := p.Wait(ctx); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("ended with %v, want SIGKILL", err)
		}
		if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("signal a dead process: %v", err)
		}
		p.SetArgv("sh", "-c", "exit 4")
		must(t, p.Restart(ctx))
		if err := p.Wait(ctx); !errors.As(err, &exit) || exit.ExitCode() != 4 {
			t.Errorf("ended with %v, want status 4", err)
		}
		dir := p.Dir()
		must(t, p.Close())
		must(t, p.Close())
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("folder %s is left: %v", dir, err)
		}
		if err := p.Start(ctx); err == nil {
			t.Error("started after Close")
		}
	})
	t.Run("ready", func(t *testing.T) {
		dir := t.TempDir()
		p := testenvtest.Process(t, testenv.Program{
			Argv: []string{"sh", "-c", "sleep 0.1; : > ready; exec sleep 600"}, Dir: dir,
			Ready: func(context.Context) error { _, err := os.Stat(filepath.Join(dir, "ready")); return err },
		})
		if _, err := os.Stat(filepath.Join(dir, "ready")); err != nil {
			t.Error("returned before it was ready")
		}
		must(t, p.Pause())
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		if err := p.Stop(short); !errors.Is(err, context.DeadlineExceeded) || p.Running() {
			t.Errorf("stop of a frozen process: %v, running %t; want killed in the end", err, p.Running())
		}
	})
	t.Run("never ready", func(t *testing.T) {
		for _, tt := range []struct {
			script  string
			timeout time.Duration
			want    []string
		}{
			{"echo my last words; exit 5", testenvtest.HangTimeout, []string{"my last words", "exit status 5"}},
			{"exit 0", testenvtest.HangTimeout, []string{"exit status 0"}},
			// Time enough for a shell to say a word, and to be waited out.
			{"echo still here; exec sleep 600", 5 * time.Second, []string{"still here", "not yet", context.DeadlineExceeded.Error()}},
		} {
			_, err := testenv.StartProcess(ctx, testenv.Program{
				Argv: []string{"sh", "-c", tt.script}, StartTimeout: tt.timeout,
				Ready: func(context.Context) error { return errors.New("not yet") },
			})
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%q: error %v, want %q in it", tt.script, err, want)
				}
			}
		}
		if _, err := testenv.NewProcess(testenv.Program{}); err == nil {
			t.Error("no command line accepted")
		}
	})
}

// TestWithoutRoot runs one of the tests as a user who has nothing.
func TestWithoutRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("this is not root: all other tests show it")
		return
	}
	const nobody = 65534
	m, err := testenv.FindMySQL(testenvtest.Context(t, testenvtest.StartTimeout), testenv.Provisioning{})
	must(t, err)
	// t.TempDir is the root's alone in parts: this one is open to the user.
	dir, err := os.MkdirTemp("", "tidegate-nobody-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	cache := filepath.Join(dir, "cache")
	if tree, ok := strings.CutPrefix(m.Origin, "packages in "); ok {
		must(t, linkTree(tree, filepath.Join(cache, "roots", filepath.Base(tree))))
	}
	binary := filepath.Join(dir, "test")
	must(t, copyProgram(os.Args[0], binary))
	for _, own := range []string{dir, cache, filepath.Join(cache, "roots")} {
		if _, err := os.Stat(own); err == nil {
			must(t, os.Chown(own, nobody, nobody))
		}
	}
	cmd := exec.CommandContext(testenvtest.Context(t, testenvtest.StartTimeout), binary, "-test.run=^TestClusterReplicates$", "-test.v")
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH"), "TIDEGATE_CACHE=" + cache, testenv.EnvMySQLD + "=" + os.Getenv(testenv.EnvMySQLD)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestClusterReplicates") {
		t.Fatalf("as nobody: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(cache, "templates")); err != nil {
		t.Errorf("it did not use its own cache: %v", err)
	}
}

// linkTree makes a second tree of the same files.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type()&os.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case d.Type().IsRegular():
			if os.Link(path, target) == nil {
				return nil
			}
			return copyProgram(path, target) // another file system
		default:
			return fmt.Errorf("%s: unexpected kind of file", path)
		}
	})
}

func copyProgram(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}
