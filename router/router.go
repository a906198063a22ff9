package router

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"tidegate/router/budget"
)

// Choice is how Route chooses among replicas that may serve.
type Choice uint8

// The choices.
const (
	// ChooseLoaded takes two at random by weight and of them the less loaded.
	ChooseLoaded Choice = iota
	// ChooseFreshest takes the least stale.
	ChooseFreshest
)

// ServerOptions is what the configuration says of a server beyond its name.
type ServerOptions struct {
	Name string
	// Weight is its share of routed reads relative to others; 0: none are
	// routed to it, though Serve may still say yes. Servers that are not listed
	// weigh 1.
	Weight uint32
}

// Defaults of [Options]; the configuration has the same.
const (
	DefaultLease                 = 3 * time.Second
	DefaultWatermarkMaxAge       = time.Second
	DefaultProbeWait             = 200 * time.Millisecond
	DefaultPrimaryReadsPerSecond = 1000
	DefaultCanaryOneIn           = 10_000
	DefaultCanaryPerSecond       = 3
)

// Options configures a router. View and Clock are required.
type Options struct {
	// View returns the newest snapshot. It must not block.
	View func() Snapshot
	// Clock is the suspend-aware clock by which the snapshot's times were read,
	// in nanoseconds (rules §6.1).
	Clock func() int64
	// Changed returns a channel that is closed when a newer snapshot than the
	// next View may exist. Nil: Route looks every PollInterval while it waits.
	Changed func() <-chan struct{}

	Servers []ServerOptions
	Choice  Choice

	// Lease is how long a server counts after the sending of the newest tick
	// that it named; default [DefaultLease]. It must be shorter than the quickest rebuild
	// of a server under the same UUID (rules §6.3).
	Lease time.Duration
	// WatermarkMaxAge bounds the age of W at level key; default [DefaultWatermarkMaxAge].
	WatermarkMaxAge time.Duration
	// ProbeWait bounds Route's wait for the primary's next probe; default
	// [DefaultProbeWait].
	ProbeWait time.Duration
	// PollInterval is the least time between two looks of a Route that waits;
	// default 1 ms.
	PollInterval time.Duration
	// PrimaryReadsPerSecond is the budget of reads that fall back to the
	// primary (P7); default [DefaultPrimaryReadsPerSecond], negative: none may.
	PrimaryReadsPerSecond int

	// Canary is handed one in CanaryOneIn yes answers of level key on a replica
	// for one row, at most CanaryPerSecond a second. It is called by the
	// deciding goroutine and must return at once. Nil: none.
	Canary          func(CanaryCheck)
	CanaryOneIn     int // default [DefaultCanaryOneIn]
	CanaryPerSecond int // default [DefaultCanaryPerSecond]

	// Random returns 64 random bits; default math/rand/v2.
	Random func() uint64
}

func (o *Options) validate() error {
	var errs []error
	if o.View == nil {
		errs = append(errs, errors.New("router: View is missing"))
	}
	if o.Clock == nil {
		errs = append(errs, errors.New("router: Clock is missing"))
	}
	for _, d := range []struct {
		name string
		v    *time.Duration
		std  time.Duration
	}{
		{"Lease", &o.Lease, DefaultLease},
		{"WatermarkMaxAge", &o.WatermarkMaxAge, DefaultWatermarkMaxAge},
		{"ProbeWait", &o.ProbeWait, DefaultProbeWait},
		{"PollInterval", &o.PollInterval, time.Millisecond},
	} {
		if *d.v < 0 {
			errs = append(errs, errors.New("router: "+d.name+" is negative"))
		}
		if *d.v == 0 {
			*d.v = d.std
		}
	}
	seen := map[string]bool{}
	for _, s := range o.Servers {
		if s.Name == "" || seen[s.Name] {
			errs = append(errs, errors.New("router: server "+s.Name+" is named twice or not at all"))
		}
		seen[s.Name] = true
	}
	if o.PrimaryReadsPerSecond == 0 {
		o.PrimaryReadsPerSecond = DefaultPrimaryReadsPerSecond
	}
	if o.CanaryOneIn <= 0 {
		o.CanaryOneIn = DefaultCanaryOneIn
	}
	if o.CanaryPerSecond <= 0 {
		o.CanaryPerSecond = DefaultCanaryPerSecond
	}
	if o.Random == nil {
		o.Random = rand.Uint64
	}
	return errors.Join(errs...)
}

// Router answers questions. It starts no goroutine and needs no Close. All
// methods may be called at once by many.
type Router struct {
	o        Options
	lease    int64 // nanoseconds
	markAge  int64
	budget   *budget.Budget
	peers    peers
	counters counters
	canary   canary
	pool     sync.Pool // *scratch
}

// New returns a router, or an error that lists everything wrong with o.
func New(o Options) (*Router, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &Router{
		o: o, lease: int64(o.Lease), markAge: int64(o.WatermarkMaxAge),
		budget: budget.New(o.PrimaryReadsPerSecond),
		canary: canary{oneIn: uint64(o.CanaryOneIn), limit: budget.New(o.CanaryPerSecond)},
	}
	r.pool.New = func() any { return new(scratch) }
	r.peers.weights = make(map[string]uint32, len(o.Servers))
	r.peers.byName = make(map[string]*peer, len(o.Servers))
	for _, s := range o.Servers {
		r.peers.weights[s.Name] = s.Weight
	}
	return r, nil
}

// Now reads the router's clock, for [Request.ArrivedAt] of requests that arrive
// together.
func (r *Router) Now() int64 { return r.o.Clock() }

// ProbeWait is the bound of Route's wait for the primary's next probe.
func (r *Router) ProbeWait() time.Duration { return r.o.ProbeWait }

// maxRetries bounds how often a decision begins again because the records moved
// on under it; beyond it the answer is catching_up (P3).
const maxRetries = 8

// Serve answers whether req.Server may serve the request now, into ans. It
// never blocks. The error is a *RequestError for a question that can't be
// answered as it was put; ans is then meaningless.
func (r *Router) Serve(req *Request, ans *Answer) error {
	level, err := req.level()
	if err != nil {
		r.counters.badInput.Add(1)
		return err
	}
	s := r.pool.Get().(*scratch)
	err = r.serve(s, req, level, ans)
	s.release()
	r.pool.Put(s)
	return err
}

func (r *Router) serve(s *scratch, req *Request, level Level, ans *Answer) error {
	q, err := r.ask(s, req, level)
	if err != nil {
		r.counters.badInput.Add(1)
		return err
	}
	ans.start(&q)
	i, known := q.snap.ServerIndex(req.Server)
	if !known {
		ans.Server = req.Server
		v := verdict{reason: ReasonUnknownServer}
		if _, configured := r.peers.weights[req.Server]; configured {
			v = neverHeard
		}
		r.no(&q, -1, v, ans)
		return nil
	}
	v := q.judge(i)
	ans.about(&q, i)
	if ans.Server == "" {
		ans.Server = req.Server
	}
	switch {
	case v.yes():
		r.yes(&q, i, ReasonApplied, ans)
	case q.mayBeStale(i, v):
		ans.Stale = true
		ans.Detail = v.detail
		r.yes(&q, i, ReasonBlind, ans)
	default:
		r.no(&q, i, v, ans)
	}
	return nil
}

// yes completes an answer that lets server i be read.
func (r *Router) yes(q *question, i int, why Reason, ans *Answer) {
	target := TargetReplica
	if i == q.primary {
		target = TargetPrimary
		if why == ReasonApplied {
			why = ReasonPrimary
		}
	}
	ans.Yes, ans.Reason, ans.FloorLost, ans.FloorDropped = true, why, q.floorLost, q.floorDropped
	if q.req.Verbose {
		ans.BehindTxns = q.behind(i)
	}
	if q.req.Advisory {
		return
	}
	r.peers.at(q.snap, i, ans.Server).load.add(q.now)
	r.counters.count(target, q.level, why)
	if ans.Stale {
		r.counters.stale.Add(1)
	} else if target == TargetReplica && q.level == LevelKey && r.o.Canary != nil {
		r.canary.maybe(r, q, i, ans)
	}
}

// no completes the answer of Serve about server i (-1: unknown) and says what
// to do instead.
func (r *Router) no(q *question, i int, v verdict, ans *Answer) {
	reason := v.reason
	if q.cut && q.dueToBlindness(v) {
		reason = ReasonBlind
	}
	ans.Reason, ans.Detail, ans.FloorLost, ans.FloorDropped = reason, v.detail, q.floorLost, q.floorDropped
	q.block(i, v, ans)
	ans.Otherwise = r.otherwise(q, i, reason)
	if q.req.Advisory {
		return
	}
	target := TargetNone
	if ans.Otherwise == OtherwisePrimary {
		target = TargetPrimary
	}
	r.counters.count(target, q.level, reason)
}

// otherwise spends the primary's budget on a no, or says to wait or to give up
// (P7). A router that is cut off no longer knows the primary but callers do:
// the budget alone then decides. Reads at level strong are the caller's own
// choice and are not charged.
func (r *Router) otherwise(q *question, i int, reason Reason) Otherwise {
	later := OtherwiseRefuse
	if reason.passing() || q.primaryReason == ReasonCatchingUp {
		later = OtherwiseWait
	}
	switch {
	case i >= 0 && i == q.primary:
		return later
	case !q.primaryOK && !q.cut:
		return later
	case q.primaryOK && !q.primaryUsable().yes():
		return later
	case q.level.usesFloor() && q.primaryOK && !q.floorWithin(q.primary):
		return OtherwiseWait
	case q.level == LevelStrong:
		return OtherwisePrimary
	case q.req.Advisory && r.budget.Would(q.now), !q.req.Advisory && r.budget.Take(q.now):
		return OtherwisePrimary
	}
	return later
}

// ask takes a snapshot and gathers what the question needs of it, again while
// the records move on.
func (r *Router) ask(s *scratch, req *Request, level Level) (question, error) {
	for n := 0; ; n++ {
		snap := r.o.View()
		q := r.question(s, snap, req, level, r.o.Clock())
		moved, err := q.gather()
		if err != nil || !moved {
			return q, err
		}
		r.counters.retries.Add(1)
		if n == maxRetries {
			q.allKeys = verdict{stage: stageKeys, reason: ReasonCatchingUp, detail: "the records move faster than they can be read"}
			return q, nil
		}
	}
}

// Route chooses a server for the request, into ans: a replica that may serve
// it, else the primary within its budget. When the primary lacks a part of the
// floor, Route waits for its next probe, at most ProbeWait or until ctx ends.
// ans.Yes is false when no target can be named; ans.Reason is then budget,
// no_primary or write_unseen. The error is as for Serve.
func (r *Router) Route(ctx context.Context, req *Request, ans *Answer) error {
	level, err := req.level()
	if err != nil {
		r.counters.badInput.Add(1)
		return err
	}
	s := r.pool.Get().(*scratch)
	err = r.route(ctx, s, req, level, ans)
	s.release()
	r.pool.Put(s)
	return err
}
