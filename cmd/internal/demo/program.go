package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"tidegate/cdc/key"
	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/daemon"
	"tidegate/cmd/internal/metrics"
	"tidegate/router"
	"tidegate/testenv"
)

// program is Tidegate as `tidegate run` runs it, in this process.
type program struct {
	*daemon.Daemon
	log  *lastLines
	stop context.CancelFunc
	done chan struct{} // closed when Run has returned
	err  error         // of Run; valid after done
}

// startProgram starts Tidegate on the servers. Its data goes into the sandbox's
// folder, which the sandbox's guard removes even when this process is killed.
func startProgram(ctx context.Context, c *testenv.Cluster) (*program, error) {
	cfg, err := programConfig(c)
	if err != nil {
		return nil, err
	}
	p := &program{log: &lastLines{}, done: make(chan struct{})}
	log := slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	p.Daemon, err = daemon.Open(ctx, cfg, daemon.Options{
		Parts: daemon.Parts{Tail: true, Serve: true}, Log: log, Version: "demo",
		Metrics: func(d *daemon.Daemon) http.Handler { return metrics.Handler(d, log) },
	})
	if err != nil {
		return nil, fmt.Errorf("start tidegate: %w", err)
	}
	// It outlives ctx: at Ctrl-C the sessions end first.
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	go func() {
		defer close(p.done)
		p.err = p.Daemon.Run(run)
	}()
	return p, nil
}

func programConfig(c *testenv.Cluster) (*config.Config, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster: demo\ndata_dir: %q\nlisten: {http: \"127.0.0.1:0\", resp: \"127.0.0.1:0\"}\nkeys: {app.posts: [author_id]}\nservers:\n",
		filepath.Join(c.Dir(), "tidegate"))
	for _, s := range c.Servers() {
		fmt.Fprintf(&b, "  - {name: %s, addr: %q, user: %s, password: %s}\n", s.Name(), s.Addr(), testenv.TidegateUser, testenv.TidegatePassword)
	}
	return config.Parse("the demo's own", []byte(b.String()), os.LookupEnv)
}

// readyTimeout bounds how long Tidegate takes from its start to its first yes.
const readyTimeout = time.Minute

// ready waits until the router lets every server serve a key.
func (p *program) ready(ctx context.Context, s *servers) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := p.Daemon.Ready(ctx); err != nil {
		return fmt.Errorf("wait for tidegate: %w", err)
	}
	k, err := key.Parse(postKey(1))
	if err != nil {
		return err
	}
	for i := range s.all {
		req := router.Request{Server: s.name(i), Keys: []key.Key{k}, Advisory: true}
		for {
			var ans router.Answer
			if err := p.Router.Serve(&req, &ans); err != nil {
				return err
			}
			if ans.Yes {
				break
			}
			if !wait(ctx, 5*time.Millisecond) {
				return fmt.Errorf("wait for tidegate: %s may not serve yet: %s %s", s.name(i), ans.Reason, ans.Detail)
			}
		}
	}
	return nil
}

// watch blocks until ctx ends, and returns an error when Tidegate ends first.
func (p *program) watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.done:
		return errors.Join(errors.New("tidegate ended"), p.err)
	}
}

// close stops it and waits for it.
func (p *program) close() error {
	p.stop()
	<-p.done
	return errors.Join(p.err, p.Daemon.Close())
}

// curl is a line to try while the demo runs.
func (p *program) curl(replica string, id int64) string {
	return fmt.Sprintf("curl -s 'http://%s/v1/serve?replica=%s&key=%s'", p.Server.HTTPAddr(), replica, postKey(id))
}

// lastLines keeps the end of a log for the case that something goes wrong. It
// may be used by many at once.
type lastLines struct {
	mu    sync.Mutex
	lines []string
}

const maxLines = 20

// Write implements io.Writer for whole lines.
func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines = append(l.lines, strings.TrimRight(string(p), "\n")); len(l.lines) > maxLines {
		l.lines = l.lines[1:]
	}
	return len(p), nil
}

// String returns the lines.
func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}
