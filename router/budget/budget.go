// Package budget meters reads that fall back to the primary (P7): the router
// spends one [Budget] on its own noes, and router/client spends another when no
// router answers. It is standard library only and keeps nothing on disk.
package budget

import "sync/atomic"

// Budget is a token bucket in the form of the generic cell rate algorithm on
// one word: the moment at which it would be full again. It may be used by many
// at once, takes no lock and does not block. The zero value allows nothing.
type Budget struct {
	interval int64 // nanoseconds for each read; 0: nothing is allowed
	depth    int64 // nanoseconds by which full may run ahead of now
	full     atomic.Int64
}

const (
	second = 1_000_000_000
	// burst is the part of a second's reads that may come at once: enough for
	// the clumps in which requests arrive, too little to hurt a primary.
	burst = second / 10
)

// New allows perSecond reads a second, a tenth of a second's worth (at least
// one) at once. Zero or less allows none.
func New(perSecond int) *Budget {
	b := new(Budget)
	if perSecond > 0 {
		b.interval = max(1, second/int64(perSecond))
		b.depth = max(b.interval, burst)
	}
	return b
}

// Take allows one read at now, nanoseconds of a clock that does not go back, or
// says no and takes nothing.
func (b *Budget) Take(now int64) bool {
	if b.interval == 0 {
		return false
	}
	for {
		full := b.full.Load()
		next := max(full, now) + b.interval
		if next-now > b.depth {
			return false
		}
		if b.full.CompareAndSwap(full, next) {
			return true
		}
	}
}

// Would tells what Take would answer.
func (b *Budget) Would(now int64) bool {
	return b.interval != 0 && max(b.full.Load(), now)+b.interval-now <= b.depth
}

// Wait is how many nanoseconds pass until Take may succeed, if nobody else
// takes; a second where it never may.
func (b *Budget) Wait(now int64) int64 {
	if b.interval == 0 {
		return second
	}
	return max(0, max(b.full.Load(), now)+b.interval-now-b.depth)
}
