package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"tidegate/testenv/provision"
)

// EnvNATS names the environment variable that points at a nats-server of the
// user's own. It comes before everything else.
const EnvNATS = "TIDEGATE_NATS_SERVER"

// natsModule is the module whose main package is nats-server.
const natsModule = "github.com/nats-io/nats-server/v2"

// findNATS returns the path of a nats-server program: TIDEGATE_NATS_SERVER,
// else the one in the cache of exactly the version that this module requires,
// else that version built into the cache, else PATH.
//
// It is the server's own main package, not this program run again under another
// name: so tests need no hook in their TestMain, binaries that only start
// servers do not link one, and a killed server is the program that operators
// run.
func findNATS(ctx context.Context, p Provisioning) (string, error) {
	if path := os.Getenv(EnvNATS); path != "" {
		abs, err := filepath.Abs(path)
		if err == nil {
			_, err = exec.LookPath(abs)
		}
		if err != nil {
			return "", fmt.Errorf("use %s=%q: %w", EnvNATS, path, err)
		}
		return abs, nil
	}
	path, err := builtNATS(ctx, p)
	if err == nil || ctx.Err() != nil {
		return path, err
	}
	if path, lookErr := exec.LookPath("nats-server"); lookErr == nil {
		return path, nil
	}
	return "", fmt.Errorf("%w; then looked for nats-server on PATH: none; set %s to the path of one", err, EnvNATS)
}

func builtNATS(ctx context.Context, p Provisioning) (string, error) {
	cache, err := p.cacheDir()
	if err != nil {
		return "", err
	}
	version, inModule, err := natsVersion(ctx)
	if err != nil {
		return "", err
	}
	name := "nats-server-" + version + "-" + runtime.Version()
	path := filepath.Join(cache, "bin", name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	unlock, err := provision.Lock(ctx, filepath.Join(cache, "locks", name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if p.Progress != nil {
		p.Progress("build nats-server "+version, 0, 1)
	}
	if err := buildNATS(ctx, cache, path, version, inModule); err != nil {
		return "", fmt.Errorf("build nats-server %s: %w", version, err)
	}
	if p.Progress != nil {
		p.Progress("build nats-server "+version, 1, 1)
	}
	return path, nil
}

// natsVersion is the version that this program's module requires: from the
// program itself when it links the server, else from the module that the
// working folder is in.
func natsVersion(ctx context.Context) (version string, inModule bool, err error) {
	out, err := goCommand(ctx, nil, "list", "-m", "-f", "{{.Version}}", natsModule)
	if err == nil {
		return out, true, nil
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == natsModule {
				return dep.Version, false, nil
			}
		}
	}
	return "", false, fmt.Errorf("learn the version of nats-server: %w", err)
}

func buildNATS(ctx context.Context, cache, path, version string, inModule bool) error {
	work := filepath.Join(cache, "work", filepath.Base(path))
	if err := os.RemoveAll(work); err != nil { // left by a process that died
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	for _, dir := range []string{work, filepath.Dir(path)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	built := filepath.Join(work, "nats-server")
	var err error
	if inModule { // plain flags: the packages are those that tests compiled already
		_, err = goCommand(ctx, nil, "build", "-o", built, natsModule)
	} else {
		_, err = goCommand(ctx, []string{"GOBIN=" + work}, "install", natsModule+"@"+version)
	}
	if err != nil {
		return err
	}
	return os.Rename(built, path)
}

// goCommand runs the go command in the working folder and returns its output.
func goCommand(ctx context.Context, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", errors.Join(fmt.Errorf("go %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String())), ctx.Err())
	}
	return strings.TrimSpace(string(out)), nil
}
