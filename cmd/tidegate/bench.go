package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"tidegate/cmd/internal/bench"
)

func benchCommand() *cobra.Command {
	var o bench.Options
	var asJSON, verbose bool
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure what is promised about speed and size, each figure beside a baseline",
		Long: `Measures the rows ` + strings.Join(bench.Rows(), ", ") + `
on this machine, with real MySQL servers and a real Redis in a sandbox (fetched
into the cache folder the first time). Figures are comparable as ratios within
one run; give it a machine that does nothing else. All rows take some twelve
minutes, with --quick less than two. testenv/BENCHMARKS.md describes the method.`,
		Example: `  tidegate bench --quick
  tidegate bench --only decide,resp --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("bench: find this program, to start it again: %w", err)
			}
			o.Self, o.Progress = []string{self, bench.ChildCommand}, os.Stderr
			if verbose {
				o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
			}
			if err := o.Validate(); err != nil {
				return usage(err)
			}
			// A row that can't be measured takes nothing from the others.
			figures, err := bench.Run(cmd.Context(), o)
			if asJSON {
				return errors.Join(err, bench.WriteJSON(cmd.OutOrStdout(), figures))
			}
			return errors.Join(err, bench.WriteTable(cmd.OutOrStdout(), figures))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print an array of JSON objects instead of a table")
	c.Flags().BoolVar(&o.Quick, "quick", false, "fewer and shorter rounds: tells whether it works, not how fast it is")
	c.Flags().StringSliceVar(&o.Only, "only", nil, "measure these `ROWS` only (comma separated); default: all")
	c.Flags().StringVar(&o.Profile, "profile", "", "write a CPU profile of each row's measured process into `FOLDER`; default: none")
	c.Flags().BoolVar(&verbose, "verbose", false, "show the logs of the measured parts in this process")
	return c
}

// benchChildCommand is what benchCommand starts; nobody else calls it.
func benchChildCommand() *cobra.Command {
	return &cobra.Command{
		Use: bench.ChildCommand, Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error { return bench.Child(cmd.Context(), args) },
	}
}
