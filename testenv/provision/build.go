package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// builder makes one tree; it lives for one call of Ensure, under the lock.
type builder struct {
	set   Set
	opts  Options
	place string
}

func (b *builder) fail(step string, err error) error {
	return &StepError{Set: b.set.Name, Step: step, Err: err}
}

// steps counts what a Progress callback hears: sources, index, download,
// unpack, finish.
const steps = 5

func (b *builder) build(ctx context.Context) error {
	b.opts.Progress("read apt sources", 0, steps)
	for _, tool := range []string{"apt-get", "apt-config", "dpkg"} {
		if _, err := exec.LookPath(tool); err != nil {
			return b.fail("look for "+tool, err)
		}
	}
	rel, err := readRelease(b.opts.OSRelease)
	if err != nil {
		return b.fail("learn the distribution", err)
	}
	sources, err := readSources(b.opts.AptDir)
	if err != nil {
		return b.fail("read apt sources", err)
	}
	var failures []error
	for _, c := range b.set.Candidates {
		if c.Distro != "" && !slices.Contains(rel.ids, c.Distro) {
			continue
		}
		err := b.try(ctx, sources, rel, c)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		failures = append(failures, err)
	}
	if len(failures) == 0 {
		return b.fail("choose packages", fmt.Errorf("nothing known for a machine that calls itself %s", strings.Join(rel.ids, ", ")))
	}
	return errors.Join(failures...)
}

// try builds the tree from one candidate, in a folder beside its place.
func (b *builder) try(ctx context.Context, sources []source, rel release, c Candidate) error {
	chosen, err := choose(sources, rel, c)
	if err != nil {
		return b.fail("choose a mirror", err)
	}
	// Under the lock nobody else builds this set: what is here was left by a
	// process that died.
	work := filepath.Join(b.opts.CacheDir, "work", b.set.Name)
	if err := os.RemoveAll(work); err != nil {
		return b.fail("clear the work folder", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	apt, err := newAptTree(ctx, filepath.Join(work, "apt"), chosen)
	if err != nil {
		return b.fail("make a private apt tree", err)
	}
	b.opts.Progress("fetch the package index", 1, steps)
	if err := apt.run(ctx, "update"); err != nil {
		return b.fail("apt-get update", err)
	}
	b.opts.Progress("download "+strings.Join(c.Packages, ", "), 2, steps)
	args := append([]string{"install", "-y", "--no-install-recommends", "--download-only"}, c.Packages...)
	if err := apt.run(ctx, args...); err != nil {
		return b.fail("download "+strings.Join(c.Packages, ", "), err)
	}
	tree := filepath.Join(work, "tree")
	packages, err := b.unpack(ctx, apt.archives(), tree)
	if err != nil {
		return b.fail("unpack", err)
	}
	b.opts.Progress("finish", 4, steps)
	manifest := strings.Join(packages, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(tree, manifestName), []byte(manifest), 0o644); err != nil {
		return b.fail("write the package list", err)
	}
	if _, err := openRoot(tree, b.set); err != nil {
		return b.fail("check the tree", err)
	}
	if err := os.MkdirAll(filepath.Dir(b.place), 0o755); err != nil {
		return b.fail("make the cache folder", err)
	}
	if err := os.RemoveAll(b.place); err != nil { // an incomplete tree, or openRoot had taken it
		return b.fail("remove the incomplete tree", err)
	}
	if err := os.Rename(tree, b.place); err != nil {
		return b.fail("move the tree into place", err)
	}
	b.opts.Progress("finish", steps, steps)
	return nil
}

// unpack unpacks every package file of dir into tree and returns their names.
func (b *builder) unpack(ctx context.Context, dir, tree string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("apt-get downloaded nothing")
	}
	sort.Strings(files)
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return nil, err
	}
	var done atomic.Int64
	total := len(files)
	b.opts.Progress("unpack", 0, total)
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, min(4, runtime.NumCPU())))
	finished := make(chan struct{}, total)
	for _, file := range files {
		group.Go(func() error {
			out, err := command(gctx, nil, "dpkg", "-x", file, tree)
			if err != nil {
				return fmt.Errorf("%s: %w: %s", filepath.Base(file), err, lastLines(out, 3))
			}
			done.Add(1)
			finished <- struct{}{}
			return nil
		})
	}
	waited := make(chan error, 1)
	go func() { waited <- group.Wait() }()
	for {
		select {
		case <-finished: // Progress is called here alone: one goroutine at a time
			b.opts.Progress("unpack", int(done.Load()), total)
		case err := <-waited:
			if err != nil {
				return nil, err
			}
			names := make([]string, 0, total)
			for _, file := range files {
				names = append(names, strings.TrimSuffix(filepath.Base(file), ".deb"))
			}
			return names, nil
		}
	}
}

// aptTree is a private apt installation: everything apt writes goes under dir.
type aptTree struct{ dir string }

func (t *aptTree) archives() string { return filepath.Join(t.dir, "cache", "archives") }

func newAptTree(ctx context.Context, dir string, sources []source) (*aptTree, error) {
	t := &aptTree{dir: dir}
	for _, sub := range []string{"lists/partial", "cache/archives/partial", "keys", "state"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	var list strings.Builder
	for i, s := range sources {
		var options []string
		switch {
		case s.inlineKey != "":
			key := filepath.Join(dir, "keys", fmt.Sprintf("%d.asc", i))
			if err := os.WriteFile(key, []byte(s.inlineKey), 0o644); err != nil {
				return nil, err
			}
			options = append(options, "signed-by="+key)
		case s.signedBy != "":
			options = append(options, "signed-by="+s.signedBy)
		}
		if s.trusted {
			options = append(options, "trusted=yes")
		}
		list.WriteString("deb ")
		if len(options) > 0 {
			fmt.Fprintf(&list, "[%s] ", strings.Join(options, " "))
		}
		fmt.Fprintf(&list, "%s %s %s\n", s.uri, s.suite, strings.Join(s.components, " "))
	}
	conf, err := aptConf(ctx, dir)
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"sources.list": list.String(),
		"status":       "", // empty: the whole closure comes down, libc included
		"apt.conf":     conf,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// aptConf is the private configuration. The machine's own is not read by the
// private apt, because its hooks may clean or refresh the machine; only how it
// reaches its mirrors (Acquire: proxies, timeouts, certificates) is taken over.
func aptConf(ctx context.Context, dir string) (string, error) {
	out, err := command(ctx, nil, "apt-config", "dump")
	if err != nil {
		return "", fmt.Errorf("apt-config dump: %w: %s", err, lastLines(out, 3))
	}
	var conf strings.Builder
	conf.WriteString("Dir::Etc::main \"/dev/null\";\nDir::Etc::parts \"/dev/null\";\n")
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Acquire::") && !strings.HasPrefix(line, "Acquire::IndexTargets") &&
			!strings.HasPrefix(line, "Acquire::Languages") {
			conf.WriteString(line)
		}
	}
	for _, item := range [][2]string{
		{"Dir::Etc::sourcelist", filepath.Join(dir, "sources.list")},
		{"Dir::Etc::sourceparts", "/dev/null"},
		{"Dir::Etc::preferences", "/dev/null"},
		{"Dir::Etc::preferencesparts", "/dev/null"},
		{"Dir::State", filepath.Join(dir, "state")},
		{"Dir::State::Lists", filepath.Join(dir, "lists")},
		{"Dir::State::status", filepath.Join(dir, "status")},
		{"Dir::Cache", filepath.Join(dir, "cache")},
		{"Dir::Log", filepath.Join(dir, "state")},
		{"Debug::NoLocking", "1"},
		{"APT::Sandbox::User", ""}, // the cache folder is the caller's own, whoever that is
		{"Acquire::Languages", "none"},
		{"Acquire::Retries", "3"},
		{"Acquire::IndexTargets::deb::DEP-11::DefaultEnabled", "false"},
		{"Acquire::IndexTargets::deb::DEP-11-icons-small::DefaultEnabled", "false"},
		{"Acquire::IndexTargets::deb::DEP-11-icons::DefaultEnabled", "false"},
		{"Acquire::IndexTargets::deb::CNF::DefaultEnabled", "false"},
		{"Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled", "false"},
	} {
		fmt.Fprintf(&conf, "%s %q;\n", item[0], item[1])
	}
	return conf.String(), nil
}

func (t *aptTree) run(ctx context.Context, args ...string) error {
	env := append(os.Environ(), "APT_CONFIG="+filepath.Join(t.dir, "apt.conf"), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	out, err := command(ctx, env, "apt-get", append([]string{"-q"}, args...)...)
	if err == nil && args[0] == "update" {
		// apt-get update ends with 0 although an index could not be fetched.
		if i := bytes.Index(out, []byte("Failed to fetch")); i >= 0 {
			err = errors.New("an index could not be fetched")
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, lastLines(out, 6))
	}
	return nil
}

// command runs a program and returns its output, both streams together.
func command(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = env
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out.Bytes(), err
}

func lastLines(out []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "; ")
}
