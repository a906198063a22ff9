package binlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// scriptServer serves scripted transactions as a server would: whole ones that
// the reader does not have yet.
type scriptServer struct {
	head  [][]byte // before the first transaction of each session
	txns  []scriptTxn
	facts Facts

	mu       sync.Mutex
	sessions int
	// cut[i] is after how many events session i breaks; -1 or none: it does not.
	cut   []int
	fail  []error // what session i fails with when it is dialed
	froms []gtid.Set
}

type scriptTxn struct {
	id     gtid.GTID
	events [][]byte
}

// newScriptServer makes a server of a script with one transaction after a gtid
// line.
func newScriptServer(t testing.TB, text string) *scriptServer {
	t.Helper()
	s := &scriptServer{facts: scriptFacts}
	es := newEventScript(t)
	s.head = append(s.head, es.line("rotate bin.000001 4"), es.line("format crc32"))
	for _, line := range strings.Split(strings.ReplaceAll(text, "$A:", scriptUUID+":"), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		ev := es.line(line)
		if f := strings.Fields(line); f[0] == "gtid" || f[0] == "tagged" {
			g, err := gtid.ParseGTID(f[1])
			if err != nil {
				t.Fatal(err)
			}
			s.txns = append(s.txns, scriptTxn{id: g})
		}
		if ev != nil {
			last := &s.txns[len(s.txns)-1]
			last.events = append(last.events, ev)
		}
	}
	return s
}

func (s *scriptServer) all() gtid.Set {
	var set gtid.Set
	for _, t := range s.txns {
		set = set.Add(t.id)
	}
	return set
}

// dial implements TailerOptions.Dial.
func (s *scriptServer) dial(_ context.Context, from gtid.Set) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.sessions
	s.sessions++
	s.froms = append(s.froms, from)
	if i < len(s.fail) && s.fail[i] != nil {
		return nil, s.fail[i]
	}
	src := &scriptSource{events: append([][]byte(nil), s.head...), cut: -1, closed: make(chan struct{})}
	for _, t := range s.txns {
		if !from.Contains(t.id) {
			src.events = append(src.events, t.events...)
		}
	}
	if i < len(s.cut) {
		src.cut = s.cut[i]
	}
	return &Session{Source: src, Facts: s.facts}, nil
}

// scriptSource delivers events, then waits or breaks.
type scriptSource struct {
	events [][]byte
	i, cut int
	once   sync.Once
	closed chan struct{}
}

func (s *scriptSource) Next(ctx context.Context) (Raw, error) {
	if s.i == s.cut {
		return Raw{}, fmt.Errorf("read binlog: %w", io.ErrUnexpectedEOF)
	}
	if s.i < len(s.events) {
		s.i++
		return Raw{Data: s.events[s.i-1]}, nil
	}
	select {
	case <-ctx.Done():
		return Raw{}, ctx.Err()
	case <-s.closed:
		return Raw{}, errors.New("closed")
	}
}

func (s *scriptSource) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// listHandler notes what it is handed, in order.
type listHandler struct {
	lines []string
	seen  gtid.Set
	want  gtid.Set // when all of it was seen, done is called
	done  func()
	defs  []event.TableDefinition
	fail  map[string]error // by GTID
}

func (h *listHandler) Transaction(_ context.Context, t *event.Transaction, _ Position) error {
	if err := h.fail[t.GTID.String()]; err != nil {
		return err
	}
	h.lines = append(h.lines, fmt.Sprintf("%s %d %x %x", t.GTID, t.Flags, t.Tables, t.Scopes))
	return h.saw(gtid.Of(t.GTID))
}

func (h *listHandler) Hole(_ context.Context, hole *event.Hole) error {
	h.lines = append(h.lines, "hole "+hole.GTIDs.OneLine()+" "+hole.Reason)
	return h.saw(hole.GTIDs)
}

func (h *listHandler) Definitions(_ context.Context, defs []event.TableDefinition) error {
	h.defs = append(h.defs, defs...)
	for _, d := range defs {
		h.lines = append(h.lines, fmt.Sprintf("definition %s.%s dropped=%t", d.Schema, d.Table, d.Dropped))
	}
	return nil
}

func (h *listHandler) Progress(context.Context, Position) error { return nil }

func (h *listHandler) saw(s gtid.Set) error {
	h.seen = h.seen.Union(s)
	if h.done != nil && h.seen.ContainsSet(h.want) {
		h.done()
	}
	return nil
}

// play runs a tailer on a scripted server until everything was seen.
func play(t *testing.T, s *scriptServer, change func(*Tailer, *TailerOptions)) (*listHandler, *Tailer, error) {
	t.Helper()
	var h *listHandler
	var tailer *Tailer
	var err error
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		h = &listHandler{want: s.all(), done: cancel}
		o := TailerOptions{Hasher: key.NewHasher(key.Secret{1}), Dial: s.dial}
		if change != nil {
			change(nil, &o)
		}
		if tailer, err = NewTailer(o); err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(tailer, &o)
		}
		err = tailer.Run(ctx, h)
		if errors.Is(err, context.Canceled) {
			err = nil
		}
	})
	return h, tailer, err
}

const cutScript = `
gtid $A:1
query BEGIN
map 1 app.t ii 0 id,v
write 1 (1,10) (2,20)
map 2 app.u i 0 id
delete 2 (7)
xid
gtid $A:2
query app|app|ALTER TABLE t ADD x INT
tagged $A:tide:9
query BEGIN
query COMMIT
gtid $A:4
payload begin
query BEGIN
map 1 app.t ii 0 id,v
update 1 (1,10) (3,10)
xid
payload zstd
gtid $A:5
query XA START X'61',X'',1
map 1 app.t ii 0 id,v
write 1 (1,10)
query XA END X'61',X'',1
xaprepare a
gtid $A:3
query XA COMMIT X'61',X'',1
gtid $A:6
incident gone
gtid $A:7
query BEGIN
map 1 app.t ii 0 id,v
write 1 (30,1)
query COMMIT
`

// TestCutAtEveryEvent breaks the connection behind each event, and then once
// more at each event of the second connection: whatever was under way comes
// again whole, and nothing twice (P5).
func TestCutAtEveryEvent(t *testing.T) {
	whole, _, err := play(t, newScriptServer(t, cutScript), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.lines) != 8 {
		t.Fatalf("%q", whole.lines)
	}
	s := newScriptServer(t, cutScript)
	events := len(s.head)
	for _, x := range s.txns {
		events += len(x.events)
	}
	for first := 0; first <= events; first++ {
		for _, second := range []int{0, 3, 5, 9, -1} {
			s := newScriptServer(t, cutScript)
			s.cut = []int{first, second}
			got, tailer, err := play(t, s, nil)
			if err != nil {
				t.Fatalf("cut at %d and %d: %v", first, second, err)
			}
			if strings.Join(got.lines, "\n") != strings.Join(whole.lines, "\n") {
				t.Fatalf("cut at %d and %d:\n got %q\nwant %q", first, second, got.lines, whole.lines)
			}
			if first < events && tailer.Counters().Reconnects == 0 {
				t.Errorf("cut at %d: reconnects not counted", first)
			}
		}
	}
}

func TestHandlerErrorEndsRun(t *testing.T) {
	s := newScriptServer(t, cutScript)
	boom := errors.New("boom")
	var h *listHandler
	synctest.Test(t, func(t *testing.T) {
		h = &listHandler{fail: map[string]error{scriptGTID(2): boom}}
		tailer, err := NewTailer(TailerOptions{Dial: s.dial})
		if err != nil {
			t.Fatal(err)
		}
		if err := tailer.Run(t.Context(), h); !errors.Is(err, boom) || ClassOf(err) != Stop {
			t.Fatalf("Run: %v (%v)", err, ClassOf(err))
		}
		if got := tailer.Executed(); !got.Equal(gtid.Of(s.txns[0].id)) {
			t.Errorf("executed %s after the handler refused the second", got)
		}
	})
}

func TestPurgedAndDiverged(t *testing.T) {
	missing, err := gtid.Parse(scriptUUID + ":1-2")
	if err != nil {
		t.Fatal(err)
	}
	purged := &PurgedError{Server: "a", Missing: missing, Purged: missing}
	t.Run("refused", func(t *testing.T) {
		s := newScriptServer(t, cutScript)
		s.fail = []error{purged}
		h, _, err := play(t, s, nil)
		if !errors.Is(err, error(purged)) || ClassOf(err) != Reseed || !strings.Contains(err.Error(), missing.OneLine()) {
			t.Errorf("Run: %v", err)
		}
		if len(h.lines) > 0 {
			t.Errorf("handed over %q", h.lines)
		}
	})
	t.Run("gone on behind", func(t *testing.T) {
		s := newScriptServer(t, cutScript)
		s.fail = []error{fmt.Errorf("dial: %w", purged)}
		h, _, err := play(t, s, func(_ *Tailer, o *TailerOptions) {
			o.OnPurged = func(_ context.Context, e *PurgedError) bool { return e == purged }
		})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(h.lines[0], "hole "+missing.OneLine()) || len(h.lines) != 7 {
			t.Errorf("%q", h.lines)
		}
		if !s.froms[1].Equal(missing) {
			t.Errorf("went on from %s", s.froms[1])
		}
	})
	t.Run("diverged for good", func(t *testing.T) {
		s := newScriptServer(t, cutScript)
		diverged := &DivergedError{Server: "a", Extra: missing}
		for range attemptsToStop {
			s.fail = append(s.fail, diverged)
		}
		if _, _, err := play(t, s, nil); !errors.Is(err, error(diverged)) || ClassOf(err) != Reseed {
			t.Errorf("Run: %v", err)
		}
	})
	t.Run("diverged for a moment", func(t *testing.T) {
		s := newScriptServer(t, cutScript)
		s.fail = []error{nil, &DivergedError{Server: "a", Extra: missing}}
		s.cut = []int{5}
		if _, _, err := play(t, s, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestCorruptTwice: a wrong checksum is read again; if it stays, the transaction
// is a write of everything, and the tail goes on.
func TestCorruptTwice(t *testing.T) {
	s := newScriptServer(t, "gtid $A:1\nquery BEGIN\nmap 1 app.t ii 0 id,v\nwrite 1 (1,10)\nxid\ngtid $A:2\nquery BEGIN\nxid")
	bad := append([]byte(nil), s.txns[0].events[3]...)
	bad[len(bad)-1]++
	s.txns[0].events[3] = bad
	h, tailer, err := play(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	everything := key.NewHasher(key.Secret{1}).Everything()
	if len(h.lines) != 2 || !strings.Contains(h.lines[0], fmt.Sprintf("%x", everything)) {
		t.Errorf("%q", h.lines)
	}
	if c := tailer.Counters(); c.Corrupt != 2 || c.Reconnects != 1 || c.Wide[CauseNotUnderstood] != 1 {
		t.Errorf("%+v", c)
	}
}

// TestCorruptOutside: what has no name can't be skipped.
func TestCorruptOutside(t *testing.T) {
	s := newScriptServer(t, "gtid $A:1\nquery BEGIN\nxid")
	s.txns[0].events[0][len(s.txns[0].events[0])-1]++
	_, _, err := play(t, s, nil)
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || ClassOf(err) != Stop || s.sessions != attemptsToStop {
		t.Errorf("Run: %v after %d sessions", err, s.sessions)
	}
}

func TestCheckStart(t *testing.T) {
	parse := func(s string) gtid.Set {
		set, err := gtid.Parse(strings.ReplaceAll(s, "A", scriptUUID))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	f := Facts{Executed: parse("A:1-10:x:1-3"), Purged: parse("A:1-4:x:1"), owned: parse("A:11")}
	for _, c := range []struct {
		from, missing, extra string
	}{
		{from: "A:1-10:x:1-3"},
		{from: "A:1-11:x:1-3"}, // shown, and still committing
		{from: "A:1-4:x:1"},
		{from: "A:1-3:x:1", missing: "A:4"},
		{from: "A:1-4", missing: "A:x:1"},
		{from: "", missing: "A:1-4:x:1"},
		{from: "A:1-12:x:1", extra: "A:12"},
		{from: "A:1-10:y:1", extra: "A:y:1"},
	} {
		err := checkStart("a", f, parse(c.from))
		var purged *PurgedError
		var diverged *DivergedError
		switch {
		case c.missing != "":
			if !errors.As(err, &purged) || !purged.Missing.Equal(parse(c.missing)) {
				t.Errorf("%s: %v", c.from, err)
			}
		case c.extra != "":
			if !errors.As(err, &diverged) || !diverged.Extra.Equal(parse(c.extra)) {
				t.Errorf("%s: %v", c.from, err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.from, err)
		}
	}
}

// TestAnotherRunIsNotRead: rules §11.2: what another run of the server has in its
// binlog is not handed over as if the run went on. An owner who can't tell is asked
// again, on a connection that stands by then.
func TestAnotherRunIsNotRead(t *testing.T) {
	s := newScriptServer(t, cutScript)
	s.cut = []int{len(s.head) + len(s.txns[0].events)} // behind the first transaction
	answers := []error{nil, errors.New("not connected"), nil}
	asked := 0
	h, _, err := play(t, s, func(_ *Tailer, o *TailerOptions) {
		o.SameRun = func(context.Context) (bool, error) {
			if asked++; s.sessions != asked {
				t.Errorf("asked for the %d. time with %d connections made", asked, s.sessions)
			}
			return asked == 1, answers[asked-1]
		}
	})
	var other *OtherRunError
	if !errors.As(err, &other) || ClassOf(err) != Reseed {
		t.Errorf("the tail ended with %v", err)
	}
	if want := gtid.Of(s.txns[0].id); !h.seen.Equal(want) || asked != len(answers) {
		t.Errorf("handed over %s, want %s; asked %d times", h.seen.OneLine(), want.OneLine(), asked)
	}
}
