package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tidegate/cmd/internal/demo"
)

// maxSeconds bounds how long a command may be told to run: a day.
const maxSeconds = 86400

func demoCommand() *cobra.Command {
	var seconds float64
	var seed uint64
	var asJSON bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show stale reads on real MySQL servers, and Tidegate avoiding them",
		Long: `Starts a primary and two replicas (MySQL is fetched into the cache folder the
first time; no root is needed), Tidegate in process, and sessions that write
posts and read them back while the replicas are made to lag. Three policies read
the same keys on the same servers at the same moments: any replica, the primary
for five seconds after a write, and Tidegate. Ctrl-C ends it; nothing stays
behind but the cache. The exit code is 1 when a read was stale where Tidegate
had sent it.`,
		Example: `  tidegate demo
  tidegate demo --seconds 60 --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := inRange(cmd, "seconds", seconds, 0, maxSeconds); err != nil {
				return err
			}
			res, err := demo.Run(cmd.Context(), demo.Options{
				Length: time.Duration(seconds * float64(time.Second)), Seed: seed, Out: os.Stderr,
			})
			var stale *demo.StaleError
			if err != nil && !errors.As(err, &stale) {
				return fmt.Errorf("demo: %w", err)
			}
			if asJSON {
				return errors.Join(json.NewEncoder(cmd.OutOrStdout()).Encode(res), err)
			}
			return errors.Join(printDemo(cmd.OutOrStdout(), res), err)
		},
	}
	c.Flags().Float64Var(&seconds, "seconds", 0, "how many `SECONDS` the workload runs; 0: until Ctrl-C")
	c.Flags().Uint64Var(&seed, "seed", 0, "`NUMBER` that the random choices come from; 0: a random one, which is printed")
	c.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON on standard output at the end, and all else on standard error")
	return c
}

// printDemo shows the policies side by side.
func printDemo(w io.Writer, res demo.Result) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "POLICY\tREADS\tSTALE\tREAD FROM REPLICAS")
	for _, p := range []struct {
		name string
		demo.PolicyResult
	}{
		{"any replica", res.Policies.AnyReplica},
		{"primary for 5 s after a write", res.Policies.Sticky5s},
		{"tidegate", res.Policies.Tidegate.PolicyResult},
	} {
		fmt.Fprintf(t, "%s\t%d\t%d\t%.1f %%\n", p.name, p.Reads, p.Stale, 100*p.ReplicaShare)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "A router that knew everything would have read replicas for %.1f %%.\n", 100*res.Policies.Tidegate.OracleShare)
	return err
}
