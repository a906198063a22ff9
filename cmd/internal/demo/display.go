package demo

import (
	"context"
	"fmt"
	"io"
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

// picture is the state of a demo at one moment, as it is shown.
type picture struct {
	mysql      string
	seed       uint64
	ran, lasts time.Duration // lasts 0: until Ctrl-C
	counts     counts
	servers    []serverState // by place
	http, resp string        // where Tidegate listens
	curl       string
}

// serverState is what Tidegate knows of a server, and what the demo does to it.
type serverState struct {
	name       string
	staleness  time.Duration // router.Unknown
	behindTxns int64         // router.Unknown
	trouble    string
}

func (d *demo) picture(ran time.Duration) picture {
	p := picture{
		mysql: d.servers.cluster.MySQL.Version, seed: d.seed, ran: ran, lasts: d.length, counts: d.tally.counts(),
		http: d.program.Server.HTTPAddr().String(), resp: d.program.Server.RESPAddr().String(), curl: d.program.curl(d.servers.name(1), 1),
	}
	for i := range d.servers.all {
		p.servers = append(p.servers, serverState{d.servers.name(i), router.Unknown, router.Unknown, d.trouble.of(i)})
	}
	for _, r := range d.program.Router.Router().Report().Servers {
		if i := d.servers.place(r.Name); i != nobody {
			p.servers[i].staleness, p.servers[i].behindTxns = r.Staleness, r.BehindTxns
		}
	}
	return p
}

// line is one line of the terminal's picture. A colour is that of the whole
// line, so that lines can be cut to the terminal's width.
type line struct {
	text   string
	colour string // of an SGR sequence; empty: none
}

const (
	red   = "31"
	green = "32"
	faint = "2"
)

// lines is the whole picture, for a terminal. Their number never changes.
func (p *picture) lines() []line {
	c := p.counts
	clock := fmt.Sprintf("%.0f s", p.ran.Seconds())
	if p.lasts > 0 {
		clock += fmt.Sprintf(" of %.0f s", p.lasts.Seconds())
	}
	const row = "%-29s %8s  %18s  %18s"
	share := func(n int64) string { return fmt.Sprintf("%d (%5.1f %%)", n, 100*c.share(n)) }
	out := []line{
		{text: fmt.Sprintf("tidegate demo   MySQL %s   seed %d   %s   (Ctrl-C ends it)", p.mysql, p.seed, clock)},
		{},
		{text: fmt.Sprintf(row, "policy (the same reads)", "reads", "stale reads", "on replicas"), colour: faint},
	}
	for who := range policies {
		l := line{text: fmt.Sprintf(row, c.name(who), fmt.Sprint(c.reads), share(c.stale[who]), share(c.replica[who])), colour: green}
		if c.stale[who] > 0 {
			l.colour = red
		}
		out = append(out, l)
	}
	out = append(out,
		line{text: fmt.Sprintf(row, "one who knows every replica", "", "", share(c.oracle)), colour: faint},
		line{},
		line{text: fmt.Sprintf("%-8s %-9s %11s  %22s   %s", "server", "role", "staleness", "behind", "what is done to it"), colour: faint})
	for i, s := range p.servers {
		role, stale, behind := "replica", s.stale(), "unknown"
		if s.behindTxns != router.Unknown {
			behind = fmt.Sprintf("%d transactions", s.behindTxns)
		}
		if i == 0 {
			role, stale, behind = "primary", "", ""
		}
		out = append(out, line{text: fmt.Sprintf("%-8s %-9s %11s  %22s   %s", s.name, role, stale, behind, s.trouble)})
	}
	return append(out, line{},
		line{text: fmt.Sprintf("HTTP API at http://%s, RESP at %s; try:", p.http, p.resp), colour: faint},
		line{text: p.curl})
}

// heading is what stays true for the whole run, for where nothing is redrawn.
func (p *picture) heading() string {
	return fmt.Sprintf("seed %d; MySQL %s\nHTTP API at http://%s, RESP at %s; try, while this runs:\n  %s", p.seed, p.mysql, p.http, p.resp, p.curl)
}

// summary is the picture in one line.
func (p *picture) summary() string {
	c := p.counts
	out := fmt.Sprintf("%4.0f s: %d reads; stale: any replica %d, sticky 5 s %d, %s %d; on replicas: sticky 5 s %.1f %%, tidegate %.1f %%, possible %.1f %%; staleness:",
		p.ran.Seconds(), c.reads, c.stale[anyReplica], c.stale[sticky], c.name(tidegate), c.stale[tidegate],
		100*c.share(c.replica[sticky]), 100*c.share(c.replica[tidegate]), 100*c.share(c.oracle))
	for _, s := range p.servers[1:] {
		out += " " + s.name + " " + s.stale()
	}
	for _, s := range p.servers {
		if s.trouble != "" {
			out += "; " + s.name + ": " + s.trouble
		}
	}
	return out
}

func (s *serverState) stale() string {
	if s.staleness == router.Unknown {
		return "unknown"
	}
	return fmt.Sprintf("%.2f s", s.staleness.Seconds())
}

// screen redraws lines in place on a terminal. It belongs to one goroutine.
type screen struct {
	w      io.Writer
	colour bool
	drawn  int // lines on the terminal
}

// draw replaces what was drawn before. A line that is as wide as the terminal
// would wrap, and the way up be miscounted: it is cut.
func (s *screen) draw(lines []line, width int) {
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
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
	b.WriteString("\x1b[J") // and what a Ctrl-C echoed
	s.drawn = len(lines)
	fmt.Fprint(s.w, b.String())
}

// display shows the state of a demo while it runs: redrawn in place on a
// terminal, a line now and then elsewhere. It belongs to one goroutine.
type display struct {
	d      *demo
	f      *os.File
	screen *screen // nil: lines
}

func newDisplay(d *demo, f *os.File) *display {
	s := &display{d: d, f: f}
	first := d.picture(0)
	// A terminal too low for the whole can't be redrawn in place.
	if _, height, err := term.GetSize(int(f.Fd())); err == nil && height > len(first.lines()) {
		s.screen = &screen{w: f, colour: os.Getenv("NO_COLOR") == ""}
	} else {
		fmt.Fprintln(f, first.heading())
	}
	return s
}

// run shows the state until ctx ends, and once more then.
func (s *display) run(ctx context.Context, began time.Time) {
	every := lineEvery
	if s.screen != nil {
		every = redrawEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.draw(time.Since(began))
			return
		case <-ticker.C:
			if ran := time.Since(began); s.screen != nil || lineDue(ran, s.d.length) {
				s.draw(ran)
			}
		}
	}
}

// lineDue tells whether a line is printed before the run's last one, which comes
// at its end (lasts 0: at any time) and would tell the same at the same second.
func lineDue(ran, lasts time.Duration) bool {
	return lasts == 0 || ran < lasts-lineEvery/2
}

func (s *display) draw(ran time.Duration) {
	p := s.d.picture(ran)
	if s.screen == nil {
		fmt.Fprintln(s.f, p.summary())
		return
	}
	width, _, err := term.GetSize(int(s.f.Fd()))
	if err != nil || width < 2 {
		width = 80
	}
	s.screen.draw(p.lines(), width)
}
