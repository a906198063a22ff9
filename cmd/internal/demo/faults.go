package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// fault is a way to make replicas lag.
type fault int

const (
	applierStopped fault = iota // on one replica
	bigTransaction              // on the primary: every replica applies it in one go
	applierDelayed              // on one replica
	faultKinds
)

// delay is how late a delayed replica applies: longer than the sticky window,
// since lag of that kind is what no fixed window covers.
const delay = 7 * time.Second

// trouble is what happens to which server at the moment, for the display. It
// may be used by many at once.
type trouble struct {
	mu   sync.Mutex
	what map[int]string // by place; place 0 is the primary
}

func (t *trouble) set(place int, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.what == nil {
		t.what = map[int]string{}
	}
	t.what[place] = what
}

func (t *trouble) of(place int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.what[place]
}

// seedFaults is the stream of random numbers for faults; sessions use their
// numbers.
const seedFaults = 1 << 32

// runFaults makes replicas lag in turns until ctx ends. The first fault is a
// stopped applier, since that shows at once what lag does; then each kind comes
// once before any comes again.
func (d *demo) runFaults(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(d.seed, seedFaults))
	victim := 1 + rng.IntN(len(d.servers.all)-1)
	next := func() int {
		victim = 1 + victim%(len(d.servers.all)-1)
		return victim
	}
	order := []fault{applierStopped, bigTransaction, applierDelayed}
	calm := 500 * time.Millisecond
	for {
		for _, f := range order {
			if !wait(ctx, calm) {
				return nil
			}
			lasts := 6*time.Second + time.Duration(rng.Int64N(int64(2*time.Second)))
			if err := d.strike(ctx, f, next, lasts); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			calm = 1500 * time.Millisecond
		}
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
}

// strike causes one fault, ends it after a while and returns when the replicas
// have caught up. At the end of the demo nothing is mended: the servers go.
func (d *demo) strike(ctx context.Context, f fault, next func() int, lasts time.Duration) error {
	if f == bigTransaction {
		d.trouble.set(0, fmt.Sprintf("a transaction of %d rows", ballastRows))
		defer d.trouble.set(0, "")
		began := time.Now()
		if err := d.servers.all[0].Exec(ctx, "UPDATE app.ballast SET n = n + 1"); err != nil {
			return err
		}
		if err := d.catchUp(ctx); err != nil {
			return err
		}
		wait(ctx, lineEvery-time.Since(began)) // a fast machine would never show it
		return nil
	}
	place := next()
	server := d.servers.all[place]
	defer d.trouble.set(place, "")
	var begin, end func() error
	switch f {
	case applierStopped:
		d.trouble.set(place, "applier stopped")
		begin = func() error { return server.StopSQLThread(ctx) }
		end = func() error { return server.StartSQLThread(ctx) }
	case applierDelayed:
		d.trouble.set(place, fmt.Sprintf("applier delayed by %s", delay))
		begin = func() error { return server.SetDelay(ctx, delay) }
		end = func() error { return server.SetDelay(ctx, 0) }
	}
	if err := begin(); err != nil {
		return err
	}
	if !wait(ctx, lasts) {
		return nil
	}
	if err := end(); err != nil {
		return err
	}
	d.trouble.set(place, "catching up")
	return d.catchUp(ctx)
}

// catchUpTimeout bounds the wait for replicas after a fault.
const catchUpTimeout = time.Minute

func (d *demo) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	if err := d.servers.cluster.WaitInSync(ctx); err != nil {
		return fmt.Errorf("wait for replicas after a fault: %w", err)
	}
	return nil
}
