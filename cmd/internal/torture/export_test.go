package torture

import (
	"context"
	"log/slog"

	"tidegate/testenv"
	"tidegate/testenv/checker"
)

// RunOn is [Run] on servers of the caller's, on which the checker's tables are
// made already.
func RunOn(ctx context.Context, c *testenv.Cluster, o Options, dir string) (*checker.Report, error) {
	o.Log = slog.New(slog.DiscardHandler)
	return o.on(ctx, c, dir)
}
