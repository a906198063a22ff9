package testenv

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Server is one mysqld with its own folder and port, which it keeps through
// stops, kills and starts. Methods that start or stop it must not run at the
// same time as each other; all others may be called by many at once.
type Server struct {
	c      *Cluster
	name   string
	index  int
	dir    string
	socket string
	port   *Port
	opts   ServerOptions
	tls    bool     // Options.RequireTLS
	args   []string // Options.Args, then ServerOptions.Args
	db     *sql.DB
	proc   *Process

	mu       sync.Mutex
	readOnly bool    // what it is started with
	source   *Server // what it replicates from, or shall after a rebuild; nil: nothing
	via      string  // address that it reaches source at, when not its own
}

// maxSocketPath is what a Unix socket's address can hold, less its final zero.
const maxSocketPath = 107

func (c *Cluster) newServer(i int, opts Options) (*Server, error) {
	name := serverName(i)
	p, err := reservePort(c.cacheDir)
	if err != nil {
		return nil, err
	}
	s := &Server{c: c, name: name, index: i, dir: filepath.Join(c.dir, name), port: p, opts: opts.PerServer[name], tls: opts.RequireTLS}
	s.args = slices.Concat(opts.InitArgs, opts.Args, s.opts.Args)
	s.readOnly = i > 0 && !opts.Independent && !s.opts.Writable
	s.socket = filepath.Join(s.dir, "sock")
	if len(s.socket) > maxSocketPath {
		tmp, err := c.guard.tempDir("tidegate-sock-")
		if err != nil {
			p.Release()
			return nil, err
		}
		s.socket = filepath.Join(tmp, "sock")
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr = RootUser, "unix", s.socket
	cfg.MultiStatements, cfg.InterpolateParams = true, true
	cfg.Logger = &mysql.NopLogger{} // killing servers is the normal day here
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		p.Release()
		return nil, err
	}
	s.db = sql.OpenDB(connector)
	s.db.SetMaxIdleConns(idleConns)
	s.proc = newProcess(c.guard, Program{
		Name: "server " + name, Argv: c.MySQL.command(), Dir: s.dir, LogFile: s.LogFile(),
		Ready: s.db.PingContext, StartTimeout: startTimeout,
	})
	return s, nil
}

// Name is "a", "b" and so on.
func (s *Server) Name() string { return s.name }

// Addr is host:port on loopback. It stays the same for the server's life.
func (s *Server) Addr() string { return s.port.Addr() }

// Port is the port of Addr.
func (s *Server) Port() int { return s.port.Number }

// Socket is the path of the server's Unix socket.
func (s *Server) Socket() string { return s.socket }

// Dir is the server's own folder; DataDir is mysqld's, within it.
func (s *Server) Dir() string { return s.dir }

// DataDir is the folder that mysqld keeps its data in.
func (s *Server) DataDir() string { return filepath.Join(s.dir, "data") }

// CAFile is the authority that mysqld made for its own certificates.
func (s *Server) CAFile() string { return filepath.Join(s.DataDir(), "ca.pem") }

// LogFile is mysqld's error log.
func (s *Server) LogFile() string { return filepath.Join(s.dir, "error.log") }

// Version is the server's version, as "9.7.4".
func (s *Server) Version() string { return s.c.MySQL.Version }

// DB is a pool of root's connections over the socket, without a schema. It
// outlives restarts, and belongs to the server: do not close it.
func (s *Server) DB() *sql.DB { return s.db }

// DSN is a go-sql-driver address of the server over TCP for an account of the
// sandbox ([RootUser], [AppUser], [TidegateUser]); database may be empty.
func (s *Server) DSN(user, database string) string {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr, cfg.DBName = user, passwordOf(user), "tcp", s.Addr(), database
	cfg.InterpolateParams = true
	return cfg.FormatDSN()
}

func passwordOf(user string) string {
	switch user {
	case TidegateUser:
		return TidegatePassword
	case AppUser:
		return AppPassword
	case ReplicationUser:
		return ReplicationPassword
	}
	return ""
}

// Exec runs one or more statements, separated by ";", as root.
func (s *Server) Exec(ctx context.Context, query string, args ...any) error {
	if _, err := s.db.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("server %s: %s: %w", s.name, shorten(query), err)
	}
	return nil
}

// QueryRow runs one query as root, as sql.DB does.
func (s *Server) QueryRow(ctx context.Context, query string, args ...any) *sql.Row {
	return s.db.QueryRowContext(ctx, query, args...)
}

// QueryString returns the first column of the first row; NULL is "". No row is
// sql.ErrNoRows.
func (s *Server) QueryString(ctx context.Context, query string, args ...any) (string, error) {
	var v sql.NullString
	if err := s.QueryRow(ctx, query, args...).Scan(&v); err != nil {
		return "", fmt.Errorf("server %s: %s: %w", s.name, shorten(query), err)
	}
	return v.String, nil
}

func shorten(query string) string {
	const most = 120
	if len(query) > most {
		return query[:most] + "..."
	}
	return query
}

// Running says whether the mysqld process exists.
func (s *Server) Running() bool { return s.proc.Running() }

// PID is the number of the running mysqld; 0 when there is none.
func (s *Server) PID() int { return s.proc.PID() }

// create fills the server's folder from the template, unless it has data of an
// earlier sandbox in the same Dir, and starts it.
func (s *Server) create(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(s.dir, "tmp"), 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(s.DataDir()); errors.Is(err, os.ErrNotExist) {
		fresh := s.DataDir() + ".new" // renamed when whole: a killed copy is no data folder
		if err := os.RemoveAll(fresh); err != nil {
			return err
		}
		if err := copyTree(ctx, s.c.template, fresh); err != nil {
			return fmt.Errorf("copy the initialised data folder: %w", err)
		}
		if err := os.Rename(fresh, s.DataDir()); err != nil {
			return err
		}
	}
	return s.Start(ctx)
}

// startTimeout bounds a start; crash recovery of a sandbox's data takes far
// less.
const startTimeout = 3 * time.Minute

// Start starts mysqld on the server's folder and port and returns when it
// answers. A server that runs is left alone. The error quotes the log.
func (s *Server) Start(ctx context.Context) error { return s.startWith(ctx) }

// startWith starts the server with further options for this run alone.
func (s *Server) startWith(ctx context.Context, more ...string) error {
	if err := s.sweepTmp(); err != nil {
		return fmt.Errorf("server %s: sweep its temporary folder: %w", s.name, err)
	}
	s.proc.SetArgv(s.c.MySQL.command(append(s.serverArgs(), more...)...)...)
	return s.proc.Start(ctx)
}

// sweepTmp removes what an applier leaves when it is killed while it starts: it
// tries its folder with a file that must not exist, and would not run again.
func (s *Server) sweepTmp() error {
	if s.Running() {
		return nil
	}
	left, err := filepath.Glob(filepath.Join(s.dir, "tmp", "SQL_LOAD-*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// Stop ends mysqld cleanly and waits for it. When ctx ends first the process
// is killed and ctx's error returned. A server that is down is left alone.
//
// mysqld by itself waits 8 s for whoever reads its binlog, and 2 s for idle
// clients. So the server first refuses and disconnects all but root (clients
// see error 3032 for a moment), once the readers of its binlog have had all of
// it.
func (s *Server) Stop(ctx context.Context) error {
	if !s.Running() {
		return nil
	}
	s.sayGoodbye(ctx)
	return s.proc.Stop(ctx)
}

// goodbyeTimeout bounds what Stop spends on being quick.
const goodbyeTimeout = 2 * time.Second

// sayGoodbye shortens a stop; where it fails the stop is just slower.
func (s *Server) sayGoodbye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, goodbyeTimeout)
	defer cancel()
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		busy, err := s.busyDumpThreads(ctx)
		if err != nil || busy == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			continue
		}
	}
	_ = s.Exec(ctx, "SET GLOBAL offline_mode=ON")
	s.db.SetMaxIdleConns(0) // closes those that are idle
	s.db.SetMaxIdleConns(idleConns)
}

// idleConns is how many idle connections a server's pool keeps.
const idleConns = 4

// Kill ends mysqld with SIGKILL and waits until it is gone.
func (s *Server) Kill() error { return s.proc.Kill() }

// Restart stops the server cleanly and starts it again.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	return s.Start(ctx)
}

// Pause freezes mysqld (SIGSTOP): connections stay, and nothing answers. Kill
// works on a frozen server; Stop waits for Resume.
func (s *Server) Pause() error { return s.proc.Pause() }

// Resume lets mysqld go on after Pause.
func (s *Server) Resume() error { return s.proc.Resume() }

// stopTimeout bounds a clean stop when the sandbox closes.
const stopTimeout = 2 * time.Minute

// shut ends the server for good.
func (s *Server) shut(clean bool) error {
	// What closing a connection to a dead server says is of no use.
	_ = s.db.Close()
	var err error
	if clean {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		err = s.Stop(ctx)
	} else {
		err = s.Kill()
	}
	s.port.Release()
	return err
}

// serverArgs are mysqld's options for the next start.
func (s *Server) serverArgs() []string {
	args := []string{
		"--datadir=" + s.DataDir(),
		"--socket=" + s.socket,
		"--port=" + strconv.Itoa(s.port.Number),
		"--bind-address=127.0.0.1",
		"--mysqlx=OFF",
		"--skip-name-resolve",
		"--pid-file=" + filepath.Join(s.dir, "pid"),
		"--tmpdir=" + filepath.Join(s.dir, "tmp"),
		"--secure-file-priv=",
		"--log-error-verbosity=2",
		"--server-id=" + strconv.Itoa(s.index+1),
		"--report-host=127.0.0.1",
		"--report-port=" + strconv.Itoa(s.port.Number),
		"--gtid-mode=ON",
		"--enforce-gtid-consistency=ON",
		"--binlog-row-metadata=FULL",
		"--binlog-row-image=FULL",
		"--relay-log=relay",
		"--relay-log-recovery=ON",
		"--max-connections=600",
		"--local-infile=ON",
		// Loaded, and off until asked for: loading them later is not possible
		// on a super_read_only server.
		"--plugin-load-add=semisync_source.so",
		"--plugin-load-add=semisync_replica.so",
		"--plugin-load-add=mysql_clone.so",
	}
	args = append(args, smallArgs()...)
	if s.opts.NoBinlog {
		args = append(args, "--skip-log-bin", "--log-replica-updates=OFF")
	} else {
		args = append(args, "--log-bin=binlog", "--log-replica-updates=ON")
	}
	if s.opts.Relaxed {
		args = append(args, "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0")
	} else {
		args = append(args, "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1")
	}
	if s.tls {
		args = append(args, "--require-secure-transport=ON")
	}
	s.mu.Lock()
	readOnly := s.readOnly
	s.mu.Unlock()
	if readOnly {
		args = append(args, "--super-read-only=ON")
	}
	return append(args, s.args...)
}
