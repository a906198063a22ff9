package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// run is one life of a child under a guard, from its start until it was waited
// for.
type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it was waited for

	mu  sync.Mutex
	err error // how it ended; valid after done
}

// startRun starts argv with both output streams appended to logFile; env is
// added to this process's own.
func startRun(g *guard, argv, env []string, dir, logFile string) (*run, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = out.Close() }() // the child has its own descriptor
	cmd, err := g.command(argv)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = dir
	if env != nil {
		cmd.Env = append(os.Environ(), env...)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	r := &run{cmd: cmd, done: make(chan struct{})}
	go func() {
		err := cmd.Wait()
		g.forget(cmd.Process.Pid)
		r.mu.Lock()
		r.err = err
		r.mu.Unlock()
		close(r.done)
	}()
	return r, nil
}

func (r *run) pid() int { return r.cmd.Process.Pid }

// exited says whether the child was waited for.
func (r *run) exited() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// result is how it ended; call it after done.
func (r *run) result() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// frozen says whether the child is stopped by a signal.
func (r *run) frozen() bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.pid()))
	if err != nil {
		return false
	}
	// The state stands behind the name, which may hold anything.
	_, rest, _ := strings.Cut(string(data[bytes.LastIndexByte(data, ')')+1:]), " ")
	return strings.HasPrefix(rest, "T")
}

// signal sends s; a child that is gone is no error.
func (r *run) signal(s os.Signal) error {
	if err := r.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", r.pid(), err)
	}
	return nil
}

// kill ends it with SIGKILL and waits until it is gone.
func (r *run) kill() error {
	if err := r.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-r.done
	return nil
}

// terminate asks it to end and waits; when ctx ends first it is killed and
// ctx's error returned, since then it did not end cleanly.
func (r *run) terminate(ctx context.Context) error {
	if err := r.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), r.kill())
	}
}

// tailBytes bounds what an error message quotes of a log.
const tailBytes = 4096

// logTail is the end of a log, for error messages.
func logTail(file string, lines int) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > tailBytes {
		_, _ = f.Seek(-tailBytes, io.SeekEnd)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimSpace(data)), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n")
}
