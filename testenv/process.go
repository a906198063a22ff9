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

// process is one run of a server program under a guard. A new run is a new
// process value.
type process struct {
	cmd  *exec.Cmd
	log  string        // file that took its output
	done chan struct{} // closed when it was waited for

	mu  sync.Mutex
	err error // how it ended; valid after done
}

// startProcess starts argv with both output streams appended to logFile.
func startProcess(g *guard, argv, env []string, dir, logFile string) (*process, error) {
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
	p := &process{cmd: cmd, log: logFile, done: make(chan struct{})}
	go func() {
		err := cmd.Wait()
		g.forget(cmd.Process.Pid)
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// exited says whether the process was waited for.
func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// result is how it ended; call it after done.
func (p *process) result() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// signal sends s; a process that is gone is no error.
func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.pid(), err)
	}
	return nil
}

// kill ends it with SIGKILL and waits until it is gone.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// terminate asks it to end and waits; when ctx ends first it is killed and
// ctx's error returned, since then it did not end cleanly.
func (p *process) terminate(ctx context.Context) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.kill())
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
