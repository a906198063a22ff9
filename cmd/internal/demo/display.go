package demo

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"tidegate/router"
)

const (
	redrawEvery = 250 * time.Millisecond
	lineEvery   = 2 * time.Second
)

// line is one line of the display. Colours apply to whole lines, so that lines
// can be cut to the terminal's width.
type line struct {
	text   string
	colour string // of an SGR sequence; empty: none
}

const (
	red   = "31"
	green = "32"
	faint = "2"
)

// display shows the state of a demo while it runs: redrawn in place on a
// terminal, a line now and then elsewhere. It belongs to one goroutine.
type display struct {
	d        *demo
	f        *os.File
	terminal bool
	colour   bool
	drawn    int // lines on the screen
}

func newDisplay(d *demo, f *os.File) *display {
	fd := int(f.Fd())
	s := &display{d: d, f: f}
	// A terminal too low for the whole can't be redrawn in place.
	if _, height, err := term.GetSize(fd); term.IsTerminal(fd) && err == nil {
		s.terminal = height > len(s.lines(0))
	}
	s.colour = s.terminal && os.Getenv("NO_COLOR") == ""
	return s
}

// begin says once what stays true for the whole run.
func (s *display) begin() {
	if s.terminal {
		return
	}
	p := s.d.program
	fmt.Fprintf(s.f, "seed %d; MySQL %s\n", s.d.seed, s.d.servers.cluster.MySQL.Version)
	fmt.Fprintf(s.f, "HTTP API at http://%s, RESP at %s; try, while this runs:\n  %s\n", p.Server.HTTPAddr(), p.Server.RESPAddr(), p.curl(s.d.servers.name(1), 1))
}

// run shows the state until ctx ends, and once more then.
func (s *display) run(ctx context.Context, began time.Time) {
	every := lineEvery
	if s.terminal {
		every = redrawEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		s.draw(time.Since(began))
		select {
		case <-ctx.Done():
			s.draw(time.Since(began))
			return
		case <-ticker.C:
		}
	}
}

func (s *display) draw(ran time.Duration) {
	if !s.terminal {
		fmt.Fprintln(s.f, s.summary(ran))
		return
	}
	width, _, err := term.GetSize(int(s.f.Fd()))
	if err != nil || width <= 1 {
		width = 80
	}
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	lines := s.lines(ran)
	for _, l := range lines {
		text := l.text
		if r := []rune(text); len(r) >= width {
			text = string(r[:width-1])
		}
		if s.colour && l.colour != "" {
			text = "\x1b[" + l.colour + "m" + text + "\x1b[0m"
		}
		b.WriteString("\r\x1b[K" + text + "\n")
	}
	s.drawn = len(lines)
	fmt.Fprint(s.f, b.String())
}

// lines is the whole picture.
func (s *display) lines(ran time.Duration) []line {
	c := s.d.tally.counts()
	clock := fmt.Sprintf("%.0f s", ran.Seconds())
	if s.d.seconds > 0 {
		clock += fmt.Sprintf(" of %.0f s", s.d.seconds.Seconds())
	}
	out := []line{
		{text: fmt.Sprintf("tidegate demo   MySQL %s   seed %d   %s   (Ctrl-C ends it)", s.d.servers.cluster.MySQL.Version, s.d.seed, clock)},
		{},
		{text: fmt.Sprintf("%-31s %8s  %17s  %17s", "policy (the same reads)", "reads", "stale reads", "on replicas"), colour: faint},
	}
	for p := range policies {
		l := line{text: fmt.Sprintf("%-31s %8d  %7d (%5.1f %%)  %7d (%5.1f %%)", p, c.reads,
			c.stale[p], 100*c.share(c.stale[p]), c.replica[p], 100*c.share(c.replica[p]))}
		if l.colour = green; c.stale[p] > 0 {
			l.colour = red
		}
		out = append(out, l)
	}
	out = append(out,
		line{text: fmt.Sprintf("%-31s %8s  %17s  %7d (%5.1f %%)", "one who knows every replica", "", "", c.oracle, 100*c.share(c.oracle)), colour: faint},
		line{},
		line{text: fmt.Sprintf("%-8s %-9s %11s  %15s   %s", "server", "role", "staleness", "behind", "what is done to it"), colour: faint})
	for i, r := range s.d.servers.reports(s.d.program) {
		role, stale, behind := "replica", staleness(r), "unknown"
		if r.BehindTxns != router.Unknown {
			behind = fmt.Sprintf("%d transactions", r.BehindTxns)
		}
		if i == 0 {
			role, stale, behind = "primary", "", ""
		}
		out = append(out, line{text: fmt.Sprintf("%-8s %-9s %11s  %15s   %s", s.d.servers.name(i), role, stale, behind, s.d.trouble.of(i))})
	}
	return append(out, line{},
		line{text: fmt.Sprintf("HTTP API at http://%s, RESP at %s; try:", s.d.program.Server.HTTPAddr(), s.d.program.Server.RESPAddr()), colour: faint},
		line{text: s.d.program.curl(s.d.servers.name(1), 1)})
}

// summary is the picture in one line.
func (s *display) summary(ran time.Duration) string {
	c := s.d.tally.counts()
	out := fmt.Sprintf("%4.0f s: %d reads; stale: any replica %d, sticky 5 s %d, tidegate %d; on replicas: sticky 5 s %.1f %%, tidegate %.1f %%, possible %.1f %%",
		ran.Seconds(), c.reads, c.stale[anyReplica], c.stale[sticky], c.stale[tidegate],
		100*c.share(c.replica[sticky]), 100*c.share(c.replica[tidegate]), 100*c.share(c.oracle))
	for i, r := range s.d.servers.reports(s.d.program) {
		if i > 0 {
			out += fmt.Sprintf("; %s %s", s.d.servers.name(i), staleness(r))
		}
		if what := s.d.trouble.of(i); what != "" {
			out += fmt.Sprintf(" (%s: %s)", s.d.servers.name(i), what)
		}
	}
	return out
}

func staleness(r router.ServerReport) string {
	if r.Staleness == router.Unknown {
		return "unknown"
	}
	return fmt.Sprintf("%.2f s", r.Staleness.Seconds())
}

// reports are what Tidegate knows of each server, by place.
func (s *servers) reports(p *program) []router.ServerReport {
	out := make([]router.ServerReport, len(s.all))
	for i := range out {
		out[i].Staleness, out[i].BehindTxns = router.Unknown, router.Unknown
	}
	for _, r := range p.Router.Router().Report().Servers {
		if i := s.place(r.Name); i != nobody {
			out[i] = r
		}
	}
	return out
}
