package binlog

import (
	"context"
	"time"
)

// Probes are spread out where that costs little (P7: a confirmation must not be
// paid for with the server's own work):
//
//   - when one proof proves many, waiting a little longer proves more at once;
//   - where a replica is behind by itself, a proof that comes later by a small
//     part of that is not what a reader waits for;
//   - a primary's proofs matter to its own sessions only, and who waits for one
//     asks for it: ticks are proof enough.
//
// All of it is measured (P6); the bounds are multiples of MinInterval.
const (
	denseProof     = 1   // transactions that one interval should prove
	maxStretch     = 4   // intervals between two proofs of a busy replica
	lagPart        = 16  // a proof comes at most this part of the replica's own lag later
	maxLagging     = 100 // intervals between two proofs of a replica that is behind
	primaryStretch = 100 // intervals between two proofs of a primary that nobody asked for
)

// interval is the least time between the beginnings of two proofs.
func (s *session) interval() time.Duration {
	least := s.m.o.MinInterval
	if s.wasPrimary {
		return primaryStretch * least
	}
	dense := time.Duration(min(max(1, s.proved/denseProof), maxStretch)) * least
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return max(dense, s.tickIntervalLocked())
}

// tickIntervalLocked is the least time between the beginnings of two probes of which
// the second is for a tick alone. Any probe names the ticks before it, so that a
// replica that is behind need not be asked for each: its freshness is older than
// that anyway. A primary's tick is the watermark's.
func (s *session) tickIntervalLocked() time.Duration {
	if s.wasPrimary {
		return 0
	}
	return min(s.lag.behind/lagPart, maxLagging*s.m.o.MinInterval)
}

// pace waits until a probe may begin, so that the interval lies between the
// beginnings of two; for a prompt one that is MinInterval. A long pause is cut
// into pieces: due is false when one of them is over, and the caller looks
// whether something more urgent has come.
func (s *session) pace(ctx context.Context, q probeRequest) (due bool, err error) {
	select {
	case err := <-s.broken:
		return false, err
	default:
	}
	least := s.interval()
	if q.Prompt {
		least = s.m.o.MinInterval
	}
	wait := least - time.Since(s.probedAt)
	if wait <= 0 {
		return true, ctx.Err()
	}
	piece := maxStretch * s.m.o.MinInterval
	timer := time.NewTimer(min(wait, piece))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-timer.C:
		return wait <= piece, nil
	}
}

// lagMeter tells how long a replica will need for what it has received, at the
// rate at which it executes: two counts and the monitor's own clock, nothing of
// another host's.
type lagMeter struct {
	behind   time.Duration
	executed uint64 // count at the look before
	at       time.Time
}

// look takes in how many transactions have been executed by now, and how many
// more were received.
func (l *lagMeter) look(executed, waiting uint64, now time.Time) {
	grown, took := executed-min(l.executed, executed), now.Sub(l.at)
	first := l.at.IsZero()
	l.executed, l.at = executed, now
	switch {
	case first || waiting == 0:
		l.behind = 0
	case grown == 0:
		// It stands still: there is nothing to prove, and what comes when it goes
		// on is proven soon.
		l.behind = 0
	default:
		l.behind = time.Duration(float64(took) * float64(waiting) / float64(grown))
	}
}

// factsEvery is the pause between two looks at channels and settings: the share
// of time that they take is bounded, up to a few times their interval.
func (m *Monitor) factsEvery(took time.Duration) time.Duration {
	const share, most = 100, 8
	return min(max(m.o.FactsInterval, share*took), most*m.o.FactsInterval)
}
