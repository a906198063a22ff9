package rulestest

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// headerBytes is how much of a run's bytes says what sort of run it is: four
// bytes of features, one of options, three that mean nothing yet.
const headerBytes = 8

// Run is everything that decides what happens in one run.
type Run struct {
	Header [headerBytes]byte
	Steps  []Step
}

func (r *Run) features() mask { return mask(binary.LittleEndian.Uint32(r.Header[:4])) }

func (r *Run) setFeatures(m mask) { binary.LittleEndian.PutUint32(r.Header[:4], uint32(m)) }

// ParseRun takes any bytes for a run; what does not fill a step is ignored.
func ParseRun(data []byte) Run {
	var r Run
	n := copy(r.Header[:], data)
	for data = data[n:]; len(data) >= 4; data = data[4:] {
		r.Steps = append(r.Steps, Step(data[:4]))
	}
	return r
}

// Bytes is what ParseRun takes.
func (r Run) Bytes() []byte {
	out := append([]byte(nil), r.Header[:]...)
	for _, s := range r.Steps {
		out = append(out, s[:]...)
	}
	return out
}

// Result is what came of a run.
type Result struct {
	Violation *Violation // nil: none
	Trace     []string   // of a traced run
	Stats     Stats
}

// Options of [Play].
type Options struct {
	// Heal demands in the end that every question becomes a yes.
	Heal bool
	// Trace makes the result tell what happened; Everything also what happens
	// until all is healthy again.
	Trace, Everything bool
}

// Play plays a run until its end or its first violation. The world of each run
// is its own; runs may be played at once.
func Play(r Run, o Options) Result {
	kinds := kindTable()
	w := newWorld(r, o.Trace)
	w.patient = o.Everything
	for _, s := range r.Steps {
		if w.violation != nil {
			break
		}
		w.step(kinds, s)
	}
	if o.Heal && w.violation == nil {
		w.heal()
	}
	w.stats.Runs = 1
	return Result{Violation: w.violation, Trace: w.trace, Stats: w.stats}
}

// Report tells everything about a failing run: what it violates, how it came to
// it, and the bytes that play it again.
func Report(r Run, o Options) string {
	o.Trace = true
	res := Play(r, o)
	var b strings.Builder
	if res.Violation != nil {
		fmt.Fprintf(&b, "%s\n", res.Violation)
	}
	fmt.Fprintf(&b, "features: %s; options %08b; %d steps\n", r.features(), r.Header[4], len(r.Steps))
	for _, line := range res.Trace {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	b.WriteString(r.Text())
	fmt.Fprintf(&b, "play it again with: -rules.play=%x\n", r.Bytes())
	return b.String()
}
