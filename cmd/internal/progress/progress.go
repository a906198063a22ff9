// Package progress shows on a terminal, or as plain lines elsewhere, which step
// of a longer preparation runs. Its main path is [New], [Bar.Step], [Bar.Done].
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// Bar prints steps. Its methods may be called by many at once.
type Bar struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	last     string // step that was printed last
	open     bool   // a terminal line is not ended yet
}

// New returns a bar that writes to f.
func New(f *os.File) *Bar { return &Bar{w: f, terminal: term.IsTerminal(int(f.Fd()))} }

// width is that of the bar itself, in characters.
const width = 24

// Step shows that step is at done of total; total 0 means that it is not known.
func (b *Bar) Step(step string, done, total int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.terminal {
		if step != b.last {
			fmt.Fprintln(b.w, step)
		}
		b.last = step
		return
	}
	if step != b.last && b.open {
		fmt.Fprintln(b.w)
	}
	b.last, b.open = step, true
	if total <= 0 {
		fmt.Fprintf(b.w, "\r\x1b[K%s ...", step)
		return
	}
	full := width * min(max(done, 0), total) / total
	fmt.Fprintf(b.w, "\r\x1b[K[%s%s] %d/%d %s", strings.Repeat("#", full), strings.Repeat(" ", width-full), done, total, step)
}

// Done ends the line. It may be called twice.
func (b *Bar) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		fmt.Fprintln(b.w)
	}
	b.open, b.last = false, ""
}
