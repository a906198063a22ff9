package torture

import (
	"context"
	"slices"
	"time"

	"tidegate/binlog"
	"tidegate/router/serve"
)

const (
	// operateFor is how long after a rebuild the operator looks at a server.
	operateFor = 20 * time.Second
	// operateEvery is how often.
	operateEvery = 100 * time.Millisecond
)

// Rebuilt does what operators are told to do after they gave a server a copy of
// one that is right: where transactions were lost and their GTIDs given again,
// they say so ("tidegate accept --copy"). It implements [checker.Operator].
func (r *realRouter) Rebuilt(server string) {
	r.operating.Go(func() { r.operate(r.operation, server) })
}

// operate accepts the copy as soon as the program asks for it.
func (r *realRouter) operate(ctx context.Context, server string) {
	ctx, cancel := context.WithTimeout(ctx, operateFor)
	defer cancel()
	tick := time.NewTicker(operateEvery)
	defer tick.Stop()
	var accepted uint64 // the data set of which the copy was accepted
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		d := r.up.Load()
		if d == nil {
			continue
		}
		view := d.Router.Index().Snapshot()
		i, ok := view.ServerIndex(server)
		if !ok {
			continue
		}
		st := view.Server(i)
		if st == nil || st.DataSet == accepted || !slices.ContainsFunc(st.Excluded, binlog.IsCopyExclusion) {
			continue
		}
		// An error (the program or NATS is down just now) is mended at the next tick.
		if err := d.Accept(ctx, serve.Acceptance{Server: server, Copy: true, Author: "torture", Reason: "rebuilt"}); err == nil {
			r.log.Info("copy accepted", "server", server)
			accepted = st.DataSet
		}
	}
}
