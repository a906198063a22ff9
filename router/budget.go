package router

import "sync/atomic"

// budget is the one token bucket through which reads fall back to the primary
// (P7). It is the generic cell rate algorithm on one word: free is the moment at
// which the bucket is full again, less its depth. Safe for many at once,
// without a lock.
type budget struct {
	interval int64 // nanoseconds for each read; 0: nothing is allowed
	depth    int64 // nanoseconds by which free may run ahead of now
	free     atomic.Int64
}

// newBudget allows perSecond reads; a tenth of a second's worth may come at
// once.
func newBudget(perSecond int) *budget {
	b := new(budget)
	if perSecond > 0 {
		b.interval = max(1, 1_000_000_000/int64(perSecond))
		b.depth = max(b.interval, 100_000_000)
	}
	return b
}

// take allows one read at now, or says no.
func (b *budget) take(now int64) bool {
	if b.interval == 0 {
		return false
	}
	for {
		old := b.free.Load()
		next := max(old, now) + b.interval
		if next-now > b.depth {
			return false
		}
		if b.free.CompareAndSwap(old, next) {
			return true
		}
	}
}

// would tells what take would answer.
func (b *budget) would(now int64) bool {
	return b.interval != 0 && max(b.free.Load(), now)+b.interval-now <= b.depth
}

// wait is how long until take may succeed, if nobody else takes.
func (b *budget) wait(now int64) int64 {
	if b.interval == 0 {
		return 1_000_000_000
	}
	return max(0, max(b.free.Load(), now)+b.interval-now-b.depth)
}
