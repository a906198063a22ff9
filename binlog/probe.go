package binlog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tidegate/binlog/gtid"
)

// Probe is what one statement on the pinned connection told of a server (rules
// §1): an atomic enough look, because the parts are evaluated from left to
// right. Owned before Executed is what makes their union an upper bound of all
// that can be visible (rules §6.2).
type Probe struct {
	UUID          gtid.UUID
	Owned         gtid.Set // being committed
	Executed      gtid.Set
	GTIDMode      string // as the server prints it
	ReadOnly      bool
	SuperReadOnly bool
	// Full tells that the probe also read Uptime and ThreadsRunning, which cost
	// the server three times the rest and are asked for once a second.
	Full           bool
	UptimeSeconds  int64
	ThreadsRunning int64
}

// Writable tells whether ordinary accounts may write.
func (p *Probe) Writable() bool { return !p.ReadOnly && !p.SuperReadOnly }

// probeRequest says what one probe asks for.
type probeRequest struct {
	// WaitFor is a set for which the server waits before it evaluates the rest,
	// so that a hint turns into its proof in one round trip. Empty: no waiting.
	WaitFor gtid.Set
	// Wait bounds that waiting; the answer is good either way.
	Wait time.Duration
	// Full asks for Uptime and ThreadsRunning too.
	Full bool
	// Prompt: a tick or a caller waits for this probe. It is published whatever
	// it says.
	Prompt bool
}

const (
	probeWait    = "WAIT_FOR_EXECUTED_GTID_SET(?, ?), "
	probeColumns = "@@global.server_uuid, @@global.gtid_owned, @@global.gtid_executed, " +
		"@@global.gtid_mode, @@global.read_only, @@global.super_read_only"
	probeStatus = ", (SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Uptime')" +
		", (SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Threads_running')"
)

// sql is the text of the probe, of which there are four. It is prepared: that
// halves what a probe costs the server.
func (q *probeRequest) sql() string {
	text := "SELECT "
	if !q.WaitFor.IsEmpty() {
		text += probeWait
	}
	text += probeColumns
	if q.Full {
		text += probeStatus
	}
	return text
}

// args are the values of the wait.
func (q *probeRequest) args() []any {
	if q.WaitFor.IsEmpty() {
		return nil
	}
	// Zero would mean for ever.
	return []any{q.WaitFor.OneLine(), max(q.Wait, time.Microsecond).Seconds()}
}

// probeParser turns rows into probes. It belongs to one goroutine.
type probeParser struct {
	ownedText string
	owned     gtid.Set
	executed  setReader
}

// setReader reads a set that is printed again and again and changes little: a
// server prints one source a line, and only lines that changed are parsed. What
// did not change is shared with the set before, which makes comparing the two
// cheap as well.
type setReader struct {
	text  string
	lines []string
	parts []gtid.Set
	set   gtid.Set
}

func (r *setReader) read(text string) (gtid.Set, error) {
	if text == r.text {
		return r.set, nil
	}
	text = strings.Clone(text)
	lines := strings.Split(text, ",\n")
	if len(lines) != len(r.lines) {
		return r.readAll(text, lines)
	}
	set, parts := r.set, append([]gtid.Set(nil), r.parts...)
	for i, line := range lines {
		if line == r.lines[i] {
			continue
		}
		part, err := gtid.Parse(line)
		if err != nil || !part.ContainsSet(parts[i]) {
			return r.readAll(text, lines) // a line that did not just grow
		}
		set, parts[i] = set.Union(part), part
	}
	r.text, r.lines, r.parts, r.set = text, lines, parts, set
	return set, nil
}

func (r *setReader) readAll(text string, lines []string) (gtid.Set, error) {
	var set gtid.Set
	parts := make([]gtid.Set, len(lines))
	for i, line := range lines {
		part, err := gtid.Parse(line)
		if err != nil {
			*r = setReader{}
			return gtid.Set{}, err
		}
		set, parts[i] = set.Union(part), part
	}
	r.text, r.lines, r.parts, r.set = text, lines, parts, set
	return set, nil
}

// parse reads the columns behind the wait's own.
func (r *probeParser) parse(cols []string, full bool) (Probe, error) {
	want := 6
	if full {
		want = 8
	}
	if len(cols) != want {
		return Probe{}, fmt.Errorf("read probe: %d columns, want %d", len(cols), want)
	}
	p := Probe{GTIDMode: cols[3], Full: full}
	var err error
	if p.UUID, err = gtid.ParseUUID(cols[0]); err != nil {
		return Probe{}, fmt.Errorf("read probe: server_uuid: %w", err)
	}
	if cols[1] != r.ownedText {
		set, err := parseOwned(cols[1])
		if err != nil {
			return Probe{}, fmt.Errorf("read probe: gtid_owned: %w", err)
		}
		r.ownedText, r.owned = strings.Clone(cols[1]), set
	}
	if p.Executed, err = r.executed.read(cols[2]); err != nil {
		return Probe{}, fmt.Errorf("read probe: gtid_executed: %w", err)
	}
	p.Owned = r.owned
	if p.ReadOnly, err = parseBool(cols[4]); err != nil {
		return Probe{}, fmt.Errorf("read probe: read_only: %w", err)
	}
	if p.SuperReadOnly, err = parseBool(cols[5]); err != nil {
		return Probe{}, fmt.Errorf("read probe: super_read_only: %w", err)
	}
	if full {
		if p.UptimeSeconds, err = strconv.ParseInt(cols[6], 10, 64); err != nil {
			return Probe{}, fmt.Errorf("read probe: Uptime: %w", err)
		}
		if p.ThreadsRunning, err = strconv.ParseInt(cols[7], 10, 64); err != nil {
			return Probe{}, fmt.Errorf("read probe: Threads_running: %w", err)
		}
	}
	return p, nil
}

func parseBool(s string) (bool, error) {
	switch s {
	case "0", "OFF":
		return false, nil
	case "1", "ON":
		return true, nil
	}
	return false, fmt.Errorf("%q is neither 0 nor 1", s)
}

// parseOwned reads @@global.gtid_owned: each number is followed by the threads that
// own it ("uuid:5#12:tag:7#13"), and MySQL 9.7 puts nothing between a thread and the
// next source ("uuid:5#12uuid:7#13"), whose first digits may continue the thread's:
// only its length tells where a source begins.
func parseOwned(s string) (gtid.Set, error) {
	if s = strings.TrimSpace(s); s == "" {
		return gtid.Set{}, nil
	}
	var set gtid.Set
	bad := func(err error) (gtid.Set, error) { return gtid.Set{}, fmt.Errorf("%q: %w", s, err) }
	fields := strings.Split(s, ":")
	uuid, err := gtid.ParseUUID(fields[0])
	if err != nil {
		return bad(err)
	}
	tag, due := "", true // a number is due behind a source, and behind a tag
	for _, f := range fields[1:] {
		number, threads, owned := strings.Cut(f, "#")
		if !owned {
			if (gtid.GTID{UUID: uuid, Tag: f, Seq: 1}).Validate() != nil || f == "" {
				return bad(fmt.Errorf("%q is neither a tag nor owned by a thread", f))
			}
			tag, due = f, true
			continue
		}
		due = false
		next := ""
		if n := len(threads) - uuidChars; n > 0 {
			threads, next = threads[:n], threads[n:]
		}
		threads = strings.TrimRight(threads, ", \n") // as between the sources of a set
		for thread := range strings.SplitSeq(threads, "#") {
			if _, err := strconv.ParseUint(thread, 10, 64); err != nil {
				return bad(err)
			}
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return bad(err)
		}
		g := gtid.GTID{UUID: uuid, Tag: tag, Seq: n}
		if err := g.Validate(); err != nil {
			return bad(err)
		}
		set = set.Add(g)
		if next == "" {
			continue
		}
		if uuid, err = gtid.ParseUUID(next); err != nil {
			return bad(err)
		}
		tag, due = "", true
	}
	if due {
		return bad(errors.New("it ends without a number"))
	}
	return set, nil
}

// uuidChars is the length of a UUID's text.
const uuidChars = 36
