package index

import (
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

const (
	// evictShare is the part of the records that one eviction forgets.
	evictShare = 8
	// headroom is the part of the bound that may fill up while a sweep is under
	// way: a sweep ends before so many records were put.
	headroom = 32
)

// evictIfDue forgets the oldest records when a bound is reached. Forgetting is
// always into H (rules §5.2): memory moves the horizon instead of growing.
func (ix *Index) evictIfDue() {
	limit := ix.opt.MaxRecords - ix.opt.MaxRecords/headroom
	if ix.tab.count >= max(limit, 1) {
		ix.finishSweep()
	}
	if ix.tab.count > limit || ix.tab.count > ix.opt.MaxRecords {
		over := ix.tab.count - limit
		ix.evict(ix.tab.quantile(max(over, ix.opt.MaxRecords/evictShare)))
	}
	if n := ix.ord.len(); n > ix.opt.MaxRuns {
		ix.evict(ix.ord.at(max(n/evictShare, n-ix.opt.MaxRuns) - 1).last())
	}
}

// Evict forgets at least n of the oldest records, or all when there are fewer.
// It is what happens by itself at the bounds of [Options].
func (ix *Index) Evict(n int) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.finishSweep()
	for want := ix.tab.count - n; n > 0 && ix.tab.count > max(want, 0); {
		ix.evict(ix.tab.quantile(ix.tab.count - max(want, 0)))
		ix.finishSweep()
	}
}

// evict forgets everything up to cut: every delivered GTID up to there joins H,
// also those whose records were superseded. Readers see the grown horizon
// before the first record leaves (P2).
func (ix *Index) evict(cut event.Version) {
	if cut == 0 || cut <= ix.tab.cut {
		return
	}
	ix.forgetInto(cut)
	ix.gen++
	ix.n.Evictions++
	ix.pending.ordinals = true
	for _, sv := range ix.servers { // their places in the list are no more
		if sv.view.state != nil {
			sv.mark = mark{}
			ix.setPrefix(sv)
		}
	}
	ix.publish()
	if rule(ruleGeneration) {
		ix.tab.gen.Store(ix.gen)
	}
	ix.tab.forget(cut)
	if len(ix.tab.segs) <= minSegments {
		ix.finishSweep()
	}
}

// forgetInto drops the versions up to cut and adds their transactions to H.
func (ix *Index) forgetInto(cut event.Version) {
	switch {
	case !rule(ruleEvictHorizon):
		ix.ord.forget(cut, &gtid.Builder{})
	case !rule(ruleEvictAll):
		ix.ord.forget(cut-1, &gtid.Builder{})
		ix.ord.forget(cut, &ix.h)
	default:
		ix.ord.forget(cut, &ix.h)
	}
}

// sweepSome removes a part of what was forgotten, so that a sweep is over
// before the headroom is used up.
func (ix *Index) sweepSome() {
	ix.sweepDebt += len(ix.tab.segs) * headroom
	if n := ix.sweepDebt / ix.opt.MaxRecords; n > 0 {
		ix.sweepDebt -= n * ix.opt.MaxRecords
		ix.tab.sweep(n)
	}
}

func (ix *Index) finishSweep() {
	for ix.tab.sweep(len(ix.tab.segs)) {
	}
}
