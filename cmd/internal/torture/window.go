package torture

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"tidegate/testenv"
	"tidegate/testenv/checker"
)

// windowLength is how long a session reads from the primary after its write.
const windowLength = 5 * time.Second

// windowRouter is the usual rule of thumb, broken on purpose: for a fixed time
// after a session's write it reads from the primary, otherwise anywhere. It has
// no watermark: it claims to be right at the moment of its answer.
type windowRouter struct {
	c *testenv.Cluster

	mu    sync.Mutex
	wrote map[int]time.Time // guarded by mu
}

func newWindow(c *testenv.Cluster) *windowRouter {
	return &windowRouter{c: c, wrote: map[int]time.Time{}}
}

// Wrote begins the session's window.
func (r *windowRouter) Wrote(session int, _ []string, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrote[session] = time.Now()
}

// Ask answers by the clock alone.
func (r *windowRouter) Ask(_ context.Context, q *checker.Question) (checker.Answer, error) {
	r.mu.Lock()
	at, wrote := r.wrote[q.Session]
	r.mu.Unlock()
	sticky := wrote && time.Since(at) < windowLength
	replicas := r.c.Replicas()
	if len(replicas) == 0 {
		return checker.Answer{}, checker.ErrAway
	}
	target := replicas[rand.IntN(len(replicas))].Name()
	if q.Server != "" {
		target = q.Server
	}
	primary := r.c.Primary().Name()
	if sticky {
		return checker.Answer{Yes: q.Server == "" || q.Server == primary, Server: primary, Reason: "window", WatermarkAge: checker.Unknown, Staleness: checker.Unknown}, nil
	}
	return checker.Answer{Yes: true, Server: target, Replica: target != primary, Reason: "window", Staleness: q.Bound}, nil
}
