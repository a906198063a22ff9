package main

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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

The history stays in a file; "tidegate torture replay FILE" judges it again.

Faults:
` + faultList(),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if seconds < 1 || seconds > 86400 {
				return fmt.Errorf("torture: --seconds is %d, it must be 1 to 86400", seconds)
			}
			if replicas < 2 || replicas > 8 {
				return fmt.Errorf("torture: --replicas is %d, it must be 2 to 8", replicas)
			}
			if !slices.Contains(torture.Routers(), o.Router) {
				return fmt.Errorf("torture: --router is %q, it must be one of %s", o.Router, strings.Join(torture.Routers(), ", "))
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
			fmt.Fprintf(os.Stderr, "seed %d, history %s\n", o.Seed, o.History)
			bar := progress.New(os.Stderr)
			o.Provisioning = testenv.Provisioning{Progress: bar.Step}
			rep, err := torture.Run(cmd.Context(), o)
			bar.Done()
			if err != nil {
				return err
			}
			return printVerdict(cmd.OutOrStdout(), rep, asJSON)
		},
	}
	f := c.Flags()
	f.IntVar(&seconds, "seconds", 60, "how long sessions run; a fault that has still to strike makes it longer")
	f.StringVar(&o.Faults, "faults", "all", `"none", "all", or names with commas`)
	f.StringVar(&o.Router, "router", "real", strings.Join(torture.Routers(), ", "))
	f.IntVar(&sessions, "sessions", 12, "sessions at once")
	f.IntVar(&replicas, "replicas", 2, "replicas of the sandbox")
	f.Uint64Var(&o.Seed, "seed", 0, "seed of all choices; default: a random one, which is printed")
	f.DurationVar(&o.After, "after", 5*time.Second, "peace after each fault")
	f.StringVar(&o.History, "history", "", "file for the history; default: one in the temporary folder")
	f.BoolVar(&asJSON, "json", false, "print one line of JSON")
	f.BoolVarP(&verbose, "verbose", "v", false, "log what the router and the faults do")
	c.AddCommand(replayCommand())
	return c
}

func replayCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "replay FILE",
		Short: "Judge a saved history again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rep, err := checker.JudgeFile(args[0])
			if err != nil {
				return err
			}
			return printVerdict(cmd.OutOrStdout(), rep, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON")
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
		return exitError(1)
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
