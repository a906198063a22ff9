package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
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
	floorIntervals  = 8
)

// decideRow times single decisions at level key with a floor, in process, while
// another goroutine ingests. What the clock itself takes is measured first and
// taken off each sample.
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
	h, shares, err := b.timeDecisions(ctx, w, r, questions, clock)
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
		figure("decide.allocs", allocs, "allocations/op", lower).must(0),
		figure("decide.clock", float64(clock), "ns", lower),
		figure("decide.yes_share", float64(shares.yes)/float64(h.TotalCount()), "share", higher),
	}, nil
}

// questions are n requests, each for one row that has a record and one replica
// in turn, with a floor of eight intervals of its own.
func (w *world) questions(n int) ([]router.Request, error) {
	qs := make([]router.Request, n)
	for i := range qs {
		k, err := key.Parse("app.posts/" + strconv.Itoa(rand.IntN(w.record)))
		if err != nil {
			return nil, err
		}
		qs[i] = router.Request{Server: w.names[1+i%(len(w.names)-1)], Keys: []key.Key{k}, Floor: w.floor(), HasFloor: true}
	}
	return qs, nil
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
func decideAllocs(w *world, r *router.Router, qs []router.Request) (float64, error) {
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
		if err := r.Serve(&qs[i%len(qs)], &ans); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return float64((after.Mallocs - before.Mallocs) / n), nil
}

// shares is what was answered.
type shares struct {
	yes    int
	lastNo string
}

func (b *bench) timeDecisions(ctx context.Context, w *world, r *router.Router, qs []router.Request, clock int64) (*hdrhistogram.Histogram, shares, error) {
	var s shares
	h := hdrhistogram.New(1, int64(10*time.Second), 3)
	drive, stop := context.WithCancel(ctx)
	defer stop()
	g, drive := errgroup.WithContext(drive)
	g.Go(func() error { return w.drive(drive, decideIngest) })
	g.Go(func() error {
		defer stop()
		var ans router.Answer
		end := time.Now().Add(b.effort.decideFor)
		for i := 0; ; i++ {
			q := &qs[i&(len(qs)-1)]
			before := time.Now()
			err := r.Serve(q, &ans)
			took := time.Since(before)
			if err != nil {
				return err
			}
			if err := h.RecordValue(max(int64(took)-clock, 1)); err != nil {
				return fmt.Errorf("a decision took %v: %w", took, err)
			}
			if ans.Yes {
				s.yes++
			} else {
				s.lastNo = ans.Reason.String() + " " + ans.Detail
			}
			if i&1023 == 0 && (drive.Err() != nil || before.After(end)) {
				return nil
			}
		}
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return nil, s, err
	}
	return h, s, ctx.Err()
}
