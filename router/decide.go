package router

import "tidegate/cdc/event"

// stage tells how far a server came in the checks; the reason of the one that
// came farthest explains why Route went to the primary.
type stage uint8

const (
	stageReady stage = iota
	stageEligible
	stageKeys
	stageStale
	stagePrimary
	stageFloor
	stageWatermark
	stageHorizon
	stageRecords
)

// verdict is the outcome of the checks; without a reason it is a yes.
type verdict struct {
	reason Reason
	stage  stage
	detail string
	key    int // the first key that is the reason, where one is
}

func (v verdict) yes() bool { return v.reason == ReasonNone }

// leave says which checks blindness waives; never for a level that promises
// anything about writes.
type leave struct{ contact, staleness bool }

// judge holds the question against server i: the table of rules §7, row by row.
func (q *question) judge(i int) verdict { return q.judgeWith(i, leave{}) }

func (q *question) judgeWith(i int, l leave) verdict {
	if !q.ready && rule(ruleReady) && !l.contact {
		return verdict{reason: ReasonCatchingUp, stage: stageReady, detail: q.readyDetail}
	}
	if v := q.eligible(i, l); !v.yes() {
		return v
	}
	if !q.allKeys.yes() {
		return q.allKeys
	}
	if v := q.tables(i); !v.yes() {
		return v
	}
	if q.req.bounded() && !l.staleness {
		if v := q.fresh(i); !v.yes() {
			return v
		}
	}
	if !q.level.promises() {
		return verdict{}
	}
	if !q.primaryOK {
		return verdict{reason: q.primaryReason, stage: stagePrimary, detail: q.primaryDetail}
	}
	switch q.level {
	case LevelStrong:
		return q.strong(i)
	case LevelSession:
		return q.session(i)
	default:
		return q.key(i)
	}
}

// neverHeard speaks against a server that is configured and has not said
// anything since the router knows.
var neverHeard = verdict{reason: ReasonLeaseExpired, stage: stageEligible, detail: "nothing has been heard of it yet"}

// eligible: the epoch is live, the lease young, the role known, and nothing
// excludes the server (rules §6.3, §7).
func (q *question) eligible(i int, l leave) verdict {
	no := func(r Reason, detail string) verdict {
		return verdict{reason: r, stage: stageEligible, detail: detail}
	}
	st := q.snap.Server(i)
	if st == nil {
		return neverHeard
	}
	if rule(ruleAlive) && !st.Alive {
		return no(ReasonLeaseExpired, st.Down)
	}
	if rule(ruleLease) && !l.contact && !q.leaseYoung(i) {
		return no(ReasonLeaseExpired, "")
	}
	if rule(ruleRole) && st.Role == event.RoleUnknown {
		return no(ReasonExcluded, "its role is not known")
	}
	if rule(ruleIneligible) {
		if reason, detail := q.snap.Ineligible(i); reason != "" {
			r, _ := ParseReason(reason)
			return no(r, detail)
		}
	}
	return verdict{}
}

// tables: a tainted or filtered table is excluded on the server (rules §2.4).
// Who names no keys may read any table: then one taint is enough (P3), and at
// levels with a promise one filter.
func (q *question) tables(i int) verdict {
	for n := range q.keys {
		// A server tells its exclusions only after its next look at its tables; the
		// primary's definition tells of an engine at once.
		if rule(ruleTableExcluded) && (q.snap.TableExcluded(i, q.keys[n].table) || q.keys[n].elsewhere && i != q.primary) {
			return verdict{reason: ReasonExcluded, stage: stageKeys, detail: "the table is tainted or filtered there", key: n}
		}
	}
	if len(q.req.Keys) > 0 || !rule(ruleNoKeysTaint) || i == q.primary {
		return verdict{}
	}
	st := q.snap.Server(i)
	if len(st.Taints) > 0 {
		return verdict{reason: ReasonExcluded, stage: stageKeys, detail: "a table is tainted there; name the keys"}
	}
	if q.level != LevelEventual && len(st.Filtered)+len(st.FilteredTables) > 0 {
		return verdict{reason: ReasonExcluded, stage: stageKeys, detail: "tables are filtered there; name the keys"}
	}
	return verdict{}
}

// fresh: staleness(X) is known and within the bound (rules §7 bounded).
func (q *question) fresh(i int) verdict {
	at := q.snap.FreshAt(i)
	if rule(ruleStaleness) && (at == 0 || q.now-at > int64(q.req.MaxStaleness)) {
		return verdict{reason: ReasonTooStale, stage: stageStale}
	}
	return verdict{}
}

// strong: only the primary, and it too must show the floor (rules §7).
func (q *question) strong(i int) verdict {
	if rule(ruleStrong) && i != q.primary {
		return verdict{reason: ReasonStrong, stage: stagePrimary}
	}
	if rule(ruleStrongFloor) && !q.floorWithin(i) {
		return verdict{reason: ReasonWriteUnseen, stage: stageFloor}
	}
	return verdict{}
}

// session: each GTID of F is in C(X), or lost (P4).
func (q *question) session(i int) verdict {
	if rule(ruleSessionFloor) && !q.floorWithin(i) {
		return verdict{reason: ReasonSessionBehind, stage: stageFloor}
	}
	return verdict{}
}

// key: no write of the keys that was acknowledged before W, and none of the
// floor, may be missing on X (P2).
func (q *question) key(i int) verdict {
	if rule(ruleWatermark) && !q.markYoung() {
		return verdict{reason: ReasonWatermarkOld, stage: stageWatermark, detail: q.snap.WatermarkRefused()}
	}
	c := q.snap.Confirmed(i)
	if rule(ruleHorizon) && !q.horizonWithin(i) {
		return verdict{reason: ReasonBelowHorizon, stage: stageHorizon, detail: q.snap.Server(i).ReplicationErr}
	}
	if rule(ruleUnseen) && !q.floorSeen(i) {
		return verdict{reason: ReasonWriteUnseen, stage: stageFloor}
	}
	prefix := q.snap.Prefix(i)
	for n := range q.keys {
		k := &q.keys[n]
		if k.group && rule(ruleGroupHorizon) && !c.ContainsSet(k.before) && !c.ContainsSet(k.before.Subtract(q.lost)) {
			return verdict{reason: ReasonBelowHorizon, stage: stageHorizon, detail: "from before the group column was announced", key: n}
		}
		if !q.recordShown(k, i, prefix) {
			return verdict{reason: ReasonKeyBehind, stage: stageRecords, key: n}
		}
	}
	return verdict{}
}

// recordShown: the newest record of the key and of every wide scope that covers
// it lie within prefix(X). For exactly one row its own record's GTID suffices,
// when no wide record and no failover is newer than the prefix: many-row keys
// need the prefix, since commits may become visible out of order (rules §7).
func (q *question) recordShown(k *coveredKey, i int, prefix event.Version) bool {
	if rule(ruleWideRecord) && k.wide > prefix {
		return false
	}
	if !rule(ruleOwnRecord) || k.own <= prefix {
		return true
	}
	if rule(ruleShortcutOneRow) && !k.oneRow {
		return false
	}
	if rule(ruleShortcutFailover) && q.failover > prefix {
		return false
	}
	writer, known := q.snap.GTIDAt(k.own)
	return known && q.snap.Confirmed(i).Contains(writer)
}

// dueToBlindness tells the reasons that being cut off brings about by itself.
func (q *question) dueToBlindness(v verdict) bool {
	switch v.reason {
	case ReasonLeaseExpired, ReasonTooStale, ReasonWatermarkOld, ReasonCatchingUp, ReasonNoPrimary, ReasonWriteUnseen:
		return true
	}
	return false
}

// mayBeStale is the one exception to P3: the router is cut off, or its
// watermark is dead although there is a primary, the level promises nothing
// about writes, and nothing but that blindness speaks against the server.
func (q *question) mayBeStale(i int, v verdict) bool {
	if q.level.promises() || !q.cut && !q.deadMark || !q.dueToBlindness(v) {
		return false
	}
	return q.judgeWith(i, leave{contact: q.cut, staleness: true}).yes()
}
