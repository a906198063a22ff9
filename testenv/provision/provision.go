package provision

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// EnvCache names the environment variable that overrides the cache folder.
const EnvCache = "TIDEGATE_CACHE"

// Candidate is one way to get a Set: packages of one suite.
type Candidate struct {
	// Distro limits the candidate to machines whose os-release has this word
	// in ID or ID_LIKE ("debian", "ubuntu"). Empty: any machine.
	Distro string
	// Suite is the suite to take the packages from, on the machine's own
	// mirror. Empty: the suites of the machine's own release.
	Suite string
	// Packages are the names to install; their dependencies come with them.
	Packages []string
}

// Set is a named group of packages that share one tree.
type Set struct {
	// Name is the folder's name in the cache: letters, digits, '-', '.'.
	Name string
	// Candidates are tried in order; the first that yields Needs wins.
	Candidates []Candidate
	// Needs are files, relative to the tree, without which it is not complete.
	Needs []string
}

// Progress is told which step runs and how far it is. It is called from one
// goroutine at a time, in order, and must not block for long. total is 0 where
// it is not known.
type Progress func(step string, done, total int)

// Options say where a tree goes and who hears about it. The zero value works.
type Options struct {
	// CacheDir is the cache folder; empty: [CacheDir].
	CacheDir string
	// Progress may be nil.
	Progress Progress
	// Logger may be nil: then nothing is logged.
	Logger *slog.Logger
	// AptDir is the folder of the machine's apt configuration; empty: /etc/apt.
	AptDir string
	// OSRelease is the machine's os-release file; empty: /etc/os-release.
	OSRelease string
}

// StepError says which step of provisioning failed.
type StepError struct {
	Set  string // name of the set
	Step string // what was being done
	Err  error
}

func (e *StepError) Error() string {
	return fmt.Sprintf("provision %s: %s: %v", e.Set, e.Step, e.Err)
}

func (e *StepError) Unwrap() error { return e.Err }

// CacheDir is the cache folder: TIDEGATE_CACHE, or "tidegate" in the user's own
// cache folder, or, where the user has none (a service without HOME), a folder
// of that user in the machine's temporary folder. It is not created here.
func CacheDir() (string, error) {
	if dir := os.Getenv(EnvCache); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("resolve %s=%q: %w", EnvCache, dir, err)
		}
		return abs, nil
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "tidegate"), nil
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("tidegate-cache-%d", os.Getuid())), nil
}

func (o Options) withDefaults() (Options, error) {
	if o.CacheDir == "" {
		dir, err := CacheDir()
		if err != nil {
			return o, err
		}
		o.CacheDir = dir
	}
	abs, err := filepath.Abs(o.CacheDir)
	if err != nil {
		return o, fmt.Errorf("resolve cache folder %q: %w", o.CacheDir, err)
	}
	o.CacheDir = abs
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.AptDir == "" {
		o.AptDir = "/etc/apt"
	}
	if o.OSRelease == "" {
		o.OSRelease = "/etc/os-release"
	}
	return o, nil
}

// Ensure returns the tree of set, from the cache or built now. It blocks while
// another process builds the same set, and returns ctx's error when ctx ends.
// Every other error is a *StepError.
func Ensure(ctx context.Context, set Set, opts Options) (*Root, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, &StepError{Set: set.Name, Step: "find the cache folder", Err: err}
	}
	if err := set.validate(); err != nil {
		return nil, &StepError{Set: set.Name, Step: "read the set", Err: err}
	}
	if root, err := Cached(set, opts); err == nil {
		return root, nil
	}
	b := &builder{set: set, opts: opts, place: place(opts.CacheDir, set)}
	unlock, err := Lock(ctx, filepath.Join(opts.CacheDir, "locks", set.Name+".lock"))
	if err != nil {
		return nil, b.fail("lock the cache", err)
	}
	defer unlock()
	if root, err := openRoot(b.place, set); err == nil {
		return root, nil // another process built it while this one waited
	}
	started := time.Now()
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	root, err := openRoot(b.place, set)
	if err != nil {
		return nil, b.fail("open the finished tree", err)
	}
	opts.Logger.Info("packages provisioned", "set", set.Name, "dir", root.Dir, "took", time.Since(started).Round(time.Millisecond))
	return root, nil
}

// Cached returns the tree of set when the cache holds it, complete. It never
// builds, and does not wait for a process that does.
func Cached(set Set, opts Options) (*Root, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, &StepError{Set: set.Name, Step: "find the cache folder", Err: err}
	}
	root, err := openRoot(place(opts.CacheDir, set), set)
	if err != nil {
		return nil, &StepError{Set: set.Name, Step: "open the cached tree", Err: err}
	}
	return root, nil
}

func place(cacheDir string, set Set) string { return filepath.Join(cacheDir, "roots", set.Name) }

func (s Set) validate() error {
	if s.Name == "" || s.Name[0] == '.' || strings.ContainsFunc(s.Name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.')
	}) {
		return fmt.Errorf("set name %q: want letters, digits, '-' and '.'", s.Name)
	}
	if len(s.Candidates) == 0 || len(s.Needs) == 0 {
		return errors.New("a set needs candidates and the files that make it complete")
	}
	return nil
}

// lockPoll is how often a waiting process looks whether the lock is free: file
// locks cannot be waited for together with a context.
const lockPoll = 50 * time.Millisecond

// Lock takes an exclusive lock on path, which is created with its folders, and
// waits for it until ctx ends. The kernel frees it when the process dies. The
// file stays: removing it would let two processes lock two files of one name.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make folder for lock: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	ticker := time.NewTicker(lockPoll)
	defer ticker.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, ctx.Err())
		case <-ticker.C:
		}
	}
}
