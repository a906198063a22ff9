package testenv

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
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
	port   *port
	opts   ServerOptions
	args   []string // Options.Args, then ServerOptions.Args
	db     *sql.DB

	mu       sync.Mutex
	proc     *process // nil before the first start
	readOnly bool     // what it is started with
}

// maxSocketPath is what a Unix socket's address can hold, less its final zero.
const maxSocketPath = 107

func (c *Cluster) newServer(i int, opts Options) (*Server, error) {
	name := serverName(i)
	p, err := reservePort(c.cacheDir)
	if err != nil {
		return nil, err
	}
	s := &Server{c: c, name: name, index: i, dir: filepath.Join(c.dir, name), port: p, opts: opts.PerServer[name]}
	s.args = append(append([]string(nil), opts.Args...), s.opts.Args...)
	s.readOnly = i > 0 && !opts.Independent && !s.opts.Writable
	s.socket = filepath.Join(s.dir, "sock")
	if len(s.socket) > maxSocketPath {
		tmp, err := os.MkdirTemp("", "tidegate-sock-")
		if err != nil {
			p.release()
			return nil, err
		}
		if err := c.guard.removeAtEnd(tmp); err != nil {
			p.release()
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
		p.release()
		return nil, err
	}
	s.db = sql.OpenDB(connector)
	return s, nil
}

// Name is "a", "b" and so on.
func (s *Server) Name() string { return s.name }

// Addr is host:port on loopback. It stays the same for the server's life.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port.number)) }

// Port is the port of Addr.
func (s *Server) Port() int { return s.port.number }

// Socket is the path of the server's Unix socket.
func (s *Server) Socket() string { return s.socket }

// Dir is the server's own folder; DataDir is mysqld's, within it.
func (s *Server) Dir() string { return s.dir }

// DataDir is the folder that mysqld keeps its data in.
func (s *Server) DataDir() string { return filepath.Join(s.dir, "data") }

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
func (s *Server) Running() bool {
	p := s.current()
	return p != nil && !p.exited()
}

// PID is the number of the running mysqld; 0 when there is none.
func (s *Server) PID() int {
	if p := s.current(); p != nil && !p.exited() {
		return p.pid()
	}
	return 0
}

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

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
const startTimeout = 90 * time.Second

// Start starts mysqld on the server's folder and port and returns when it
// answers. A server that runs is left alone. The error quotes the log.
func (s *Server) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && !s.proc.exited() {
		return nil
	}
	p, err := startProcess(s.c.guard, s.c.MySQL.command(s.serverArgs()...), nil, s.dir, s.LogFile())
	if err != nil {
		return fmt.Errorf("start server %s: %w", s.name, err)
	}
	s.proc = p
	if err := s.awaitReady(ctx, p); err != nil {
		return errors.Join(fmt.Errorf("start server %s: %w\n%s", s.name, err, logTail(s.LogFile(), 12)), p.kill())
	}
	return nil
}

// readyPoll is how often a starting server is asked whether it answers.
const readyPoll = 15 * time.Millisecond

func (s *Server) awaitReady(ctx context.Context, p *process) error {
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	var last error
	for {
		if last = s.db.PingContext(ctx); last == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("mysqld ended: %w", cmpErr(p.result(), errors.New("exit status 0")))
		case <-ctx.Done():
			return fmt.Errorf("mysqld does not answer: %w (last: %w)", ctx.Err(), last)
		case <-ticker.C:
		}
	}
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// Stop ends mysqld cleanly and waits for it. When ctx ends first the process
// is killed and ctx's error returned. A server that is down is left alone.
func (s *Server) Stop(ctx context.Context) error {
	p := s.current()
	if p == nil || p.exited() {
		return nil
	}
	if err := p.terminate(ctx); err != nil {
		return fmt.Errorf("stop server %s: %w", s.name, err)
	}
	return nil
}

// Kill ends mysqld with SIGKILL and waits until it is gone.
func (s *Server) Kill() error {
	p := s.current()
	if p == nil || p.exited() {
		return nil
	}
	if err := p.kill(); err != nil {
		return fmt.Errorf("kill server %s: %w", s.name, err)
	}
	return nil
}

// Restart stops the server cleanly and starts it again.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	return s.Start(ctx)
}

// stopTimeout bounds a clean stop when the sandbox closes.
const stopTimeout = 30 * time.Second

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
	s.port.release()
	return err
}

// serverArgs are mysqld's options for the next start.
func (s *Server) serverArgs() []string {
	args := []string{
		"--datadir=" + s.DataDir(),
		"--socket=" + s.socket,
		"--port=" + strconv.Itoa(s.port.number),
		"--bind-address=127.0.0.1",
		"--mysqlx=OFF",
		"--skip-name-resolve",
		"--pid-file=" + filepath.Join(s.dir, "pid"),
		"--tmpdir=" + filepath.Join(s.dir, "tmp"),
		"--secure-file-priv=",
		"--log-error-verbosity=2",
		"--server-id=" + strconv.Itoa(s.index+1),
		"--report-host=127.0.0.1",
		"--report-port=" + strconv.Itoa(s.port.number),
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
	if s.readOnly {
		args = append(args, "--super-read-only=ON")
	}
	return append(args, s.args...)
}

// smallArgs keep a server near 200 MB instead of 550 MB, and its start short.
// The performance schema stays on, since replication channels and global
// status are read from it; what it would count and remember is off.
func smallArgs() []string {
	return []string{
		"--innodb-buffer-pool-size=67108864",
		"--innodb-buffer-pool-load-at-startup=OFF",
		"--innodb-buffer-pool-dump-at-shutdown=OFF",
		"--innodb-redo-log-capacity=67108864",
		"--innodb-log-buffer-size=4194304",
		"--table-open-cache=400",
		"--table-definition-cache=400",
		"--host-cache-size=0",
		"--performance-schema-instrument=%=OFF",
		"--performance-schema-error-size=0",
		"--performance-schema-digests-size=0",
		"--performance-schema-max-digest-length=0",
		"--performance-schema-max-sql-text-length=0",
		"--performance-schema-events-statements-history-size=0",
		"--performance-schema-events-statements-history-long-size=0",
		"--performance-schema-events-stages-history-long-size=0",
		"--performance-schema-events-stages-history-size=0",
		"--performance-schema-events-transactions-history-long-size=0",
		"--performance-schema-events-transactions-history-size=0",
		"--performance-schema-events-waits-history-long-size=0",
		"--performance-schema-events-waits-history-size=0",
		"--performance-schema-session-connect-attrs-size=0",
	}
}
