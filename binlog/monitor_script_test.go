package binlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// script is a scripted server: what a real one would do, step by step.
type script struct {
	mu        sync.Mutex
	run       runFacts
	f         serverFacts
	owned     gtid.Set
	executed  gtid.Set
	gone      gtid.Set // purged
	setPurged gtid.Set // of gone: SET GLOBAL gtid_purged named it
	readOnly  bool
	mode      string
	down      error             // answers nothing
	ends      map[string]string // of binlog files
	marks     map[string]fileMark
	waits     int // probes that waited
	full      int // probes that asked for the status
	conns     uint64
	own       []tableFact
	changed   chan struct{} // closed at each change of executed
	began     time.Time
}

func newScript(t testing.TB, executed string) *script {
	s := &script{
		mode: "ON", readOnly: true, executed: mustSet(t, executed), ends: map[string]string{}, marks: map[string]fileMark{},
		changed: make(chan struct{}), began: time.Now().Add(-time.Hour),
	}
	s.run = runFacts{
		UUID: mustUUID(t, uuidB), Version: "9.7.4", Process: 41, LogBin: true, LogUpdates: true,
		GTIDMode: "ON", Files: []binlogFile{{"binlog.000001", 1000}},
	}
	s.f = serverFacts{
		readOnly: true, gtidMode: "ON",
		channels: []channel{{io: "ON", sql: "ON", sourceUUID: mustUUID(t, uuidA)}},
	}
	return s
}

func (s *script) do(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *script) execute(t testing.TB, set string) {
	s.do(func() { s.executed = s.executed.Union(mustSet(t, set)) })
}

// restart is another process with the same data.
func (s *script) restartLocked() {
	s.run.Process++
	s.conns = 0
	s.began = time.Now()
}

func (s *script) pin(context.Context) (link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	s.conns++
	return &scriptLink{s: s, process: s.run.Process, id: s.conns}, nil
}

func (s *script) facts(context.Context) (*serverFacts, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	f := s.f
	f.channels = slices.Clone(s.f.channels)
	f.uuid, f.process, f.readOnly = s.run.UUID, s.run.Process, s.readOnly
	last := s.run.Files
	if len(last) > 0 {
		f.binlogFile = Position{last[len(last)-1].Name, last[len(last)-1].Size}
	}
	return &f, nil
}

func (s *script) tables(context.Context) ([]tableFact, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own, s.down
}

func (s *script) purged(context.Context) (purgedSets, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return purgedSets{all: s.gone, logged: s.gone.Subtract(s.setPurged)}, s.down
}

func (s *script) reuse(_ context.Context, last string) (ReuseScope, error) {
	return ReuseScope{Files: []string{last}}, nil
}

func (s *script) mark(_ context.Context, file string, of runID) (fileMark, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down == nil && s.run.id() != of {
		return 0, errOtherRun
	}
	return s.marks[file] + 1, s.down
}

func (s *script) close() {}

type scriptLink struct {
	s       *script
	process int64
	id      uint64
}

func (l *scriptLink) close() error { return nil }

func (l *scriptLink) run(context.Context) (*runFacts, error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	f := l.s.run
	f.Executed, f.Purged, f.ConnectionID = l.s.executed, l.s.gone, l.id
	f.Files = slices.Clone(l.s.run.Files)
	f.Uptime = time.Since(l.s.began).Truncate(time.Second)
	return &f, nil
}

func (l *scriptLink) fileEnd(_ context.Context, f, _ binlogFile) (string, error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.s.ends[f.Name], nil
}

func (l *scriptLink) probe(ctx context.Context, q probeRequest) (Probe, error) {
	timer := time.NewTimer(q.Wait)
	defer timer.Stop()
	l.s.mu.Lock()
	if !q.WaitFor.IsEmpty() {
		l.s.waits++
	}
	if q.Full {
		l.s.full++
	}
	l.s.mu.Unlock()
	for {
		l.s.mu.Lock()
		p := Probe{
			UUID: l.s.run.UUID, Owned: l.s.owned, Executed: l.s.executed, GTIDMode: l.s.mode, ReadOnly: l.s.readOnly,
			Full: q.Full, UptimeSeconds: int64(time.Since(l.s.began) / time.Second), ThreadsRunning: 2,
		}
		err, changed := l.s.down, l.s.changed
		if l.process != l.s.run.Process {
			err = errors.New("connection reset")
		}
		l.s.mu.Unlock()
		if err != nil {
			return Probe{}, err
		}
		if p.Executed.ContainsSet(q.WaitFor) {
			return p, nil
		}
		select {
		case <-ctx.Done():
			return Probe{}, ctx.Err()
		case <-timer.C:
			return p, nil
		case <-changed:
		}
	}
}

// scriptIDs is a scripted event.Identities.
type scriptIDs struct {
	mu      sync.Mutex
	known   map[gtid.GTID]event.Known
	loss    event.Version
	history event.History
	ever    gtid.Set
	starts  uint64
	vouched gtid.Set
	changed chan struct{}
	forgot  []gtid.GTID
	// forgets: what was compared is gone, as from a window.
	forgets bool
	// ahead moves the reader on before the next look-up, and nobody is told.
	ahead func()
}

func newScriptIDs() *scriptIDs {
	return &scriptIDs{known: map[gtid.GTID]event.Known{}, changed: make(chan struct{}), history: 1, starts: 1}
}

func (i *scriptIDs) do(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
	close(i.changed)
	i.changed = make(chan struct{})
}

func (i *scriptIDs) say(t testing.TB, g string, commit int64, ts ...byte) {
	i.do(func() {
		i.known[mustGTID(t, g)] = event.Known{State: event.Identified, OriginalCommit: commit, Tables: tables(ts...)}
	})
}

func (i *scriptIDs) Lookup(g gtid.GTID) event.Known {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ahead != nil {
		i.ahead()
		i.ahead = nil
	}
	k := i.known[g]
	k.At = i.readingLocked()
	return k
}

func (i *scriptIDs) readingLocked() event.Reading {
	return event.Reading{Starts: i.starts, Announced: i.loss}
}

func (i *scriptIDs) Since(v event.Version) event.Turn {
	i.mu.Lock()
	defer i.mu.Unlock()
	turn := event.Turn{History: i.history, Announced: i.loss, Starts: i.starts, Vouched: i.vouched, EverLost: i.ever}
	if v < i.loss {
		turn.Lost = i.ever
	}
	return turn
}

func (i *scriptIDs) LostIdentity(event.Identity) (bool, event.Reading) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return false, i.readingLocked()
}

func (i *scriptIDs) Changed() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.changed
}

func (i *scriptIDs) Forget(g gtid.GTID, at event.Reading) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forgot = append(i.forgot, g)
	if i.forgets && at == i.readingLocked() {
		delete(i.known, g)
	}
}

// rig is a monitor of a scripted server, in a synctest bubble.
type rig struct {
	t      *testing.T
	s      *script
	ids    *scriptIDs
	m      *Monitor
	mu     sync.Mutex
	states []*event.ServerState
	tick   uint64
	from   []gtid.Set // of each tail
	tail   chan hint
	e      gtid.Set
	accept []Acceptance
	epochs event.Epoch
	ended  chan error
	stop   context.CancelFunc
}

type hint struct {
	t  *event.Transaction
	at Position
}

func (r *rig) start(o MonitorOptions) {
	r.t.Helper()
	r.startOn(r.s, o)
}

// startOn is start with a backend that does something besides the script.
func (r *rig) startOn(on backend, o MonitorOptions) {
	r.t.Helper()
	if r.tail == nil {
		r.tail = make(chan hint, 100)
	}
	o.Server.Name, o.Server.Addr, o.Server.User = "b", "127.0.0.1:3306", "tidegate"
	o.NextEpoch = func(context.Context) (event.Epoch, error) { r.epochs++; return r.epochs, nil }
	o.Ticks = func() []event.RouterTick {
		r.mu.Lock()
		defer r.mu.Unlock()
		return []event.RouterTick{{Router: [16]byte{1}, Tick: r.tick}}
	}
	if o.Server.Follow != FollowExecuted {
		o.Identities = r.ids
	}
	o.Publish = func(_ context.Context, st *event.ServerState) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.states = append(r.states, st)
		return nil
	}
	o.Tail = func(ctx context.Context, from gtid.Set, h Handler) error {
		r.mu.Lock()
		r.from = append(r.from, from)
		r.mu.Unlock()
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case x := <-r.tail:
				if x.t == nil {
					if err := h.Progress(ctx, x.at); err != nil {
						return err
					}
				} else if err := h.Transaction(ctx, x.t, x.at); err != nil {
					return err
				}
			}
		}
	}
	o.PrimaryE = func(context.Context) (gtid.Set, error) { r.mu.Lock(); defer r.mu.Unlock(); return r.e, nil }
	o.Accepted = func() []Acceptance { r.mu.Lock(); defer r.mu.Unlock(); return r.accept }
	o.Hasher = key.NewHasher(key.Secret{1})
	o.backend = on
	m, err := NewMonitor(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.m = m
	ctx, cancel := context.WithCancel(context.Background())
	r.stop, r.ended = cancel, make(chan error, 1)
	go func() { r.ended <- m.Run(ctx) }()
	r.settle()
}

// settle lets everything that happened work itself out.
func (r *rig) settle() {
	timer := time.NewTimer(1500 * time.Millisecond) // of the bubble's clock
	<-timer.C
	synctest.Wait()
}

func (r *rig) end() {
	r.stop()
	if err := <-r.ended; err != nil {
		r.t.Errorf("Run: %v", err)
	}
}

func (r *rig) latest() *event.ServerState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[len(r.states)-1]
}

func (r *rig) show(g string, commit int64, ts ...byte) {
	t := &event.Transaction{GTID: mustGTID(r.t, g), OriginalCommit: commit, Tables: tables(ts...)}
	if len(ts) == 0 {
		t.Flags = event.Empty
	}
	r.tail <- hint{t, r.write()}
}

// write makes the server's binlog longer and returns where it ends.
func (r *rig) write() (end Position) {
	r.s.do(func() {
		f := &r.s.run.Files[len(r.s.run.Files)-1]
		f.Size += 100
		end = Position{f.Name, f.Size}
	})
	return end
}

// count is how many states were published, tails the sets from which the
// binlog was read, waited how many probes waited.
func (r *rig) count() int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.states) }

func (r *rig) tails() []gtid.Set { r.mu.Lock(); defer r.mu.Unlock(); return slices.Clone(r.from) }

func (r *rig) waited() int { r.s.mu.Lock(); defer r.s.mu.Unlock(); return r.s.waits }

func (i *scriptIDs) forgotten() int { i.mu.Lock(); defer i.mu.Unlock(); return len(i.forgot) }

func (r *rig) want(what string, got, want any) {
	r.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// scripted runs f in a bubble with a replica that has executed 1-10, for all of
// which the stream vouches.
func scripted(t *testing.T, f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, s: newScript(t, uuidA+":1-10"), ids: newScriptIDs()}
		r.ids.vouched = r.s.executed
		f(r)
	})
}
