package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/daemon"
	"tidegate/cmd/internal/metrics"
	"tidegate/cmd/internal/observe"
	"tidegate/index"
)

func observeCommand() *cobra.Command {
	var file string
	var seconds int
	var asJSON bool
	c := &cobra.Command{
		Use:   "observe -c FILE",
		Short: "Judge the reads that an application does today, before anything is switched",
		Long: `Runs the whole program on your servers, and takes reports of reads:

  curl -X POST http://HTTP/v1/observe -d '{"reads":[{"server":"b","keys":["app.posts/42"]}]}'

At the end (after --seconds, or at Ctrl-C) it prints how many of them were stale,
and how many went to the primary although a replica would have shown the same.
"at" (RFC 3339) names the moment of a read that is reported later, at most 10 s.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if seconds < 0 {
				return fmt.Errorf("observe: --seconds is %d, it must not be negative", seconds)
			}
			cfg, err := config.Load(file, os.LookupEnv)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if seconds > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
				defer cancel()
			}
			return runObserve(ctx, cmd.OutOrStdout(), cfg, asJSON)
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "tidegate.yaml", "configuration file")
	c.Flags().IntVar(&seconds, "seconds", 0, "stop after so many seconds; 0: at Ctrl-C")
	c.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON instead of a table")
	return c
}

func runObserve(ctx context.Context, out io.Writer, cfg *config.Config, asJSON bool) (err error) {
	log := newLogger(cfg.Log)
	var d *daemon.Daemon
	watch := observe.New(func() *index.Snapshot { return d.Router.Index().Snapshot() })
	d, err = daemon.Open(ctx, cfg, daemon.Options{
		Parts: daemon.Parts{Tail: true, Serve: true}, Log: log, Version: version(), Observer: watch,
		Metrics: func(d *daemon.Daemon) http.Handler { return metrics.Handler(d, log) },
	})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := d.Close(); err == nil {
			err = closeErr
		}
	}()
	if d.Server == nil || d.Server.HTTPAddr() == nil {
		return fmt.Errorf("observe: listen.http is off, so nobody could report")
	}
	log.Info("taking reports", "url", "http://"+d.Server.HTTPAddr().String()+"/v1/observe")
	watching := make(chan error, 1)
	go func() { watching <- watch.Run(ctx) }()
	err = d.Run(ctx)
	if watchErr := <-watching; err == nil {
		err = watchErr
	}
	if err != nil {
		return err
	}
	return printTally(out, watch, asJSON)
}

func printTally(w io.Writer, o *observe.Observer, asJSON bool) error {
	total, by := o.Tally()
	if asJSON {
		return json.NewEncoder(w).Encode(total)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "SERVER\tREADS\tSTALE\tNEEDLESS PRIMARY\tUNDECIDED")
	row := func(name string, x observe.Tally) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\n", name, x.Reads, x.Stale, x.NeedlessPrimary, x.Undecided)
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		row(name, by[name])
	}
	row("all", total)
	return t.Flush()
}
