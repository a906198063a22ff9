package provision_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidegate/testenv/provision"
)

// envProvisioner turns the test binary into a process that provisions.
const envProvisioner = "TIDEGATE_TEST_PROVISIONER"

func TestMain(m *testing.M) {
	if os.Getenv(envProvisioner) != "" {
		os.Exit(provisioner())
	}
	goleak.VerifyTestMain(m)
}

// small is the smallest set that shows everything: a program and a C library.
// Its first candidate does not exist.
func small() provision.Set {
	return provision.Set{
		Name: "small", Needs: []string{"usr/bin/hello"},
		Candidates: []provision.Candidate{{Distro: "plan9", Packages: []string{"x"}}, {Packages: []string{"no-such-package-here"}}, {Packages: []string{"hello"}}},
	}
}

// provisioner says whether it built the tree or found it, and what its program
// prints.
func provisioner() int {
	built := false
	root, err := provision.Ensure(context.Background(), small(), provision.Options{Progress: func(step string, _, _ int) { built = built || step == "unpack" }})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	argv := root.Command("usr/bin/hello")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	fmt.Printf("built=%t dir=%s says=%s", built, root.Dir, out)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// TestTwoProcessesAtOnce provisions into an empty cache, on which a process
// died half way.
func TestTwoProcessesAtOnce(t *testing.T) {
	cache := t.TempDir()
	for _, left := range []string{filepath.Join(cache, "work", "small", "tree"), filepath.Join(cache, "roots", "small", "usr")} {
		if err := os.MkdirAll(left, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := provision.Cached(small(), provision.Options{CacheDir: cache}); err == nil {
		t.Fatal("half a tree passes for a whole one")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	outs := make([]string, 2)
	for i := range outs {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), envProvisioner+"=1", provision.EnvCache+"="+cache)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("provisioner: %v: %s", err, out)
			}
			outs[i] = string(out)
		})
	}
	wg.Wait()
	built := strings.Count(strings.Join(outs, ""), "built=true")
	for _, out := range outs {
		if !strings.Contains(out, "Hello, world!") || !strings.Contains(out, "dir="+filepath.Join(cache, "roots", "small")) {
			t.Errorf("a provisioner said %q", out)
		}
	}
	if built != 1 {
		t.Errorf("built %d times, want once: %q", built, outs)
	}
	left, err := os.ReadDir(filepath.Join(cache, "work"))
	if err != nil || len(left) != 0 {
		t.Errorf("left in the work folder: %v %v", left, err)
	}
	root, err := provision.Cached(small(), provision.Options{CacheDir: cache})
	if err != nil || len(root.Packages) < 2 {
		t.Errorf("the finished tree: %+v, %v", root, err)
	}
}

func TestErrorsNameTheStep(t *testing.T) {
	empty := t.TempDir()
	debian := filepath.Join(empty, "os-release")
	if err := os.WriteFile(debian, []byte("ID=debian\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		set  provision.Set
		opts provision.Options
		want string
	}{
		{"name", t.Context(), provision.Set{Name: "../x"}, provision.Options{}, "read the set"},
		{"nothing asked for", t.Context(), provision.Set{Name: "x"}, provision.Options{}, "read the set"},
		{"no sources", t.Context(), small(), provision.Options{AptDir: empty, OSRelease: debian}, "read apt sources"},
		{"no os-release", t.Context(), small(), provision.Options{OSRelease: filepath.Join(empty, "absent")}, "learn the distribution"},
		{"unknown distribution", t.Context(), provision.Set{Name: "x", Needs: []string{"x"}, Candidates: small().Candidates[:1]}, provision.Options{}, "choose packages"},
		{"ended", ended, small(), provision.Options{}, context.Canceled.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.opts.CacheDir = t.TempDir()
			_, err := provision.Ensure(tt.ctx, tt.set, tt.opts)
			var step *provision.StepError
			if !errors.As(err, &step) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want a step %q", err, tt.want)
			}
		})
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks", "x")
	unlock, err := provision.Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := provision.Lock(short, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second lock: %v", err)
	}
	unlock()
	again, err := provision.Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestCacheDir(t *testing.T) {
	t.Setenv(provision.EnvCache, "relative")
	if dir, err := provision.CacheDir(); err != nil || !filepath.IsAbs(dir) || filepath.Base(dir) != "relative" {
		t.Errorf("%q %v", dir, err)
	}
	t.Setenv(provision.EnvCache, "")
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	if dir, err := provision.CacheDir(); err != nil || !strings.HasPrefix(dir, os.TempDir()) {
		t.Errorf("without a home: %q %v", dir, err)
	}
}
