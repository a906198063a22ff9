package checker

import (
	"cmp"
	"math"
	"slices"
)

// decision is one answer, for the shares.
type decision struct {
	at      Moment
	chase   bool
	replica bool // it was read on a replica, where the router had sent it
	oracle  bool // the oracle would have
	read    bool // it was read
}

// Report is the verdict on a run.
type Report struct {
	Seed    uint64  `json:"seed"`
	Router  string  `json:"router"`
	MySQL   string  `json:"mysql"`
	Seconds float64 `json:"seconds"`
	// Whole is false when the history was cut off.
	Whole bool `json:"whole"`

	Reads      int            `json:"reads"` // after a yes, and answered by the server
	Violations map[string]int `json:"violations"`
	// ReplicaShare and OracleShare are of all decisions but chases; Ratio is
	// the first over the second. A read that failed, or that met another server
	// than the answer spoke of, is none on a replica.
	ReplicaShare float64 `json:"replica_share"`
	OracleShare  float64 `json:"oracle_share"`
	Ratio        float64 `json:"ratio"`

	Faults []FaultReport `json:"faults"`

	Decisions     int    `json:"decisions"`
	Unanswered    int    `json:"unanswered"` // no server was named, or the router was away
	Failed        int    `json:"failed"`     // the server named did not answer
	Moved         int    `json:"moved"`      // the server was another one by then
	Writes        int    `json:"writes"`
	UnknownWrites int    `json:"unknown_writes"`
	Forks         int    `json:"forks"`
	History       string `json:"history,omitempty"`

	Details []Violation `json:"-"`
	Notes   []string    `json:"-"`
}

// FaultReport is what became of one fault.
type FaultReport struct {
	Name   string `json:"name"`
	Struck int    `json:"struck"`
	// Reads are those that fell inside it, with those that no server was named
	// for.
	Reads int `json:"reads"`
	// ShareAfter and OracleAfter are those of the decisions within five seconds of
	// its end (until the next fault at most), ShareInside and OracleInside while it
	// lasted; null when there were none.
	ShareInside  *float64 `json:"share_inside"`
	OracleInside *float64 `json:"oracle_inside"`
	ShareAfter   *float64 `json:"share_after"`
	OracleAfter  *float64 `json:"oracle_after"`
	Errors       []string `json:"errors,omitempty"`
}

// NumViolations is the count over all classes.
func (r *Report) NumViolations() int {
	n := 0
	for _, c := range r.Violations {
		n += c
	}
	return n
}

// Idle names the faults of the run that struck no read: they proved nothing.
func (r *Report) Idle() []string {
	var out []string
	for _, f := range r.Faults {
		if f.Struck == 0 || f.Reads == 0 {
			out = append(out, f.Name)
		}
	}
	return out
}

// OK tells whether the run proves what it set out to: no violation, reads at
// all, and every fault struck some and was mended.
func (r *Report) OK() bool {
	broken := slices.ContainsFunc(r.Faults, func(f FaultReport) bool { return len(f.Errors) > 0 })
	return r.NumViolations() == 0 && r.Reads > 0 && len(r.Idle()) == 0 && !broken && r.Whole
}

func (r *Report) share(ds []decision) {
	var counted counts
	for _, d := range ds {
		counted.add(d)
	}
	r.Decisions = counted.n
	r.ReplicaShare, r.OracleShare = counted.share(counted.replica), counted.share(counted.oracle)
	if counted.oracle > 0 {
		r.Ratio = round(float64(counted.replica) / float64(counted.oracle))
	}
}

type counts struct{ n, replica, oracle int }

func (c *counts) add(d decision) {
	if d.chase {
		return
	}
	c.n++
	if d.replica {
		c.replica++
	}
	if d.oracle {
		c.oracle++
	}
}

func (c *counts) share(n int) float64 {
	if c.n == 0 {
		return 0
	}
	return round(float64(n) / float64(c.n))
}

func (c *counts) shareOrNil(n int) *float64 {
	if c.n == 0 {
		return nil
	}
	s := c.share(n)
	return &s
}

func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// oracle tells whether one who knows what each replica shows would have served
// the read from a replica, under the guarantee that the answer gave: the
// session's floor, and what was acknowledged before the answer's watermark.
// Where the answer named none it would have been allowed the oldest one; that
// choice can only raise the oracle's share. It decides at the moment at which it
// asks a replica: another one that takes its time to answer makes none older.
func (j *judge) oracle(r *Read) bool {
	era := j.order.era(r.Answered)
	asked := *r
	asked.Replica, asked.End, asked.Stale = true, r.Answered, false
	if r.Level == LevelBounded {
		asked.Staleness = r.Bound
	}
	return slices.ContainsFunc(r.Oracle, func(s Shown) bool {
		if s.Err != "" {
			return false
		}
		if asked.Asked = r.Asked; s.At > 0 {
			asked.Asked = min(s.At, r.Asked)
		}
		shown := j.shown(s.Rows, era)
		return !slices.ContainsFunc(j.promises(&asked, era), func(p promise) bool { return j.broken(&asked, p, shown, era) != "" })
	})
}

// judgeFaults gives every fault of the run its report, also those that never
// struck.
func (j *judge) judgeFaults() []FaultReport {
	slices.SortFunc(j.decisions, func(a, b decision) int { return cmp.Compare(a.at, b.at) })
	slices.SortFunc(j.strikes, func(a, b *Strike) int { return cmp.Compare(a.Begin, b.Begin) })
	out := make([]FaultReport, 0, len(j.head.Faults))
	for _, name := range j.head.Faults {
		out = append(out, j.judgeFault(name))
	}
	return out
}

func (j *judge) judgeFault(name string) FaultReport {
	f := FaultReport{Name: name}
	var inside, after counts
	for i, s := range j.strikes {
		if s.Name != name {
			continue
		}
		if s.Err != "" {
			f.Errors = append(f.Errors, s.Err)
			continue
		}
		f.Struck++
		for _, d := range j.between(s.Begin, s.End) {
			inside.add(d)
			if d.read || !d.chase { // a question that found no server was struck too
				f.Reads++
			}
		}
		until := s.End + Moment(j.head.After)
		if i+1 < len(j.strikes) {
			until = min(until, j.strikes[i+1].Begin)
		}
		for _, d := range j.between(s.End, until) {
			after.add(d)
		}
	}
	f.ShareInside, f.OracleInside = inside.shareOrNil(inside.replica), inside.shareOrNil(inside.oracle)
	f.ShareAfter, f.OracleAfter = after.shareOrNil(after.replica), after.shareOrNil(after.oracle)
	return f
}

// between are the decisions at moments in [from, to).
func (j *judge) between(from, to Moment) []decision {
	at := func(m Moment) int {
		i, _ := slices.BinarySearchFunc(j.decisions, m, func(d decision, m Moment) int { return cmp.Compare(d.at, m) })
		return i
	}
	if to < from {
		return nil
	}
	return j.decisions[at(from):at(to)]
}
