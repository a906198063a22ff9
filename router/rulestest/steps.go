package rulestest

// Step is one thing that happens: its kind, and three bytes that say which.
type Step [4]byte

// Kind is a sort of step.
type Kind uint8

// The kinds. Macros do in a row what else hardly ever meets.
const (
	KindWrite Kind = iota
	KindAdvance
	KindAcknowledge
	KindWrote
	KindReceive
	KindApply
	KindCrash
	KindStart
	KindPromote
	KindBackup
	KindRebuild
	KindTick
	KindSee
	KindConnect
	KindFollow
	KindHint
	KindProbe
	KindTakeState
	KindRead
	KindPublish
	KindCheckpoint
	KindStepBack
	KindDiscard
	KindEvict
	KindSave
	KindRestart
	KindRequest
	KindAnswer
	KindOpen
	KindInject
	KindFilter
	KindErrant
	KindRollback
	KindJudge
	KindStateBack
	KindPurge
	KindTailerRestart
	KindWriterRestart
	KindWriterLooks
	KindGroups
	KindDefine
	KindCutOff
	KindReconnect
	KindAudit
	KindCycle
	KindFlow
	KindWork
	KindQuery
	KindCommit
	KindFailover
	KindSettle
	KindWait
	KindRestore
	NumKinds
)

// kindInfo says how often a kind is drawn and what it does. A step whose feature
// is off does nothing.
type kindInfo struct {
	name    string
	weight  int
	feature Feature // with needs
	needs   bool
	do      func(w *world, a, b, c byte) bool
}

func always(name string, weight int, do func(w *world, a, b, c byte) bool) kindInfo {
	return kindInfo{name: name, weight: weight, do: do}
}

func with(f Feature, name string, weight int, do func(w *world, a, b, c byte) bool) kindInfo {
	return kindInfo{name: name, weight: weight, feature: f, needs: true, do: do}
}

func server3(a byte) int { return pick(numServers, a) }

// kindTable is by Kind. It is a function so that the package has no state.
func kindTable() *[NumKinds]kindInfo {
	return &[NumKinds]kindInfo{
		KindWrite:       always("write", 9, func(w *world, a, b, c byte) bool { return w.write(a, b, c) }),
		KindAdvance:     always("advance", 30, func(w *world, a, b, c byte) bool { return w.advance(server3(a), b) }),
		KindAcknowledge: always("acknowledge", 10, func(w *world, a, b, c byte) bool { return w.acknowledge(a) }),
		KindWrote:       always("wrote", 7, func(w *world, a, b, c byte) bool { return w.wrote() }),
		KindReceive:     always("receive", 14, func(w *world, a, b, c byte) bool { return w.receive(server3(a)) }),
		KindApply:       always("apply", 14, func(w *world, a, b, c byte) bool { return w.apply(server3(a), b) }),
		KindCrash:       with(FeatureCrash, "crash", 1, func(w *world, a, b, c byte) bool { return w.crash(server3(a), b, c) }),
		KindStart:       always("start", 3, func(w *world, a, b, c byte) bool { return w.start(server3(a)) }),
		KindPromote:     with(FeaturePromote, "promote", 2, func(w *world, a, b, c byte) bool { return w.promote(server3(a), c) }),
		KindBackup:      with(FeatureRebuild, "backup", 1, func(w *world, a, b, c byte) bool { return w.backup(server3(a)) }),
		KindRebuild:     with(FeatureRebuild, "rebuild", 3, func(w *world, a, b, c byte) bool { return w.rebuild(server3(a), b, c) }),
		KindTick:        always("tick", 6, func(w *world, a, b, c byte) bool { return w.sendTick(w.routers[pick(numRouters, a)]) }),
		KindSee:         always("see ticks", 8, func(w *world, a, b, c byte) bool { return w.see(server3(a)) }),
		KindConnect:     always("connect", 4, func(w *world, a, b, c byte) bool { return w.connect(server3(a)) }),
		KindFollow:      always("follow", 14, func(w *world, a, b, c byte) bool { return w.followStream(server3(a), b) }),
		KindHint:        always("hint", 16, func(w *world, a, b, c byte) bool { return w.hint(server3(a)) }),
		KindProbe:       always("probe", 26, func(w *world, a, b, c byte) bool { return w.probeStep(server3(a)) }),
		KindTakeState:   always("take state", 20, func(w *world, a, b, c byte) bool { return w.takeState(w.routers[pick(numRouters, b)], server3(a), c) }),
		KindRead:        always("read", 20, func(w *world, a, b, c byte) bool { return w.read(w.routers[pick(numRouters, a)], b) }),
		KindPublish:     always("publish", 18, func(w *world, a, b, c byte) bool { return w.publish(a, b) }),
		KindCheckpoint:  with(FeatureCheckpoints, "checkpoint", 2, func(w *world, a, b, c byte) bool { return w.checkpoint() }),
		KindStepBack:    with(FeatureStepBack, "step back", 1, func(w *world, a, b, c byte) bool { return w.stepBack(a) }),
		KindDiscard:     with(FeatureRetention, "discard", 1, func(w *world, a, b, c byte) bool { return w.discard(a) }),
		KindEvict:       with(FeatureEvict, "evict", 2, func(w *world, a, b, c byte) bool { w.routers[pick(numRouters, a)].evict(1 + pick(3, b)); return true }),
		KindSave: always("save", 2, func(w *world, a, b, c byte) bool {
			n := w.routers[pick(numRouters, a)]
			n.saved = len(n.written)
			return true
		}),
		KindRestart:   with(FeatureRestart, "restart", 1, func(w *world, a, b, c byte) bool { return w.restart(w.routers[pick(numRouters, a)], b < 200) }),
		KindRequest:   always("request", 9, func(w *world, a, b, c byte) bool { return w.request(a, b, c) }),
		KindAnswer:    always("answer", 14, func(w *world, a, b, c byte) bool { return w.answer(a) }),
		KindOpen:      always("open", 14, func(w *world, a, b, c byte) bool { return w.open(a, c) }),
		KindInject:    with(FeatureInject, "inject", 1, func(w *world, a, b, c byte) bool { return w.inject(server3(a), false) }),
		KindFilter:    with(FeatureFilter, "filter", 1, func(w *world, a, b, c byte) bool { return w.inject(server3(a), true) }),
		KindErrant:    with(FeatureErrant, "errant", 1, func(w *world, a, b, c byte) bool { return w.errant(server3(a), b) }),
		KindRollback:  with(FeatureRollback, "roll back", 2, func(w *world, a, b, c byte) bool { return w.rollback() }),
		KindJudge:     always("judge errant", 3, func(w *world, a, b, c byte) bool { return w.judgeErrant(server3(a)) }),
		KindStateBack: with(FeatureStepBack, "state back", 1, func(w *world, a, b, c byte) bool { return w.stateStepsBack(server3(a)) }),
		KindPurge:     with(FeaturePurge, "purge", 1, func(w *world, a, b, c byte) bool { return w.purge(server3(a), b) }),
		KindTailerRestart: with(FeatureTailerRestart, "tailer restart", 1, func(w *world, a, b, c byte) bool {
			return w.restartTailer(server3(a), b)
		}),
		KindWriterRestart: with(FeatureTailerRestart, "writer restart", 1, func(w *world, a, b, c byte) bool {
			on := w.writer.on
			w.writer.on = false
			return on
		}),
		KindWriterLooks: always("writer looks", 1, func(w *world, a, b, c byte) bool { return w.look() }),
		KindGroups: with(FeatureGroups, "add group column", 1, func(w *world, a, b, c byte) bool {
			off := !w.groupsOn
			w.groupsOn = true
			return off
		}),
		KindDefine:    always("define", 6, func(w *world, a, b, c byte) bool { return w.define(w.routers[pick(numRouters, a)]) }),
		KindCutOff:    with(FeatureBlind, "cut off", 1, func(w *world, a, b, c byte) bool { return w.cutOff(w.routers[pick(numRouters, a)]) }),
		KindReconnect: always("reconnect", 2, func(w *world, a, b, c byte) bool { return w.reconnect(w.routers[pick(numRouters, a)], b) }),
		KindAudit:     always("audit", 18, func(w *world, a, b, c byte) bool { return w.auditStep(a, b, c) }),
		KindCycle:     always("cycle", 22, func(w *world, a, b, c byte) bool { return w.cycle(server3(a), b) }),
		KindFlow:      always("flow", 16, func(w *world, a, b, c byte) bool { return w.flow(a, b, c) }),
		KindWork:      always("work", 14, func(w *world, a, b, c byte) bool { return w.work(server3(a), b, c) }),
		KindCommit:    always("commit", 8, func(w *world, a, b, c byte) bool { return w.commit(a, b, c) }),
		KindFailover:  with(FeaturePromote, "failover", 1, func(w *world, a, b, c byte) bool { return w.failover(server3(a), b, c) }),
		KindSettle:    always("settle", 8, func(w *world, a, b, c byte) bool { return w.settle(a) }),
		KindWait:      always("wait", 2, func(w *world, a, b, c byte) bool { w.now += int64(a) % leaseSteps; return true }),
		KindRestore:   with(FeatureTailLost, "restore", 1, func(w *world, a, b, c byte) bool { return w.restore(server3(a), b, c) }),
		KindQuery:     always("query", 14, func(w *world, a, b, c byte) bool { return w.query(a, b, c) }),
	}
}

// step does one step. It reports whether anything happened.
func (w *world) step(kinds *[NumKinds]kindInfo, s Step) bool {
	w.now++
	w.stats.Steps++
	w.settleRelay()
	k := &kinds[Kind(s[0])%NumKinds]
	if k.needs && !w.features.has(k.feature) {
		return false
	}
	return k.do(w, s[1], s[2], s[3])
}

func (w *world) auditStep(a, b, c byte) bool {
	evict := 0
	if w.features.has(FeatureEvict) && c > 200 {
		evict = 1 + pick(2, c)
	}
	return w.audit(w.node(a), server3(b), evict, c&1 == 1)
}

// flow publishes what there is, and lets a router read it.
func (w *world) flow(a, b, c byte) bool {
	for i := range 3 + a&3 {
		w.now++
		w.publish(b, i)
	}
	for range 7 {
		w.now++
		w.read(w.routers[pick(numRouters, b)], c)
	}
	return true
}

// work lets a server do what it has to do.
func (w *world) work(x int, b, c byte) bool {
	for range b >> 6 { // several wait in the relay log, and may overtake
		w.receive(x)
	}
	for i := range 2 + b&7 {
		w.now += 4
		w.advance(x, i)
		w.receive(x)
		w.apply(x, c)
		w.advance(x, c>>2)
	}
	return true
}

// query asks, with the probes of that server and of the primary on the way.
func (w *world) query(a, b, c byte) bool {
	if !w.request(a, b, c) {
		return false
	}
	i := len(w.asks) - 1
	w.now++
	w.cycle(w.asks[i].server, 0)
	if p := w.primary(); p >= 0 {
		w.cycle(int(p), 0)
	}
	return w.answer(byte(i))
}

// commit takes a transaction from its beginning to its client.
func (w *world) commit(a, b, c byte) bool {
	if !w.write(a, b, c) {
		return false
	}
	p := int(w.primary())
	for range 3 {
		w.now++
		w.advance(p, byte(len(w.servers[p].inFlight)-1))
	}
	w.now++
	w.acknowledge(c)
	if c&4 != 0 {
		w.now++
		w.wrote()
	}
	return true
}

// failover stops the primary and makes another server it.
func (w *world) failover(x int, b, c byte) bool {
	p := w.primary()
	if p < 0 || p == int8(x) || !w.servers[x].up {
		return false
	}
	if w.features.has(FeatureCrash) && b&1 == 0 {
		w.crash(int(p), b, c)
	} else {
		for i := range byte(9) {
			w.advance(int(p), 0)
			w.advance(x, i)
			w.receive(x)
			w.apply(x, 0)
		}
	}
	w.now++
	return w.promote(x, c)
}

// restore rebuilds a server from a backup of another that has what a crash of the
// primary loses then.
func (w *world) restore(x int, b, c byte) bool {
	p := int(w.primary())
	if p < 0 || p == x || !w.features.has(FeatureCrash) || !w.features.has(FeatureRebuild) || !w.commit(b, b, c) {
		return false
	}
	y := numServers - p - x
	w.work(y, 3, 0)
	w.work(y, 3, 0)
	if !w.backup(y) {
		return false
	}
	w.crash(x, 5, 0)
	w.crash(p, 0, c)
	w.now += leaseSteps + 1
	w.rebuild(x, byte(len(w.backups)-1), c)
	return w.start(p)
}

// settle lets all of Tidegate do its work once, while the servers stand still.
func (w *world) settle(skip byte) bool {
	for x := range w.servers {
		w.start(x)
	}
	w.settleRelay()
	for x := range w.servers {
		if skip>>uint(x)&1 == 0 {
			w.cycle(x, skip>>4)
		}
	}
	for range 6 {
		w.now++
		w.publish(0, 0)
	}
	for i, n := range w.routers {
		if skip>>uint(4+i)&1 == 1 {
			continue
		}
		w.sendTick(n)
		for range 12 {
			w.read(n, 0)
		}
		w.define(n)
	}
	for x := range w.servers {
		if skip>>uint(x)&1 == 0 {
			w.cycle(x, skip>>4)
		}
	}
	return true
}
