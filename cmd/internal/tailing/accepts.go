package tailing

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"tidegate/binlog"
	"tidegate/cdc"
	"tidegate/cdc/key"
)

// acceptsEvery is how often the operator's acceptances are read.
const acceptsEvery = time.Second

// everything is the table of an acceptance that covers the server as a whole.
const everything = "*"

// accepts knows what the operator accepted (rules §1).
type accepts struct {
	conn   *cdc.Conn
	hasher key.Hasher
	// folds tells how the announced primary compares names. Until it is known an
	// acceptance of a name in capitals may not be found: a needless no.
	folds func() bool
	log   *slog.Logger

	mu       sync.Mutex
	byServer map[string][]binlog.Acceptance
}

func (a *accepts) of(server string) []binlog.Acceptance {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byServer[server]
}

func (a *accepts) run(ctx context.Context) error {
	tick := time.NewTicker(acceptsEvery)
	defer tick.Stop()
	for {
		// An error keeps what is known: an acceptance that is not seen yet is a
		// needless no.
		if list, err := a.conn.Accepted(ctx); err == nil {
			a.take(list)
		} else if ctx.Err() == nil {
			a.log.Debug("acceptances can't be read", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (a *accepts) take(list []cdc.Acceptance) {
	by, fold := map[string][]binlog.Acceptance{}, a.folds()
	for _, x := range list {
		b := binlog.Acceptance{DataSet: x.DataSet, GTIDs: x.GTIDs, Copy: x.Copy, Restart: x.Restart, Epoch: x.Epoch, Executed: x.Executed, LossSeen: x.LossSeen}
		switch x.Table {
		case "":
		case everything:
			b.Everything = true
		default:
			schema, table, err := key.ParseTable(x.Table)
			if err != nil {
				continue // written by another version; not understood is not accepted
			}
			if fold {
				schema, table = key.FoldName(schema), key.FoldName(table)
			}
			scopes := a.hasher.Table(schema, table)
			b.Table = scopes.AnyRow
		}
		by[x.Server] = append(by[x.Server], b)
	}
	a.mu.Lock()
	a.byServer = by
	a.mu.Unlock()
}
