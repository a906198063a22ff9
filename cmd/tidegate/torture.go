package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tidegate/cmd/internal/progress"
	"tidegate/cmd/internal/torture"
	"tidegate/testenv"
	"tidegate/testenv/checker"
)

func tortureCommand() *cobra.Command {
	var seconds, sessions, replicas int
	var o torture.Options
	var asJSON, verbose bool
	c := &cobra.Command{
		Use:   "torture",
		Short: "Prove answers true or false: real servers, faults, and a checker",
		Long: `Starts real MySQL servers, a router, and sessions that write and read where the
router says, while faults strike; then judges every read by what was
acknowledged when. Exit code 1 on a violation, or when a fault struck no read.

Routers: real (Tidegate), and two that are broken on purpose: hints (trusts
binlog events) and window (the primary for 5 s after a write).

Every fault strikes at least once, however few --seconds are: all of them take
some minutes, and standard error says how many at the least. Ctrl-C ends it.

The history stays in a file; "tidegate torture replay FILE" judges it again, also
that of a run that was ended early.

Faults:
` + faultList(),
		Example: `  tidegate torture --seconds 300 --seed 7
  tidegate torture --router hints --faults none`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := errors.Join(
				inRange(cmd, "seconds", seconds, 1, maxSeconds),
				inRange(cmd, "replicas", replicas, 2, 8),
				inRange(cmd, "sessions", sessions, 1, 256),
				usage(torture.Check(o.Router, o.Faults)),
			)
			if o.After <= 0 {
				err = errors.Join(err, usagef("%s: --after is %v, it must be positive", cmd.CommandPath(), o.After))
			}
			if o.History != "" {
				if _, statErr := os.Stat(filepath.Dir(o.History)); statErr != nil {
					err = errors.Join(err, usagef("%s: --history: %w", cmd.CommandPath(), statErr))
				}
			}
			if err != nil {
				return err
			}
			o.Duration, o.Sessions, o.Replicas = time.Duration(seconds)*time.Second, sessions, replicas
			if !cmd.Flags().Changed("seed") {
				o.Seed = rand.Uint64N(1 << 32)
			}
			if o.History == "" {
				o.History = filepath.Join(os.TempDir(), fmt.Sprintf("tidegate-torture-%s-%d.jsonl", o.Router, o.Seed))
			}
			level := slog.LevelError
			if verbose {
				level = slog.LevelInfo
			}
			o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
			rep, err := runTorture(cmd.Context(), o)
			if err != nil {
				return err
			}
			return printVerdict(cmd.OutOrStdout(), rep, asJSON)
		},
	}
	f := c.Flags()
	f.IntVar(&seconds, "seconds", 60, "how many `SECONDS` sessions run; a fault that has still to strike makes it longer")
	f.StringVar(&o.Faults, "faults", "all", "`NAMES` with commas, or none, or all")
	f.StringVar(&o.Router, "router", "real", "`ROUTER` to torture: "+strings.Join(torture.Routers(), ", "))
	f.IntVar(&sessions, "sessions", 12, "`NUMBER` of sessions at once, 1 to 256")
	f.IntVar(&replicas, "replicas", 2, "`NUMBER` of replicas of the sandbox, 2 to 8")
	f.Uint64Var(&o.Seed, "seed", 0, "`NUMBER` that all choices come from; default: a random one, which is printed")
	f.DurationVar(&o.After, "after", checker.DefaultAfter, "`DURATION` of peace after each fault")
	f.StringVar(&o.History, "history", "", "`FILE` for the history; default: one in the temporary folder")
	f.BoolVar(&asJSON, "json", false, "print one line of JSON instead of a table")
	f.BoolVarP(&verbose, "verbose", "v", false, "log what the router and the faults do")
	c.AddCommand(replayCommand())
	return c
}

// runTorture runs it and says on standard error how long it will take, which
// fault strikes, and what to do with the history of a run that was told to end.
func runTorture(ctx context.Context, o torture.Options) (*checker.Report, error) {
	bar := progress.New(os.Stderr)
	say := func(format string, args ...any) {
		bar.Done() // a terminal's line of the step before
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
	o.Provisioning = testenv.Provisioning{Progress: bar.Step}
	say("seed %d, history %s", o.Seed, o.History)
	faults, least := o.Least()
	if faults > 0 {
		say("%d fault(s) strike at least once each, with %v of peace after each: %v at the least, and the strikes themselves (--faults and --after make it shorter)", faults, o.After, least)
	}
	began := time.Now()
	o.Striking = func(fault string, n int) {
		of := ""
		if n <= faults {
			of = fmt.Sprintf(" of %d", faults)
		}
		say("%4.0f s: fault %d%s: %s", time.Since(began).Seconds(), n, of, fault)
	}
	defer context.AfterFunc(ctx, func() { say("ending...") })()
	rep, err := torture.Run(ctx, o)
	bar.Done()
	if ctx.Err() == nil || rep != nil {
		return rep, err
	}
	if _, statErr := os.Stat(o.History); statErr != nil {
		return nil, errors.New("torture: ended before the sessions began")
	}
	// What an interrupt broke off says nothing more.
	return nil, fmt.Errorf("torture: ended before its time; what was recorded is in %s, to judge it: tidegate torture replay %s", o.History, o.History)
}

func replayCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "replay FILE",
		Short: "Judge a saved history again",
		Long: `Judges the history that torture left in FILE, without servers: the same verdict
and the same exit code.`,
		Example: `  tidegate torture replay /tmp/tidegate-torture-real-7.jsonl`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("%s takes one FILE, and %d arguments were given", c.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			rep, err := checker.JudgeFile(args[0])
			if err != nil {
				return usage(err)
			}
			return printVerdict(cmd.OutOrStdout(), rep, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON instead of a table")
	return c
}

func printVerdict(out io.Writer, rep *checker.Report, asJSON bool) error {
	show := torture.PrintTable
	if asJSON {
		show = torture.PrintJSON
	}
	if err := show(out, rep); err != nil {
		return err
	}
	if !rep.OK() {
		torture.PrintFailure(os.Stderr, rep)
		return errFound
	}
	return nil
}

func faultList() string {
	var b strings.Builder
	for _, f := range torture.Faults() {
		fmt.Fprintf(&b, "  %-16s %s\n", f[0], f[1])
	}
	return b.String()
}
