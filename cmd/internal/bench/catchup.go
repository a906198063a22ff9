package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-mysql-org/go-mysql/canal"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"golang.org/x/sync/errgroup"

	"tidegate/binlog/gtid"
	"tidegate/testenv"
)

const (
	catchupWriters = 4
	catchupPoll    = time.Millisecond
	catchupTimeout = 3 * time.Minute
	// serverIDs of the readers that are held against.
	rawServerID   = 901
	canalServerID = 902
)

// catchupRow has a binlog of single-row transactions read three ways, in turn:
// by a whole Tidegate (tailer, writer, embedded NATS, follower, index and its
// store), by go-mysql that delivers raw events and decodes nothing, and by
// go-mysql's canal with a handler that does nothing.
func (b *bench) catchupRow(ctx context.Context) (figures []Figure, err error) {
	c, err := b.startServers(ctx, testenv.Options{
		Servers: 1, PerServer: map[string]testenv.ServerOptions{"a": {Relaxed: true}}, // written fast; nothing is killed
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	m := &catchup{b: b, c: c, n: b.effort.catchupTxns, dir: filepath.Join(c.Dir(), "tidegate")}
	if err := m.prepare(ctx); err != nil {
		return nil, err
	}
	var withCanal []float64
	ours, raw, err := rounds(ctx, b.effort.catchupRounds, m.tidegate, func(ctx context.Context) (float64, error) {
		x, err := m.raw(ctx)
		if err != nil {
			return 0, fmt.Errorf("raw delivery: %w", err)
		}
		y, err := m.canal(ctx)
		if err != nil {
			return 0, fmt.Errorf("canal: %w", err)
		}
		withCanal = append(withCanal, y)
		return x, nil
	})
	if err != nil {
		return nil, err
	}
	return []Figure{
		figure("catchup.throughput", median(ours), "txn/s", higher).against(median(raw), medianRatio(ours, raw)).must(0.33).aim(0.5),
		figure("catchup.start", median(m.start), "s", lower),
		figure("catchup.canal", median(withCanal), "txn/s", higher).against(median(raw), medianRatio(withCanal, raw)),
	}, nil
}

// catchup is one binlog and its readers.
type catchup struct {
	b     *bench
	c     *testenv.Cluster
	n     int      // transactions
	dir   string   // data of a Tidegate that stopped before they were written
	from  gtid.Set // what was executed then
	round int
	start []float64 // seconds from a Tidegate's start to its tailer's first transaction
}

// prepare runs a Tidegate until it has announced the primary, stops it, and
// writes what is to be caught up with.
func (m *catchup) prepare(ctx context.Context) error {
	primary := m.c.Primary()
	for _, sql := range []string{
		"CREATE TABLE app.bench_catchup (id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT)",
		`CREATE PROCEDURE app.bench_fill(n INT)
		BEGIN
			DECLARE i INT DEFAULT 0;
			WHILE i < n DO
				INSERT INTO app.bench_catchup (v) VALUES (i);
				SET i = i + 1;
			END WHILE;
		END`,
	} {
		if err := primary.Exec(ctx, sql); err != nil {
			return err
		}
	}
	t, err := m.b.startTidegate(ctx, m.c, m.dir)
	if err != nil {
		return err
	}
	if err := errors.Join(t.ready(ctx), t.close()); err != nil {
		return err
	}
	if m.from, err = executed(ctx, primary); err != nil {
		return err
	}
	m.n -= m.n % catchupWriters
	began := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	for range catchupWriters {
		g.Go(func() error {
			return primary.Exec(gctx, "CALL app.bench_fill("+strconv.Itoa(m.n/catchupWriters)+")")
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	m.b.step("wrote %d transactions in %v", m.n, time.Since(began).Round(time.Millisecond))
	return nil
}

// errLate: this process was not given the processor when the clock was to be
// started, and much had been done by then.
var errLate = errors.New("the clock was started too late")

// lateTries bounds how often a round is measured whose clock was started too
// late.
const lateTries = 3

// inTime measures again what came too late to start its clock, up to lateTries
// times.
func inTime(measure func() (float64, error)) (x float64, err error) {
	for range lateTries {
		if x, err = measure(); !errors.Is(err, errLate) {
			return x, err
		}
	}
	return 0, fmt.Errorf("the machine is too busy for this row, %d times: %w; when it is idle: tidegate bench --only catchup", lateTries, err)
}

// tidegate measures a round.
func (m *catchup) tidegate(ctx context.Context) (float64, error) {
	return inTime(func() (float64, error) { return m.once(ctx) })
}

// once starts a Tidegate where the first one stopped. Time runs from the first
// transaction that its tailer has read to the last one that its index has
// delivered.
func (m *catchup) once(ctx context.Context) (perSecond float64, err error) {
	m.round++
	dir := filepath.Join(m.c.Dir(), "tidegate-"+strconv.Itoa(m.round))
	if err := copyDir(dir, m.dir); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, catchupTimeout)
	defer cancel()
	started := time.Now()
	t, err := m.b.startTidegate(ctx, m.c, dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := m.await(ctx, t, "read", func() bool { return t.Tailing.Counters().Tailer.Transactions > 0 }); err != nil {
		return 0, err
	}
	began := time.Now()
	before := int64(m.from.Count())
	delivered := func() int { return int(int64(t.Router.Index().Snapshot().Delivered().Count()) - before) }
	already := max(0, delivered()) // before the poll saw the first one
	if already > m.n/10 {
		return 0, fmt.Errorf("%w: the index had %d of %d transactions", errLate, already, m.n)
	}
	m.start = append(m.start, began.Sub(started).Seconds())
	if err := m.await(ctx, t, "index", func() bool { return delivered() >= m.n }); err != nil {
		return 0, err
	}
	return float64(m.n-already) / time.Since(began).Seconds(), nil
}

// await looks until ok, and fails when the Tidegate ends before.
func (m *catchup) await(ctx context.Context, t *tidegate, what string, ok func() bool) error {
	for !ok() {
		select {
		case err := <-t.done:
			t.done <- err
			return fmt.Errorf("the Tidegate ended: %w", err)
		default:
		}
		if err := sleep(ctx, catchupPoll); err != nil {
			return fmt.Errorf("%s the transactions: %w", what, err)
		}
	}
	return nil
}

// goSet is a set as go-mysql has it.
func (m *catchup) goSet() (mysql.GTIDSet, error) { return mysql.ParseMysqlGTIDSet(m.from.OneLine()) }

// raw reads with go-mysql and parses nothing but headers. Time runs from the
// first transaction's first event to the last one's last.
func (m *catchup) raw(ctx context.Context) (float64, error) {
	set, err := m.goSet()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, catchupTimeout)
	defer cancel()
	s := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: rawServerID, Flavor: mysql.MySQLFlavor, Host: "127.0.0.1", Port: uint16(m.c.Primary().Port()),
		User: testenv.TidegateUser, Password: testenv.TidegatePassword, RawModeEnabled: true, Logger: slog.New(slog.DiscardHandler),
	})
	defer closeWithin(s.Close)
	stream, err := s.StartSyncGTID(set)
	if err != nil {
		return 0, err
	}
	var began time.Time
	for n := 0; n < m.n; {
		e, err := stream.GetEvent(ctx)
		if err != nil {
			return 0, fmt.Errorf("after %d transactions: %w", n, err)
		}
		switch e.Header.EventType {
		case replication.GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT:
			if began.IsZero() {
				began = time.Now()
			}
		case replication.XID_EVENT:
			n++
		}
	}
	return float64(m.n) / time.Since(began).Seconds(), nil
}

// canalCount is canal's handler: it counts and does nothing else.
type canalCount struct {
	canal.DummyEventHandler
	first   atomic.Int64 // unix nanoseconds
	left    atomic.Int64
	arrived chan struct{} // closed with the last one
}

// OnRow notes when the first one came.
func (h *canalCount) OnRow(*canal.RowsEvent) error {
	h.first.CompareAndSwap(0, time.Now().UnixNano())
	return nil
}

// OnXID counts a transaction.
func (h *canalCount) OnXID(*replication.EventHeader, mysql.Position) error {
	if h.left.Add(-1) == 0 {
		close(h.arrived)
	}
	return nil
}

// canal reads with go-mysql's canal.
func (m *catchup) canal(ctx context.Context) (float64, error) {
	set, err := m.goSet()
	if err != nil {
		return 0, err
	}
	cfg := canal.NewDefaultConfig()
	cfg.Addr, cfg.User, cfg.Password = m.c.Primary().Addr(), testenv.TidegateUser, testenv.TidegatePassword
	cfg.ServerID, cfg.Flavor, cfg.Logger = canalServerID, mysql.MySQLFlavor, slog.New(slog.DiscardHandler)
	cfg.Dump.ExecutionPath = "" // no mysqldump
	cn, err := canal.NewCanal(cfg)
	if err != nil {
		return 0, err
	}
	h := &canalCount{arrived: make(chan struct{})}
	h.left.Store(int64(m.n))
	cn.SetEventHandler(h)
	ended := make(chan error, 1)
	go func() { ended <- cn.StartFromGTID(set) }()
	defer closeWithin(cn.Close)
	timer := time.NewTimer(catchupTimeout)
	defer timer.Stop()
	select {
	case <-h.arrived:
		return float64(m.n) / (float64(time.Now().UnixNano()-h.first.Load()) / 1e9), nil
	case err := <-ended:
		return 0, fmt.Errorf("it ended with %d transactions left: %w", h.left.Load(), err)
	case <-timer.C:
		return 0, fmt.Errorf("%d transactions are left after %v", h.left.Load(), catchupTimeout)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// closeTimeout bounds closing a go-mysql reader, which can hang; a reader that
// does is left behind.
const closeTimeout = 5 * time.Second

func closeWithin(close func()) {
	done := make(chan struct{}, 1)
	go func() {
		defer func() { done <- struct{}{} }()
		close()
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
