package client

import (
	"math/rand/v2"
	"sync"
	"time"
)

// breaker leaves a router alone that failed several times in a row, and then
// lets one question at a time find out whether it is back. Safe for many at
// once.
type breaker struct {
	limit    int           // failures in a row that open it
	min, max time.Duration // how long it stays open

	mu       sync.Mutex // guards all below
	failures int
	pause    time.Duration
	until    time.Time // open until then; zero: closed
	probing  bool      // one question is finding out
}

// allow tells whether to ask now. Each true is answered by one call of done, or
// of leave.
func (b *breaker) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return true
	}
	if now.Before(b.until) || b.probing {
		return false
	}
	b.probing = true
	return true
}

// done tells how the question went.
func (b *breaker) done(ok bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wasOpen := !b.until.IsZero()
	b.probing = false
	if ok {
		b.failures, b.pause, b.until = 0, 0, time.Time{}
		return
	}
	if b.failures++; b.failures < b.limit && !wasOpen {
		return
	}
	if wasOpen && now.Before(b.until) {
		return // a question from before it opened
	}
	b.pause = min(max(2*b.pause, b.min), b.max)
	// Jitter, so that the clients of a dead router do not come back as one.
	b.until = now.Add(b.pause/2 + rand.N(b.pause/2+1))
}

// leave tells that nobody waited for how the question went: it says nothing of
// the router, neither that it is dead nor that it is back.
func (b *breaker) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probing = false
}
