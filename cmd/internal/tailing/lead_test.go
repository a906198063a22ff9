package tailing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// The collation tables pull in glog, which starts a goroutine of its own.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// unwired is a tailing of which nothing runs, with server b, a primary, and a
// clock that the test moves.
func unwired(clock *int64) *Tailing {
	t := &Tailing{o: Options{Lease: 3 * time.Second, Clock: func() int64 { return *clock }, Log: slog.New(slog.DiscardHandler)}}
	t.view = newView(t)
	t.lead = &lead{t: t, log: t.o.Log, wake: make(chan struct{}, 1)}
	b := &server{t: t, cfg: binlog.ServerConfig{Name: "b"}}
	b.latest.Store(&event.ServerState{Server: "b", Epoch: 7, Alive: true, Role: event.RolePrimary, Drained: true, GTIDMode: "ON"})
	t.servers = []*server{b}
	return t
}

// TestPrimaryOfAnOlderFormat: states that name no time of their probe are heard as
// long as they change.
func TestPrimaryOfAnOlderFormat(t *testing.T) {
	clock := int64(time.Hour)
	tl := unwired(&clock)
	a := event.ServerState{Server: "a", Epoch: 5, Alive: true, Role: event.RolePrimary}
	for n := range uint64(5) {
		s := a
		s.Ticks = []event.RouterTick{{Tick: n}}
		if err := tl.view.State(&s); err != nil {
			t.Fatal(err)
		}
		if clock += int64(2 * time.Second); !tl.view.otherPrimary("b") {
			t.Fatal("a primary that goes on is not heard")
		}
	}
	again := a
	again.Ticks = []event.RouterTick{{Tick: 4}}
	if err := tl.view.State(&again); err != nil { // read again after a reconnect
		t.Fatal(err)
	}
	if clock += int64(2 * time.Second); tl.view.otherPrimary("b") {
		t.Error("a primary is heard by its last word alone")
	}
}

// TestPrimaryThatDiedSilently: the last word of a tailer that died together with
// its primary says that the primary lives. It keeps another one from being
// announced for a lease, and not for ever.
func TestPrimaryThatDiedSilently(t *testing.T) {
	clock := int64(time.Hour)
	tl := unwired(&clock)
	a := event.ServerState{Server: "a", Epoch: 5, Alive: true, Role: event.RolePrimary, ProbedUnixMicro: 1}
	say := func(s event.ServerState) {
		t.Helper()
		if err := tl.view.State(&s); err != nil {
			t.Fatal(err)
		}
	}
	candidate := func() string {
		if s, _ := tl.lead.candidate(); s != nil {
			return s.cfg.Name
		}
		return ""
	}
	say(a)
	if got := candidate(); got != "" {
		t.Errorf("candidate %q beside a live primary", got)
	}
	clock += int64(2 * time.Second)
	a.ProbedUnixMicro++
	say(a)
	clock += int64(2 * time.Second)
	if got := candidate(); got != "" {
		t.Errorf("candidate %q though a was probed 2 s ago", got)
	}
	clock += int64(2 * time.Second)
	say(a) // read once more after a reconnect: no news
	if got := candidate(); got != "b" {
		t.Errorf("candidate %q, want b: nobody has probed a for longer than the lease", got)
	}
	a.ProbedUnixMicro++
	say(a)
	if got := candidate(); got != "" {
		t.Errorf("candidate %q though a is back", got)
	}
}

// TestModeEndsTheSession: a gtid_mode other than ON ends the session, also when it
// is ON again before anyone looks, and the next one has a candidate once it is ON.
func TestModeEndsTheSession(t *testing.T) {
	clock := int64(time.Hour)
	tl := unwired(&clock)
	b := tl.servers[0]
	show := func(mode string) {
		s := *b.latest.Load()
		s.GTIDMode = mode
		b.store(&s)
	}
	relaxed := b.relaxed.Load()
	show("ON")
	if !tl.lead.still(b, 7, relaxed) {
		t.Error("the session ends though nothing changed")
	}
	show("OFF_PERMISSIVE")
	if s, _ := tl.lead.candidate(); s != nil || !tl.lead.still(b, 7, relaxed) {
		t.Errorf("with OFF_PERMISSIVE candidate %v, session goes on %v", s, tl.lead.still(b, 7, relaxed))
	}
	show("ON")
	if tl.lead.still(b, 7, relaxed) {
		t.Error("the session goes on without a new announcement")
	}
	if s, epoch := tl.lead.candidate(); s != b || !tl.lead.still(b, epoch, b.relaxed.Load()) {
		t.Error("no new session begins")
	}
}

// recorded is a writer that notes what it was told, in order.
type recorded struct {
	said []string
	err  error // of Checkpoint
}

func (r *recorded) Append(context.Context, *event.Transaction) error { return nil }
func (r *recorded) Hole(context.Context, *event.Hole) error {
	r.said = append(r.said, "hole")
	return nil
}
func (r *recorded) Definitions(context.Context, []event.TableDefinition) error { return nil }
func (r *recorded) Checkpoint(context.Context) error {
	r.said = append(r.said, "stored")
	return r.err
}

// TestAnonymousHole: the session ends with a transaction that has no GTID, and
// not before the stream holds what it means.
func TestAnonymousHole(t *testing.T) {
	w := &recorded{}
	err := writing{w: w}.Hole(t.Context(), &event.Hole{Anonymous: true})
	if !errors.Is(err, errAnonymous) {
		t.Errorf("the session goes on with %v", err)
	}
	if !slices.Equal(w.said, []string{"hole", "stored"}) {
		t.Errorf("the writer was told %v", w.said)
	}
	w = &recorded{err: context.Canceled}
	if err := (writing{w: w}).Hole(t.Context(), &event.Hole{Anonymous: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("not stored, and the error is %v", err)
	}
}

// A lost server is a warning with each reason once, the one that explains it too,
// and no more of them than a log can hold; one that is back may be lost again.
func TestLossesAreLogged(t *testing.T) {
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	var l losses
	down := func(why string) { l.observe(log, &event.ServerState{Server: "b", Down: why}) }
	alive := func() { l.observe(log, &event.ServerState{Server: "b", Alive: true}) }
	alive()
	if said.Len() > 0 {
		t.Errorf("of a server that is well: %s", &said)
	}
	down("invalid connection")
	down("access denied")
	down("invalid connection")
	for _, want := range []string{"invalid connection", "access denied"} {
		if strings.Count(said.String(), "level=WARN") != 2 || strings.Count(said.String(), `server=b why="`+want+`"`) != 1 {
			t.Errorf("%q is not said once:\n%s", want, &said)
		}
	}
	for i := range 100 {
		down(fmt.Sprint("try ", i))
	}
	if n := strings.Count(said.String(), "level=WARN"); n != mostReasons {
		t.Errorf("%d warnings of one loss, want %d", n, mostReasons)
	}
	said.Reset()
	alive()
	down("invalid connection")
	if got := said.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "server is back") {
		t.Errorf("after it was back:\n%s", got)
	}
}

// New servers on the stream of others are a warning, once all were met; one that
// was rebuilt, one that was not known, and the same ones again are none.
func TestOtherServersAreNoticed(t *testing.T) {
	one, two, none := gtid.UUID{1}, gtid.UUID{2}, gtid.UUID{}
	for name, c := range map[string]struct {
		before, now []gtid.UUID // of a, b
		want        int
	}{
		"all others":  {[]gtid.UUID{one, one}, []gtid.UUID{two, two}, 1},
		"one rebuilt": {[]gtid.UUID{one, one}, []gtid.UUID{one, two}, 0},
		"one new":     {[]gtid.UUID{one, none}, []gtid.UUID{two, two}, 0},
		"first start": {[]gtid.UUID{none, none}, []gtid.UUID{one, two}, 0},
		"the same":    {[]gtid.UUID{one, two}, []gtid.UUID{one, two}, 0},
		"single":      {[]gtid.UUID{one}, []gtid.UUID{two}, 0},
	} {
		var said bytes.Buffer
		log := slog.New(slog.NewTextHandler(&said, nil))
		o := others{servers: len(c.now)}
		for range 3 {
			for i := range c.now {
				o.met(log, c.before[i], &event.ServerState{Server: string(rune('a' + i)), UUID: c.now[i], Alive: true})
				o.met(log, c.before[i], &event.ServerState{Server: string(rune('a' + i)), UUID: c.before[i]})
			}
		}
		if got := strings.Count(said.String(), "level=WARN"); got != c.want {
			t.Errorf("%s: %d warnings, want %d\n%s", name, got, c.want, &said)
		}
	}
}
