package rulestest

// crash stops a server. What is in its binlog survives, unless it is not synced.
func (w *world) crash(x int, a, b byte) bool {
	s := &w.servers[x]
	if !s.up {
		return false
	}
	clean := a&0x30 == 0x30
	if clean && len(s.inFlight) > 0 {
		return false // a clean shutdown waits for its commits
	}
	w.recover(s, false)
	s.owned, s.up, s.downAt = 0, false, w.now
	s.uncleanUnseen = s.uncleanUnseen || !clean
	w.say("%s stops, clean: %v", serverNames[x], clean)
	if clean {
		s.endRun()
		return true
	}
	s.dirty = s.dirty || s.relaxed // may have lost something (rules §2.5)
	n := 1 + int(b&1)
	switch {
	case s.primary && w.features.has(FeatureTailLost) && a&3 == 0:
		w.loseTail(s, n)
	case s.relaxed && !s.primary && a&4 == 0 && w.tailers[x].data == s.data:
		w.loseRows(s, n)
	}
	s.endRun()
	return true
}

// endRun notes where the binlog stands when the run ends.
func (s *server) endRun() { s.ends = append(s.ends, runEnd{s.run, len(s.binlog)}) }

// endOf is where the binlog stood when a run ended: of one that was another data
// set's, where this one began.
func (s *server) endOf(run int) int {
	for _, e := range s.ends {
		if e.run >= run {
			return e.at
		}
	}
	return len(s.binlog)
}

// loseTail is what sync_binlog=0 does: the newest transactions are gone, and
// their GTIDs are free again.
func (w *world) loseTail(s *server, n int) {
	for ; n > 0 && len(s.binlog) > s.purged; n-- {
		e := s.binlog[len(s.binlog)-1]
		if w.txs[e.tx].ddl {
			return
		}
		s.binlog = s.binlog[:len(s.binlog)-1]
		s.visible &^= one(e.tx)
		s.executed &^= one(e.slot)
		s.holds[e.slot] = nothing
		w.lose(e.tx)
		s.lossy = true
	}
}

// loseRows is what relaxed durability does: executed stays, rows are gone.
func (w *world) loseRows(s *server, n int) {
	for i := len(s.binlog) - 1; i >= 0 && n > 0; i-- {
		e := s.binlog[i]
		if w.txs[e.tx].xa != ordinary || w.txs[e.tx].ddl || e.empty {
			return
		}
		s.visible &^= one(e.tx)
		s.dirty, s.lossy = true, true
		n--
		w.say("... and %s has no rows of t%d any more, though g%d stays executed", s.name(w), e.tx, e.slot)
	}
}

func (s *server) name(w *world) string {
	for i := range w.servers {
		if s == &w.servers[i] {
			return serverNames[i]
		}
	}
	return "?"
}

// start brings a stopped server back.
func (w *world) start(x int) bool {
	s := &w.servers[x]
	// A server that lost something is not back before its lease is over: that a
	// connection broke is known sooner than a mysqld is back (rules §2.5, §11.2 go
	// by what the tailer sees).
	if s.up || s.lossy && w.now <= s.downAt+leaseSteps {
		return false
	}
	s.lossy = false
	s.up = true
	s.run++
	w.say("%s starts again", serverNames[x])
	return true
}

// backup copies a server.
func (w *world) backup(x int) bool {
	s := w.servers[x]
	if !s.up || len(s.inFlight) > 0 || len(w.backups) > 3 || s.dirty {
		return false
	}
	s.binlog = append([]entry(nil), s.binlog...)
	s.ends, s.relay = nil, nil
	w.backups = append(w.backups, s)
	w.say("backup of %s", serverNames[x])
	return true
}

// rebuild replaces a stopped server's data by a backup.
func (w *world) rebuild(x int, b, c byte) bool {
	s := &w.servers[x]
	if s.up || s.primary || len(w.backups) == 0 || w.now <= s.downAt+leaseSteps {
		return false
	}
	k := w.backups[pick(len(w.backups), b)]
	// Somebody may restore what was lost. When its GTID has been given again before
	// anybody looked, nothing tells the two apart (rules §2.2).
	lost := false
	for g, n := range k.holds {
		have := n >= 0 && w.txs[n].lost && k.executed.has(int8(g))
		if n == foreign || have && w.givenAgain(&w.txs[n]) {
			return false
		}
		lost = lost || have
	}
	s.executed, s.visible, s.holds = k.executed, k.visible, k.holds
	s.binlog = append([]entry(nil), k.binlog...)
	s.purged = len(s.binlog) // a new binlog begins
	s.ends = []runEnd{{s.run, len(s.binlog)}}
	s.owned, s.inFlight, s.relay = 0, nil, nil
	s.up, s.dirty, s.undrained, s.uncleanUnseen = true, lost, false, false
	s.data++
	s.run++
	if c&1 == 0 {
		s.uuid = w.newUUID()
	}
	w.say("%s is rebuilt from a backup, new server_uuid: %v; executed %s", serverNames[x], c&1 == 0, s.executed.print("g"))
	return true
}

// missing is the oldest transaction of the primary that a replica has not begun.
func (w *world) missing(x int) int8 {
	s := &w.servers[x]
	p := w.primary()
	if p < 0 || !s.up || s.primary || s.followExecuted {
		return -1
	}
	for i, e := range w.servers[p].binlog {
		if !(s.executed | s.owned).has(e.slot) && i >= w.servers[p].purged {
			return e.tx
		}
	}
	return -1
}

// inject executes an empty transaction on a replica under the GTID of one that
// it lacks: by hand (another identity), or because a filter left nothing of it
// (the same). Of what was there at first sight nobody can tell (rules §2.2: base).
func (w *world) inject(x int, filtered bool) bool {
	n := w.missing(x)
	s := &w.servers[x]
	if n < 0 || w.tailers[x].run != s.run {
		return false
	}
	t := &w.txs[n]
	e := entry{tx: n, slot: t.slot, commit: t.commit, empty: true}
	held := n
	if !filtered {
		w.commits++
		e.commit, held = w.commits, foreign
	}
	s.binlog = append(s.binlog, e)
	s.executed |= one(t.slot)
	s.holds[t.slot] = held
	s.dirty = s.dirty || !t.empty || !filtered
	w.say("an empty transaction on %s under g%d of t%d, filtered: %v", serverNames[x], t.slot, n, filtered)
	return true
}

// errant commits a transaction of a replica's own.
func (w *world) errant(x int, b byte) bool {
	s := &w.servers[x]
	if !s.up || s.primary || len(w.txs) >= maxTransactions || s.followExecuted && b&1 == 1 {
		return false
	}
	t := transaction{xa: ordinary, session: -1, errant: true, lost: true, def: w.def}
	if b&1 == 1 {
		row := int8(pick(numRows, b/2))
		if w.locked(s, 1<<uint(row)) {
			return false
		}
		t.wrote(0, row, w.groupOf[row], w.groupOf[row])
	} else {
		t.empty = true
	}
	if t.slot = w.nextSlot(s); t.slot < 0 {
		return false
	}
	w.commits++
	t.commit = w.commits
	n := int8(len(w.txs))
	w.txs = append(w.txs, t)
	w.finish(s, flight{tx: n, stage: stageOwned})
	s.holds[t.slot] = foreign
	s.dirty = true
	w.say("t%d (g%d) is made on replica %s: %s", n, t.slot, serverNames[x], t.describe())
	return true
}

// rollback gives back a GTID that a commit owned.
func (w *world) rollback() bool {
	p := w.primary()
	if p < 0 || !w.servers[p].up {
		return false
	}
	s := &w.servers[p]
	i := len(s.inFlight) - 1
	if i < 0 || s.inFlight[i].stage != stageOwned || s.inFlight[i].applied || w.txs[s.inFlight[i].tx].ddl {
		return false
	}
	n := s.inFlight[i].tx
	s.owned &^= one(w.txs[n].slot)
	s.inFlight = s.inFlight[:i:i]
	w.txs[n].lost = true
	w.say("t%d rolls back after it owned g%d", n, w.txs[n].slot)
	return true
}

// purge drops the oldest part of a server's binlog. What differs from the
// primary's is not purged before it was seen: the rules call that shown, and say
// so.
func (w *world) purge(x int, b byte) bool {
	s := &w.servers[x]
	n := s.purged + 1 + pick(3, b)
	if !s.up || n > len(s.binlog) || !s.previousGTIDs(n).within(s.executed) {
		return false
	}
	if !s.primary {
		for _, e := range s.binlog[s.purged:n] {
			t := &w.txs[e.tx]
			if e.commit != t.commit || e.empty != t.empty || t.errant || t.lost {
				return false
			}
		}
	}
	if s.primary && w.features.has(FeatureTailLost) && !s.previousGTIDs(n).within(w.writer.led.delivered) {
		return false // a hole names nothing: who has an older one under its GTID can't tell (rules §11.2)
	}
	s.purged = n
	w.say("%s purges its binlog; %d of %d transactions are left", serverNames[x], len(s.binlog)-n, len(s.binlog))
	return true
}

// previousGTIDs is what had been executed when a part of the binlog began.
func (s *server) previousGTIDs(upTo int) set {
	var out set
	for _, e := range s.binlog[:upTo] {
		out |= one(e.slot)
	}
	return out
}

// readable is what the binlog still has.
func (s *server) readable() set {
	var out set
	for _, e := range s.binlog[s.purged:] {
		out |= one(e.slot)
	}
	return out
}

// purgedSet is gtid_purged.
func (s *server) purgedSet() set { return s.previousGTIDs(s.purged) }
