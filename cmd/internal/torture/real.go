package torture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/daemon"
	"tidegate/router"
	"tidegate/testenv"
	"tidegate/testenv/checker"
)

// readyTimeout bounds the program's start.
const readyTimeout = 60 * time.Second

// realRouter is the whole program, in this process: tailers, stream, index and
// router. It is started again when it ends by itself, as a supervisor would.
type realRouter struct {
	cfg *config.Config
	log *slog.Logger

	keys sync.Map // printed key -> key.Key
	up   atomic.Pointer[daemon.Daemon]

	mu   sync.Mutex // start and stop take turns
	stop context.CancelFunc
	over chan struct{} // closed when the supervisor has ended

	operation context.Context // of the operator's part, until quit
	quit      context.CancelFunc
	operating sync.WaitGroup

	restarts atomic.Int64 // by itself, after an error
	lastErr  atomic.Pointer[error]
}

// configFor is the program's configuration for the sandbox: it reaches servers
// through the proxies, and the stream at natsURL (empty: embedded).
func configFor(c *testenv.Cluster, via map[string]*testenv.Proxy, natsURL, dir string) (*config.Config, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster: torture\ndata_dir: %q\nlisten: {http: \"off\", resp: \"off\"}\nnats: {url: %q}\n", dir, natsURL)
	// Chases ask thousands of times a second; the budget is not what is tested.
	b.WriteString("primary_budget: {reads_per_s: 1000000}\n")
	fmt.Fprintf(&b, "keys: {%s: [%s]}\nservers:\n", checker.GroupTable, checker.GroupColumn)
	for _, s := range c.Servers() {
		fmt.Fprintf(&b, "  - {name: %s, addr: %q, app_addr: %q, user: %s, password: %s}\n",
			s.Name(), via[s.Name()].Addr(), s.Addr(), testenv.TidegateUser, testenv.TidegatePassword)
	}
	return config.Parse("torture", []byte(b.String()), os.LookupEnv)
}

// start begins the program and its supervisor, and waits until it can prove
// something.
func (r *realRouter) start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.startLocked(ctx); err != nil {
		return err
	}
	return r.ready(ctx)
}

func (r *realRouter) startLocked(ctx context.Context) error {
	d, err := r.open(ctx)
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop, r.over = stop, make(chan struct{})
	r.up.Store(d)
	go func() {
		defer close(r.over)
		r.supervise(run, d)
	}()
	return nil
}

func (r *realRouter) open(ctx context.Context) (*daemon.Daemon, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	d, err := daemon.Open(ctx, r.cfg, daemon.Options{Parts: daemon.Parts{Tail: true, Serve: true}, Log: r.log})
	if err != nil {
		return nil, fmt.Errorf("start the program: %w", err)
	}
	return d, nil
}

// supervise runs d, and another one whenever it ends before ctx does.
func (r *realRouter) supervise(ctx context.Context, d *daemon.Daemon) {
	const pause = 100 * time.Millisecond
	for {
		err := errors.Join(d.Run(ctx), r.takeDown(d))
		if ctx.Err() != nil {
			return
		}
		for d = nil; d == nil; {
			r.restarts.Add(1)
			r.lastErr.Store(&err)
			r.log.Warn("the program ended by itself; starting it again", "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			d, err = r.open(ctx)
		}
		r.up.Store(d)
	}
}

// ended tells that the program ended by itself during the run, which none of the
// faults is a reason for.
func (r *realRouter) ended() error {
	if n := r.restarts.Load(); n > 0 {
		return fmt.Errorf("the program ended by itself and was started again %d times, last after: %w", n, *r.lastErr.Load())
	}
	return nil
}

func (r *realRouter) takeDown(d *daemon.Daemon) error {
	r.up.Store(nil)
	return d.Close()
}

// ready waits until the running program has caught up.
func (r *realRouter) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	d := r.up.Load()
	if d == nil {
		return checker.ErrAway
	}
	return d.Ready(ctx)
}

// close ends the program. It may be called twice.
func (r *realRouter) close() {
	r.quit()
	r.operating.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeLocked()
}

func (r *realRouter) closeLocked() {
	if r.stop != nil {
		r.stop()
		<-r.over
		r.stop = nil
	}
}

// restart ends the program, leaves it down for a while, and starts it on the
// same data folder.
func (r *realRouter) restart(ctx context.Context, down func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeLocked()
	return errors.Join(down(), r.startLocked(ctx))
}

// Wrote is nothing to Tidegate: it reads binlogs.
func (*realRouter) Wrote(int, []string, string) {}

// Ask puts the question to the program.
func (r *realRouter) Ask(ctx context.Context, q *checker.Question) (checker.Answer, error) {
	d := r.up.Load()
	if d == nil {
		return checker.Answer{}, checker.ErrAway
	}
	req := router.Request{Server: q.Server, MaxStaleness: q.Bound}
	var ok bool
	if req.Level, ok = router.ParseLevel(q.Level); !ok {
		return checker.Answer{}, fmt.Errorf("no level %q", q.Level)
	}
	for _, printed := range q.Keys {
		k, err := r.key(printed)
		if err != nil {
			return checker.Answer{}, err
		}
		req.Keys = append(req.Keys, k)
	}
	if q.Floor != "" {
		var err error
		if req.Floor, err = gtid.Parse(q.Floor); err != nil {
			return checker.Answer{}, err
		}
		req.HasFloor = true
	}
	var ans router.Answer
	var err error
	if q.Server != "" {
		err = d.Router.Serve(&req, &ans)
	} else {
		err = d.Router.Route(ctx, &req, &ans)
	}
	if err != nil {
		return checker.Answer{}, err
	}
	out := checker.Answer{
		Yes: ans.Yes, Server: ans.Server, Replica: ans.Role == event.RoleReplica, Reason: ans.Reason.String(), Stale: ans.Stale,
		WatermarkAge: ans.WatermarkAge, Staleness: ans.Staleness,
	}
	if ans.Detail != "" {
		out.Reason += ": " + ans.Detail
	}
	if ans.Yes {
		out.UUID = ans.UUID.String()
	}
	return out, nil
}

func (r *realRouter) key(printed string) (key.Key, error) {
	if k, ok := r.keys.Load(printed); ok {
		return k.(key.Key), nil
	}
	k, err := key.Parse(printed)
	if err == nil {
		r.keys.Store(printed, k)
	}
	return k, err
}

// newReal starts the program on the sandbox.
func newReal(ctx context.Context, c *testenv.Cluster, via map[string]*testenv.Proxy, natsURL, dir string, log *slog.Logger) (*realRouter, error) {
	cfg, err := configFor(c, via, natsURL, filepath.Join(dir, "data"))
	if err != nil {
		return nil, err
	}
	r := &realRouter{cfg: cfg, log: log}
	r.operation, r.quit = context.WithCancel(context.WithoutCancel(ctx))
	if err := r.start(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}
