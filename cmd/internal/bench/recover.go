package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cdc/event"
	"tidegate/router/local"
	"tidegate/testenv"
)

const (
	recoverRate  = 2000      // transactions a second
	recoverRows  = 1_000_000 // rows of app.posts that they write
	recoverAsked = 1 << 40   // the row that is asked for, written by the hour's last transaction alone
	recoverPause = 2 * time.Second
	recoverStore = 16 << 30 // what the stream and its server may take, in bytes
	// recoverTimeout bounds one wait for a first yes.
	recoverTimeout = 10 * time.Minute
)

// recoverRow measures what a router needs from the start of its process to its
// first correct yes: without anything of its own (cold), with an index that is
// an hour of writes old (hour_behind), and with what a SIGKILL left (killed).
func (b *bench) recoverRow(ctx context.Context) (figures []Figure, err error) {
	nats, err := testenv.StartNATS(ctx, testenv.NATSOptions{MaxFileStore: recoverStore})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, nats.Close()) }()
	s, err := openSynthetic(ctx, nats.URL())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	live, stop := context.WithCancel(ctx)
	g, live := errgroup.WithContext(live)
	g.Go(func() error { return s.run(live) })
	defer func() { stop(); err = errors.Join(err, g.Wait()) }()
	m := &recovery{b: b, s: s, url: nats.URL()}
	if err := m.prepare(live); err != nil {
		return nil, errors.Join(err, m.close(ctx))
	}
	defer func() { err = errors.Join(err, m.close(ctx)) }()
	for range b.effort.recoverRounds {
		if err := m.round(live); err != nil {
			return nil, err
		}
	}
	return []Figure{
		figure("recover.cold", median(m.cold), "s", lower),
		figure("recover.hour_behind", median(m.behind), "s", lower),
		figure("recover.killed", median(m.killed), "s", lower),
		figure("recover.hour_txns", float64(b.effort.recoverTxns), "txn", higher),
	}, nil
}

// recovery is the routers of the row.
type recovery struct {
	b    *bench
	s    *synthetic
	url  string
	seed *child // its folder holds the index as it was an hour ago

	cold, behind, killed []float64 // seconds, one a round
}

func (m *recovery) close(ctx context.Context) error {
	if m.seed == nil {
		return nil
	}
	return m.seed.close(ctx)
}

// prepare lets a router catch up and stop, and writes the hour that it misses.
func (m *recovery) prepare(ctx context.Context) (err error) {
	if m.seed, err = m.router("seed"); err != nil {
		return err
	}
	if _, err := m.firstYes(ctx, m.seed); err != nil {
		return err
	}
	if err := m.seed.Stop(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := m.s.hour(ctx, m.b.effort.recoverTxns); err != nil {
		return err
	}
	m.b.step("wrote %d transactions into the stream in %v", m.b.effort.recoverTxns, time.Since(began).Round(time.Millisecond))
	return nil
}

// round measures each of the three once, while 2,000 transactions a second go
// on.
func (m *recovery) round(ctx context.Context) (err error) {
	c, err := m.router("behind")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	if err := copyDir(dataOf(c), dataOf(m.seed)); err != nil {
		return err
	}
	took, err := m.firstYes(ctx, c)
	if err != nil {
		return fmt.Errorf("an hour behind: %w", err)
	}
	m.behind = append(m.behind, took)
	// In service for a while, so that what is killed is a router that writes its
	// index as it always does.
	if err := sleep(ctx, recoverPause); err != nil {
		return err
	}
	if err := c.Kill(); err != nil {
		return err
	}
	if took, err = m.firstYes(ctx, c); err != nil {
		return fmt.Errorf("killed: %w", err)
	}
	m.killed = append(m.killed, took)
	if err := c.Stop(ctx); err != nil { // nothing runs beside the next one
		return err
	}
	fresh, err := m.router("cold")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fresh.close(ctx)) }()
	if took, err = m.firstYes(ctx, fresh); err != nil {
		return fmt.Errorf("cold: %w", err)
	}
	m.cold = append(m.cold, took)
	return nil
}

func dataOf(c *child) string { return filepath.Join(c.Dir(), "data") }

// router prepares a `tidegate serve` with a folder of its own.
func (m *recovery) router(name string) (*child, error) {
	c, err := m.b.newChild("recover-"+name, "serve", reported)
	if err != nil {
		return nil, err
	}
	var t strings.Builder
	fmt.Fprintf(&t, "cluster: bench\ndata_dir: %q\nnats: {url: %q}\nlisten: {http: \"127.0.0.1:0\", resp: \"127.0.0.1:0\"}\ncanary: {one_in: 0}\nservers:\n", dataOf(c), m.url)
	for i, name := range recoverServers {
		fmt.Fprintf(&t, "  - {name: %s, addr: \"127.0.0.1:%d\"}\n", name, i+1) // nobody connects
	}
	file := filepath.Join(c.Dir(), "tidegate.yaml")
	if err := os.WriteFile(file, []byte(t.String()), 0o600); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.addArgs(file)
	return c, nil
}

// firstYes starts the router and returns how many seconds pass until it says
// that b may serve the row that was written last. It must not say so of c at
// any time, which lacks just that write.
func (m *recovery) firstYes(ctx context.Context, c *child) (seconds float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	query := fmt.Sprintf("key=app.posts/%d", int64(recoverAsked))
	began := time.Now()
	a, err := c.start(ctx)
	if err != nil {
		return 0, err
	}
	for {
		yes, why, err := mayServe(ctx, a, "b", query)
		if err != nil {
			return 0, fmt.Errorf("%w: %s", err, c.Log())
		}
		took := time.Since(began)
		wrong, _, err := mayServe(ctx, a, "c", query)
		if err != nil {
			return 0, fmt.Errorf("%w: %s", err, c.Log())
		}
		if wrong && m.s.behind.Load() > 0 { // before, there is nothing that c lacks
			return 0, errors.New("a wrong yes: the router lets c serve a row whose newest write c has not executed")
		}
		if yes {
			return took.Seconds(), nil
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return 0, fmt.Errorf("wait for a yes (the answer is %s): %w", why, err)
		}
	}
}

// recoverServers: the primary, a replica that has everything, and one that
// stopped before the hour's last transaction.
var recoverServers = [...]string{"a", "b", "c"}

// synthetic writes a stream as tailers would, without servers: transactions
// through a real writer, and states that name the routers' ticks.
type synthetic struct {
	conn   *cdc.Conn
	writer *cdc.Writer
	states *cdc.StatePublisher
	ticks  *cdc.TickCollector
	posts  *posts

	next    int64         // sequence number of the next transaction; append's
	written atomic.Int64  // of the newest one handed over
	behind  atomic.Int64  // what c has executed; 0: everything
	ongoing chan struct{} // closed when the hour is written: from then on writes go on
}

func openSynthetic(ctx context.Context, url string) (s *synthetic, err error) {
	s = &synthetic{next: 1, ongoing: make(chan struct{})}
	o := cdc.Options{Cluster: "bench", URL: url, WritesMaxBytes: recoverStore / 2, Log: slog.New(slog.DiscardHandler)}
	if s.conn, err = cdc.Open(ctx, o); err != nil {
		return nil, err
	}
	s.posts, s.states = newPosts(s.conn.Hasher()), cdc.NewStatePublisher(s.conn)
	if s.ticks, err = cdc.OpenTickCollector(s.conn, local.DefaultLease, local.Clock); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if s.writer, _, err = cdc.OpenWriter(ctx, s.conn, cdc.WriterOptions{Name: "bench"}); err != nil {
		return nil, errors.Join(err, s.close())
	}
	facts := cdc.PrimaryFacts{Server: recoverServers[0], UUID: worldUUID(0), Epoch: 1, GTIDMode: "ON", Drained: true}
	if _, err := s.writer.Begin(ctx, facts); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *synthetic) close() error {
	var errs []error
	if s.writer != nil {
		errs = append(errs, s.writer.Close())
	}
	if s.ticks != nil {
		errs = append(errs, s.ticks.Close())
	}
	return errors.Join(append(errs, s.conn.Close())...)
}

// run publishes until ctx ends: what is appended, states, and, once the hour is
// written, 2,000 transactions a second more.
func (s *synthetic) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, loop := range []func(context.Context) error{s.writer.Run, s.states.Run, s.tell, s.goOn} {
		g.Go(func() error {
			if err := loop(ctx); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		})
	}
	return g.Wait()
}

// append hands one transaction over. One goroutine at a time.
func (s *synthetic) append(ctx context.Context, row int64) error {
	t, err := s.posts.transaction(s.next, time.Now().UnixMicro(), row)
	if err != nil {
		return err
	}
	if err := s.writer.Append(ctx, t); err != nil {
		return err
	}
	s.written.Store(s.next)
	s.next++
	return nil
}

// hour writes n transactions as fast as the writer takes them, the last one on
// the row that is asked for, which c does not get; and waits until all of them
// are stored.
func (s *synthetic) hour(ctx context.Context, n int) error {
	for i := range n - 1 {
		if err := s.append(ctx, int64(i)*7919%recoverRows); err != nil {
			return err
		}
	}
	s.behind.Store(s.next - 1)
	if err := s.append(ctx, recoverAsked); err != nil {
		return err
	}
	if err := s.writer.Checkpoint(ctx); err != nil {
		return err
	}
	close(s.ongoing)
	return nil
}

// goOn writes at the hour's rate once the hour is written.
func (s *synthetic) goOn(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.ongoing:
	}
	ticker := time.NewTicker(ingestPeriod)
	defer ticker.Stop()
	began, sent := time.Now(), 0
	for {
		for n := int(time.Since(began).Seconds() * recoverRate); sent < n; sent++ {
			if err := s.append(ctx, int64(sent)*7919%recoverRows); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// tell publishes the states of all servers every 10 ms.
func (s *synthetic) tell(ctx context.Context) error {
	if err := s.writer.Definitions(ctx, []event.TableDefinition{s.posts.def}); err != nil {
		return err
	}
	ticker := time.NewTicker(ingestPeriod)
	defer ticker.Stop()
	for {
		ticks := s.ticks.Live()
		for i := range recoverServers {
			if err := s.states.Publish(ctx, s.state(i, ticks)); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (s *synthetic) state(i int, ticks []event.RouterTick) *event.ServerState {
	last := s.written.Load()
	if stopped := s.behind.Load(); i == 2 && stopped > 0 {
		last = stopped
	}
	st := serverState(recoverServers[i], i)
	st.Ticks = ticks
	if last > 0 {
		st.Executed = gtid.Set{}.AddInterval(gtid.Source{UUID: worldUUID(0)}, gtid.Interval{First: 1, Last: last})
	}
	return st
}
