package rulestest

import "tidegate/router"

// healRounds is how many fair rounds have to suffice.
const healRounds = 8

// heal lets nothing go wrong any more, and everything happen that is due. Then
// each question must be a yes on every server that has what the primary has.
func (w *world) heal() {
	w.healing = true
	w.asks = nil
	w.say("--- nothing goes wrong any more ---")
	w.now += leaseSteps + 1
	for x := range w.servers {
		w.start(x)
	}
	if w.primary() < 0 {
		w.promote(0, 0)
	}
	traced := w.traced
	for i := range healRounds {
		w.traced = traced && (w.patient || i == healRounds-1) // the last one tells most
		w.round()
		if w.violation != nil {
			return
		}
	}
	p := w.primary()
	for x := range w.servers {
		if p >= 0 && w.healthy(x, int(p)) {
			w.mustLive(x)
		}
	}
}

func (w *world) round() {
	for x := range w.servers {
		w.catchUp(x)
	}
	w.settleRelay()
	w.look()
	for i := 0; i < 60 && w.publish(0, 0); i++ {
		w.now++
	}
	w.checkpoint()
	for _, n := range w.routers {
		w.now++
		w.reconnect(n, 255)
		for i := 0; i < 60 && w.read(n, 255); i++ {
		}
		w.define(n)
		w.sendTick(n)
	}
	for x := range w.servers {
		w.now++
		w.see(x)
		for i := 0; i < 80 && w.followStream(x, 255); i++ {
		}
		for w.hint(x) {
		}
		w.compareAll(x)
		w.judgeErrant(x)
		for range 3 {
			w.probeStep(x)
		}
		for w.tailers[x].probe.stage != 0 && w.probeStep(x) {
		}
		for _, n := range w.routers {
			for w.takeState(n, x, 1) {
			}
		}
	}
}

// catchUp lets a server receive and apply all there is.
func (w *world) catchUp(x int) {
	s := &w.servers[x]
	for i := range byte(60) {
		w.advance(x, i)
	}
	for w.receive(x) {
	}
	for i := 0; i < 40 && len(s.relay)+len(s.inFlight) > 0; i++ {
		for j := range byte(3) {
			w.apply(x, j)
			w.advance(x, j)
		}
	}
	w.connect(x)
	w.connect(x)
}

// healthy tells whether a server really has what the primary has, and nothing
// was done to it that the rules exclude for good.
func (w *world) healthy(x, p int) bool {
	s, o := &w.servers[x], &w.servers[p]
	if s.dirty || !s.up || s.executed != o.executed || o.dirty {
		return false
	}
	for g := range s.holds {
		if s.executed.has(int8(g)) && s.holds[g] != o.holds[g] {
			return false
		}
	}
	if x == p {
		return true
	}
	// A GTID under which something was lost has to be shown again, and can't be
	// when its binlog is gone (rules §1).
	t := &w.tailers[x]
	// Nor can one that is empty, when a new history began without telling that
	// the primary's is empty too.
	for _, e := range s.binlog {
		known := t.base | t.shown | t.ids.identified()
		if e.empty && !(known|t.ids.empty).has(e.slot) || t.everLost.has(e.slot) && !known.has(e.slot) {
			return false
		}
	}
	return t.everLost&s.executed&(s.purgedSet()|s.executed&^s.previousGTIDs(len(s.binlog))) == 0
}

func (w *world) mustLive(x int) {
	for node := range w.routers {
		n := w.routers[node]
		_, at := n.ix.Snapshot().CountedE()
		arrived := at/stepNanos - n.offset
		for session := int8(-1); session < numSessions; session++ {
			for _, level := range [...]router.Level{router.LevelKey, router.LevelSession, router.LevelBounded} {
				for k := range int8(numKeys) {
					if level != router.LevelKey && k > 0 || level == router.LevelSession && session < 0 ||
						k >= firstGroup && k < anyRow && !w.groupsOn {
						continue
					}
					q := ask{session: session, node: node, server: x, level: level, key: k, arrived: arrived}
					if level == router.LevelBounded {
						q.bound = leaseSteps
					}
					w.prepare(&q)
					if !w.decide(&q) && w.violation == nil {
						w.fail(PropertyLive, "%s (%s); %s", n.ans.Reason, n.ans.Detail, &q)
					}
					if w.violation != nil {
						return
					}
					if q.yes {
						w.check(&q, w.servers[x].visible)
					}
				}
			}
		}
	}
}
