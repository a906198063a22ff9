package demo

import (
	"fmt"
	"sync"
	"time"
)

// policy is a way to choose the server of a read.
type policy int

const (
	anyReplica policy = iota // a random replica
	sticky                   // the primary for stickyFor after a write of the session, else the same random replica
	tidegate                 // what the router says
	policies
)

// stickyFor is the fixed window of the second policy, which many frameworks
// offer.
const stickyFor = 5 * time.Second

func (p policy) String() string {
	return [...]string{"any replica", "primary for 5 s after a write", "tidegate"}[p]
}

// PolicyResult is what one policy did. ReplicaShare is 0 to 1.
type PolicyResult struct {
	Reads        int64   `json:"reads"`
	Stale        int64   `json:"stale"`
	ReplicaShare float64 `json:"replica_share"`
}

// TidegateResult adds the share of the same reads that somebody who knows what
// each replica shows at that moment would have served from replicas.
type TidegateResult struct {
	PolicyResult
	OracleShare float64 `json:"oracle_share"`
}

// Policies are the results by policy.
type Policies struct {
	AnyReplica PolicyResult   `json:"any_replica"`
	Sticky5s   PolicyResult   `json:"sticky_5s"`
	Tidegate   TidegateResult `json:"tidegate"`
}

// Result is what a demo found. Seconds is how long the workload ran. Its JSON
// form is what `tidegate demo --json` prints.
type Result struct {
	Seconds  float64  `json:"seconds"`
	Policies Policies `json:"policies"`
}

// read is one read by all three policies at one moment.
type read struct {
	target [policies]int // place of the server, nobody for none
	stale  [policies]bool
	oracle bool // a replica showed the newest acknowledged version
}

// nobody is the target of a read that Tidegate named no server for. It counts
// as one that no replica served.
const nobody = -1

// tally counts reads. It may be used by many at once.
type tally struct {
	mu       sync.Mutex
	reads    int64
	stale    [policies]int64
	replica  [policies]int64
	oracle   int64
	refused  int64 // reads that Tidegate named no server for
	evidence []string
}

// maxEvidence bounds how many stale reads are told of in full.
const maxEvidence = 5

// add counts a read. The primary has place 0.
func (t *tally) add(r read, evidence func() string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads++
	for p := range policies {
		if r.target[p] > 0 {
			t.replica[p]++
		}
		if r.stale[p] {
			t.stale[p]++
		}
	}
	if r.oracle {
		t.oracle++
	}
	if r.target[tidegate] == nobody {
		t.refused++
	}
	if r.stale[tidegate] && len(t.evidence) < maxEvidence {
		t.evidence = append(t.evidence, evidence())
	}
}

// counts is a copy of the numbers.
type counts struct {
	reads          int64
	stale, replica [policies]int64
	oracle         int64
	refused        int64
}

func (t *tally) counts() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return counts{t.reads, t.stale, t.replica, t.oracle, t.refused}
}

func (c counts) share(n int64) float64 {
	if c.reads == 0 {
		return 0
	}
	return float64(n) / float64(c.reads)
}

// name is the policy's, with what it left open: that is neither stale nor read.
func (c counts) name(p policy) string {
	if p == tidegate && c.refused > 0 {
		return fmt.Sprintf("%s (%d unanswered)", p, c.refused)
	}
	return p.String()
}

func (c counts) policy(p policy) PolicyResult {
	return PolicyResult{Reads: c.reads, Stale: c.stale[p], ReplicaShare: c.share(c.replica[p])}
}

// result sums up; the error tells of stale reads by Tidegate.
func (t *tally) result(took time.Duration) (Result, error) {
	c := t.counts()
	r := Result{Seconds: took.Round(100 * time.Millisecond).Seconds()}
	r.Policies.AnyReplica = c.policy(anyReplica)
	r.Policies.Sticky5s = c.policy(sticky)
	r.Policies.Tidegate = TidegateResult{c.policy(tidegate), c.share(c.oracle)}
	if n := c.stale[tidegate]; n > 0 {
		return r, &StaleError{Reads: n, Evidence: t.evidence}
	}
	return r, nil
}

// StaleError tells that reads were stale where Tidegate had sent them: a defect
// of Tidegate.
type StaleError struct {
	Reads    int64
	Evidence []string // the first of them, one a string
}

// Error implements error.
func (e *StaleError) Error() string {
	s := fmt.Sprintf("%d stale read(s) where tidegate said yes; this is a defect, please report it:", e.Reads)
	for _, line := range e.Evidence {
		s += "\n  " + line
	}
	return s
}
