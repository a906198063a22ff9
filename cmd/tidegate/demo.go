package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"tidegate/cmd/internal/demo"
)

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
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if seconds < 0 || seconds > 86400 {
				return fmt.Errorf("demo: --seconds is %g, it must be 0 to 86400", seconds)
			}
			res, err := demo.Run(cmd.Context(), demo.Options{
				Length: time.Duration(seconds * float64(time.Second)), Seed: seed, Out: os.Stderr,
			})
			var stale *demo.StaleError
			switch {
			case errors.Is(err, demo.ErrNotBegun) && !asJSON:
				fmt.Fprintln(os.Stderr, "tidegate demo:", err)
				return nil
			case err != nil && !errors.As(err, &stale):
				return err
			}
			if asJSON {
				return errors.Join(json.NewEncoder(cmd.OutOrStdout()).Encode(res), err)
			}
			p := res.Policies
			fmt.Fprintf(cmd.OutOrStdout(), "%d reads by each policy; stale: any replica %d, primary for 5 s after a write %d, tidegate %d; tidegate read replicas for %.1f %% of them, %.1f %% was possible\n",
				p.Tidegate.Reads, p.AnyReplica.Stale, p.Sticky5s.Stale, p.Tidegate.Stale, 100*p.Tidegate.ReplicaShare, 100*p.Tidegate.OracleShare)
			return err
		},
	}
	c.Flags().Float64Var(&seconds, "seconds", 0, "how long the workload runs; 0: until Ctrl-C")
	c.Flags().Uint64Var(&seed, "seed", 0, "where the random choices come from; 0: a random seed, which is printed")
	c.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON on standard output at the end, and all else on standard error")
	return c
}
