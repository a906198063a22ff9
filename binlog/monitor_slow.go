package binlog

import (
	"context"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// slowLane reads what changes seldom, and judges suspects. Nothing of it delays
// a probe.
func (s *session) slowLane(ctx context.Context) {
	m := s.m
	var tablesAt time.Time
	timer := time.NewTimer(m.o.FactsInterval)
	defer timer.Stop()
	for {
		began := time.Now()
		changed := s.readFacts(ctx)
		timer.Reset(m.factsEvery(time.Since(began)))
		if changed || time.Since(tablesAt) >= m.o.TablesInterval {
			if s.readTables(ctx) {
				tablesAt = time.Now()
			}
		}
		if m.o.Identities != nil {
			s.settle(0)
		}
		s.judgeSuspects(ctx)
		s.markFile(ctx)
		select {
		case <-ctx.Done():
			return
		case <-m.news:
		case <-timer.C:
		}
	}
}

// readFacts reads channels and settings. It returns whether the filters are
// others than before.
func (s *session) readFacts(ctx context.Context) bool {
	m := s.m
	ask, cancel := context.WithTimeout(ctx, m.o.Server.queryTimeout())
	defer cancel()
	began := time.Now()
	m.mu.Lock()
	before := m.position
	m.mu.Unlock()
	f, err := m.backend.facts(ask)
	if err != nil {
		if ctx.Err() == nil {
			m.counters.factsErrors.Add(1)
		}
		return false
	}
	if (runID{f.uuid, f.process}) != s.run.id() {
		s.breakOff(errOtherRun)
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session != s {
		return false
	}
	if f.binlogFile.File != "" && before.File != "" && before.after(f.binlogFile) {
		// RESET under a live connection: another data set (rules §1).
		s.breakOff(&changedError{"the binlog has stepped back"})
		return false
	}
	old := s.facts
	filtersChanged := !sameStrings(old.rules().printed(), f.rules().printed())
	s.dirty = s.dirty || filtersChanged || factsDiffer(old, f)
	s.facts, s.factsAt = f, began
	s.lag.look(s.executed.Count(), f.received().Subtract(s.executed).Count(), time.Now())
	s.advanceLocked(f.binlogFile)
	s.setFilteredLocked()
	if s.dirty {
		poke(m.wake)
	}
	return filtersChanged
}

func (s *session) breakOff(err error) {
	select {
	case s.broken <- err:
	default:
	}
	poke(s.m.wake)
}

func factsDiffer(a, b *serverFacts) bool {
	if a.readOnly != b.readOnly || a.relaxed != b.relaxed || len(a.channels) != len(b.channels) || a.group != b.group {
		return true
	}
	for i := range a.channels {
		x, y := &a.channels[i], &b.channels[i]
		if x.io != y.io || x.sql != y.sql || x.sourceUUID != y.sourceUUID || x.errors() != y.errors() || !x.received.Equal(y.received) {
			return true
		}
	}
	return false
}

func sameStrings(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// readTables finds filtered tables and foreign engines (rules §2.4). It returns
// whether it could.
func (s *session) readTables(ctx context.Context) bool {
	m := s.m
	ask, cancel := context.WithTimeout(ctx, m.o.Server.queryTimeout())
	defer cancel()
	own, err := m.backend.tables(ask)
	if err != nil {
		if ctx.Err() == nil {
			m.counters.factsErrors.Add(1)
		}
		return false
	}
	var known []event.TableDefinition
	if m.o.Definitions != nil {
		known = m.o.Definitions()
	}
	facts := s.factsNow()
	lower := facts.lowerCase
	if m.o.PrimaryNames != nil {
		if l, ok := m.o.PrimaryNames(); ok {
			lower = l
		}
	}
	v := excludeTables(facts.rules(), own, known, m.o.Hasher, lower != 0)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session != s {
		return false
	}
	s.replaceTablesLocked(v)
	return true
}

// replaceTablesLocked takes over a new view. A table that was filtered and is
// not any more may have missed writes that nothing else tells of: it is tainted
// until the server is rebuilt or the operator accepts it (rules §2.2).
func (s *session) replaceTablesLocked(v tableView) {
	now := make(map[key.Digest]bool, len(v.digests))
	for _, d := range v.digests {
		now[d] = true
	}
	for _, d := range s.tables.digests {
		name, exists := v.names[d]
		switch {
		case !exists || now[d]:
		case s.m.o.Definitions != nil && !v.judged[d]:
			v.digests = append(v.digests, d) // not known to be any better
		default:
			s.m.tr.taint(event.Taint{Table: d, Name: name, Reason: "was filtered, or kept by another engine, before"})
		}
	}
	s.m.tr.nameTaints(v.names)
	s.tables = v
	s.dirty = true
	poke(s.m.wake)
}

// nameTaints gives tainted tables their names, for people.
func (t *tracker) nameTaints(names map[key.Digest]string) {
	cloned := false
	for i := range t.taints {
		x := &t.taints[i]
		name, ok := names[x.Table]
		if x.All || x.Name != "" || !ok {
			continue
		}
		if !cloned {
			t.taints = append([]event.Taint(nil), t.taints...)
			cloned = true
			x = &t.taints[i]
		}
		x.Name = name
	}
}

// Suspects: executed GTIDs that neither base nor the stream accounts for. They
// are asked about after a while, since the stream usually just has not come to
// them; those of the server's own UUID at once.
const (
	suspectAge  = 500 * time.Millisecond
	maxSuspects = 4096
)

// judgeSuspects finds errant GTIDs: executed here, and neither in the stream
// nor in what the announced primary had later (rules §2.3).
func (s *session) judgeSuspects(ctx context.Context) {
	m := s.m
	if m.o.PrimaryE == nil || m.o.Identities == nil {
		return
	}
	candidates := s.suspects()
	if len(candidates) == 0 {
		return
	}
	ask, cancel := context.WithTimeout(ctx, m.o.ProbeTimeout)
	e, err := m.o.PrimaryE(ask)
	cancel()
	if err != nil {
		return // no primary to ask; asked again at the next look
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session != s {
		return
	}
	for _, c := range candidates {
		g := c.g
		if e.Contains(g) || m.lookup(g).State != event.NotYet || s.role == event.RolePrimary {
			continue
		}
		if m.tr.markErrant(g, c.tailPassed) {
			m.counters.errant.Add(1)
			s.dirty = true
			delete(s.suspectsAt, g)
			m.log.Warn("errant transaction", "gtid", g.String())
		}
	}
	m.makeRoomLocked()
	poke(m.wake)
}

// suspect is one GTID to ask about.
type suspect struct {
	g gtid.GTID
	// tailPassed: the tail has read the binlog beyond where it ended when g was
	// already executed, so that a GTID which it did not show is not in it.
	tailPassed bool
}

// suspects lists what to ask about now.
func (s *session) suspects() (list []suspect) {
	m := s.m
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session != s || s.role == event.RolePrimary {
		return nil
	}
	end := s.facts.binlogFile
	passed := end.File != "" && s.tailPassed.File != "" && !end.after(s.tailPassed)
	live := make(map[gtid.GTID]time.Time)
	for src, iv := range m.tr.suspects(s.executed).All() {
		for n := iv.First; n <= iv.Last && len(live) < maxSuspects; n++ {
			g := gtid.GTID{UUID: src.UUID, Tag: src.Tag, Seq: n}
			since, known := s.suspectsAt[g]
			if !known {
				since = now
			}
			live[g] = since
			if m.lookup(g).State != event.NotYet {
				continue
			}
			if src.UUID == s.run.UUID || now.Sub(since) >= suspectAge {
				list = append(list, suspect{g, passed && since.Before(s.factsAt)})
			}
		}
	}
	s.suspectsAt = live
	return list
}

// vet asks the announced primary about what the server had at first sight and the
// stream does not vouch for (rules §2.2). It has a goroutine of its own until
// nothing of that is left, since without a primary the question takes long, and the
// slow lane finds out who is the next one.
func (s *session) vet(ctx context.Context) {
	m := s.m
	if m.o.PrimaryE == nil {
		return
	}
	for {
		changed := m.o.Identities.Changed() // before the look
		m.mu.Lock()
		read, left := m.tr.starts > 0, m.session == s && m.tr.first.waits()
		m.mu.Unlock()
		switch {
		case !left:
			return
		case read:
			s.askFirst(ctx)
			changed = nil
		}
		timer := time.NewTimer(m.o.FactsInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// askFirst asks once.
func (s *session) askFirst(ctx context.Context) {
	m := s.m
	ask, cancel := context.WithTimeout(ctx, m.o.ProbeTimeout)
	e, err := m.o.PrimaryE(ask)
	cancel()
	if err != nil {
		return // no primary to ask; asked again soon
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session != s {
		return
	}
	if errant := m.tr.vet(e, s.role != event.RoleReplica); !errant.IsEmpty() {
		m.counters.errant.Add(errant.Count())
		m.log.Warn("errant transactions at first sight that no binlog shows", "gtids", errant.Brief(16))
	}
	s.dirty = true
	poke(m.wake)
}
