package torture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/testenv"
	"tidegate/testenv/checker"
)

// hintsAge is the watermark that hintsRouter claims.
const hintsAge = 100 * time.Millisecond

// hintsRouter trusts binlog events, broken on purpose: it says yes as soon as a
// replica's binlog tail has shown the newest GTID of the keys and of the floor,
// without asking whether the engine has committed it.
type hintsRouter struct {
	c      *testenv.Cluster
	hasher key.Hasher

	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex
	tails map[string]*hintsTail // by server
	defs  map[string]*key.Definition
	turn  int
}

// hintsTail is what one server's binlog has shown; guarded by the router's mu.
type hintsTail struct {
	r      *hintsRouter
	name   string
	shown  *gtid.Builder
	newest map[key.Digest]gtid.GTID
	caught bool
}

func newHints(ctx context.Context, c *testenv.Cluster, log *slog.Logger) (*hintsRouter, error) {
	r := &hintsRouter{c: c, hasher: key.NewHasher(key.Secret{1}), tails: map[string]*hintsTail{}, defs: map[string]*key.Definition{}}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	for _, s := range c.Servers() {
		if err := r.follow(ctx, run, s, log); err != nil {
			r.close()
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		if r.ready() {
			return r, nil
		}
		select {
		case <-ctx.Done():
			r.close()
			return nil, errors.New("hints: the tails did not begin")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// follow starts a tail of s, from its first event on.
func (r *hintsRouter) follow(ctx, run context.Context, s *testenv.Server, log *slog.Logger) error {
	purged, err := s.QueryString(ctx, "SELECT REPLACE(@@GLOBAL.gtid_purged, '\\n', '')")
	if err != nil {
		return err
	}
	from, err := gtid.Parse(purged)
	if err != nil {
		return fmt.Errorf("gtid_purged of %s: %w", s.Name(), err)
	}
	t, err := binlog.NewTailer(binlog.TailerOptions{
		Server: binlog.ServerConfig{Name: s.Name(), Addr: s.Addr(), User: testenv.TidegateUser, Password: testenv.TidegatePassword},
		Mode:   binlog.Keys, From: from, Hasher: r.hasher, Groups: map[string][]string{checker.GroupTable: {checker.GroupColumn}},
		Heartbeat: 100 * time.Millisecond, Log: log,
	})
	if err != nil {
		return err
	}
	h := &hintsTail{r: r, name: s.Name(), shown: gtid.NewBuilder(from), newest: map[key.Digest]gtid.GTID{}}
	r.tails[s.Name()] = h
	r.wg.Go(func() {
		if err := t.Run(run, h); err != nil && run.Err() == nil {
			log.Warn("hints: a tail ended", "server", h.name, "err", err)
		}
	})
	return nil
}

func (r *hintsRouter) ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tails {
		if !t.caught {
			return false
		}
	}
	return !slices.ContainsFunc(checker.Tables(), func(t string) bool { return r.defs[t] == nil })
}

func (r *hintsRouter) close() {
	r.stop()
	r.wg.Wait()
}

// Transaction takes one transaction as a proof, which it is not.
func (t *hintsTail) Transaction(_ context.Context, x *event.Transaction, _ binlog.Position) error {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.shown.Add(x.GTID)
	for _, d := range x.Scopes {
		t.newest[d] = x.GTID
	}
	return nil
}

// Hole is of no interest: this router has no scruples.
func (*hintsTail) Hole(context.Context, *event.Hole) error { return nil }

// Definitions takes the newest of each table.
func (t *hintsTail) Definitions(_ context.Context, defs []event.TableDefinition) error {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	for i := range defs {
		if d := &defs[i]; !d.Dropped {
			t.r.defs[d.Schema+"."+d.Table] = &d.Definition
		}
	}
	return nil
}

// Progress tells that the tail has caught up.
func (t *hintsTail) Progress(context.Context, binlog.Position) error {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.caught = true
	return nil
}

// Wrote is nothing to it.
func (*hintsRouter) Wrote(int, []string, string) {}

// Ask says yes where the binlog has shown everything.
func (r *hintsRouter) Ask(_ context.Context, q *checker.Question) (checker.Answer, error) {
	floor, err := gtid.Parse(q.Floor)
	if err != nil {
		return checker.Answer{}, err
	}
	primary := r.c.Primary().Name()
	replicas := r.c.Replicas()
	r.mu.Lock()
	defer r.mu.Unlock()
	needed, err := r.newestLocked(primary, q.Keys)
	if err != nil {
		return checker.Answer{}, err
	}
	r.turn++
	for i := range replicas {
		name := replicas[(i+r.turn)%len(replicas)].Name()
		shown := r.tails[name].shown.Set()
		if (q.Server == "" || q.Server == name) && shown.ContainsSet(floor) && shown.ContainsSet(needed) {
			return checker.Answer{Yes: true, Server: name, Replica: true, Reason: "hinted", WatermarkAge: hintsAge, Staleness: q.Bound}, nil
		}
	}
	return checker.Answer{Yes: q.Server == "" || q.Server == primary, Server: primary, Reason: "primary", WatermarkAge: checker.Unknown, Staleness: checker.Unknown}, nil
}

// newestLocked are the newest writes of the keys in the primary's binlog.
func (r *hintsRouter) newestLocked(primary string, printed []string) (gtid.Set, error) {
	var gs []gtid.GTID
	var cover key.Cover
	for _, p := range printed {
		k, err := key.Parse(p)
		if err != nil {
			return gtid.Set{}, err
		}
		d := r.defs[k.Schema+"."+k.Table]
		if d == nil {
			return gtid.Set{}, fmt.Errorf("hints: no definition of %s.%s", k.Schema, k.Table)
		}
		if err := d.Cover(r.hasher, &k, &cover); err != nil {
			return gtid.Set{}, err
		}
		for _, scope := range append([]key.Digest{cover.Own}, cover.Wide[:cover.NWide]...) {
			if g, ok := r.tails[primary].newest[scope]; ok {
				gs = append(gs, g)
			}
		}
	}
	return gtid.Of(gs...), nil
}
