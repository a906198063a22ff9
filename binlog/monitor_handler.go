package binlog

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// errSessionOver ends a tail that outlived its session.
var errSessionOver = errors.New("the session of this tail is over")

// hintHandler is the Handler of one session's tail.
type hintHandler struct {
	m *Monitor
	s *session // nil: whatever session is live
}

var (
	_ Handler = (*Monitor)(nil)
	_ Handler = hintHandler{}
)

// Transaction takes in one transaction of the server's own binlog: a hint, and
// what is compared with the stream (rules §2.2). The caller is the tailer that
// writes the stream of a primary; while too many wait for the stream, what
// comes is left out. A replica's own tail, of [MonitorOptions].Tail, waits.
func (m *Monitor) Transaction(ctx context.Context, t *event.Transaction, at Position) error {
	return hintHandler{m, nil}.Transaction(ctx, t, at)
}

// Hole says that transactions of the binlog can not be read.
func (m *Monitor) Hole(ctx context.Context, h *event.Hole) error {
	return hintHandler{m, nil}.Hole(ctx, h)
}

// Definitions is of no interest here.
func (m *Monitor) Definitions(context.Context, []event.TableDefinition) error { return nil }

// Progress notes how far the binlog was read.
func (m *Monitor) Progress(ctx context.Context, at Position) error {
	return hintHandler{m, nil}.Progress(ctx, at)
}

// sessionLocked returns the session to work for; false when there is none, or
// another than the caller's.
func (h hintHandler) sessionLocked() (*session, bool) {
	s := h.m.session
	return s, s != nil && (h.s == nil || h.s == s)
}

func (h hintHandler) Transaction(ctx context.Context, t *event.Transaction, at Position) error {
	m := h.m
	if t.GTID.IsZero() {
		return nil
	}
	seen := &sighting{id: t.Identity(), flags: t.Flags, tables: t.Tables, at: time.Now()}
	for {
		m.mu.Lock()
		s, ok := h.sessionLocked()
		if !ok {
			m.mu.Unlock()
			if h.s != nil {
				return errSessionOver
			}
			// Nobody watches the server now; what is not proven is read again.
			return nil
		}
		if m.tr.waiting < m.o.MaxPending {
			tainted := m.tr.tainted
			ask := s.streamLocked()
			decided := m.tr.sight(seen, s.executed, ask)
			m.logTaintsLocked(tainted)
			s.tailPassed = at
			s.advanceLocked(at)
			if decided && s.executed.Contains(t.GTID) {
				s.dirty = true
			}
			suspicious := !decided && t.GTID.UUID == s.run.UUID && s.role != event.RolePrimary
			m.mu.Unlock()
			if decided {
				m.forget([]gtid.GTID{t.GTID}, ask.at)
			}
			if suspicious {
				poke(m.news)
			}
			poke(m.wake)
			return nil
		}
		if h.s == nil {
			// Never hold up the tailer that writes the stream, for which all else
			// waits: what is not compared stays unproven, which counts only once
			// the server is a replica, and then it is read again.
			s.tailPassed = at
			s.advanceLocked(at)
			m.mu.Unlock()
			return nil
		}
		room := m.room
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-room:
		}
	}
}

// makeRoomLocked wakes tails that wait for room.
func (m *Monitor) makeRoomLocked() {
	close(m.room)
	m.room = make(chan struct{})
}

// Hole: GTIDs that the server has purged join base; others stay unproven, since
// the binlog had them and can't show them.
func (h hintHandler) Hole(ctx context.Context, hole *event.Hole) error {
	purged, err := h.m.backend.purged(ctx)
	if err != nil && h.s != nil {
		return err // the tail is read again
	}
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	s, ok := h.sessionLocked()
	switch {
	case !ok && h.s != nil:
		return errSessionOver
	case !ok || err != nil:
		return nil // what is not proven is read again
	}
	s.joinLocked(purged.intersect(hole.GTIDs))
	return nil
}

func (h hintHandler) Definitions(context.Context, []event.TableDefinition) error { return nil }

func (h hintHandler) Progress(_ context.Context, at Position) error {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if s, ok := h.sessionLocked(); ok {
		s.tailPassed = at
		s.advanceLocked(at)
	}
	return nil
}

// joinLocked puts purged GTIDs into base and reports them: those that binlog
// files carried, not what SET GLOBAL gtid_purged named, of which no binlog ever
// showed anything (rules §2.2).
func (s *session) joinLocked(purged purgedSets) {
	s.m.tr.purge(purged.all)
	gone := s.m.tr.joinPurged(purged.logged, s.executed)
	if gone.IsEmpty() {
		return
	}
	s.dirty = true
	s.m.counters.purgedJoined.Add(gone.Count())
	s.m.log.Warn("binlog purged before it was compared; taken as shown", "gtids", gone.Brief(16))
}

// superviseTail reads the server's own binlog while it is a replica.
func (s *session) superviseTail(ctx context.Context) {
	want := false
	for {
		for !want {
			select {
			case <-ctx.Done():
				return
			case want = <-s.wantTail:
			case <-s.retail:
			}
		}
		want = s.readTail(ctx)
		if ctx.Err() != nil {
			return
		}
	}
}

// readTail runs tails one after another until the server is no replica any
// more, or ctx ends. It returns whether a tail is still wanted.
func (s *session) readTail(ctx context.Context) bool {
	m := s.m
	pause := m.o.RetryMin
	for {
		purged, err := m.backend.purged(ctx)
		if err == nil {
			err = s.oneTail(ctx, purged, &pause)
		}
		if ctx.Err() != nil {
			return false
		}
		switch {
		case errors.Is(err, errNotReplica):
			return false
		case errors.Is(err, errReadAgain):
			continue
		}
		s.sortTailError(err)
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case want := <-s.wantTail:
			timer.Stop()
			if !want {
				return false
			}
		case <-timer.C:
		}
		pause = min(2*pause, longestPause(err, m.o.RetryMax))
	}
}

var (
	errNotReplica = errors.New("the server is no replica any more")
	errReadAgain  = errors.New("the binlog is to be read again")
)

// oneTail runs one tail to its end and says why it ended.
func (s *session) oneTail(ctx context.Context, purged purgedSets, pause *time.Duration) error {
	m := s.m
	m.mu.Lock()
	s.joinLocked(purged)
	m.tr.restart()
	// From the confirmed set on; what is purged can't be had, and what of it is
	// not in base stays unproven.
	from := m.tr.confirmed(s.executed).Union(purged.all)
	m.makeRoomLocked()
	m.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- m.o.Tail(ctx, from, hintHandler{m, s}) }()
	for {
		select {
		case err := <-done:
			m.counters.tailRestarts.Add(1)
			if time.Since(began) > m.o.RetryMax {
				*pause = m.o.RetryMin
			}
			if err == nil {
				err = errors.New("the tail ended")
			}
			return err
		case <-s.retail:
			cancel()
			<-done
			return errReadAgain
		case want := <-s.wantTail:
			if !want {
				cancel()
				<-done
				return errNotReplica
			}
		}
	}
}

// sortTailError counts an error of the tail by what has to happen next. All of
// them are tried again here: what is purged joins base by itself, and whatever
// stays unread stays unproven, which is a no with a reason.
func (s *session) sortTailError(err error) {
	switch c := ClassOf(err); c {
	case Retry:
		s.m.counters.retries.Add(1)
	case Reseed:
		s.m.counters.reseed.Add(1)
		s.m.log.Warn("tail of the replica's binlog interrupted", "class", c.String(), "err", err)
	default:
		s.m.counters.stops.Add(1)
		s.m.log.Warn("tail of the replica's binlog interrupted", "class", c.String(), "err", err)
	}
}

// settler compares what waits whenever the stream brings news.
func (s *session) settler(ctx context.Context) {
	ids := s.m.o.Identities
	for {
		changed := ids.Changed() // before the look-ups
		s.turn()
		s.settle(settleMisses)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// logTaintsLocked reports the newest taint when there are more than before: the
// first, and each that doubles their number.
func (m *Monitor) logTaintsLocked(before uint64) {
	if n := len(m.tr.taints); bits.Len64(m.tr.tainted) > bits.Len64(before) && n > 0 {
		t := &m.tr.taints[n-1]
		m.log.Warn("server tainted", "all", t.All, "gtid", t.GTID.String(), "why", t.Reason, "taints", m.tr.tainted)
	}
}

// settleMisses is how many sightings that the stream does not have yet are
// passed over at each news; the slow lane looks at all.
const settleMisses = 64

func (s *session) settle(misses int) {
	m := s.m
	m.mu.Lock()
	if m.session != s || len(m.tr.pending) == 0 {
		m.mu.Unlock()
		return
	}
	tainted := m.tr.tainted
	ask := s.streamLocked()
	decided := m.tr.settleSome(ask, misses)
	m.logTaintsLocked(tainted)
	if len(decided) > 0 {
		s.dirty = true
		m.makeRoomLocked()
	}
	m.mu.Unlock()
	if len(decided) > 0 {
		m.forget(decided, ask.at)
		poke(m.wake)
	}
}

// turn follows announcements, and the stream's reader when it begins anew,
// before anything is compared against what came after them.
func (s *session) turn() {
	m := s.m
	m.mu.Lock()
	seen := s.lossSeen
	m.mu.Unlock()
	turn := m.since(seen)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session == s && s.lossSeen == seen && s.turnLocked(&turn) {
		s.dirty = true
		poke(m.wake)
	}
}

// turnLocked takes in what became of the stream since s.lossSeen. It returns
// whether there was news.
func (s *session) turnLocked(turn *event.Turn) bool {
	tr := s.m.tr
	if turn.Starts == 0 || s.history == turn.History && s.lossSeen == turn.Announced && tr.starts == turn.Starts {
		return false
	}
	if tr.turned(turn) {
		poke(s.retail)
	}
	s.history, s.lossSeen = turn.History, turn.Announced
	if !turn.Lost.IsEmpty() {
		// What the server has received is told by facts, which are to be newer.
		s.lostAt = time.Now()
		poke(s.m.news)
	}
	return true
}

// String of a session is for errors.
func (s *session) String() string { return fmt.Sprintf("epoch %d of %s", s.epoch, &s.m.o.Server) }

// HintsTail is the [MonitorOptions].Tail that reads the real server: o without
// its From. Each call runs a tailer of its own.
func HintsTail(o TailerOptions) func(ctx context.Context, from gtid.Set, h Handler) error {
	o.Mode = Hints
	return func(ctx context.Context, from gtid.Set, h Handler) error {
		o := o
		o.From = from
		t, err := NewTailer(o)
		if err != nil {
			return err
		}
		return t.Run(ctx, h)
	}
}
