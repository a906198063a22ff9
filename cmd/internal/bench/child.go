package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/daemon"
	"tidegate/cmd/internal/metrics"
	"tidegate/router/serve"
	"tidegate/testenv"
)

// ChildCommand is the name of the hidden command that runs [Child].
const ChildCommand = "bench-child"

// addresses is what a child that listens tells its parent.
type addresses struct {
	RESP, HTTP string
}

// Child is the main function of the processes that a bench starts. args name
// what it is, where it reports (a file that appears when it is ready, or done)
// and, where a profile is wanted, where to; then what its kind needs.
func Child(ctx context.Context, args []string) (err error) {
	if len(args) < 3 {
		return errors.New("bench child: too few arguments; this command is for tidegate bench itself")
	}
	kind, report, profile, args := args[0], args[1], args[2], args[3:]
	if profile == "-" {
		profile = ""
	}
	stop, err := startProfile(profile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	switch {
	case kind == "router" && len(args) == 0:
		return childRouter(ctx, report)
	case kind == "run" && len(args) == 1:
		return childRun(ctx, report, args[0], daemon.Parts{Tail: true, Serve: true})
	case kind == "serve" && len(args) == 1:
		return childRun(ctx, report, args[0], daemon.Parts{Serve: true})
	case kind == "memory" && len(args) == 1:
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return fmt.Errorf("bench child: records: %w", err)
		}
		m, err := measureMemory(n)
		if err != nil {
			return err
		}
		return writeReport(report, m)
	}
	return fmt.Errorf("bench child: %q with %d arguments is none of its kinds", kind, len(args))
}

const (
	wireReplicas = 2
	wireRecords  = 100_000
	wireIngest   = 100 // transactions a second
)

// childRouter answers over a world of three servers that goes on living, so that
// leases and watermark are what they are in service.
func childRouter(ctx context.Context, report string) error {
	w, err := newWorld(wireReplicas)
	if err != nil {
		return err
	}
	if err := w.fill(wireRecords); err != nil {
		return err
	}
	if err := w.states(0); err != nil {
		return err
	}
	r, err := w.newRouter()
	if err != nil {
		return err
	}
	s, err := serve.Open(ctx, serve.Options{Router: r, HTTPAddr: "127.0.0.1:0", RESPAddr: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.Run(gctx) })
	g.Go(func() error { return w.drive(gctx, wireIngest) })
	g.Go(func() error { // with the others, which end when it fails
		return writeReport(report, addresses{RESP: s.RESPAddr().String(), HTTP: s.HTTPAddr().String()})
	})
	return errors.Join(g.Wait(), s.Close())
}

// childRun is `tidegate run` or `serve` that tells its addresses.
func childRun(ctx context.Context, report, file string, parts daemon.Parts) (err error) {
	cfg, err := config.Load(file, os.LookupEnv)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	o := daemon.Options{Parts: parts, Log: log, Version: "bench"}
	o.Metrics = func(d *daemon.Daemon) http.Handler { return metrics.Handler(d, log) }
	d, err := daemon.Open(ctx, cfg, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := writeReport(report, addresses{RESP: d.Server.RESPAddr().String(), HTTP: d.Server.HTTPAddr().String()}); err != nil {
		return err
	}
	return d.Run(ctx)
}

// child is a process that a row started.
type child struct {
	*testenv.Process
	argv   []string
	report string
}

// newChild prepares a child of a kind, with a folder that goes with it. With
// ready it is one that listens, and is ready when its report is there and ready
// agrees. name names its profile.
func (b *bench) newChild(name, kind string, ready func(context.Context, addresses) error, args ...string) (*child, error) {
	profile := "-"
	if p := b.profileOf(name); p != "" {
		var err error
		if profile, err = filepath.Abs(p); err != nil {
			return nil, err
		}
	}
	c := &child{}
	program := testenv.Program{Name: "bench-" + kind, Argv: b.o.Self}
	if ready != nil {
		program.Ready = func(ctx context.Context) error {
			var a addresses
			if err := c.read(&a); err != nil {
				return err
			}
			return ready(ctx, a)
		}
	}
	var err error
	if c.Process, err = testenv.NewProcess(program); err != nil {
		return nil, err
	}
	c.report = filepath.Join(c.Dir(), "report.json")
	c.argv = append(append([]string{}, b.o.Self...), kind, c.report, profile)
	c.addArgs(args...)
	return c, nil
}

// addArgs adds arguments from the next start on, such as files in the child's
// own folder.
func (c *child) addArgs(args ...string) {
	c.argv = append(c.argv, args...)
	c.SetArgv(c.argv...)
}

// reported is enough for a child that answers from its first moment.
func reported(context.Context, addresses) error { return nil }

// start starts the child anew and returns where it listens.
func (c *child) start(ctx context.Context) (addresses, error) {
	var a addresses
	if err := os.RemoveAll(c.report); err != nil {
		return a, err
	}
	if err := c.Start(ctx); err != nil {
		return a, err
	}
	return a, c.read(&a)
}

func (c *child) read(v any) error {
	b, err := os.ReadFile(c.report)
	if err != nil {
		return fmt.Errorf("the child has not reported: %w", err)
	}
	return json.Unmarshal(b, v)
}

// close ends the child, cleanly if it can (its profile is written then).
func (c *child) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := c.Stop(ctx)
	return errors.Join(err, c.Close())
}

// runChild runs a child to its end and reads its report.
func (b *bench) runChild(ctx context.Context, report any, kind string, args ...string) (err error) {
	c, err := b.newChild(kind, kind, nil, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	if err := c.Start(ctx); err != nil {
		return err
	}
	if err := c.Wait(ctx); err != nil {
		return fmt.Errorf("%w: %s", err, c.Log())
	}
	return c.read(report)
}

// readyOverHTTP asks /readyz.
func readyOverHTTP(ctx context.Context, a addresses) error {
	body, status, err := get(ctx, "http://"+a.HTTP+"/readyz")
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("readyz says %d: %s", status, body)
	}
	return nil
}

// mayServe asks a router whether a server may serve; query holds the rest of the
// question.
func mayServe(ctx context.Context, a addresses, server, query string) (yes bool, reason string, err error) {
	body, status, err := get(ctx, fmt.Sprintf("http://%s/v1/serve?replica=%s&%s", a.HTTP, server, query))
	if err != nil {
		return false, "", err
	}
	var ans struct {
		Serve  bool
		Reason string
	}
	if status != http.StatusOK {
		return false, "", fmt.Errorf("serve answers %d: %s", status, body)
	}
	if err := json.Unmarshal(body, &ans); err != nil {
		return false, "", err
	}
	return ans.Serve, ans.Reason, nil
}

// dial connects to a listener on this host.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	return d.DialContext(ctx, "tcp", addr)
}
