package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
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
	// costWarm is how long the load runs before a half round counts.
	costWarm = 500 * time.Millisecond
)

// confirmCostRow takes the primary's closed-loop write throughput without and
// with a Tidegate that follows all servers. All mysqlds share one processor;
// writers and Tidegate (a process of its own) have the others, so that what is
// lost is what Tidegate asks of mysqld, and not its own work.
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
	if err := os.WriteFile(file, []byte(configText(c, filepath.Join(c.Dir(), "tidegate"))), 0o600); err != nil {
		return nil, err
	}
	daemon, err := b.newChild("confirm_cost", "run", readyOverHTTP, file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, daemon.close(ctx)) }()
	m := costMeasure{b: b, c: c, load: l, daemon: daemon, confirmed: map[string][]float64{}}
	without, with, err := rounds(ctx, b.effort.confirmRound, m.without, m.with)
	if err != nil {
		return nil, err
	}
	figures = []Figure{
		figure("confirm_cost.throughput", median(with), "txn/s", higher).against(median(without), medianRatio(with, without)).must(0.95).aim(0.98),
		figure("confirm_cost.primary_cpu", median(m.cpuWith), "us/txn", lower).against(median(m.cpuWithout), medianRatio(m.cpuWith, m.cpuWithout)),
		figure("confirm_cost.dumps", median(m.dumps), "% of the processor", lower),
		figure("confirm_cost.probes", median(m.probes), "% of the processor", lower),
		figure("confirm_cost.applied", median(m.appliedWith), "of the primary's txn", higher).against(median(m.appliedWithout), medianRatio(m.appliedWith, m.appliedWithout)),
	}
	for _, s := range c.Replicas() {
		figures = append(figures, figure("confirm_cost.confirmations_"+s.Name(), median(m.confirmed[s.Name()]), "1/s", higher))
	}
	return figures, nil
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

// costMeasure measures halves of rounds.
type costMeasure struct {
	b      *bench
	c      *testenv.Cluster
	load   *costLoad
	daemon *child

	cpuWithout, cpuWith         []float64            // of the primary, microseconds a transaction
	appliedWithout, appliedWith []float64            // by the replicas meanwhile, of what was written
	dumps, probes               []float64            // of Tidegate's connections, percent of the servers' processor
	confirmed                   map[string][]float64 // confirmations a second, by server
}

func (m *costMeasure) without(ctx context.Context) (float64, error) {
	h, err := m.measure(ctx, func(bool) error { return nil })
	m.cpuWithout, m.appliedWithout = append(m.cpuWithout, h.primaryCPU), append(m.appliedWithout, h.applied)
	return h.perSecond, err
}

func (m *costMeasure) with(ctx context.Context) (tps float64, err error) {
	at, err := m.daemon.start(ctx)
	if err != nil {
		return 0, err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		err = errors.Join(err, m.daemon.Stop(stop))
	}()
	var before, after map[string]float64
	var began time.Time
	var took float64
	h, err := m.measure(ctx, func(begin bool) (err error) {
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
		return 0, err
	}
	m.cpuWith, m.appliedWith = append(m.cpuWith, h.primaryCPU), append(m.appliedWith, h.applied)
	m.dumps, m.probes = append(m.dumps, h.dumps), append(m.probes, h.probes)
	for name, n := range after {
		m.confirmed[name] = append(m.confirmed[name], (n-before[name])/took)
	}
	return h.perSecond, nil
}

// half is what one half of a round gave.
type half struct {
	perSecond  float64
	primaryCPU float64 // microseconds a transaction
	applied    float64 // by a replica on average, of what the primary wrote
	// Of Tidegate's connections on all servers, percent of the servers' one
	// processor: what a binlog is sent by, and all else.
	dumps, probes float64
}

// measure is one half of a round: the servers begin level, and the load is warm
// when it begins to count. edge is called where counting begins and ends.
func (m *costMeasure) measure(ctx context.Context, edge func(begin bool) error) (h half, err error) {
	if err := inSync(ctx, m.c); err != nil {
		return h, err
	}
	var before, after costEdge
	h.perSecond, err = m.load.run(ctx, m.b.effort.confirmFor, func(begin bool) (err error) {
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
		return h, err
	}
	wrote, micros := after.executed[0]-before.executed[0], float64(after.at.Sub(before.at).Microseconds())
	for i := range m.c.Replicas() {
		h.applied += (after.executed[1+i] - before.executed[1+i]) / max(wrote, 1) / float64(len(m.c.Replicas()))
	}
	h.primaryCPU = (after.primaryCPU - before.primaryCPU) / max(wrote, 1)
	h.dumps, h.probes = 100*(after.dumps-before.dumps)/micros, 100*(after.probes-before.probes)/micros
	return h, nil
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
