package binlog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// session is the life of one pinned connection. Its fields belong to the owner
// goroutine unless they stand below a mark; what handlers and the slow lane
// share is under the monitor's lock.
type session struct {
	m    *Monitor
	link link
	run  *runFacts

	epoch    event.Epoch
	dataSet  uint64
	excluded string      // rules §2.5, printed; empty: not excluded for it
	exclAt   event.Epoch // the newest epoch at which an acceptance covers it

	last      Probe
	lastTicks []event.RouterTick // named by the newest full probe
	ticksSet  bool
	probedAt  time.Time // beginning of the newest probe
	// probedClock is the same by the suspend-aware clock.
	probedClock int64
	fullAt      time.Time
	fruitless   int       // waits in a row that proved nothing
	proved      int       // hinted transactions that the newest proof proved
	pauseUntil  time.Time // no waits before
	noWait      bool      // the server refuses to wait for GTIDs
	unsent      bool      // the newest state could not be published
	wasPrimary  bool
	steered     event.Role // for which the tail was last told to run or not

	// Under the monitor's lock.
	executed   gtid.Set // of the newest probe
	uptime     time.Duration
	uptimeAt   int64
	facts      *serverFacts
	factsAt    time.Time
	lag        lagMeter
	tables     tableView
	role       event.Role
	history    event.History
	lossSeen   event.Version
	lostAt     time.Time // when the newest loss was taken in; zero: none
	tailPassed Position  // newest position of the tail
	dirty      bool      // something to publish without a new probe
	suspectsAt map[gtid.GTID]time.Time

	wantTail chan bool     // capacity 1, latest wins
	retail   chan struct{} // capacity 1: read the binlog again from what is proven
	broken   chan error    // capacity 1: the slow lane found that this run is over
}

// runSession connects, judges what the server is, and follows it until the
// pinned connection ends. met is set once a server has been accepted.
func (m *Monitor) runSession(ctx context.Context, met *bool) error {
	s, err := m.open(ctx, *met)
	if err != nil {
		return err
	}
	*met = true
	m.counters.sessions.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.slowLane(ctx) })
	if m.o.Identities != nil {
		wg.Go(func() { s.settler(ctx) })
		wg.Go(func() { s.vet(ctx) })
	}
	if m.o.Tail != nil && m.o.Server.Follow == FollowBinlog && s.run.LogBin {
		wg.Go(func() { s.superviseTail(ctx) })
	}
	err = s.follow(ctx)
	// The lease ends before anything else is waited for (rules §6.3).
	if ctx.Err() == nil {
		m.publishDown(ctx, err.Error())
	}
	m.counters.sessionsLost.Add(1)
	cancel()
	m.close(s, err)
	wg.Wait()
	// The connection is of no use any more; why is in err.
	_ = s.link.close()
	return err
}

// close takes the session off the monitor and remembers what the next one has
// to judge by.
func (m *Monitor) close(s *session, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.session = nil
	m.was.run, m.was.lastUptime, m.was.uptimeAt = s.run, s.uptime, s.uptimeAt
	if st := m.state.Load(); st != nil {
		m.was.state = st
	}
	for _, r := range m.fresh {
		r.answer <- freshAnswer{err: fmt.Errorf("probe %s: %w", &m.o.Server, why)}
	}
	m.fresh = nil
	m.makeRoomLocked()
}

// open makes the pinned connection and decides epoch, data set and base.
func (m *Monitor) open(ctx context.Context, met bool) (*session, error) {
	dial, cancel := context.WithTimeout(ctx, m.o.Server.connectTimeout()+m.o.ProbeTimeout)
	defer cancel()
	l, err := m.backend.pin(dial)
	if err != nil {
		if refused := refuseTLS(&m.o.Server, err); refused != nil && !met {
			return nil, refused
		}
		if !met && isMySQL(err, errAccessDenied) {
			return nil, &RefusedError{Server: m.o.Server.Name, Reason: err.Error(), Mend: "check user and password; " + grantFor(m.o.Server.User)}
		}
		return nil, err
	}
	s, err := m.admit(ctx, l)
	if err != nil {
		// The connection is of no use any more; why is in err.
		_ = l.close()
		return nil, err
	}
	return s, nil
}

func (m *Monitor) admit(ctx context.Context, l link) (*session, error) {
	ask, cancel := context.WithTimeout(ctx, m.o.Server.queryTimeout())
	defer cancel()
	asked := m.o.Clock()
	run, err := l.run(ask)
	if err != nil {
		return nil, err
	}
	run.AskedAt = asked
	if err := m.refuse(run); err != nil {
		return nil, err
	}
	if run.Mark, err = m.lastMark(ask, run); err != nil {
		return nil, err
	}
	facts, err := m.backend.facts(ask)
	if err != nil {
		return nil, err
	}
	if (runID{facts.uuid, facts.process}) != run.id() {
		return nil, &changedError{"two connections reached two servers"}
	}
	s := &session{
		m: m, link: l, run: run, executed: run.Executed,
		facts: facts, factsAt: time.Now(), suspectsAt: map[gtid.GTID]time.Time{},
		wantTail: make(chan bool, 1), retail: make(chan struct{}, 1), broken: make(chan error, 1),
	}
	j := judge(&m.was, run)
	if err := s.judged(ctx, j); err != nil {
		return nil, err
	}
	return s, nil
}

// refuse names what makes a server of no use for this configuration.
func (m *Monitor) refuse(run *runFacts) error {
	cfg := &m.o.Server
	switch {
	case run.GTIDMode == "OFF" || run.GTIDMode == "OFF_PERMISSIVE":
		if m.was.state == nil {
			return &RefusedError{
				Server: cfg.Name, Reason: "gtid_mode is " + run.GTIDMode + ", so that nothing names a transaction",
				Mend: "SET PERSIST enforce_gtid_consistency=ON; then gtid_mode OFF_PERMISSIVE, ON_PERMISSIVE and ON, one after another, on all servers",
			}
		}
	case cfg.Follow == FollowBinlog && !run.LogBin:
		return &RefusedError{
			Server: cfg.Name, Reason: "log_bin is OFF, and follow: binlog needs the server's binlog",
			Mend: "start mysqld with log-bin and log-replica-updates, or configure follow: executed",
		}
	case cfg.Follow == FollowBinlog && !run.LogUpdates:
		return &RefusedError{
			Server: cfg.Name, Reason: "log_replica_updates is OFF, so that its binlog does not show what it replicates",
			Mend: "start mysqld with log-replica-updates=ON, or configure follow: executed",
		}
	}
	return nil
}

// judged applies a judgement: rules §1 (epoch, data set, base), §2.5.
func (s *session) judged(ctx context.Context, j judgement) error {
	m := s.m
	was := m.was.state
	relaxed := s.run.Relaxed || was != nil && was.RelaxedDurable
	ends := func(f, next binlogFile) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, m.o.Server.queryTimeout())
		defer cancel()
		return s.link.fileEnd(ctx, f, next)
	}
	excluded, err := restartExclusion(was, j, s.run, relaxed, ends)
	if err != nil {
		return err
	}
	if j.newRun || j.newDataSet {
		if s.epoch, err = m.o.NextEpoch(ctx); err != nil {
			return fmt.Errorf("draw an epoch for %s: %w", &m.o.Server, err)
		}
		m.counters.epochs.Add(1)
		m.log.Info("server met", "epoch", s.epoch, "new_data_set", j.newDataSet, "why", j.why, "uuid", s.run.UUID.String())
	} else {
		s.epoch = was.Epoch
		m.log.Info("connection restored to the same run", "epoch", s.epoch)
	}
	var seen event.Version
	if was != nil && !j.newDataSet {
		seen = was.LossSeen
	}
	turn := m.since(seen)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case j.newDataSet || j.stopped:
		m.ranSince = s.epoch
	case m.ranSince == 0:
		m.ranSince = was.Epoch
	}
	switch {
	case j.newDataSet:
		// The old binlog's names tell nothing of this one: a copy of fewer files
		// may have rotated past them. Whatever was announced before is compared
		// from the oldest file on.
		m.ends = nil
		if len(s.run.Files) > 0 {
			m.ends = []event.RunEnd{{File: s.run.Files[0].Name}}
		}
	case j.newRun && was != nil:
		m.ends = addRunEnd(m.ends, event.RunEnd{Epoch: was.Epoch, File: m.position.File})
	}
	switch {
	case j.newDataSet:
		s.dataSet = rand.Uint64() | 1
		m.tr.begin(s.run.Executed, turn.EverLost)
		m.position, m.marked = Position{}, marked{}
		m.counters.dataSets.Add(1)
	case m.was.run == nil: // the first session of this process
		s.dataSet = was.DataSet
		m.tr.resume(was, turn.EverLost)
		s.tables.digests = was.FilteredTables
	default:
		s.dataSet = was.DataSet
		m.tr.restart()
		s.tables.digests = was.FilteredTables
	}
	m.tr.first.purged = s.run.Purged
	if was != nil && !j.newDataSet {
		s.history, s.lossSeen = was.History, was.LossSeen
		for _, x := range was.Excluded {
			if excluded == "" && IsRestartExclusion(x) {
				excluded = x
				s.exclAt = was.Epoch
			}
		}
		s.wasPrimary = !j.newRun && was.Role == event.RolePrimary
	}
	s.turnLocked(&turn)
	if s.excluded = excluded; excluded != "" && s.exclAt == 0 {
		s.exclAt = s.epoch
		m.log.Warn("server excluded until it is rebuilt or accepted", "why", excluded)
	}
	s.advanceLocked(s.facts.binlogFile)
	s.setFilteredLocked()
	m.told = gtid.Set{}
	m.session = s
	return nil
}

// advanceLocked keeps the newest position of the server's binlog.
func (s *session) advanceLocked(p Position) {
	if p.File != "" && (s.m.position.File == "" || p.after(s.m.position)) {
		s.m.position = p
	}
}

func (s *session) setFilteredLocked() { s.m.tr.filtered = s.facts.rules().active() }

// follow probes until the session ends, and returns why.
func (s *session) follow(ctx context.Context) error {
	// A first full probe, whatever routers tick: it proves the connection.
	q, ticks, asked := s.demand()
	need := true
	for {
		for !need {
			if err := s.flush(ctx); err != nil {
				return err
			}
			if err := s.rest(ctx); err != nil {
				return err
			}
			q, ticks, asked, need = s.next()
		}
		due, err := s.pace(ctx, q)
		if err != nil {
			return refuse(asked, err)
		}
		if !q.Prompt {
			// What was hinted during the pause is proven with the rest, and a tick
			// that came meanwhile does not wait for its end.
			if q, ticks, asked, need = s.next(); !need || !due {
				if err := s.flush(ctx); err != nil {
					return refuse(asked, err)
				}
				continue
			}
		}
		if err := s.round(ctx, q, ticks, asked); err != nil {
			return err
		}
		q, ticks, asked, need = s.next()
	}
}

// rest sleeps until there is something to look at.
func (s *session) rest(ctx context.Context) error {
	wait := s.m.o.IdleInterval
	if p := time.Until(s.pauseUntil); p > 0 && p < wait {
		wait = p
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-s.broken:
		return err
	case <-s.m.wake:
	case <-timer.C:
	}
	return nil
}

// demand puts a prompt and full probe together.
func (s *session) demand() (probeRequest, []event.RouterTick, []request) {
	// Ticks are read before the probe begins (rules §1).
	ticks := s.ticks()
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	asked := s.m.fresh
	s.m.fresh = nil
	return probeRequest{Full: true, Prompt: true}, ticks, asked
}

// ticks reads the newest ticks in one order.
func (s *session) ticks() []event.RouterTick {
	ticks := slices.Clone(s.m.o.Ticks())
	slices.SortFunc(ticks, func(a, b event.RouterTick) int { return slices.Compare(a.Router[:], b.Router[:]) })
	return ticks
}

// next decides whether to probe now, and how: at once and without waiting when a
// router ticked or somebody asked, otherwise as a proof of what was hinted.
func (s *session) next() (q probeRequest, ticks []event.RouterTick, asked []request, need bool) {
	ticks = s.ticks()
	now := time.Now()
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	full := !s.ticksSet || now.Sub(s.fullAt) >= s.m.o.AliveInterval
	ticked := !slices.Equal(ticks, s.lastTicks) && now.Sub(s.probedAt) >= s.tickIntervalLocked()
	if full || len(s.m.fresh) > 0 || ticked {
		asked, s.m.fresh = s.m.fresh, nil
		return probeRequest{Full: full, Prompt: true}, ticks, asked, true
	}
	target := s.targetLocked()
	if target.IsEmpty() || now.Before(s.pauseUntil) {
		return q, nil, nil, false
	}
	if s.noWait {
		return probeRequest{}, ticks, nil, true
	}
	wait := s.m.o.WaitSlice
	if s.m.o.Server.Follow == FollowExecuted {
		wait *= executedSlices
	}
	return probeRequest{WaitFor: target, Wait: wait}, ticks, nil, true
}

// executedSlices: without a binlog there always is something to wait for, and
// an idle server should not be asked more often than needed.
const executedSlices = 4

// maxWaitIntervals bounds the text of one proof.
const maxWaitIntervals = 64

// targetLocked is what the next proof waits for: what was hinted and is not
// executed, or, without a binlog, the next GTID that the primary produced.
func (s *session) targetLocked() gtid.Set {
	m := s.m
	if m.o.Server.Follow == FollowExecuted {
		for src, iv := range m.told.All() {
			return gtid.Of(gtid.GTID{UUID: src.UUID, Tag: src.Tag, Seq: iv.First})
		}
		if c := s.facts.source(); c != nil && !c.sourceUUID.IsZero() {
			if n := s.executed.Max(gtid.Source{UUID: c.sourceUUID}); n < gtid.MaxSeq {
				return gtid.Of(gtid.GTID{UUID: c.sourceUUID, Seq: n + 1})
			}
		}
		return gtid.Set{}
	}
	return m.tr.hinted(s.executed).Union(m.told).Limit(maxWaitIntervals)
}

// Pauses after waits that proved nothing: a hinted transaction may wait for a
// semi-synchronous replica for seconds, or never come back after a crash.
const (
	freeWaits    = 8
	maxWaitPause = 100 * time.Millisecond
)

// round makes one probe and publishes what it gives.
func (s *session) round(ctx context.Context, q probeRequest, ticks []event.RouterTick, asked []request) error {
	m := s.m
	s.probedAt, s.probedClock = time.Now(), m.o.Clock()
	probe, cancel := context.WithTimeout(ctx, m.o.ProbeTimeout+q.Wait)
	p, err := s.link.probe(probe, q)
	cancel()
	if !q.WaitFor.IsEmpty() && isMySQL(err, errGTIDModeOff) {
		// gtid_mode was relaxed at run time; plain probes still tell.
		s.noWait = true
		return nil
	}
	if err == nil {
		err = s.took(p, q, ticks)
	}
	if err == nil && (q.Prompt || s.dirtyNow()) {
		err = s.publish(ctx)
	}
	if err != nil {
		return refuse(asked, err)
	}
	st := m.state.Load()
	for _, r := range asked {
		r.answer <- freshAnswer{state: st, facts: s.factsNow()}
	}
	return nil
}

// refuse tells the callers that waited for a probe why there is none, and
// returns err.
func refuse(asked []request, err error) error {
	for _, r := range asked {
		r.answer <- freshAnswer{err: err}
	}
	return err
}

func (s *session) factsNow() *serverFacts {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.facts
}

func (s *session) dirtyNow() bool {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.dirty
}

// took takes a probe in. An error ends the session.
func (s *session) took(p Probe, q probeRequest, ticks []event.RouterTick) error {
	m := s.m
	m.counters.probes.Add(1)
	if p.UUID != s.run.UUID {
		return &changedError{"server_uuid changed under the connection"}
	}
	if g, shrank := executedShrank(s.executed, p.Executed); shrank {
		return &changedError{fmt.Sprintf("gtid_executed has shrunk: %s is missing", g)}
	}
	now := time.Now()
	// Whatever the probe is for, it began after these ticks and may name them.
	s.lastTicks, s.ticksSet = ticks, true
	if q.Full {
		s.fullAt = s.probedAt
	} else {
		// The connection lives, and so the run that was asked goes on.
		p.Full, p.ThreadsRunning = s.last.Full, s.last.ThreadsRunning
		p.UptimeSeconds = int64((s.uptime + time.Duration(s.probedClock-s.uptimeAt)) / time.Second)
	}
	if s.noWait && p.GTIDMode == "ON" {
		s.noWait = false
	}
	if p.Writable() != s.last.Writable() {
		poke(m.news) // what channels it has decides now what it is
	}
	s.last = p
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.Full {
		s.uptime, s.uptimeAt = time.Duration(p.UptimeSeconds)*time.Second, s.probedClock
	}
	grew := !p.Executed.Equal(s.executed)
	s.executed = p.Executed
	m.told = m.told.Subtract(p.Executed)
	if grew {
		s.dirty = true
		s.fruitless, s.pauseUntil = 0, time.Time{}
		m.counters.proofs.Add(1)
		s.measureLocked(now)
		return nil
	}
	if !q.WaitFor.IsEmpty() || s.noWait {
		m.counters.waitsExpired.Add(1)
		if s.fruitless++; s.fruitless > freeWaits && m.o.Server.Follow == FollowBinlog || s.noWait {
			s.pauseUntil = now.Add(min(maxWaitPause, time.Duration(s.fruitless)*time.Millisecond))
		}
	}
	return nil
}

// measureLocked collects the delays of hints that are now proven.
func (s *session) measureLocked(now time.Time) {
	s.proved = 0
	for g, at := range s.m.tr.hintAt {
		if s.executed.Contains(g) {
			s.proved++
			s.m.counters.delays.add(now.Sub(at))
			delete(s.m.tr.hintAt, g)
		}
	}
}

// flush publishes what changed without a probe of its own.
func (s *session) flush(ctx context.Context) error {
	if !s.dirtyNow() && !s.unsent {
		return nil
	}
	return s.publish(ctx)
}
