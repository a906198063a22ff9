package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
	"tidegate/router"
)

const (
	decideReplicas  = 8
	decideIngest    = 5000 // transactions a second
	decideQuestions = 1 << 16
	decideFloors    = 1 << 12
	floorIntervals  = 8
)

// decideRow times single decisions at level key with a floor, in process, while
// another goroutine ingests. What the clock itself takes is measured first and
// taken off each sample. Last, a computation that takes as long as the median
// decision and touches no memory is timed in the same way: its p99 is what the
// machine adds (interruptions, other programs).
func (b *bench) decideRow(ctx context.Context) ([]Figure, error) {
	w, err := newWorld(decideReplicas)
	if err != nil {
		return nil, err
	}
	if err := w.fill(b.effort.records); err != nil {
		return nil, err
	}
	if err := w.states(0); err != nil {
		return nil, err
	}
	r, err := w.newRouter()
	if err != nil {
		return nil, err
	}
	questions, err := w.questions(decideQuestions)
	if err != nil {
		return nil, err
	}
	runtime.GC()
	allocs, err := decideAllocs(w, r, questions)
	if err != nil {
		return nil, err
	}
	clock := clockOverhead()
	var shares shares
	h, err := b.timeEach(ctx, w, questions, clock, b.effort.decideFor, func(q *router.Request) error { return shares.serve(r, q) })
	if err != nil {
		return nil, err
	}
	turns := spinsFor(h.ValueAtQuantile(50))
	spun, err := b.timeEach(ctx, w, questions, clock, b.effort.decideFor/4, func(*router.Request) error { runtime.KeepAlive(spin(turns)); return nil })
	if err != nil {
		return nil, err
	}
	if shares.yes == 0 {
		return nil, fmt.Errorf("no decision of %d was a yes; the last no: %s", h.TotalCount(), shares.lastNo)
	}
	return []Figure{
		figure("decide.p50", float64(h.ValueAtQuantile(50)), "ns", lower),
		figure("decide.p99", float64(h.ValueAtQuantile(99)), "ns", lower).must(2000).aim(1000),
		figure("decide.p999", float64(h.ValueAtQuantile(99.9)), "ns", lower),
		figure("decide.machine_p99", float64(spun.ValueAtQuantile(99)), "ns", lower),
		figure("decide.allocs", allocs, "allocations/op", lower).must(0),
		figure("decide.clock", float64(clock), "ns", lower),
		figure("decide.yes_share", float64(shares.yes)/float64(h.TotalCount()), "share", higher),
	}, nil
}

// questions are what is asked in turn: rows that have a record, replicas, and
// floors of eight intervals.
type questions struct {
	names  []string
	ids    []string // of rows, in one string
	floors []gtid.Set
	asked  int
	req    router.Request
	sum    int64
}

func (w *world) questions(n int) (*questions, error) {
	k, err := key.Parse("app.posts/0")
	if err != nil {
		return nil, err
	}
	qs := &questions{names: w.names[1:], req: router.Request{Keys: []key.Key{k}, HasFloor: true}}
	var text strings.Builder
	ends := make([]int, n)
	for i := range ends {
		text.WriteString(strconv.Itoa(rand.IntN(w.record)))
		ends[i] = text.Len()
	}
	from := 0
	for _, end := range ends {
		qs.ids = append(qs.ids, text.String()[from:end])
		from = end
	}
	for range decideFloors {
		qs.floors = append(qs.floors, w.floor())
	}
	return qs, nil
}

// next puts the next question and reads it once: who asks has just parsed it, so
// that it is in the cache. What the index knows is not.
func (qs *questions) next() *router.Request {
	i := qs.asked
	qs.asked++
	qs.req.Server = qs.names[i%len(qs.names)]
	qs.req.Keys[0].Values[0].Text = qs.ids[i%len(qs.ids)]
	qs.req.Floor = qs.floors[i%len(qs.floors)]
	qs.sum += int64(qs.req.Keys[0].Values[0].Text[0])
	for src, iv := range qs.req.Floor.All() {
		qs.sum += int64(src.UUID[0]) + iv.Last
	}
	return &qs.req
}

// floor is a session's: one recent write, and what it has seen of seven other
// sources. Everybody shows it.
func (w *world) floor() gtid.Set {
	var s gtid.Set
	for s.NumIntervals() < floorIntervals-1 {
		u, first := 1+rand.IntN(worldUUIDs-1), int64(rand.IntN(worldIntervals)*intervalStep+1)
		s = s.AddInterval(gtid.Source{UUID: worldUUID(u)}, gtid.Interval{First: first, Last: first})
	}
	recent := w.next - 1 - rand.Int64N(int64(w.record))/2
	return s.Add(gtid.GTID{UUID: worldUUID(0), Seq: max(recent, firstActive)})
}

// clockOverhead is the median of what two readings of the clock, one right
// after the other, are apart.
func clockOverhead() int64 {
	h := hdrhistogram.New(1, int64(time.Second), 3)
	for range 200_000 {
		t := time.Now()
		_ = h.RecordValue(int64(time.Since(t))) // in range, or a pause that is no overhead
	}
	return h.ValueAtQuantile(50)
}

// decideAllocs counts allocations while nothing else runs; as testing does, a
// share of one is none.
func decideAllocs(w *world, r *router.Router, qs *questions) (float64, error) {
	if err := w.states(0); err != nil {
		return 0, err
	}
	var ans router.Answer
	var before, after runtime.MemStats
	const warm, n = 1000, 100_000
	for i := range warm + n {
		if i == warm {
			runtime.ReadMemStats(&before)
		}
		if err := r.Serve(qs.next(), &ans); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return float64((after.Mallocs - before.Mallocs) / n), nil
}

// shares is what was answered.
type shares struct {
	ans    router.Answer
	yes    int
	lastNo string
}

func (s *shares) serve(r *router.Router, q *router.Request) error {
	if err := r.Serve(q, &s.ans); err != nil {
		return err
	}
	if s.ans.Yes {
		s.yes++
	} else {
		s.lastNo = s.ans.Reason.String() + " " + s.ans.Detail
	}
	return nil
}

// spin works on registers alone.
//
//go:noinline
func spin(turns int64) (x int64) {
	for i := range turns {
		x = x*3 + i
	}
	return x
}

// spinsFor is how many turns of spin take about so many nanoseconds.
func spinsFor(nanos int64) int64 {
	const turns = 1_000_000
	best := int64(math.MaxInt64)
	for range 10 {
		t := time.Now()
		runtime.KeepAlive(spin(turns))
		best = min(best, int64(time.Since(t)))
	}
	return max(turns*nanos/best, 1)
}

// timeEach times each call of do alone, while the index ingests.
func (b *bench) timeEach(ctx context.Context, w *world, qs *questions, clock int64, lasting time.Duration, do func(*router.Request) error) (*hdrhistogram.Histogram, error) {
	h := hdrhistogram.New(1, int64(10*time.Second), 3)
	drive, stop := context.WithCancel(ctx)
	defer stop()
	g, drive := errgroup.WithContext(drive)
	g.Go(func() error { return w.drive(drive, decideIngest) })
	g.Go(func() error {
		defer stop()
		end := time.Now().Add(lasting)
		for i := 0; ; i++ {
			q := qs.next()
			before := time.Now()
			err := do(q)
			took := time.Since(before)
			if err != nil {
				return err
			}
			if err := h.RecordValue(max(int64(took)-clock, 1)); err != nil {
				return fmt.Errorf("a decision took %v: %w", took, err)
			}
			if i&1023 == 0 && (drive.Err() != nil || before.After(end)) {
				return nil
			}
		}
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return nil, err
	}
	return h, ctx.Err()
}
