package testenv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options say what Start starts. The zero value is a primary and two replicas
// in a temporary folder.
type Options struct {
	Provisioning

	// Servers is how many servers there are, the primary included; 0: three.
	// They are named "a", "b", "c" and so on; "a" begins as the primary.
	Servers int
	// Chain makes each server replicate from the one before it (a->b->c)
	// instead of from "a".
	Chain bool
	// Independent leaves every server alone and writable: no replication.
	Independent bool
	// RequireTLS makes every server refuse connections over TCP without TLS
	// (require_secure_transport); replicas use TLS. Unless Args name other files,
	// the certificates are mysqld's own, under the authority [Server.CAFile].
	RequireTLS bool
	// Dir is where the servers' folders go; it is kept at the end. Empty: a
	// temporary folder, which is removed.
	Dir string
	// Args are further mysqld options for every server, after the sandbox's
	// own, so that they win.
	Args []string
	// InitArgs are options of every server that the data folder must be
	// initialised with, such as --lower-case-table-names=1. Each choice has a
	// template of its own in the cache.
	InitArgs []string
	// PerServer are options for single servers, by name.
	PerServer map[string]ServerOptions
}

// ServerOptions are one server's own options.
type ServerOptions struct {
	// Args are further mysqld options, after Options.Args.
	Args []string
	// NoBinlog runs the server without a binlog (`follow: executed`).
	NoBinlog bool
	// Relaxed sets sync_binlog=0 and innodb_flush_log_at_trx_commit=0: a kill
	// may lose transactions that the server has acknowledged.
	Relaxed bool
	// Writable keeps a replica from being super_read_only.
	Writable bool
}

const (
	defaultServers = 3
	maxServers     = 26
)

func (o *Options) validate() error {
	if o.Servers == 0 {
		o.Servers = defaultServers
	}
	var errs []error
	if o.Servers < 0 || o.Servers > maxServers {
		errs = append(errs, fmt.Errorf("servers: %d is not between 1 and %d", o.Servers, maxServers))
	}
	if o.Chain && o.Independent {
		errs = append(errs, errors.New("chain and independent exclude each other"))
	}
	for name := range o.PerServer {
		if len(name) != 1 || name[0] < 'a' || int(name[0]-'a') >= o.Servers {
			errs = append(errs, fmt.Errorf("options for server %q: the servers are named \"a\" to %q", name, serverName(max(1, o.Servers)-1)))
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

func serverName(i int) string { return string(rune('a' + i)) }

// Cluster is a group of running servers. Its methods may be called by many at
// once; a Server's say for themselves.
type Cluster struct {
	// MySQL is the program that the servers run.
	MySQL *MySQL

	dir      string
	keep     bool
	cacheDir string
	template string
	logger   *slog.Logger
	guard    *guard
	servers  []*Server

	mu       sync.Mutex
	primary  *Server
	proxies  []*Proxy
	semiSync time.Duration // how long a source waits for an acknowledgement; 0: off
	closed   bool
}

// Start provisions MySQL where that is needed, starts the servers at once, sets
// up replication and returns when every replica is connected and has what its
// source has. On an error nothing is left behind. The caller closes the
// cluster; when the process dies without that, the guard does.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	m, err := FindMySQL(ctx, opts.Provisioning)
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	c := &Cluster{MySQL: m, logger: opts.Logger, keep: opts.Dir != ""}
	if err := c.start(ctx, opts); err != nil {
		return nil, errors.Join(fmt.Errorf("start sandbox: %w", err), c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, opts Options) error {
	began := time.Now()
	var err error
	if c.cacheDir, err = opts.cacheDir(); err != nil {
		return err
	}
	if c.guard, err = newGuard(); err != nil {
		return err
	}
	if c.template, err = template(ctx, c.MySQL, c.guard, opts.Provisioning, opts.InitArgs); err != nil {
		return err
	}
	if err := c.makeDir(opts.Dir); err != nil {
		return err
	}
	for i := range opts.Servers {
		s, err := c.newServer(i, opts)
		if err != nil {
			return err
		}
		c.servers = append(c.servers, s)
	}
	c.primary = c.servers[0]
	if opts.Progress != nil {
		opts.Progress("start the servers", 0, opts.Servers)
	}
	if err := c.each(ctx, c.servers, func(ctx context.Context, s *Server) error { return s.create(ctx) }); err != nil {
		return err
	}
	if !opts.Independent {
		if err := c.connectReplicas(ctx, opts.Chain); err != nil {
			return err
		}
	}
	if opts.Progress != nil {
		opts.Progress("start the servers", opts.Servers, opts.Servers)
	}
	c.logger.Info("sandbox started", "mysql", c.MySQL.Version, "servers", opts.Servers, "dir", c.dir, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// makeDir makes the sandbox's folder; a temporary one is the guard's to remove
// from the moment it exists.
func (c *Cluster) makeDir(dir string) error {
	if dir == "" {
		var err error
		c.dir, err = c.guard.tempDir("tidegate-sandbox-")
		return err
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	c.dir = abs
	return os.MkdirAll(abs, 0o755)
}

func (c *Cluster) connectReplicas(ctx context.Context, chain bool) error {
	return c.each(ctx, c.servers[1:], func(ctx context.Context, s *Server) error {
		source := c.servers[0]
		if chain {
			source = c.servers[s.index-1]
		}
		return s.RepointTo(ctx, source, "")
	})
}

// each runs f for all servers at once and joins what failed, by name.
func (c *Cluster) each(ctx context.Context, servers []*Server, f func(context.Context, *Server) error) error {
	group, gctx := errgroup.WithContext(ctx)
	for _, s := range servers {
		group.Go(func() error {
			if err := f(gctx, s); err != nil {
				return fmt.Errorf("server %s: %w", s.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// Dir is the folder that holds the servers' folders.
func (c *Cluster) Dir() string { return c.dir }

// Servers returns all servers in the order of their names. The slice is the
// caller's.
func (c *Cluster) Servers() []*Server { return append([]*Server(nil), c.servers...) }

// Server returns the server of that name, nil when there is none.
func (c *Cluster) Server(name string) *Server {
	for _, s := range c.servers {
		if s.name == name {
			return s
		}
	}
	return nil
}

// Primary is the server that was made the primary last, by Start or Promote.
// The sandbox remembers it; it does not ask the servers.
func (c *Cluster) Primary() *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.primary
}

// Replicas are all servers but the primary, in the order of their names.
func (c *Cluster) Replicas() []*Server {
	primary := c.Primary()
	var out []*Server
	for _, s := range c.servers {
		if s != primary {
			out = append(out, s)
		}
	}
	return out
}

// WaitInSync blocks until every running replica has executed what the primary
// had executed at the call.
func (c *Cluster) WaitInSync(ctx context.Context) error {
	set, err := c.Primary().GTIDExecuted(ctx)
	if err != nil {
		return fmt.Errorf("read the primary's executed set: %w", err)
	}
	return c.each(ctx, c.Replicas(), func(ctx context.Context, s *Server) error {
		if !s.Running() {
			return nil
		}
		return s.WaitForGTIDs(ctx, set)
	})
}

// Close kills the servers and removes the temporary folder; with Options.Dir
// it stops them cleanly instead and keeps the folder. It may be called twice.
func (c *Cluster) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	proxies := c.proxies
	c.mu.Unlock()

	var errs []error
	for _, p := range proxies {
		errs = append(errs, p.Close())
	}
	var wg sync.WaitGroup
	stopped := make([]error, len(c.servers))
	for i, s := range c.servers {
		wg.Go(func() { stopped[i] = s.shut(c.keep) })
	}
	wg.Wait()
	errs = append(errs, stopped...)
	if c.guard != nil {
		errs = append(errs, c.guard.close()) // removes the temporary folder
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close sandbox: %w", err)
	}
	return nil
}
