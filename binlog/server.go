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
)

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
	cfg.TLS = c.tlsFor()
	cfg.Timeout = c.connectTimeout()
	cfg.AllowNativePasswords = true
	cfg.InterpolateParams = true
	cfg.DialFunc = c.dial
	cfg.Logger = &mysql.NopLogger{}
	cfg.ConnectionAttributes = "program_name:tidegate"
	// The server's own may fill names with blanks (PAD_CHAR_TO_FULL_LENGTH) or read
	// quotes otherwise.
	cfg.Params = map[string]string{"sql_mode": "'STRICT_ALL_TABLES'"}
	conn, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("configure connection to %s: %w", c, err)
	}
	return sql.OpenDB(conn), nil
}
