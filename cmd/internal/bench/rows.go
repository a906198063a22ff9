package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// Options of [Run]. Self is required.
type Options struct {
	// Self is the command line that runs [Child] in a new process; the child's
	// arguments follow it.
	Self []string
	// Only names the rows to measure; empty: all.
	Only []string
	// Quick measures shorter and in fewer rounds: whether it works, not how fast
	// it is.
	Quick bool
	// Profile is a folder for CPU profiles, one a row, of the process that does
	// the measured work; empty: none.
	Profile string
	// Progress receives a line for each step; nil: none.
	Progress io.Writer
	// Log is for the parts that are measured; nil: discarded.
	Log *slog.Logger
}

// row is one row of the table of bounds.
type row struct {
	name string
	run  func(*bench, context.Context) ([]Figure, error)
	// elsewhere: the measured work is done by a child, which profiles itself.
	elsewhere bool
}

// rows are all of them, in the order in which they run: those without MySQL
// first, so that a mistake there shows early.
var rows = []row{
	{name: "decide", run: (*bench).decideRow},
	{name: "resp", run: (*bench).respRow, elsewhere: true},
	{name: "http", run: (*bench).httpRow, elsewhere: true},
	{name: "memory", run: (*bench).memoryRow, elsewhere: true},
	{name: "yes_delay", run: (*bench).yesDelayRow},
	{name: "confirm_cost", run: (*bench).confirmCostRow, elsewhere: true},
	{name: "catchup", run: (*bench).catchupRow},
	{name: "recover", run: (*bench).recoverRow, elsewhere: true},
}

// Rows names the rows.
func Rows() []string {
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	return names
}

// bench is one run.
type bench struct {
	o      Options
	effort effort
}

// effort says how long each row measures.
type effort struct {
	rounds int // ABAB rounds

	decideFor time.Duration
	asks      int // of one half of a round of resp and http
	records   int // of decide and memory
	trials    int // of yes_delay, each way

	confirmFor   time.Duration // one third of a round of confirm_cost
	confirmRound int

	catchupTxns   int
	catchupRounds int

	recoverTxns   int // between the router that is behind and now
	recoverRounds int
}

var (
	full = effort{
		rounds: 20, decideFor: 15 * time.Second, asks: 20_000, records: 1_000_000, trials: 2000,
		confirmFor: 4 * time.Second, confirmRound: 12, catchupTxns: 300_000, catchupRounds: 10,
		recoverTxns: 3600 * recoverRate, recoverRounds: 3,
	}
	quick = effort{
		rounds: 3, decideFor: 2 * time.Second, asks: 2000, records: 1_000_000, trials: 100,
		confirmFor: time.Second, confirmRound: 2, catchupTxns: 20_000, catchupRounds: 2,
		recoverTxns: 50 * recoverRate, recoverRounds: 1,
	}
)

// Run measures the rows one after the other and returns their figures. An error
// names the rows that could not be measured, and the others' figures come with
// it; a bound that is missed is no error.
func Run(ctx context.Context, o Options) ([]Figure, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	b := &bench{o: o, effort: full}
	if o.Quick {
		b.effort = quick
	}
	var out []Figure
	var errs []error
	for _, r := range rows {
		if len(o.Only) > 0 && !slices.Contains(o.Only, r.name) {
			continue
		}
		began := time.Now()
		b.step("%s ...", r.name)
		figures, err := b.profiled(ctx, r)
		if err != nil {
			errs = append(errs, fmt.Errorf("bench %s: %w", r.name, err))
			if ctx.Err() != nil {
				break
			}
			continue
		}
		b.step("%s took %v", r.name, time.Since(began).Round(100*time.Millisecond))
		out = append(out, figures...)
		debug.FreeOSMemory() // what this row held is not the next one's
	}
	return out, errors.Join(errs...)
}

// Validate says everything that is wrong with the options, before anything is
// started.
func (o *Options) Validate() error {
	var errs []error
	if len(o.Self) == 0 {
		errs = append(errs, errors.New("bench: the command line of a child is missing"))
	}
	for _, name := range o.Only {
		if !slices.Contains(Rows(), name) {
			errs = append(errs, fmt.Errorf("bench: there is no row %q; there are %s", name, strings.Join(Rows(), ", ")))
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

func (b *bench) step(format string, args ...any) {
	if b.o.Progress != nil {
		fmt.Fprintf(b.o.Progress, format+"\n", args...)
	}
}

// profiled runs a row, with a CPU profile of this process when one is wanted
// and the work is done here.
func (b *bench) profiled(ctx context.Context, r row) (figures []Figure, err error) {
	if r.elsewhere || b.o.Profile == "" {
		return r.run(b, ctx)
	}
	stop, err := startProfile(b.profileOf(r.name))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return r.run(b, ctx)
}

// profileOf is the file of a row's profile; empty: none is wanted.
func (b *bench) profileOf(name string) string {
	if b.o.Profile == "" {
		return ""
	}
	return filepath.Join(b.o.Profile, name+".cpu.pprof")
}

// startProfile begins a CPU profile of this process; an empty file name is none.
func startProfile(file string) (stop func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
