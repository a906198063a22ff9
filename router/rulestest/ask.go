package rulestest

import (
	"fmt"
	"time"

	"tidegate/router"
)

// ask is one question, from its arrival to the read that follows a yes.
type ask struct {
	session int8 // -1: nobody who wrote
	node    int
	server  int
	key     int8
	level   router.Level
	bound   int64 // steps; 0: none
	arrived int64
	floor   set // GTIDs
	told    set // transactions that must be shown, if the level minds the floor

	// Of a yes.
	yes      bool
	at       int64
	keyed    bool  // level key: the watermark counts
	bounded  bool  // a staleness was promised
	mark     int64 // when W's tick was sent
	freshAt  int64
	run      int
	data     int
	executed set // by the state on which the answer rests
}

func (q *ask) String() string {
	return fmt.Sprintf("session %d asked router %d for %s, %s, level %s, floor %s, arrived at %d, answered at %d", q.session, q.node, serverNames[q.server], keyNames[q.key], q.level, q.floor.print("g"), q.arrived, q.at)
}

// floorKey is the key through which the floor is promised: at level key only the
// named rows.
func (q *ask) floorKey() int8 {
	if q.keyed {
		return q.key
	}
	return anyRow
}

var askLevels = [...]router.Level{
	router.LevelKey, router.LevelSession, router.LevelKey, router.LevelBounded,
	router.LevelKey, router.LevelStrong, router.LevelEventual, router.LevelSession,
}

const maxAsks = 4

// request is a question that arrives.
func (w *world) request(a, b, c byte) bool {
	if len(w.asks) >= maxAsks {
		return false
	}
	q := ask{
		session: int8(pick(numSessions+1, a)) - 1, node: w.node(a / 4), server: pick(numServers, b),
		level: askLevels[pick(len(askLevels), b/4)], key: int8(pick(numKeys, c)), arrived: w.now,
	}
	if q.level == router.LevelBounded || c > 240 {
		q.bound = 1 + int64(c)/2
	}
	w.prepare(&q)
	if q.level == router.LevelSession && q.session < 0 {
		return false
	}
	w.asks = append(w.asks, q)
	w.sendTick(w.routers[q.node])
	w.say("request: %s", &q)
	return true
}

// node is a router by number; the second one needs its feature.
func (w *world) node(b byte) int {
	if !w.features.has(FeatureTwoRouters) {
		return 0
	}
	return pick(numRouters, b)
}

// prepare takes the session's floor.
func (w *world) prepare(q *ask) {
	if q.session < 0 {
		return
	}
	s := &w.sessions[q.session]
	q.floor = s.floor
	if q.level == router.LevelSession || q.level == router.LevelKey || q.level == router.LevelStrong {
		q.told = s.told
	}
}

// decide asks the real router.
func (w *world) decide(q *ask) bool {
	n := w.routers[q.node]
	req := router.Request{
		Server: serverNames[q.server], Level: q.level, Floor: w.gtids(q.floor), HasFloor: q.session >= 0,
		MaxStaleness: time.Duration(q.bound) * stepNanos, ArrivedAt: (q.arrived + n.offset) * stepNanos,
	}
	if q.level == router.LevelKey {
		req.Keys = w.v.keys[q.key : q.key+1]
	}
	ans := &n.ans
	w.stats.Answers++
	if err := n.rt.Serve(&req, ans); err != nil {
		panic(err)
	}
	if !ans.Yes {
		return false
	}
	w.stats.Yes++
	w.stats.ByLevel[ans.Level]++
	q.yes, q.at = true, w.now
	q.told &^= w.mistaken(n, q.told)
	q.keyed = ans.Level == router.LevelKey && !ans.Stale
	if ans.Stale {
		q.told = 0
	}
	q.mark, q.freshAt = n.steps(ans.WatermarkAge), n.steps(ans.Staleness)
	q.bounded = q.bound > 0 && !ans.Stale
	q.run, q.data, q.executed = w.servers[q.server].run, n.held[q.server].data, n.held[q.server].executed
	if ans.WatermarkAge < 0 {
		q.mark = 0
	}
	w.checkAnswer(q, ans)
	return true
}

// checkAnswer holds the answer itself against the world.
func (w *world) checkAnswer(q *ask, ans *router.Answer) {
	s := &w.servers[q.server]
	switch {
	case ans.Stale:
		return
	case q.level != router.LevelEventual && q.data != s.data:
		w.fail(PropertyEpoch, "%s", q)
	case q.bounded && (ans.Staleness < 0 || int64(ans.Staleness) > q.bound*stepNanos):
		w.fail(PropertyBound, "staleness %v, bound %d steps; %s", ans.Staleness, q.bound, q)
	case !s.up && w.now-s.downAt > leaseSteps:
		w.fail(PropertyLease, "down since %d; %s", s.downAt, q)
	case w.promises(q.level) && w.routers[q.node].at < w.routers[q.node].target:
		w.fail(PropertyReady, "at message %d of %d; %s", w.routers[q.node].at, w.routers[q.node].target, q)
	case w.promises(q.level) && w.noPrimary():
		w.fail(PropertyPrimary, "%s", q)
	case q.keyed && (ans.WatermarkAge < 0 || int64(ans.WatermarkAge) > markSteps*stepNanos):
		w.fail(PropertyWatermark, "its age is %v; %s", ans.WatermarkAge, q)
	case q.level == router.LevelStrong && !s.primary && w.now-s.demotedAt > leaseSteps:
		w.fail(PropertyStrong, "%s", q)
	}
	if p := w.primary(); !s.primary && p >= 0 && !w.servers[p].executed.within(s.executed) {
		w.stats.Lagging++
	}
}

func (w *world) promises(l router.Level) bool {
	return l == router.LevelKey || l == router.LevelSession || l == router.LevelStrong
}

// noPrimary tells whether the primary has been down for longer than the lease.
func (w *world) noPrimary() bool {
	p := w.primary()
	return p >= 0 && !w.servers[p].up && w.now-w.servers[p].downAt > leaseSteps
}

// answer decides one of the open questions.
func (w *world) answer(b byte) bool {
	if len(w.asks) == 0 {
		return false
	}
	i := pick(len(w.asks), b)
	q := &w.asks[i]
	if q.yes {
		return false
	}
	if w.decide(q) {
		w.say("YES (%s, watermark %d, fresh at %d): %s", w.routers[q.node].ans.Reason, q.mark, q.freshAt, q)
		return true
	}
	w.say("no (%s %s): %s", w.routers[q.node].ans.Reason, w.routers[q.node].ans.Detail, q)
	if b > 128 { // gives up
		w.asks = append(w.asks[:i:i], w.asks[i+1:]...)
	}
	return true
}

// open is the read after a yes: its snapshot is opened now. A connection that
// broke, or that reaches another server, reads nothing.
func (w *world) open(b, c byte) bool {
	if len(w.asks) == 0 {
		return false
	}
	i := pick(len(w.asks), b)
	q := w.asks[i]
	if !q.yes {
		return false
	}
	w.asks = append(w.asks[:i:i], w.asks[i+1:]...)
	s := &w.servers[q.server]
	if !s.up || s.data != q.data || s.run != q.run {
		return true
	}
	w.say("a snapshot is opened on %s and shows %s", serverNames[q.server], s.visible.print("t"))
	w.check(&q, s.visible)
	if q.session >= 0 && c&3 == 0 { // the reader takes along what the server had (its `seen`)
		w.takeAlong(q.session, s)
	}
	return true
}

// takeAlong raises a session's floor to what a server shows now.
func (w *world) takeAlong(session int8, s *server) {
	se := &w.sessions[session]
	se.floor |= s.owned | s.executed
	for n := range int8(len(w.txs)) {
		if s.visible.has(n) && !w.txs[n].lost {
			w.tell(session, n)
		}
	}
	w.say("session %d takes along %s", session, (s.owned | s.executed).print("g"))
}

func (w *world) tell(session, n int8) {
	s := &w.sessions[session]
	if !s.told.has(n) {
		s.told |= one(n)
		s.toldAt[n] = w.now
	}
}

// toldSince is what a session learned after a moment.
func (w *world) toldSince(session int8, since int64) set {
	var out set
	s := &w.sessions[session]
	s.told.each(func(n int8) {
		if s.toldAt[n] > since {
			out |= one(n)
		}
	})
	return out
}

// wrote tells a session that its transaction is committed, with its GTID.
func (w *world) wrote() bool {
	for n := range int8(len(w.txs)) {
		t := &w.txs[n]
		if t.acked == 0 || t.session < 0 || t.told || t.lost {
			continue
		}
		s := &w.sessions[t.session]
		t.told = true
		s.floor |= one(t.slot)
		w.tell(t.session, n)
		w.say("session %d learns that it wrote t%d (g%d)", t.session, n, t.slot)
		return true
	}
	return false
}

// audit asks everything at once and compares with what the server shows now: as
// if the questions had arrived before the newest counted probe began, or now.
func (w *world) audit(node, x int, evict int, now bool) bool {
	n := w.routers[node]
	s := &w.servers[x]
	_, at := n.ix.Snapshot().CountedE()
	if !s.up || n.held[x].ev == nil || at == 0 {
		return false
	}
	arrived := at/stepNanos - n.offset
	if now {
		arrived = w.now
	}
	n.evictUnder, n.evictAfter = evict, int(w.now)%8
	defer func() { n.evictUnder = 0 }()
	for session := int8(-1); session < numSessions; session++ {
		for _, level := range [...]router.Level{router.LevelKey, router.LevelSession, router.LevelStrong, router.LevelBounded} {
			for k := range int8(numKeys) {
				if level != router.LevelKey && k > 0 || level == router.LevelSession && session < 0 || level == router.LevelBounded && session >= 0 {
					continue
				}
				q := ask{session: session, node: node, server: x, level: level, key: k, arrived: arrived}
				if level == router.LevelBounded {
					q.bound = leaseSteps
				}
				w.prepare(&q)
				if session >= 0 { // what the session learned since had no part in that request
					q.told &^= w.toldSince(session, arrived)
				}
				if w.decide(&q) && w.violation == nil && q.data == s.data {
					w.check(&q, s.visible)
				}
				if w.violation != nil {
					w.say("audit of router %d and server %s", node, serverNames[x])
					return true
				}
			}
		}
	}
	return true
}
