package rulestest

import (
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// ask moves the probe of one server by one stage: first it reads owned, then
// executed, then what it proves is published (rules §1, §6.2).
func (w *world) probeStep(x int) bool {
	s, t := &w.servers[x], &w.tailers[x]
	if !s.up || t.run != s.run {
		return false
	}
	p := &t.probe
	switch p.stage {
	case 0:
		*p = probe{stage: 1, began: w.now, owned: s.owned, ticks: t.ticks, primary: s.primary}
	case 1:
		p.stage, p.executed = 2, s.executed
		p.primary, p.undrained = p.primary && s.primary, s.undrained
		w.say("probe of %s: owned %s, executed %s, ticks %d %d, primary %v", serverNames[x], p.owned.print("g"), p.executed.print("g"), p.ticks[0].Tick, p.ticks[1].Tick, p.primary)
	case 2:
		w.compareAll(x)
		t.executed |= p.executed
		w.publishState(x)
		p.stage = 0
	}
	return true
}

func (w *world) publishState(x int) {
	s, t := &w.servers[x], &w.tailers[x]
	p := &t.probe
	st := &event.ServerState{
		Server: serverNames[x], UUID: s.uuid, Epoch: t.epoch, DataSet: uint64(t.data), History: t.history, LossSeen: t.lossSeen,
		Alive: true, Role: event.RoleReplica, Drained: !p.undrained, GTIDMode: "ON", Follow: w.follow(x),
		Owned: w.gtids(p.owned), Executed: w.gtids(p.executed), Base: w.gtids(t.base | t.unvetted), Errant: w.gtids(t.errant),
		Ticks: append([]event.RouterTick(nil), p.ticks[:]...), RelaxedDurable: s.relaxed,
	}
	received := w.received(s)
	st.Received = w.gtids(received)
	if p.primary {
		st.Role, st.Writable = event.RolePrimary, true
	}
	if !s.followExecuted {
		st.Unproven = w.gtids(p.executed &^ t.base &^ t.shown)
	}
	for _, x := range t.taints {
		e := event.Taint{All: x.all, Reason: x.reason, GTID: w.slotGTID(x.gtid)}
		if !x.all {
			e.Table, e.Name = w.v.any, schemaName+"."+tableName
		}
		st.Taints = append(st.Taints, e)
	}
	if t.excluded != "" {
		st.Excluded = []string{t.excluded}
	}
	if doubtful := (p.executed | p.owned | received) &^ t.base &^ t.shown & t.everLost &^ t.judged; doubtful != 0 && !p.primary && !s.followExecuted {
		// It may hold what was lost (rules §10, §11.2).
		st.Excluded = append(st.Excluded, "catching_up: not compared")
	}
	w.post(x, posted{ev: st, owned: p.owned, executed: p.executed, received: received, data: t.data, began: p.began})
	t.saved = saved{tracker: t.tracker, data: t.data, ok: true}
	t.saved.executed, t.saved.judged, t.saved.doubted, t.saved.asked = p.executed, 0, 0, false
	t.saved.shown = p.executed &^ (p.executed &^ t.base &^ t.shown) &^ t.base
	w.say("tailer of %s publishes: unproven %s, taints %d, errant %s, history %d", serverNames[x], w.short(st.Unproven), len(t.taints), t.errant.print("g"), t.history)
}

func (w *world) slotGTID(g int8) gtid.GTID { return w.slots[g] }

// post puts a state into STATE, which keeps the newest for those who come later.
func (w *world) post(x int, p posted) { w.states[x] = append(w.states[x], p) }

// stateStepsBack loses the newest state of a server.
func (w *world) stateStepsBack(x int) bool {
	n := len(w.states[x]) - 1
	if n < 1 {
		return false
	}
	w.states[x] = w.states[x][:n:n]
	w.say("STATE of %s steps back", serverNames[x])
	return true
}

// cycle is what a tailer does again and again, in a row. The lower bits of skip
// leave routers out, bit 3 the stream.
func (w *world) cycle(x int, skip byte) bool {
	w.connect(x)
	w.connect(x)
	w.see(x)
	for range 4 {
		if skip&8 != 0 || !w.followStream(x, 255) {
			break
		}
		w.now++
	}
	w.vet(x)
	w.compareAll(x)
	for range 4 {
		if !w.hint(x) {
			break
		}
		w.now++
	}
	for w.tailers[x].probe.stage != 0 && w.probeStep(x) {
		w.now++
	}
	for range 3 {
		w.probeStep(x)
		w.now++
	}
	for i, n := range w.routers {
		if skip>>uint(i)&1 == 0 && n != nil {
			for range 9 {
				if !w.takeState(n, x, 1) {
					break
				}
			}
		}
	}
	return true
}

// see lets a tailer notice the routers' newest ticks.
func (w *world) see(x int) bool {
	for i, n := range w.routers {
		if n != nil {
			w.tailers[x].ticks[i] = event.RouterTick{Router: n.incarnation, Tick: n.tick}
		}
	}
	return true
}
