package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"tidegate/cmd/internal/progress"
	"tidegate/testenv"
)

// Options of [Run]. The zero value runs until the context ends and shows
// nothing.
type Options struct {
	// Length is how long the workload runs; 0: until the context ends.
	Length time.Duration
	// Seed is where all random choices come from; 0: a random one. The clock
	// and the servers do the rest, so that two runs on one seed make the same
	// choices and not the same numbers.
	Seed uint64
	// Out gets the progress of the preparation and the display: redrawn in
	// place when it is a terminal, lines otherwise. Nil: nothing is shown.
	Out *os.File
	// Provisioning says where MySQL comes from; its Progress is Run's own.
	Provisioning testenv.Provisioning
}

// demo is one run.
type demo struct {
	seed    uint64
	length  time.Duration
	servers *servers
	program *program
	ledger  *ledger
	tally   tally
	trouble trouble
}

// ErrNotBegun tells that the context ended before the first read.
var ErrNotBegun = errors.New("ended before the workload began")

func (d *demo) firstPosts() int64 { return sessions * postsEach }

// Run runs a demo and returns what it found when its time is over or ctx ends:
// then nothing of it is left but the cache. The error is a *StaleError, besides
// the result, when a read was stale where Tidegate had sent it; [ErrNotBegun]
// when ctx ended during the preparation.
func Run(ctx context.Context, o Options) (res Result, err error) {
	if o.Length < 0 {
		return Result{}, fmt.Errorf("demo: a run of %s: it must be 0 or longer", o.Length)
	}
	if o.Out == nil {
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return Result{}, err
		}
		defer func() { _ = null.Close() }()
		o.Out = null
	}
	d := &demo{seed: o.Seed, length: o.Length}
	for d.seed == 0 {
		d.seed = rand.Uint64()
	}
	res, err = d.run(ctx, o)
	var stale *StaleError
	if err != nil && !errors.As(err, &stale) {
		if errors.Is(err, ErrNotBegun) {
			return res, ErrNotBegun
		}
		return res, fmt.Errorf("demo (seed %d): %w", d.seed, err)
	}
	return res, err
}

// run prepares everything, lets the workload run, and takes all down again in
// the reverse order.
func (d *demo) run(ctx context.Context, o Options) (res Result, err error) {
	bar := progress.New(o.Out)
	defer bar.Done()
	provisioning := o.Provisioning
	provisioning.Progress = bar.Step
	cluster, err := testenv.Start(ctx, testenv.Options{Provisioning: provisioning})
	if err != nil {
		return Result{}, notBegun(ctx, err)
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	if d.servers, err = openServers(cluster); err != nil {
		return Result{}, err
	}
	defer d.servers.close()

	bar.Step("fill the tables", 0, 0)
	if err := d.servers.prepare(ctx, d.firstPosts()); err != nil {
		return Result{}, notBegun(ctx, err)
	}
	d.ledger = newLedger(d.firstPosts())
	bar.Step("start tidegate", 0, 0)
	if d.program, err = startProgram(ctx, cluster); err != nil {
		return Result{}, notBegun(ctx, err)
	}
	defer func() {
		closeErr := d.program.close()
		if err = errors.Join(err, closeErr); err != nil {
			if log := d.program.log.String(); log != "" {
				fmt.Fprintf(o.Out, "the end of tidegate's log:\n%s\n", log)
			}
		}
	}()
	if err := d.program.ready(ctx, d.servers); err != nil {
		return Result{}, notBegun(ctx, err)
	}
	bar.Done()
	return d.workload(ctx, o.Out)
}

func notBegun(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.Join(ErrNotBegun, err)
	}
	return err
}

// workload runs sessions, faults and the display until its time is over.
func (d *demo) workload(ctx context.Context, out *os.File) (Result, error) {
	began := time.Now()
	if d.length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.length)
		defer cancel()
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range sessions {
		g.Go(func() error { return d.newUser(i).run(ctx) })
	}
	g.Go(func() error { return d.runFaults(ctx) })
	g.Go(func() error { return d.program.watch(ctx) })
	show := newDisplay(d, out)
	g.Go(func() error { show.run(ctx, began); return nil })
	err := g.Wait()
	res, stale := d.tally.result(time.Since(began))
	return res, errors.Join(err, stale)
}
