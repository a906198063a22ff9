package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/daemon"
	"tidegate/cmd/internal/metrics"
	"tidegate/cmd/internal/observe"
	"tidegate/index"
	"tidegate/router/local"
)

func observeCommand() *cobra.Command {
	var file string
	var seconds int
	var asJSON bool
	c := &cobra.Command{
		Use:   "observe -c FILE",
		Short: "Judge the reads that an application does today, before anything is switched",
		Long: `Runs the whole program on your servers, and takes reports of reads:

  curl -X POST http://HTTP/v1/observe -d '{"reads":[{"at":"2026-11-30T07:00:00.5Z","server":"b","keys":["app.posts/42"]}]}'

At the end (after --seconds, or at Ctrl-C) it prints how many of them were stale,
and how many went to the primary although a replica would have shown the same. A
read is undecided, with the cause told, where the newest write of its key is not
known: soon after the start, that is whatever a lagging replica may lack.
"at" is when it was read (RFC 3339, or milliseconds since 1970), at most 10 s ago.`,
		Example: `  tidegate observe -c tidegate.yaml --seconds 3600`,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := inRange(cmd, "seconds", seconds, 0, maxSeconds); err != nil {
				return err
			}
			cfg, err := loadFor(file, daemon.Parts{Tail: true, Serve: true})
			if err != nil {
				return err
			}
			if cfg.Listen.HTTP == "off" {
				return usagef("%s: observe: listen.http is off, so nobody could report", file)
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
	addConfig(c, &file)
	c.Flags().IntVar(&seconds, "seconds", 0, "stop after so many `SECONDS`; 0: at Ctrl-C")
	c.Flags().BoolVar(&asJSON, "json", false, "print the totals as one line of JSON instead of a table")
	return c
}

func runObserve(ctx context.Context, out io.Writer, cfg *config.Config, asJSON bool) (err error) {
	log := newLogger(cfg.Log)
	var d *daemon.Daemon
	watch := observe.New(func() *index.Snapshot { return d.Router.Index().Snapshot() }, local.Clock, cfg.Router.Lease)
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
	scheme := "http://"
	if cfg.Listen.TLS.CertFile != "" {
		scheme = "https://"
	}
	log.Info("taking reports", "url", scheme+d.Server.HTTPAddr().String()+"/v1/observe")
	// The last reads are judged while the program still follows the stream.
	watchCtx, endWatch := context.WithCancel(ctx)
	defer endWatch()
	daemonCtx, endDaemon := context.WithCancel(context.WithoutCancel(ctx))
	defer endDaemon()
	watching := make(chan error, 1)
	go func() {
		watchErr := watch.Run(watchCtx)
		endDaemon()
		watching <- watchErr
	}()
	err = d.Run(daemonCtx)
	endWatch()
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
	if err := t.Flush(); err != nil {
		return err
	}
	total.Because.Each(func(n uint64, why string) {
		if n > 0 {
			fmt.Fprintf(w, "undecided: %d: %s\n", n, why)
		}
	})
	return nil
}
