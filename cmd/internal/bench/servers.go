package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/daemon"
	"tidegate/testenv"
)

// configText is a configuration for the servers of a sandbox, everything else
// as it is by default, with all that is kept under dir. addr is how Tidegate reaches
// a server.
func configText(c *testenv.Cluster, dir string, addr func(*testenv.Server) string) string {
	var t strings.Builder
	fmt.Fprintf(&t, "cluster: bench\ndata_dir: %q\nlisten: {http: \"127.0.0.1:0\", resp: \"127.0.0.1:0\"}\nservers:\n", dir)
	for _, s := range c.Servers() {
		fmt.Fprintf(&t, "  - {name: %s, addr: %q, app_addr: %q, user: %s, password: %s}\n", s.Name(), addr(s), s.Addr(), testenv.TidegateUser, testenv.TidegatePassword)
	}
	return t.String()
}

// tidegate is a whole Tidegate inside this process.
type tidegate struct {
	*daemon.Daemon
	stop context.CancelFunc
	done chan error
}

// startTidegate runs everything for the servers of c, with its data in dir.
func (b *bench) startTidegate(ctx context.Context, c *testenv.Cluster, dir string) (*tidegate, error) {
	cfg, err := config.Parse("bench", []byte(configText(c, dir, (*testenv.Server).Addr)), os.LookupEnv)
	if err != nil {
		return nil, err
	}
	d, err := daemon.Open(ctx, cfg, daemon.Options{Parts: daemon.Parts{Tail: true, Serve: true}, Log: b.o.Log, Version: "bench"})
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(ctx)
	t := &tidegate{Daemon: d, stop: stop, done: make(chan error, 1)}
	go func() { t.done <- d.Run(run) }()
	return t, nil
}

// readyTimeout bounds how long a Tidegate takes to answer, or a server to do
// what it is told.
const readyTimeout = 30 * time.Second

// ready waits until it can prove things.
func (t *tidegate) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return t.Ready(ctx)
}

// close stops it and frees everything.
func (t *tidegate) close() error {
	t.stop()
	return errors.Join(<-t.done, t.Daemon.Close())
}

// startServers starts a primary and replicas.
func (b *bench) startServers(ctx context.Context, o testenv.Options) (*testenv.Cluster, error) {
	c, err := testenv.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	b.step("MySQL %s (%s), %d servers", c.MySQL.Version, c.MySQL.Origin, len(c.Servers()))
	return c, nil
}

// executed asks a server for its executed set.
func executed(ctx context.Context, s *testenv.Server) (gtid.Set, error) {
	text, err := s.QueryString(ctx, "SELECT @@GLOBAL.gtid_executed")
	if err != nil {
		return gtid.Set{}, err
	}
	return gtid.Parse(text)
}

// inSync waits until every replica has what the primary has.
func inSync(ctx context.Context, c *testenv.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, 2*readyTimeout)
	defer cancel()
	return c.WaitInSync(ctx)
}

// openApp is a pool of an application's connections, n at most, over TCP.
func openApp(s *testenv.Server, n int) (*sql.DB, error) {
	db, err := sql.Open("mysql", s.DSN(testenv.AppUser, testenv.AppDatabase))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

// copyDir copies a folder of plain files.
func copyDir(to, from string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("copy %s: %w", filepath.Base(from), err)
	}
	return nil
}
