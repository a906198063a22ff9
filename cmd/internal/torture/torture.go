package torture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"tidegate/testenv"
	"tidegate/testenv/checker"
)

// Routers names the routers that can be tortured.
func Routers() []string { return []string{"real", "hints", "window"} }

// Options of [Run].
type Options struct {
	testenv.Provisioning

	Router   string // one of Routers
	Faults   string // "none", "all", or names with commas
	Duration time.Duration
	After    time.Duration // peace after a fault; 0: the checker's default
	Sessions int           // 0: the checker's default
	Replicas int           // 0: two
	Seed     uint64
	History  string // file to write
	Log      *slog.Logger
	// Striking is called before each strike with the fault's name and with which
	// strike of the run it is, from 1 on. It must not block. Nil: nobody is told.
	Striking func(fault string, n int)
}

// Least is how many faults strike at least once, and the shortest time that the
// sessions may run for it. The strikes themselves, some seconds each, and the start
// of the servers come on top. Names that [Check] refuses count as
// no faults.
func (o *Options) Least() (faults int, least time.Duration) {
	fs, err := choose(o.Faults, catalogue(o.Router))
	if err != nil || len(fs) == 0 {
		return 0, o.Duration
	}
	after := o.After
	if after == 0 {
		after = checker.DefaultAfter
	}
	return len(fs), max(o.Duration, time.Duration(len(fs))*after)
}

// Check says what is wrong with the names of a router and of its faults, before
// anything is started.
func Check(router, faults string) error {
	if !slices.Contains(Routers(), router) {
		return fmt.Errorf("router %q: it must be one of %s", router, strings.Join(Routers(), ", "))
	}
	_, err := choose(faults, catalogue(router))
	return err
}

// Run tortures a router and returns the verdict. An error means that the run
// failed, not the router.
func Run(ctx context.Context, o Options) (rep *checker.Report, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Replicas == 0 {
		o.Replicas = 2
	}
	if err := Check(o.Router, o.Faults); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tidegate-torture-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, err := testenv.Start(ctx, testenv.Options{Provisioning: o.Provisioning, Servers: o.Replicas + 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := checker.Prepare(ctx, c); err != nil {
		return nil, err
	}
	return o.on(ctx, c, dir)
}

// on makes the router on the running servers and lets the checker loose.
func (o *Options) on(ctx context.Context, c *testenv.Cluster, dir string) (rep *checker.Report, err error) {
	via := map[string]*testenv.Proxy{}
	for _, s := range c.Servers() {
		if via[s.Name()], err = s.Proxy(); err != nil {
			return nil, err
		}
	}
	var answerer checker.Answerer
	var real *realRouter
	var nats *testenv.NATSProcess
	switch o.Router {
	case "real":
		if nats, err = o.nats(ctx); err != nil {
			return nil, err
		}
		url := ""
		if nats != nil {
			defer func() { err = errors.Join(err, nats.Close()) }()
			url = nats.URL()
		}
		if real, err = newReal(ctx, c, via, url, dir, o.Log); err != nil {
			return nil, err
		}
		defer real.close()
		answerer = real
	case "hints":
		h, err := newHints(ctx, c, o.Log)
		if err != nil {
			return nil, err
		}
		defer h.close()
		answerer = h
	default:
		answerer = newWindow(c)
	}
	faults, err := choose(o.Faults, append(checker.ServerFaults(), ownFaults(via, real, nats)...))
	if err != nil {
		return nil, err
	}
	rep, err = checker.Run(ctx, checker.Options{
		Cluster: c, Answerer: answerer, Router: o.Router, Duration: o.Duration, Faults: o.watched(ctx, faults), After: o.After,
		Sessions: o.Sessions, Seed: o.Seed, History: o.History, Log: o.Log,
	})
	if err == nil && real != nil {
		err = real.ended()
	}
	return rep, err
}

// nats starts a NATS of its own process when its fault is asked for.
func (o *Options) nats(ctx context.Context) (*testenv.NATSProcess, error) {
	fs, err := choose(o.Faults, catalogue(o.Router))
	if err != nil {
		return nil, err
	}
	for _, f := range fs {
		if f.Name == natsFault {
			return testenv.StartNATS(ctx, testenv.NATSOptions{Provisioning: o.Provisioning, MaxFileStore: 8 << 30})
		}
	}
	return nil, nil
}

// catalogue lists the faults that a router can meet, without anything to
// strike.
func catalogue(router string) []checker.Fault {
	fs := checker.ServerFaults()
	if router == "real" {
		return append(fs, ownFaults(nil, &realRouter{}, &testenv.NATSProcess{})...)
	}
	return append(fs, ownFaults(nil, nil, nil)...)
}

// Faults names the faults that "real" can meet, each with what it is.
func Faults() [][2]string {
	var out [][2]string
	for _, f := range catalogue("real") {
		out = append(out, [2]string{f.Name, f.What})
	}
	return out
}
