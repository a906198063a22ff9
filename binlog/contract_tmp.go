package binlog

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

type Position struct {
	File string
	Pos  uint64
}

type Handler interface {
	Transaction(ctx context.Context, t *event.Transaction, at Position) error
	Hole(ctx context.Context, h *event.Hole) error
	Definitions(ctx context.Context, defs []event.TableDefinition) error
	Progress(ctx context.Context, at Position) error
}

// What Tidegate follows of a server.
const (
	// FollowBinlog: the server's own binlog gives hints, identities and tables.
	FollowBinlog = "binlog"
	// FollowExecuted: gtid_executed alone, for a replica without a binlog.
	FollowExecuted = "executed"
)

// Defaults of [ServerConfig].
const (
	DefaultConnectTimeout = 5 * time.Second
	DefaultQueryTimeout   = 10 * time.Second
)

// ServerConfig is how to reach one mysqld. It is plain data; its String hides
// the password.
type ServerConfig struct {
	Name    string // configured name, unique in the cluster
	Addr    string // host:port, or the path of a unix socket
	AppAddr string // what applications connect to; empty: Addr
	// User needs REPLICATION SLAVE, REPLICATION CLIENT and SELECT.
	User     string
	Password string
	TLS      *tls.Config // nil: no TLS
	Follow   string      // FollowBinlog (also when empty) or FollowExecuted
	// ConnectTimeout bounds dialing and the handshake; 0: DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// QueryTimeout bounds one statement; 0: DefaultQueryTimeout.
	QueryTimeout time.Duration
	// Dial replaces the plain dialer, for tests and tunnels; nil: net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Validate reports everything that is wrong with c at once.
func (c *ServerConfig) Validate() error {
	var errs []error
	if c.Name == "" {
		errs = append(errs, errors.New("server without a name"))
	}
	if c.Addr == "" {
		errs = append(errs, fmt.Errorf("server %s: no addr; want host:port", c.Name))
	} else if c.network() == "tcp" {
		if _, _, err := net.SplitHostPort(c.Addr); err != nil {
			errs = append(errs, fmt.Errorf("server %s: addr %q: want host:port: %w", c.Name, c.Addr, err))
		}
	}
	if c.User == "" {
		errs = append(errs, fmt.Errorf("server %s: no user", c.Name))
	}
	switch c.Follow {
	case "", FollowBinlog, FollowExecuted:
	default:
		errs = append(errs, fmt.Errorf("server %s: follow %q; want %s or %s", c.Name, c.Follow, FollowBinlog, FollowExecuted))
	}
	if c.ConnectTimeout < 0 || c.QueryTimeout < 0 {
		errs = append(errs, fmt.Errorf("server %s: a timeout is negative", c.Name))
	}
	return errors.Join(errs...)
}

// String names the server without its secrets.
func (c *ServerConfig) String() string { return c.Name + " (" + c.Addr + ")" }

func (c *ServerConfig) network() string {
	if strings.HasPrefix(c.Addr, "/") {
		return "unix"
	}
	return "tcp"
}

func (c *ServerConfig) connectTimeout() time.Duration {
	if c.ConnectTimeout == 0 {
		return DefaultConnectTimeout
	}
	return c.ConnectTimeout
}

func (c *ServerConfig) queryTimeout() time.Duration {
	if c.QueryTimeout == 0 {
		return DefaultQueryTimeout
	}
	return c.QueryTimeout
}

// dial opens the network connection of this server.
func (c *ServerConfig) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if c.Dial != nil {
		return c.Dial(ctx, network, addr)
	}
	d := net.Dialer{Timeout: c.connectTimeout(), KeepAlive: 15 * time.Second}
	return d.DialContext(ctx, network, addr)
}

// OpenDB returns a pool of SQL connections to the server. It does not connect
// yet. The caller closes it. Statements have no timeout of their own: give each
// a context.
func (c *ServerConfig) OpenDB() (*sql.DB, error) {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd = c.User, c.Password
	cfg.Net, cfg.Addr = c.network(), c.Addr
	cfg.TLS = c.TLS
	cfg.Timeout = c.connectTimeout()
	cfg.AllowNativePasswords = true
	cfg.InterpolateParams = true
	cfg.DialFunc = c.dial
	cfg.Logger = &mysql.NopLogger{}
	cfg.ConnectionAttributes = "program_name:tidegate"
	conn, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("configure connection to %s: %w", c, err)
	}
	return sql.OpenDB(conn), nil
}

// Class sorts errors by what has to happen next.
type Class uint8

const (
	// Retry: a connection failed; the tailer tries again by itself and returns
	// such an error never.
	Retry Class = iota
	// Stop: something is wrong that a restart or an operator mends.
	Stop
	// Reseed: what the tailer asks for can not be had any more; going on needs an
	// explicit decision.
	Reseed
)

func (c Class) String() string {
	switch c {
	case Retry:
		return "retry"
	case Stop:
		return "stop"
	}
	return "re-seed"
}

// ClassOf sorts an error that [Tailer.Run] returned. Errors of a handler are
// [Stop].
func ClassOf(err error) Class {
	var c interface{ class() Class }
	if errors.As(err, &c) {
		return c.class()
	}
	return Stop
}

// PurgedError: the server has deleted binlogs that the tailer still needs.
type PurgedError struct {
	Server  string
	Missing gtid.Set // what was asked for and is gone
	Purged  gtid.Set // everything that the server has purged
}

func (e *PurgedError) Error() string {
	return fmt.Sprintf("server %s has purged binlogs that are still needed: %s is missing", e.Server, e.Missing)
}

func (*PurgedError) class() Class { return Reseed }

// DivergedError: the server lacks transactions that were read from it, or that
// the start position contains: it was restored, replaced, or lost its tail.
type DivergedError struct {
	Server string
	Extra  gtid.Set // in the position, neither executed nor being committed on the server
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("server %s does not have %s, which its position contains", e.Server, e.Extra)
}

func (*DivergedError) class() Class { return Reseed }

// AnonymousError: the binlog holds a transaction without a GTID, behind which
// the server does not let a reader by GTID. The handler has got its hole before
// (rules §6.2).
type AnonymousError struct {
	Server string
	Reason string
}

func (e *AnonymousError) Error() string {
	return fmt.Sprintf("server %s has logged a transaction without a GTID (%s): set gtid_mode=ON, then a new history must begin", e.Server, e.Reason)
}

func (*AnonymousError) class() Class { return Reseed }

// RefusedError: the server can not be tailed as it is set up. Mend is the SQL
// (or the setting) that mends it.
type RefusedError struct {
	Server string
	Reason string
	Mend   string
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("server %s can not be followed: %s", e.Server, e.Reason)
	if e.Mend != "" {
		s += "; mend it with: " + e.Mend
	}
	return s
}

func (*RefusedError) class() Class { return Stop }

// CorruptError: the same bytes of the binlog failed their checksum, or made no
// sense, each time they were read.
type CorruptError struct {
	Server string
	At     Position
	Err    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("server %s: binlog %s near position %d can not be read: %v", e.Server, e.At.File, e.At.Pos, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }
func (*CorruptError) class() Class    { return Stop }

// GroupColumnError: a column under `keys:` does not exist.
type GroupColumnError struct {
	Table   string   // schema.table
	Column  string   // as configured
	Columns []string // what the table has
}

func (e *GroupColumnError) Error() string {
	return fmt.Sprintf("keys: table %s has no column %q; it has %s", e.Table, e.Column, joinQuoted(e.Columns))
}

func (*GroupColumnError) class() Class { return Stop }

// joinQuoted prints at most a dozen names.
func joinQuoted(names []string) string {
	const most = 12
	var b []byte
	for i, n := range names {
		if i == most {
			return string(fmt.Appendf(b, " and %d more", len(names)-most))
		}
		if i > 0 {
			b = append(b, ", "...)
		}
		b = fmt.Appendf(b, "%q", n)
	}
	return string(b)
}

// malformed is an event whose bytes make no sense.
type malformedError struct {
	what string
}

func (e *malformedError) Error() string { return "malformed " + e.what }

func malformed(format string, args ...any) error {
	return &malformedError{fmt.Sprintf(format, args...)}
}
