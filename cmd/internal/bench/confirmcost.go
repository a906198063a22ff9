package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"tidegate/testenv"
)

const (
	costTable   = "bench_cost"
	costWriters = 8
	// costWarm is how long the load runs before a third of a round counts.
	costWarm = 1500 * time.Millisecond
)

// confirmCostRow takes the primary's closed-loop write throughput without
// readers, with bare readers of all binlogs, and with a Tidegate that follows
// all servers. All mysqlds share one processor; writers and bare readers (this
// process) and Tidegate (a process of its own) have the others, so that what is
// lost is what is asked of mysqld, and not the readers' own work. Whoever reads a
// binlog does so over the server's Unix socket, as a tailer beside it would.
func (b *bench) confirmCostRow(ctx context.Context) (figures []Figure, err error) {
	c, err := b.startServers(ctx, testenv.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	unpin, err := pinServers(c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unpin()) }()
	l, err := newCostLoad(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	file := filepath.Join(c.Dir(), "tidegate.yaml")
	if err := os.WriteFile(file, []byte(configText(c, filepath.Join(c.Dir(), "tidegate"), (*testenv.Server).Socket)), 0o600); err != nil {
		return nil, err
	}
	daemon, err := b.newChild("confirm_cost", "run", readyOverHTTP, file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, daemon.close(ctx)) }()
	m := costMeasure{b: b, c: c, load: l, daemon: daemon}
	thirds, err := rotated(ctx, b.effort.confirmRound, m.without, m.bare, m.with)
	if err != nil {
		return nil, err
	}
	return costFigures(c, thirds[0], thirds[1], thirds[2]), nil
}

// costFigures holds the thirds of the rounds against each other.
func costFigures(c *testenv.Cluster, without, bare, with []third) []Figure {
	perSecond := func(t *third) float64 { return t.perSecond }
	primaryCPU := func(t *third) float64 { return t.primaryCPU }
	applied := func(t *third) float64 { return t.applied }
	dumps := func(t *third) float64 { return t.dumps }
	probes := func(t *third) float64 { return t.probes }
	figures := []Figure{
		costFigure("confirm_cost.throughput", "txn/s", higher, perSecond, with, without).must(0.95).aim(0.98),
		costFigure("confirm_cost.floor", "txn/s", higher, perSecond, bare, without),
		costFigure("confirm_cost.over_floor", "txn/s", higher, perSecond, with, bare),
		costFigure("confirm_cost.primary_cpu", "us/txn", lower, primaryCPU, with, without),
		costFigure("confirm_cost.dumps", "% of the processor", lower, dumps, with, bare),
		figure("confirm_cost.probes", median(each(with, probes)), "% of the processor", lower),
		costFigure("confirm_cost.applied", "of the primary's txn", higher, applied, with, without),
	}
	for _, s := range c.Replicas() {
		confirmed := each(with, func(t *third) float64 { return t.confirmed[s.Name()] })
		figures = append(figures, figure("confirm_cost.confirmations_"+s.Name(), median(confirmed), "1/s", higher))
	}
	return figures
}

// each takes one value of each third.
func each(ts []third, of func(*third) float64) []float64 {
	out := make([]float64, len(ts))
	for i := range ts {
		out[i] = of(&ts[i])
	}
	return out
}

// costFigure holds one value of the thirds against the same of others.
func costFigure(name, unit, better string, of func(*third) float64, value, baseline []third) Figure {
	v, b := each(value, of), each(baseline, of)
	return figure(name, median(v), unit, better).against(median(b), medianRatio(v, b))
}

// pinServers gives the mysqlds one processor and this process, with what it
// starts, the others; unpin gives it back all.
func pinServers(c *testenv.Cluster) (unpin func() error, err error) {
	one, others, err := cores()
	if err != nil {
		return nil, err
	}
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, err
	}
	for _, s := range c.Servers() {
		if err := pin(s.PID(), &one); err != nil {
			return nil, err
		}
	}
	unpin = func() error { return pin(0, &all) }
	if err := pin(0, &others); err != nil {
		return nil, errors.Join(err, unpin())
	}
	return unpin, nil
}

// costMeasure measures thirds of rounds.
type costMeasure struct {
	b      *bench
	c      *testenv.Cluster
	load   *costLoad
	daemon *child
}

// third is what one third of a round gave.
type third struct {
	perSecond  float64
	primaryCPU float64 // microseconds a transaction
	applied    float64 // by a replica on average, of what the primary wrote
	// Of connections of Tidegate's account, which bare readers use too, on all
	// servers, percent of the servers' one processor: what a binlog is sent by,
	// and all else.
	dumps, probes float64
	confirmed     map[string]float64 // confirmations a second, by server; of Tidegate alone
}

// catchUp lets the replicas apply what the third before left them, without
// waiting for their disks: it is most of the time that the row takes.
func (m *costMeasure) catchUp(ctx context.Context) error {
	durable := func(n int) error {
		for _, s := range m.c.Replicas() {
			if err := s.Exec(ctx, fmt.Sprintf("SET GLOBAL sync_binlog = %d, innodb_flush_log_at_trx_commit = %[1]d", n)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := durable(0); err != nil {
		return err
	}
	return errors.Join(inSync(ctx, m.c), durable(1))
}

func (m *costMeasure) without(ctx context.Context) (t third, err error) {
	if err := m.catchUp(ctx); err != nil {
		return t, err
	}
	return m.measure(ctx, func(bool) error { return nil })
}

// bare is the third in which the binlogs are read, and nothing else.
func (m *costMeasure) bare(ctx context.Context) (t third, err error) {
	if err := m.catchUp(ctx); err != nil {
		return t, err
	}
	readers, err := startBareReaders(ctx, m.c)
	if err != nil {
		return t, err
	}
	defer readers.close()
	// What the server must look through to find where to begin ends with the
	// first transaction that it sends.
	if err := m.load.insert[0](ctx, m.load.next.Add(1)); err != nil {
		return t, err
	}
	if err := inSync(ctx, m.c); err != nil {
		return t, err
	}
	if err := readers.await(ctx); err != nil {
		return t, err
	}
	if t, err = m.measure(ctx, func(bool) error { return nil }); err != nil {
		return t, err
	}
	return t, readers.await(ctx) // one that had stopped cost nothing
}

// with is the third in which a Tidegate runs.
func (m *costMeasure) with(ctx context.Context) (t third, err error) {
	if err := m.catchUp(ctx); err != nil {
		return t, err
	}
	at, err := m.daemon.start(ctx)
	if err != nil {
		return t, err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		err = errors.Join(err, m.daemon.Stop(stop))
	}()
	if err := m.followed(ctx, at); err != nil {
		return t, err
	}
	var before, after map[string]float64
	var began time.Time
	var took float64
	t, err = m.measure(ctx, func(begin bool) (err error) {
		if begin {
			before, err = confirmations(ctx, at)
			began = time.Now()
			return err
		}
		took = time.Since(began).Seconds()
		after, err = confirmations(ctx, at)
		return err
	})
	if err != nil {
		return t, err
	}
	t.confirmed = map[string]float64{}
	for name, n := range after {
		t.confirmed[name] = (n - before[name]) / took
	}
	return t, nil
}

// followed waits until a Tidegate has come to where the servers are: what was
// written while it was away is not what it costs.
func (m *costMeasure) followed(ctx context.Context, at addresses) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	set, err := executed(ctx, m.c.Primary())
	if err != nil {
		return err
	}
	query := "level=session&floor=" + url.QueryEscape(set.OneLine())
	for _, s := range m.c.Replicas() {
		for {
			yes, why, err := mayServe(ctx, at, s.Name(), query)
			if err != nil {
				return err
			}
			if yes {
				break
			}
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return fmt.Errorf("wait until Tidegate has come to where %s is (the answer is %s): %w", s.Name(), why, err)
			}
		}
	}
	return nil
}

// measure is one third of a round: the servers begin level, and the load is
// warm when it begins to count. edge is called where counting begins and ends.
func (m *costMeasure) measure(ctx context.Context, edge func(begin bool) error) (t third, err error) {
	if err := inSync(ctx, m.c); err != nil {
		return t, err
	}
	var before, after costEdge
	t.perSecond, err = m.load.run(ctx, m.b.effort.confirmFor, func(begin bool) (err error) {
		if begin {
			if err := edge(begin); err != nil {
				return err
			}
			before, err = readCostEdge(ctx, m.c)
			return err
		}
		if after, err = readCostEdge(ctx, m.c); err != nil {
			return err
		}
		return edge(begin)
	})
	if err != nil {
		return t, err
	}
	wrote, micros := after.executed[0]-before.executed[0], float64(after.at.Sub(before.at).Microseconds())
	for i := range m.c.Replicas() {
		t.applied += (after.executed[1+i] - before.executed[1+i]) / max(wrote, 1) / float64(len(m.c.Replicas()))
	}
	t.primaryCPU = (after.primaryCPU - before.primaryCPU) / max(wrote, 1)
	t.dumps, t.probes = 100*(after.dumps-before.dumps)/micros, 100*(after.probes-before.probes)/micros
	return t, nil
}

// confirmations reads the counters of a Tidegate, by server.
func confirmations(ctx context.Context, a addresses) (map[string]float64, error) {
	body, status, err := get(ctx, "http://"+a.HTTP+"/metrics")
	if err != nil {
		return nil, err
	}
	out, err := parseCounter(body, "tidegate_binlog_confirmations_total", "server")
	if err != nil || len(out) == 0 {
		return nil, fmt.Errorf("no confirmations in the metrics (status %d): %w", status, err)
	}
	return out, nil
}

// parseCounter reads a metric with one label from the text that Prometheus
// reads.
func parseCounter(text []byte, name, label string) (map[string]float64, error) {
	out := map[string]float64{}
	prefix := []byte(name + "{" + label + `="`)
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		rest, ok := bytes.CutPrefix(s.Bytes(), prefix)
		if !ok {
			continue
		}
		value, number, ok := bytes.Cut(rest, []byte(`"} `))
		if !ok {
			return nil, fmt.Errorf("metric %q can't be read", s.Text())
		}
		x, err := strconv.ParseFloat(string(number), 64)
		if err != nil {
			return nil, fmt.Errorf("metric %s: %w", name, err)
		}
		out[string(value)] = x
	}
	return out, nil
}

// costLoad is a closed loop of writers: each commits one row and goes on when
// the primary has answered.
type costLoad struct {
	insert []func(context.Context, int64) error
	closes []func() error
	next   atomic.Int64
}

func newCostLoad(ctx context.Context, c *testenv.Cluster) (*costLoad, error) {
	if err := c.Primary().Exec(ctx, "CREATE TABLE app."+costTable+" (id BIGINT PRIMARY KEY, v VARCHAR(100))"); err != nil {
		return nil, err
	}
	db, err := openApp(c.Primary(), costWriters)
	if err != nil {
		return nil, err
	}
	l := &costLoad{closes: []func() error{db.Close}}
	for range costWriters {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		l.closes = append(l.closes, conn.Close)
		stmt, err := conn.PrepareContext(ctx, "INSERT INTO "+costTable+" VALUES (?, 'a row of some length, as an application might write')")
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		l.closes = append(l.closes, stmt.Close)
		l.insert = append(l.insert, func(ctx context.Context, id int64) error {
			_, err := stmt.ExecContext(ctx, id)
			return err
		})
	}
	return l, nil
}

func (l *costLoad) close() error {
	var errs []error
	for i := len(l.closes) - 1; i >= 0; i-- {
		errs = append(errs, l.closes[i]())
	}
	return errors.Join(errs...)
}

// run writes for costWarm, then for d, which counts: the result is transactions
// a second. edge is called where counting begins and ends.
func (l *costLoad) run(ctx context.Context, d time.Duration, edge func(begin bool) error) (perSecond float64, err error) {
	var done atomic.Int64
	stop := make(chan struct{})
	g, gctx := errgroup.WithContext(ctx)
	for _, insert := range l.insert {
		g.Go(func() error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				if err := insert(gctx, l.next.Add(1)); err != nil {
					return err
				}
				done.Add(1)
			}
		})
	}
	g.Go(func() error {
		defer close(stop)
		if err := sleep(gctx, costWarm); err != nil {
			return err
		}
		if err := edge(true); err != nil {
			return err
		}
		first, began := done.Load(), time.Now()
		if err := sleep(gctx, d); err != nil {
			return err
		}
		perSecond = float64(done.Load()-first) / time.Since(began).Seconds()
		return edge(false)
	})
	if err := g.Wait(); err != nil {
		return 0, err
	}
	if perSecond == 0 {
		return 0, errors.New("the writers committed nothing")
	}
	return perSecond, nil
}
