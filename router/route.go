package router

import (
	"context"
	"slices"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// route decides, and decides again while it waits for the primary's next probe.
func (r *Router) route(ctx context.Context, s *scratch, req *Request, level Level, ans *Answer) error {
	arrived := req.ArrivedAt
	if arrived == 0 {
		arrived = r.o.Clock()
	}
	var wait waiting
	defer wait.stop()
	for {
		changed := r.changed()
		q, err := r.ask(s, req, level)
		if err != nil {
			r.counters.badInput.Add(1)
			return err
		}
		if q.arrived > arrived { // later rounds belong to the same request
			q.arrived = arrived
			q.floor, q.floorLost, q.floorDropped, q.lostFloor = req.Floor, false, false, gtid.Set{}
			q.settleFloor()
		}
		target := r.routeOnce(&q, ans)
		if ans.Yes || ans.Reason != ReasonWriteUnseen || wait.over {
			ans.Waited = wait.spent(r, arrived)
			r.finish(&q, target, ans)
			return nil
		}
		if !wait.begun {
			r.counters.waits.Add(1)
		}
		wait.next(ctx, r, changed)
	}
}

func (r *Router) changed() <-chan struct{} {
	if r.o.Changed == nil {
		return nil
	}
	return r.o.Changed()
}

// waiting is Route's bounded wait for the primary's next shared probe.
type waiting struct {
	begun, over bool
	deadline    *time.Timer
	poll        *time.Ticker
}

// next returns when there is news, or sets over. Snapshots come by the thousand
// a second and routes wait by the hundred: each looks once in PollInterval.
func (w *waiting) next(ctx context.Context, r *Router, changed <-chan struct{}) {
	if !w.begun {
		w.begun = true
		w.deadline = time.NewTimer(r.o.ProbeWait)
		w.poll = time.NewTicker(r.o.PollInterval)
	}
	if changed != nil && !wait(ctx, w, changed) || !wait(ctx, w, w.poll.C) {
		w.over = true
	}
}

// wait tells whether c came before the deadline and the end of ctx.
func wait[T any](ctx context.Context, w *waiting, c <-chan T) bool {
	select {
	case <-c:
		return true
	case <-w.deadline.C:
	case <-ctx.Done():
	}
	return false
}

func (w *waiting) stop() {
	if w.deadline != nil {
		w.deadline.Stop()
	}
	if w.poll != nil {
		w.poll.Stop()
	}
}

func (w *waiting) spent(r *Router, arrived int64) time.Duration {
	if !w.begun {
		return 0
	}
	return time.Duration(max(0, r.o.Clock()-arrived))
}

// routeOnce chooses by what one snapshot says. It spends nothing yet: a no
// that is waited for is decided again. It returns the target's place, -1 for
// none.
func (r *Router) routeOnce(q *question, ans *Answer) int {
	ans.start(q)
	switch {
	case q.req.InTransaction:
		return r.toPrimary(q, verdict{reason: ReasonPrimary}, ans)
	case q.level == LevelStrong:
		return r.toPrimary(q, verdict{reason: ReasonStrong}, ans)
	}
	best := verdict{reason: ReasonPrimary, detail: "no replica may be chosen: none is known, or each has weight 0 or is excluded by the caller"}
	for i := range q.snap.NumServers() {
		if !r.candidate(q, i) {
			continue
		}
		v := q.judge(i)
		switch {
		case v.yes():
			q.yesAt = append(q.yesAt, i)
		case v.reason == ReasonKeyBehind && !ans.Spreading:
			ans.Spreading, ans.SpreadingKey = true, v.key
			ans.SpreadingFor = q.learntAgo(v.key)
			fallthrough
		default:
			if best.stage <= v.stage {
				best = v
			}
		}
	}
	if len(q.yesAt) == 0 && r.staleCandidates(q) {
		ans.Stale = true
	}
	if len(q.yesAt) == 0 {
		ans.Spreading, ans.SpreadingFor = false, Unknown
		return r.toPrimary(q, best, ans)
	}
	i := r.choose(q)
	ans.about(q, i)
	ans.Yes, ans.Reason = true, ReasonApplied
	if ans.Stale {
		ans.Reason, ans.Detail = ReasonBlind, best.detail
	}
	return i
}

// candidate tells the replicas that Route may choose at all. A primary is none,
// not even one that is not announced: reads there are metered (P7).
func (r *Router) candidate(q *question, i int) bool {
	st := q.snap.Server(i)
	return st != nil && i != q.primary && st.Role != event.RolePrimary && !slices.Contains(q.req.Exclude, st.Server) &&
		r.peers.at(q.snap, i, st.Server).weight > 0
}

func (r *Router) staleCandidates(q *question) bool {
	if q.level.promises() || !q.cut && !q.deadMark {
		return false
	}
	for i := range q.snap.NumServers() {
		if r.candidate(q, i) && q.mayBeStale(i, q.judge(i)) {
			q.yesAt = append(q.yesAt, i)
		}
	}
	return len(q.yesAt) > 0
}

// primaryUsable tells whether reads may fall back to the primary at all, be it
// by Route or by the advice of Serve: what excludes a server, or a table on it,
// excludes the primary as well (rules §7).
func (q *question) primaryUsable() verdict {
	if v := q.eligible(q.primary, leave{}); !v.yes() {
		return v
	}
	return q.tables(q.primary)
}

// toPrimary names the primary, if it is known, live, alone and shows the floor;
// why says what led there.
func (r *Router) toPrimary(q *question, why verdict, ans *Answer) int {
	none := func(reason Reason, detail string) int {
		ans.Yes, ans.Reason, ans.Detail = false, reason, detail
		return -1
	}
	if !q.primaryOK {
		if q.cut {
			return none(ReasonNoPrimary, "the router is cut off from the stream")
		}
		return none(ReasonNoPrimary, q.primaryDetail)
	}
	i := q.primary
	if v := q.primaryUsable(); !v.yes() {
		return none(ReasonNoPrimary, "the primary itself is not usable: "+v.reason.String()+" "+v.detail)
	}
	if slices.Contains(q.req.Exclude, q.snap.Server(i).Server) {
		return none(ReasonNoPrimary, "the request excludes the primary")
	}
	if rule(ruleStrongFloor) && q.level.usesFloor() && !q.floorWithin(i) {
		return none(ReasonWriteUnseen, "")
	}
	ans.about(q, i)
	ans.Yes, ans.Reason, ans.Detail = true, why.reason, why.detail
	if q.cut && q.dueToBlindness(why) {
		ans.Reason = ReasonBlind
	}
	return i
}

// finish spends what the answer costs, and counts it. What Route sends to the
// primary of its own accord is charged to the budget (P7); a transaction and
// level strong are the caller's choice and are not.
func (r *Router) finish(q *question, target int, ans *Answer) {
	own := q.req.InTransaction || q.level == LevelStrong
	if ans.Yes && target == q.primary && !own && !q.req.Advisory && !r.budget.Take(q.now) {
		why := ans.Reason.String()
		ans.start(q)
		ans.Reason, ans.Detail = ReasonBudget, why
		ans.RetryAfter = time.Duration(r.budget.Wait(q.now))
	}
	if ans.Yes {
		r.yes(q, target, ans.Reason, ans)
		return
	}
	if ans.RetryAfter == 0 {
		ans.RetryAfter = r.o.ProbeWait
	}
	ans.Otherwise = r.withoutTarget(q, ans.Reason)
	if q.req.Explain && ans.Reason == ReasonWriteUnseen {
		ans.need(q, q.floor.Subtract(q.snap.Confirmed(q.primary)).Subtract(q.lost))
	}
	if !q.req.Advisory {
		r.counters.count(TargetNone, q.level, ans.Reason)
	}
}

// withoutTarget says what to do after Route named no target. A router that is
// cut off knows no primary for sure, but a caller that writes knows where: it
// may read there, within the budget.
func (r *Router) withoutTarget(q *question, reason Reason) Otherwise {
	switch {
	case reason != ReasonNoPrimary:
		return OtherwiseWait
	case q.cut && !q.primaryOK && (q.req.Advisory || r.budget.Take(q.now)):
		return OtherwisePrimary
	case q.cut || q.primaryReason == ReasonCatchingUp:
		return OtherwiseWait
	}
	return OtherwiseRefuse
}

// choose picks one of the replicas that may serve: of two taken at random by
// weight the one with fewer decisions in the last second for its weight, or the
// freshest.
func (r *Router) choose(q *question) int {
	if len(q.yesAt) == 1 {
		return q.yesAt[0]
	}
	if r.o.Choice == ChooseFreshest {
		return slices.MaxFunc(q.yesAt, func(a, b int) int {
			return int(min(1, max(-1, q.snap.FreshAt(a)-q.snap.FreshAt(b))))
		})
	}
	a := r.draw(q, -1)
	b := r.draw(q, a)
	pa, pb := r.peerAt(q, a), r.peerAt(q, b)
	// load/weight compared without division
	if pb.load.lastSecond(q.now)*uint64(pa.weight) < pa.load.lastSecond(q.now)*uint64(pb.weight) {
		return b
	}
	return a
}

func (r *Router) peerAt(q *question, i int) *peer {
	return r.peers.at(q.snap, i, q.snap.Server(i).Server)
}

// draw takes one of yesAt at random by weight, but not the one at place but.
func (r *Router) draw(q *question, but int) int {
	total := uint64(0)
	for _, i := range q.yesAt {
		if i != but {
			total += uint64(r.peerAt(q, i).weight)
		}
	}
	n := r.o.Random() % total
	for _, i := range q.yesAt {
		if i == but {
			continue
		}
		w := uint64(r.peerAt(q, i).weight)
		if n < w {
			return i
		}
		n -= w
	}
	return q.yesAt[0]
}
