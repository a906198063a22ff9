package local

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is a clock that goes on while the machine is suspended, in nanoseconds
// (CLOCK_BOOTTIME): by it alone a router judges ages (rules §6.1).
func Clock() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		// The kernel has had it since 2.6.39. Without a clock that can be
		// trusted every age would be a guess.
		panic("CLOCK_BOOTTIME can not be read: " + err.Error())
	}
	return t.Nano()
}

const (
	// calibrationAge is how long, of time in which the machine runs, a
	// calibration is used. It bounds the one way to be wrong that is left
	// (DecisionClock), and makes the system call one a millisecond.
	calibrationAge = int64(time.Millisecond)
	// calibrationSlack bounds by how much a reading may be too late, and how far
	// wall clock and monotonic clock may have moved apart before it is doubted. Two
	// readings one after the other are some 20 ns apart.
	calibrationSlack = int64(20 * time.Microsecond)
)

// DecisionClock reads what [Clock] reads, at most 20 us too late and never too
// early, without a system call in most cases: a decision takes less than the
// call would (DECISIONS.md). Make one with [NewDecisionClock]; Now may be called
// by many at once, takes no lock and does not allocate.
//
// What the process reads without a system call is the wall clock and a
// monotonic clock that stands still while the machine is suspended. A suspension
// moves the boot clock and the wall clock on and not the monotonic one, all in
// one step: the distance of the wall clock from the monotonic one changes with
// it. While that distance is what it was at the last calibration, the boot clock
// is as far ahead of the monotonic one as it was then. Whenever it is not (a
// suspension, a set clock, a leap second) the boot clock itself is asked.
// A clock that is disciplined runs faster or slower in all three alike.
//
// A suspension is overlooked only if the wall clock is set back by its length,
// to 20 us, before anything else is asked and within a millisecond of running
// time after the last calibration; and only for the rest of that millisecond.
type DecisionClock struct {
	// read returns wall clock and monotonic clock of one moment. Where the
	// process is held up between the two, their distance tells.
	read func() (wall, mono int64)
	boot func() int64

	// The calibration: seq is odd while it is being written.
	seq   atomic.Uint64
	at    atomic.Int64 // mono
	lead  atomic.Int64 // wall - mono
	ahead atomic.Int64 // boot - mono, too large by at most the slack
}

// NewDecisionClock returns a clock.
func NewDecisionClock() *DecisionClock {
	start := time.Now() // mono counts from here
	return newDecisionClock(func() (wall, mono int64) {
		t := time.Now()
		return t.UnixNano(), int64(t.Sub(start))
	}, Clock)
}

func newDecisionClock(read func() (wall, mono int64), boot func() int64) *DecisionClock {
	c := &DecisionClock{read: read, boot: boot}
	_, mono := read()
	c.at.Store(mono - 2*calibrationAge) // nothing is known yet
	return c
}

// Now returns the time of [Clock], in nanoseconds.
func (c *DecisionClock) Now() int64 {
	wall, mono := c.read()
	if now, ok := c.calibrated(wall, mono); ok {
		return now
	}
	return c.ask()
}

// calibrated returns the time, if the calibration can be trusted.
func (c *DecisionClock) calibrated(wall, mono int64) (now int64, ok bool) {
	seq := c.seq.Load()
	at, lead, ahead := c.at.Load(), c.lead.Load(), c.ahead.Load()
	if seq&1 != 0 || c.seq.Load() != seq {
		return 0, false
	}
	// Unsigned, so that a reading from before the calibration is too old as well.
	if uint64(mono-at) > uint64(calibrationAge) || uint64(wall-mono-lead+calibrationSlack) > uint64(2*calibrationSlack) {
		return 0, false
	}
	return mono + ahead, true
}

// ask reads the boot clock, and calibrates by it if nothing held up the reading.
func (c *DecisionClock) ask() int64 {
	wall, mono := c.read()
	now := c.boot() // after mono: what passes in between makes ahead too large, ages too old
	_, end := c.read()
	if end-mono > calibrationSlack {
		return now
	}
	if seq := c.seq.Load(); seq&1 == 0 && c.seq.CompareAndSwap(seq, seq+1) {
		c.at.Store(mono)
		c.lead.Store(wall - mono)
		c.ahead.Store(now - mono)
		c.seq.Store(seq + 2)
	}
	return now
}
