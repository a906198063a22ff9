package testenv

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// guardScript runs in a session of its own, so that no signal to the terminal
// or to the parent's process group reaches it. It reads one order a line:
//
//	p PID   a child began (the child itself says so, before it becomes the server)
//	q PID   that child was waited for: forget it
//	d DIR   remove this folder at the end
//	k DIR   keep it after all
//
// and at the end of the pipe (the parent closed it, or died) kills each child
// still listed, provided that the process with that number is still the one
// that was listed (its start time, field 22 of its stat line, tells), and
// removes the folders. It needs sh, sleep and rm, nothing else.
//
// Folder names are kept one a line; newGuard's callers refuse names with a
// line break.
const guardScript = `
trap '' INT TERM HUP QUIT PIPE TTOU TTIN TSTP
cd /
set -f
nl='
'
pids=' '
dirs="$nl"
born() {
  s=
  { read -r s < "/proc/$1/stat"; } 2>/dev/null || { echo 0; return; }
  set -- ${s##*) }
  echo "${20}"
}
while IFS= read -r line; do
  arg=${line#??}
  case $line in
  'p '*) pids="$pids$arg:$(born "$arg") " ;;
  'q '*)
    new=' '
    for p in $pids; do
      case $p in "$arg":*) ;; *) new="$new$p " ;; esac
    done
    pids=$new ;;
  'd '*) dirs="$dirs$arg$nl" ;;
  'k '*)
    head=${dirs%%"$nl$arg$nl"*}
    if [ "$head" != "$dirs" ]; then
      tail=${dirs#*"$nl$arg$nl"}
      dirs="$head$nl$tail"
    fi ;;
  esac
done
for p in $pids; do
  pid=${p%%:*}
  start=${p#*:}
  if [ "$start" != 0 ] && [ "$(born "$pid")" = "$start" ]; then
    kill -9 "-$pid" 2>/dev/null || kill -9 "$pid" 2>/dev/null
  fi
done
IFS=$nl
for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  left=
  for d in $dirs; do
    [ -n "$d" ] || continue
    rm -rf -- "$d" 2>/dev/null
    [ -e "$d" ] && left=1
  done
  [ -z "$left" ] && break
  sleep 0.1
done
`

// guard ends children and removes folders when this process ends, also by
// SIGKILL: then the kernel closes the pipe. Its methods may be called by many
// at once.
type guard struct {
	cmd *exec.Cmd

	mu   sync.Mutex
	pipe *os.File // write end; nil after close
}

// newGuard starts the guard's process.
func newGuard() (*guard, error) {
	r, w, err := os.Pipe() // close-on-exec: no server inherits the write end
	if err != nil {
		return nil, fmt.Errorf("make the guard's pipe: %w", err)
	}
	defer func() { _ = r.Close() }()
	// Standard output and error are /dev/null: a test binary's caller waits for
	// them to close.
	cmd := exec.Command("/bin/sh", "-c", guardScript, "tidegate-guard")
	cmd.Stdin = r
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return &guard{cmd: cmd, pipe: w}, nil
}

// tell sends one order. A line is far below PIPE_BUF, so that it is written
// whole also when children write theirs at the same time.
func (g *guard) tell(order, arg string) error {
	if strings.ContainsAny(arg, "\n\x00") {
		return fmt.Errorf("name %q: line breaks are not supported here", arg)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pipe == nil {
		return os.ErrClosed
	}
	if _, err := io.WriteString(g.pipe, order+" "+arg+"\n"); err != nil {
		return fmt.Errorf("tell the guard: %w", err)
	}
	return nil
}

// removeAtEnd has the guard remove dir when the sandbox ends.
func (g *guard) removeAtEnd(dir string) error { return g.tell("d", dir) }

// tempDir makes a folder that the guard removes at the end.
func (g *guard) tempDir(prefix string) (string, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", err
	}
	if err := g.removeAtEnd(dir); err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return dir, nil
}

// forget tells the guard that a child was waited for. After close it is too
// late to matter: the guard looks at start times before it kills.
func (g *guard) forget(pid int) { _ = g.tell("q", strconv.Itoa(pid)) }

// command prepares argv as a child that the guard knows of before it becomes
// argv[0]: a shell writes its own number into the guard's pipe and then turns
// into the program. So there is no moment at which the parent's death leaves a
// child that nobody knows. The child leads a process group of its own, which
// keeps the terminal's Ctrl-C away from it.
func (g *guard) command(argv []string) (*exec.Cmd, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pipe == nil {
		return nil, os.ErrClosed
	}
	args := append([]string{"-c", `echo "p $$" >&3 && exec "$@" 3>&-`, "sh"}, argv...)
	cmd := exec.Command("/bin/sh", args...)
	cmd.ExtraFiles = []*os.File{g.pipe}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, nil
}

// close lets the guard kill what is left and remove its folders, and waits for
// it. It may be called twice.
func (g *guard) close() error {
	g.mu.Lock()
	pipe := g.pipe
	g.pipe = nil
	g.mu.Unlock()
	if pipe == nil {
		return nil
	}
	_ = pipe.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("wait for the guard: %w", err)
	}
	return nil
}
