package router

import (
	"time"

	"tidegate/binlog/gtid"
)

// start empties the answer and fills in what does not depend on a server.
func (ans *Answer) start(q *question) {
	*ans = Answer{Level: q.level, BehindTxns: Unknown, Staleness: Unknown, WatermarkAge: Unknown, SpreadingFor: Unknown}
	if q.watermarkAt != 0 {
		ans.WatermarkAge = time.Duration(q.now - q.watermarkAt)
	}
}

// about fills in which server the answer speaks of.
func (ans *Answer) about(q *question, i int) {
	ans.Staleness = Unknown
	if at := q.snap.FreshAt(i); at != 0 {
		ans.Staleness = time.Duration(q.now - at)
	}
	if st := q.snap.Server(i); st != nil {
		ans.Server, ans.Role, ans.Addr = st.Server, st.Role, st.AppAddr
		ans.UUID, ans.Epoch = st.UUID, st.Epoch
	}
}

// block names the keys that are behind on server i and, where the caller asked
// for it, what the server lacks.
func (q *question) block(i int, v verdict, ans *Answer) {
	if i < 0 {
		return
	}
	if v.reason == ReasonKeyBehind {
		prefix := q.snap.Prefix(i)
		for n := range q.keys {
			if ans.NumBlocked < MaxBlocked && !q.recordShown(&q.keys[n], i, prefix) {
				ans.Blocked[ans.NumBlocked] = uint16(n)
				ans.NumBlocked++
			}
		}
	} else if len(q.req.Keys) > 0 && v.stage == stageKeys {
		ans.Blocked[0], ans.NumBlocked = uint16(v.key), 1
	}
	if q.req.Explain {
		q.explain(i, v, ans)
	}
}

func (q *question) explain(i int, v verdict, ans *Answer) {
	c := q.snap.Confirmed(i)
	ans.BehindTxns = q.behind(i)
	var need gtid.Set
	switch v.reason {
	case ReasonKeyBehind:
		for _, n := range ans.Blocked[:ans.NumBlocked] {
			k := &q.keys[n]
			if g, ok := q.snap.GTIDAt(max(k.own, k.wide)); ok && !c.Contains(g) {
				need = need.Add(g)
			} else {
				need = q.missing(i) // the prefix itself is what it needs
				break
			}
		}
	case ReasonSessionBehind:
		if need = q.floor.Subtract(c).Subtract(q.lostFloor); need.IsEmpty() {
			need = q.snap.FailoverLeft().Subtract(q.lost).Subtract(c)
		}
	case ReasonWriteUnseen:
		need = q.unseen(i).Subtract(q.lostFloor)
	case ReasonBelowHorizon:
		need = q.horizon.Subtract(c).Subtract(q.lost)
		if v.stage == stageHorizon && v.detail != "" {
			need = q.keys[v.key].before.Subtract(c).Subtract(q.lost)
		}
	}
	ans.need(q, need)
}

// learntAgo is how long ago the router learnt of the newest write of a named key.
func (q *question) learntAgo(n int) time.Duration {
	k := &q.keys[n]
	at := q.snap.LearntAt(max(k.own, k.wide))
	if at == 0 {
		return Unknown
	}
	return time.Duration(max(0, q.now-at))
}

// need keeps as much of the set as an answer carries.
func (ans *Answer) need(q *question, need gtid.Set) {
	ans.Need = need
	if !q.req.Verbose && need.NumIntervals() > MaxNeedIntervals {
		ans.Need, ans.NeedCut = need.Limit(MaxNeedIntervals), true
	}
}

// missing is what was delivered and is neither confirmed on server i nor lost.
func (q *question) missing(i int) gtid.Set {
	return q.snap.Delivered().Subtract(q.snap.Confirmed(i)).Subtract(q.lost)
}

func (q *question) behind(i int) int64 { return int64(min(q.missing(i).Count(), 1<<62)) }
