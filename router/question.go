package router

import (
	"errors"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// question is one request held against one snapshot: everything about it that
// does not depend on which server is asked. Nothing of it leaves the decision.
//
// It is a value on the stack of Serve or Route and not a reused object: while
// the garbage collector marks, a pointer that is stored into an object costs a
// write barrier, and some fifty of them a decision made every sixth wait for
// microseconds (DECISIONS.md). What can't be on the stack, because it is handed
// to the snapshot, is in scratch, which holds no pointer that changes.
type question struct {
	*scratch

	r     *Router
	req   *Request
	snap  Snapshot
	level Level

	now, arrived int64
	ready        bool
	readyDetail  string
	cut          bool // the router is cut off from the stream
	deadMark     bool // connected, but W is too old although there is a primary

	primary       int // -1: not known
	primaryOK     bool
	primaryReason Reason
	primaryDetail string

	watermarkAt int64
	lost        gtid.Set
	horizon     gtid.Set
	failover    event.Version
	shown       horizonShower // the snapshot, if it knows H within C by itself

	// floor is F without what is lost and what never happened, where that had
	// to be worked out; see settleFloor.
	floor        gtid.Set
	floorLost    bool
	floorDropped bool // something of F never happened, or was lost before it was delivered
	// lostFloor is what F need not be waited for because it is lost. A floor does
	// not tell of which timeline it is, and a lost GTID may have been given again
	// to the very write that the caller names: only an E begun after the request
	// that does not show it tells the two apart (rules §10, [M]). The index takes
	// out of lost what a counted E shows.
	lostFloor gtid.Set

	allKeys verdict // a no that holds for every server, by reason of the keys
}

// scratch is the memory of one question that is used again for another.
type scratch struct {
	keys     []coveredKey
	cover    key.Cover
	scopes   [1 + len(key.Cover{}.Wide)]key.Digest
	versions [1 + len(key.Cover{}.Wide)]event.Version
	yesAt    []int // Route: places of replicas that may serve
}

// coveredKey is what the records say of one named key.
type coveredKey struct {
	table     key.Digest
	group     bool
	elsewhere bool     // by its engine: rows do not follow from what a replica executed
	before    gtid.Set // group keys: what had passed before the column was announced
	oneRow    bool
	own       event.Version
	wide      event.Version // the newest of all wide scopes
}

// addKey appends an empty one.
func (s *scratch) addKey() *coveredKey {
	n := len(s.keys)
	if n == cap(s.keys) {
		s.keys = append(s.keys, coveredKey{})
		return &s.keys[n]
	}
	s.keys = s.keys[:n+1]
	c := &s.keys[n] // without a sign of its last use, see release
	c.table, c.elsewhere, c.group, c.oneRow, c.own, c.wide = key.Digest{}, false, false, false, 0, 0
	return c
}

// release drops what would keep a snapshot alive.
func (s *scratch) release() {
	for n := range s.keys {
		if c := &s.keys[n]; !c.before.IsEmpty() {
			c.before = gtid.Set{}
		}
	}
	s.keys, s.yesAt = s.keys[:0], s.yesAt[:0]
}

// question begins one for a request and a snapshot. The clock is read after the
// snapshot was taken, so that ages come out too old rather than too young.
func (r *Router) question(s *scratch, snap Snapshot, req *Request, level Level, now int64) question {
	s.release()
	q := question{
		scratch: s, r: r, req: req, snap: snap, level: level, now: now, arrived: req.ArrivedAt,
		cut:  snap.BlindSince() != 0,
		lost: snap.Lost(), horizon: snap.Horizon(), failover: snap.LastFailover(),
		watermarkAt: snap.WatermarkAt(), floor: req.Floor,
	}
	if q.arrived == 0 {
		q.arrived = now
	}
	q.ready, q.readyDetail = snap.Ready()
	q.shown, _ = snap.(horizonShower)
	q.askPrimary()
	q.deadMark = q.primaryOK && !q.markYoung()
	q.settleFloor()
	return q
}

// askPrimary finds the primary that is known, announced, live and alone
// (rules §7); the lease that makes it live is this router's own (rules §6.3).
func (q *question) askPrimary() {
	i, ok, reason, detail := q.snap.Primary()
	q.primary, q.primaryOK = i, true
	if rule(rulePrimary) && !ok {
		q.primary, q.primaryOK, q.primaryDetail = -1, false, detail
		if q.primaryReason, ok = ParseReason(reason); !ok {
			q.primaryReason = ReasonNoPrimary
		}
		return
	}
	if i < 0 || i >= q.snap.NumServers() {
		q.primary, q.primaryOK, q.primaryReason = -1, false, ReasonNoPrimary
		return
	}
	if rule(rulePrimaryLease) && !q.leaseYoung(i) {
		q.primary, q.primaryOK = -1, false
		q.primaryReason, q.primaryDetail = ReasonNoPrimary, "the primary has not been heard of within the lease"
	}
}

func (q *question) leaseYoung(i int) bool {
	at := q.snap.LeaseAt(i)
	return at != 0 && q.now-at <= q.r.lease
}

func (q *question) markYoung() bool {
	return q.watermarkAt != 0 && q.now-q.watermarkAt <= q.r.markAge
}

// usesFloor tells the levels at which F counts.
func (l Level) usesFloor() bool { return l == LevelSession || l == LevelKey || l == LevelStrong }

// settleFloor takes out of F what never happened: a GTID that is in neither D
// nor H nor in an E begun after the request (rules §7). Only such an E counts:
// an older one does not know writes that were acknowledged since. The floor is
// the request's so far.
func (q *question) settleFloor() {
	if q.floor.IsEmpty() || !q.level.usesFloor() {
		return
	}
	e, at := q.snap.CountedE()
	if at != 0 && (at >= q.arrived || !rule(ruleLostAfter)) {
		q.lostFloor = q.lost
	}
	if at == 0 || rule(ruleDropAfter) && at < q.arrived {
		return
	}
	if q.snap.Delivered().ContainsSet(q.floor) {
		return
	}
	if q.grouped() {
		return // such an E is no bound of what a secondary may have shown
	}
	never := q.floor.Subtract(q.snap.Delivered()).Subtract(q.horizon).Subtract(e).Subtract(q.lost)
	q.floor, q.floorDropped = q.floor.Subtract(never), !never.IsEmpty()
}

// grouped tells whether a server is a member of a replication group
// (binlog/decisions/group-replication.md).
func (q *question) grouped() bool {
	for i := range q.snap.NumServers() {
		if s := q.snap.Server(i); s != nil && s.Grouped {
			return true
		}
	}
	return false
}

// floorWithin tells whether each GTID of F is in C(i), or lost (rules §7
// session). What is lost can't be waited for; the answer tells of it. A caller may
// have named its newest write alone: when that one is lost, nothing is left of F
// that asks for its earlier writes. A replica must then show all that the failover
// left (DECISIONS.md). The announced primary does.
func (q *question) floorWithin(i int) bool {
	c := q.snap.Confirmed(i)
	lost := !c.ContainsSet(q.floor)
	if lost && (!q.lostFloor.Overlaps(q.floor) || !c.ContainsSet(q.floor.Subtract(q.lostFloor))) {
		return false
	}
	if (lost || q.floorDropped) && i != q.primary && rule(ruleFloorCut) &&
		!c.ContainsSet(q.snap.FailoverLeft().Subtract(q.lost)) {
		return false
	}
	q.floorLost = q.floorLost || lost
	return true
}

// floorSeen tells whether each GTID of F is in D, H or C(i), or lost
// (rules §7 key): of anything else neither records nor server say anything yet.
func (q *question) floorSeen(i int) bool {
	if !q.floorDropped && (q.snap.Delivered().ContainsSet(q.floor) || q.snap.Confirmed(i).ContainsSet(q.floor)) {
		return true
	}
	rest := q.unseen(i)
	if !q.lostFloor.ContainsSet(rest) {
		return false
	}
	lost := !rest.IsEmpty()
	if (lost || q.floorDropped) && rule(ruleFloorCut) && !q.leftSeen() {
		return false
	}
	q.floorLost = q.floorLost || lost
	return true
}

// leftSeen tells whether the stream has come to all that the failover left: until
// then a record of the caller's earlier writes may be missing.
func (q *question) leftSeen() bool {
	return q.snap.FailoverLeft().Subtract(q.lost).Subtract(q.snap.Delivered()).Subtract(q.horizon).IsEmpty()
}

func (q *question) unseen(i int) gtid.Set {
	return q.floor.Subtract(q.snap.Confirmed(i)).Subtract(q.snap.Delivered()).Subtract(q.horizon)
}

// gather looks up the named keys. moved tells that the records moved on from
// the snapshot; the error is the caller's mistake.
func (q *question) gather() (moved bool, err error) {
	if rule(ruleReady) && !q.ready && q.level.promises() {
		return false, nil // the answer is catching_up whatever the keys are
	}
	for n := range q.req.Keys {
		moved, err := q.gatherKey(n)
		if moved || err != nil {
			return moved, err
		}
	}
	return false, nil
}

func (q *question) gatherKey(n int) (moved bool, err error) {
	k := &q.req.Keys[n]
	c := q.addKey()
	schema, table := k.FoldedNames(q.snap.FoldNames())
	def, ok := q.snap.Definition(schema, table)
	if !ok || def.Dropped {
		if rule(ruleUnknownTable) {
			q.keyNo(verdict{stage: stageKeys, reason: ReasonUnknownTable, detail: k.Schema + "." + k.Table, key: n})
		}
		return false, nil
	}
	if def.FoldNames != q.snap.FoldNames() {
		// The definition is of a primary that compared names otherwise; under it
		// the key would be called malformed.
		q.keyNo(verdict{stage: stageKeys, reason: ReasonSchemaChanged, detail: k.Table, key: n})
		return false, nil
	}
	if err := def.Cover(q.snap.Hasher(), k, &q.cover); err != nil {
		if reason := q.outdated(def); reason != ReasonNone {
			q.keyNo(verdict{stage: stageKeys, reason: reason, detail: err.Error(), key: n})
			return false, nil
		}
		return false, keyError(n, err)
	}
	c.table, c.oneRow = q.cover.Table, q.cover.OneRow
	c.elsewhere = event.RowsElsewhere(def.Engine) != ""
	if q.level != LevelKey {
		return false, nil // the table alone matters, for taints and filters
	}
	if v, ok := q.snap.StreamDef(c.table); rule(ruleSchemaChanged) && ok && v != 0 && v != def.Version {
		q.keyNo(verdict{stage: stageKeys, reason: ReasonSchemaChanged, detail: k.Table, key: n})
	}
	if k.Kind == key.KindGroup {
		c.group = true
		if c.before, ok = q.snap.GroupHorizon(q.cover.GroupColumn); rule(ruleGroupHorizon) && !ok {
			q.keyNo(verdict{stage: stageKeys, reason: ReasonBelowHorizon, detail: "the group column is not announced", key: n})
		}
	}
	return q.lookUp(c), nil
}

// outdated tells why a key may fit its table though it does not fit def, with the
// table of the key in q.cover: since the stream came to DDL it has not come to a row
// that was folded with def, or the caller has seen a write, perhaps the DDL, to which
// the stream has not come.
func (q *question) outdated(def *event.TableDefinition) Reason {
	if v, ok := q.snap.StreamDef(q.cover.Table); ok && v != def.Version {
		return ReasonSchemaChanged
	}
	if !q.floor.Subtract(q.snap.Delivered()).Subtract(q.horizon).Subtract(q.lostFloor).IsEmpty() {
		return ReasonWriteUnseen
	}
	return ReasonNone
}

func (q *question) lookUp(c *coveredKey) (moved bool) {
	w := q.cover.NWide
	q.scopes[0] = q.cover.Own
	copy(q.scopes[1:], q.cover.Wide[:w])
	if !q.snap.Newest(q.scopes[:1+w], q.versions[:1+w]) && rule(ruleRetryMoved) {
		return true
	}
	c.own = q.versions[0]
	for _, v := range q.versions[1 : 1+w] {
		c.wide = max(c.wide, v)
	}
	return false
}

// keyNo keeps the first no that holds for all servers alike.
func (q *question) keyNo(v verdict) {
	if q.allKeys.yes() {
		q.allKeys = v
	}
}

// keyError tells the caller which key does not fit its table.
func keyError(n int, err error) error {
	e := &RequestError{Code: CodeBadKey, Field: "key", Item: n, Offset: Unknown, Message: err.Error(), Err: err}
	var pe *key.ParseError
	if errors.As(err, &pe) {
		e.Offset = pe.Offset
	}
	return e
}

// horizonShower is what a snapshot may offer beside [Snapshot]: whether H∖lost
// lies within C(i), worked out when it was made rather than in each decision.
type horizonShower interface{ HorizonWithin(i int) bool }

// horizonWithin tells whether H is within C(i) or lost (rules §7 key).
func (q *question) horizonWithin(i int) bool {
	if q.shown != nil {
		return q.shown.HorizonWithin(i)
	}
	c := q.snap.Confirmed(i)
	return c.ContainsSet(q.horizon) || c.ContainsSet(q.horizon.Subtract(q.lost))
}
