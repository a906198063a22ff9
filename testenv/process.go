package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Program says how a [Process] is run. Argv is required, everything else has a
// default.
type Program struct {
	// Name stands in errors and names the log; empty: the base name of Argv[0].
	Name string
	// Argv is the command line; Argv[0] is looked up on PATH when it has no
	// slash.
	Argv []string
	// Env is added to this process's own environment, as "NAME=value".
	Env []string
	// Dir is the folder that it works in; it is kept at the end. Empty: a
	// temporary one, removed by Close or by the guard.
	Dir string
	// LogFile takes both output streams, appended over all runs; empty:
	// Name.log in the folder.
	LogFile string
	// Ready is asked again and again after a start until it returns nil; its
	// last error explains a start that timed out. It must heed ctx. Nil: a
	// process that exists is ready.
	Ready func(ctx context.Context) error
	// StartTimeout bounds a start; 0: 60 s.
	StartTimeout time.Duration
}

const defaultStartTimeout = 60 * time.Second

// Process is a child that can be started, stopped, killed and started again,
// and that cannot outlive this process, however this process ends. Methods may
// be called by many at once; Start and Restart wait for each other.
type Process struct {
	program   Program
	guard     *guard
	ownsGuard bool

	starting sync.Mutex // held over a whole start

	mu   sync.Mutex
	argv []string
	run  *run // nil before the first start
}

// NewProcess prepares a process without starting it. The caller closes it.
func NewProcess(p Program) (*Process, error) {
	if len(p.Argv) == 0 {
		return nil, errors.New("new process: no command line")
	}
	g, err := newGuard()
	if err != nil {
		return nil, fmt.Errorf("new process %s: %w", p.Argv[0], err)
	}
	if p.Dir == "" {
		if p.Dir, err = g.tempDir("tidegate-process-"); err != nil {
			return nil, errors.Join(fmt.Errorf("new process %s: %w", p.Argv[0], err), g.close())
		}
	}
	process := newProcess(g, p)
	process.ownsGuard = true
	return process, nil
}

// StartProcess is NewProcess and Start; on an error nothing is left.
func StartProcess(ctx context.Context, p Program) (*Process, error) {
	process, err := NewProcess(p)
	if err != nil {
		return nil, err
	}
	if err := process.Start(ctx); err != nil {
		return nil, errors.Join(err, process.Close())
	}
	return process, nil
}

// newProcess prepares a process under a guard of the caller's; Dir is set.
func newProcess(g *guard, p Program) *Process {
	if p.Name == "" {
		p.Name = filepath.Base(p.Argv[0])
	}
	if p.LogFile == "" {
		p.LogFile = filepath.Join(p.Dir, p.Name+".log")
	}
	if p.StartTimeout == 0 {
		p.StartTimeout = defaultStartTimeout
	}
	return &Process{program: p, guard: g, argv: p.Argv}
}

// Dir is the folder that it works in.
func (p *Process) Dir() string { return p.program.Dir }

// LogFile is the file that takes its output.
func (p *Process) LogFile() string { return p.program.LogFile }

// Log is the end of its output, at most 4 KiB, for messages of failed tests.
func (p *Process) Log() string { return logTail(p.program.LogFile, tailBytes) }

// SetArgv replaces the command line from the next start on.
func (p *Process) SetArgv(argv ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.argv = slices.Clone(argv)
}

func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// Running says whether the process exists.
func (p *Process) Running() bool {
	r := p.current()
	return r != nil && !r.exited()
}

// PID is its number; 0 when it does not run.
func (p *Process) PID() int {
	if r := p.current(); r != nil && !r.exited() {
		return r.pid()
	}
	return 0
}

// Start starts it and returns when it is ready. A process that runs is left
// alone. On an error it does not run; the error quotes its log.
func (p *Process) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.program.StartTimeout)
	defer cancel()
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.Running() {
		return nil
	}
	p.mu.Lock()
	argv := p.argv
	p.mu.Unlock()
	r, err := startRun(p.guard, argv, p.program.Env, p.program.Dir, p.program.LogFile)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.program.Name, err)
	}
	p.mu.Lock()
	p.run = r
	p.mu.Unlock()
	if err := p.awaitReady(ctx, r); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w\n%s", p.program.Name, err, logTail(p.program.LogFile, 12)), r.kill())
	}
	return nil
}

// readyPoll is how often a starting process is asked whether it answers.
const readyPoll = 15 * time.Millisecond

func (p *Process) awaitReady(ctx context.Context, r *run) error {
	if p.program.Ready == nil {
		return nil
	}
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		last := p.program.Ready(ctx)
		if r.exited() { // before last: what answered may have been another
			return r.earlyEnd()
		}
		if last == nil {
			return nil
		}
		select {
		case <-r.done:
			return r.earlyEnd()
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w (last: %w)", ctx.Err(), last)
		case <-ticker.C:
		}
	}
}

// earlyEnd is the error of a process that ended before it was ready.
func (r *run) earlyEnd() error {
	if err := r.result(); err != nil {
		return fmt.Errorf("it ended: %w", err)
	}
	return errors.New("it ended: exit status 0")
}

// Stop asks it to end (SIGTERM) and waits. When ctx ends first it is killed
// and ctx's error returned. A process that does not run is left alone.
func (p *Process) Stop(ctx context.Context) error {
	r := p.current()
	if r == nil || r.exited() {
		return nil
	}
	if err := r.terminate(ctx); err != nil {
		return fmt.Errorf("stop %s: %w", p.program.Name, err)
	}
	return nil
}

// Kill ends it with SIGKILL and waits until it is gone.
func (p *Process) Kill() error {
	r := p.current()
	if r == nil || r.exited() {
		return nil
	}
	if err := r.kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.program.Name, err)
	}
	return nil
}

// Restart is Stop and Start.
func (p *Process) Restart(ctx context.Context) error {
	if err := p.Stop(ctx); err != nil {
		return err
	}
	return p.Start(ctx)
}

// Pause freezes it with SIGSTOP and returns when it is frozen: its connections
// stay, and nothing answers. Resume ends that; Kill works on a frozen process,
// Stop does not.
func (p *Process) Pause() error {
	r := p.current()
	if r == nil || r.exited() {
		return fmt.Errorf("pause %s: %w", p.program.Name, os.ErrProcessDone)
	}
	if err := r.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	// A signal is only sent so far; another one sent now could overtake it.
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !r.frozen() {
		select {
		case <-r.done:
			return fmt.Errorf("pause %s: %w", p.program.Name, os.ErrProcessDone)
		case <-ticker.C:
		}
	}
	return nil
}

// Resume lets it go on after Pause.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// Signal sends a signal; [os.ErrProcessDone] when it does not run.
func (p *Process) Signal(s os.Signal) error {
	r := p.current()
	if r == nil || r.exited() {
		return fmt.Errorf("signal %s: %w", p.program.Name, os.ErrProcessDone)
	}
	return r.signal(s)
}

// Wait blocks until the run of the moment has ended and returns how: nil for
// exit status 0, an *exec.ExitError otherwise, ctx's error when ctx ended
// first.
func (p *Process) Wait(ctx context.Context) error {
	r := p.current()
	if r == nil {
		return fmt.Errorf("wait for %s: it was never started", p.program.Name)
	}
	select {
	case <-r.done:
		return r.result()
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %w", p.program.Name, ctx.Err())
	}
}

// Close kills it and removes its temporary folder. It may be called twice.
func (p *Process) Close() error {
	err := p.Kill()
	if p.ownsGuard {
		err = errors.Join(err, p.guard.close())
	}
	return err
}
