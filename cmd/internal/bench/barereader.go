package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"tidegate/binlog/gtid"
	"tidegate/testenv"
)

// bareServerID is what bare readers register as, on each server.
const bareServerID = 903

// bareReader reads one server's binlog and throws it away: the least that
// anything which follows a binlog asks of mysqld.
type bareReader struct {
	server *testenv.Server
	from   gtid.Set
	syncer *replication.BinlogSyncer
	stream *replication.BinlogStreamer
	txns   atomic.Int64 // that were delivered
}

// HandleEvent counts transactions; the syncer calls it.
func (r *bareReader) HandleEvent(e *replication.BinlogEvent) error {
	switch e.Header.EventType {
	case replication.GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT:
		r.txns.Add(1)
	}
	return nil
}

// bareReaders are one for each server of a cluster.
type bareReaders []*bareReader

// startBareReaders starts to read what the servers commit from now on.
func startBareReaders(ctx context.Context, c *testenv.Cluster) (rs bareReaders, err error) {
	for _, s := range c.Servers() {
		r, err := startBareReader(ctx, s)
		if err != nil {
			rs.close()
			return nil, fmt.Errorf("read the binlog of %s: %w", s.Name(), err)
		}
		rs = append(rs, r)
	}
	return rs, nil
}

func startBareReader(ctx context.Context, s *testenv.Server) (*bareReader, error) {
	from, err := executed(ctx, s)
	if err != nil {
		return nil, err
	}
	set, err := mysql.ParseMysqlGTIDSet(from.OneLine())
	if err != nil {
		return nil, err
	}
	r := &bareReader{server: s, from: from}
	r.syncer = replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: bareServerID, Flavor: mysql.MySQLFlavor, Host: s.Socket(),
		User: testenv.TidegateUser, Password: testenv.TidegatePassword,
		RawModeEnabled: true, SynchronousEventHandler: r, DisableRetrySync: true, Logger: slog.New(slog.DiscardHandler),
	})
	if r.stream, err = r.syncer.StartSyncGTID(set); err != nil {
		closeWithin(r.syncer.Close)
		return nil, err
	}
	return r, nil
}

// await waits until each reader has what its server has committed, and fails
// when one has ended.
func (rs bareReaders) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, r := range rs {
		set, err := executed(ctx, r.server)
		if err != nil {
			return err
		}
		due := int64(set.Count()) - int64(r.from.Count())
		for r.txns.Load() < due {
			poll, cancel := context.WithTimeout(ctx, catchupPoll)
			_, err := r.stream.GetEvent(poll) // events go to the handler: this is how a reader ends
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
				return fmt.Errorf("read the binlog of %s, after %d of %d transactions: %w", r.server.Name(), r.txns.Load(), due, err)
			}
		}
	}
	return nil
}

func (rs bareReaders) close() {
	for _, r := range rs {
		closeWithin(r.syncer.Close)
	}
}
