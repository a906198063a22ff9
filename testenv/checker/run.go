package checker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"tidegate/testenv"
)

// DefaultAfter is the peace after a fault. No guarantee but the careful levels'
// can be given while there is no primary, which is two and a half seconds at each
// of its restarts: with twice as many faults a tenth of the time would be that.
const DefaultAfter = 10 * time.Second

// shareAfter is how long after a fault answers are its aftermath.
const shareAfter = 5 * time.Second

// Options of [Run].
type Options struct {
	Cluster *testenv.Cluster // freshly started; Prepare has run
	// Answerer is the router under test, and Router its name.
	Answerer Answerer
	Router   string

	Duration time.Duration
	Faults   []Fault
	Sessions int           // 0: 12
	Pace     time.Duration // mean pause of a session between two steps; 0: 15 ms
	// After is how long the world is left alone after a fault; 0: 10 s. The report
	// looks at the first five of them.
	After time.Duration
	// MaxAge is the oldest watermark that the router may answer with at
	// LevelKey; 0: one second.
	MaxAge  time.Duration
	Seed    uint64 // 0 is a seed like any other
	History string // file to write
	Log     *slog.Logger
}

func (o *Options) validate() error {
	var errs []error
	if o.Cluster == nil || o.Answerer == nil {
		errs = append(errs, errors.New("a cluster and an answerer are needed"))
	}
	if o.Duration <= 0 {
		errs = append(errs, fmt.Errorf("duration %s: it must be positive", o.Duration))
	}
	if o.History == "" {
		errs = append(errs, errors.New("the history needs a file"))
	}
	if o.Sessions < 0 || o.Sessions > maxSessions {
		errs = append(errs, fmt.Errorf("sessions: %d is not between 1 and %d", o.Sessions, maxSessions))
	}
	setDefault(&o.Sessions, 12)
	setDefault(&o.Pace, 15*time.Millisecond)
	setDefault(&o.After, DefaultAfter)
	setDefault(&o.MaxAge, time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Prepare makes the tables on a cluster's primary and waits until every
// replica has them. The router under test is started after it.
func Prepare(ctx context.Context, c *testenv.Cluster) error {
	conn, err := c.Primary().DB().Conn(ctx)
	if err != nil {
		return fmt.Errorf("prepare tables: %w", err)
	}
	defer func() { _ = conn.Close() }()
	for _, stmt := range createStatements() {
		if _, err := conn.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("prepare tables: %w", err)
		}
	}
	return c.WaitInSync(ctx)
}

// Run lets sessions and faults loose for Options.Duration (longer when a fault
// has still to strike) and judges the history. An error means that the run
// itself failed; violations are in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("torture: %w", err)
	}
	if err := run(ctx, &o); err != nil {
		return nil, fmt.Errorf("torture: %w", err)
	}
	return JudgeFile(o.History)
}

func run(ctx context.Context, o *Options) error {
	head := Head{Seed: o.Seed, Router: o.Router, MySQL: o.Cluster.MySQL.Version, MaxAge: o.MaxAge, After: min(o.After, shareAfter)}
	for _, f := range o.Faults {
		head.Faults = append(head.Faults, f.Name)
	}
	rec, err := newRecorder(o.History, head)
	if err != nil {
		return err
	}
	p, err := newPools(o.Cluster.Servers())
	if err != nil {
		return errors.Join(err, rec.close(false))
	}
	w := &World{Cluster: o.Cluster, rec: rec, log: o.Log, pools: p, answerer: o.Answerer}
	err = w.identify(ctx)
	if err == nil {
		err = w.live(ctx, o)
	}
	p.close()
	return errors.Join(err, rec.close(err == nil))
}

// live runs the sessions beside the faults.
func (w *World) live(ctx context.Context, o *Options) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	running, stop := context.WithCancel(ctx)
	defer stop()
	sessions := make([]*session, o.Sessions)
	for i := range sessions {
		sessions[i] = &session{
			id: i, w: w, answerer: o.Answerer, pace: o.Pace, mail: make(chan handOn, 4), all: sessions, own: map[Key]string{}, fail: fail,
			rng: rand.New(rand.NewPCG(o.Seed, uint64(i)+1)),
		}
	}
	var wg sync.WaitGroup
	for _, s := range sessions {
		wg.Go(func() { s.run(running) })
	}
	until := Moment(o.Duration)
	err := w.strikes(ctx, o.Faults, rand.New(rand.NewPCG(o.Seed, 0)), o.After, until)
	if err == nil {
		if left := time.Duration(until - w.rec.now()); left > 0 {
			err = sleep(ctx, left)
		}
	}
	stop()
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
