package router

import "sync/atomic"

// Target is where an answer sends a read.
type Target uint8

// The targets.
const (
	TargetNone Target = iota // nowhere
	TargetReplica
	TargetPrimary
	numTargets
)

var targetNames = [numTargets]string{"none", "replica", "primary"}

// String returns the target's name.
func (t Target) String() string { return targetNames[t] }

// counters count decisions since the start. Safe for many at once.
type counters struct {
	decisions [numTargets][numLevels][numReasons]atomic.Uint64
	stale     atomic.Uint64
	badInput  atomic.Uint64
	retries   atomic.Uint64
	waits     atomic.Uint64
	canaries  atomic.Uint64
}

func (c *counters) count(t Target, l Level, r Reason) { c.decisions[t][l][r].Add(1) }

// Decision is one cell of the count of decisions.
type Decision struct {
	Target Target
	Level  Level
	Reason Reason
	N      uint64
}

// Counters is a reading of a router's counters; all count since the start.
type Counters struct {
	Decisions []Decision // those that occurred
	Stale     uint64     // answers that were flagged stale
	BadInput  uint64     // requests that were refused as mistaken
	Retries   uint64     // decisions begun again because the records moved on
	Waits     uint64     // routes that waited for a probe of the primary
	Canaries  uint64     // yes answers handed to the canary hook
}

// Counters reads the counters. It may be called at any time.
func (r *Router) Counters() Counters {
	c := &r.counters
	out := Counters{
		Stale: c.stale.Load(), BadInput: c.badInput.Load(), Retries: c.retries.Load(),
		Waits: c.waits.Load(), Canaries: c.canaries.Load(),
	}
	for t := range c.decisions {
		for l := range c.decisions[t] {
			for why := range c.decisions[t][l] {
				if n := c.decisions[t][l][why].Load(); n > 0 {
					out.Decisions = append(out.Decisions, Decision{Target(t), Level(l), Reason(why), n})
				}
			}
		}
	}
	return out
}
