package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
	"tidegate/router"
)

// DefaultConns is the default of [Limits].Conns.
const DefaultConns = 10_000

// Limits bound what callers may use. The zero value of each stands for its
// default.
type Limits struct {
	Conns         int           // connections of each listener; DefaultConns
	URLBytes      int           // request target; 64 KiB
	HeaderBytes   int           // HTTP headers; 32 KiB
	BodyBytes     int           // HTTP body; 1 MiB
	FrameBytes    int           // one RESP command; 1 MiB
	FrameArgs     int           // arguments of one RESP command; 4096
	HeaderTimeout time.Duration // until the headers of a request are there; 5 s
	BodyTimeout   time.Duration // until all of a request is there; 10 s
	WriteTimeout  time.Duration // for an answer, waits of Route included; 15 s
	IdleTimeout   time.Duration // of a connection between requests; 3 min
	StopTimeout   time.Duration // for requests in flight when Run ends; 5 s
}

func (l *Limits) validate() error {
	var errs []error
	for _, n := range []struct {
		name string
		v    *int
		std  int
		min  int
	}{
		{"Conns", &l.Conns, DefaultConns, 1},
		{"URLBytes", &l.URLBytes, 64 << 10, 256},
		{"HeaderBytes", &l.HeaderBytes, 32 << 10, 1 << 10},
		{"BodyBytes", &l.BodyBytes, 1 << 20, 1 << 10},
		{"FrameBytes", &l.FrameBytes, 1 << 20, 1 << 10},
		{"FrameArgs", &l.FrameArgs, 4096, 16},
	} {
		if *n.v == 0 {
			*n.v = n.std
		}
		if *n.v < n.min {
			errs = append(errs, fmt.Errorf("limit %s is %d, at least %d is needed", n.name, *n.v, n.min))
		}
	}
	for _, d := range []struct {
		name string
		v    *time.Duration
		std  time.Duration
	}{
		{"HeaderTimeout", &l.HeaderTimeout, 5 * time.Second},
		{"BodyTimeout", &l.BodyTimeout, 10 * time.Second},
		{"WriteTimeout", &l.WriteTimeout, 15 * time.Second},
		{"IdleTimeout", &l.IdleTimeout, 3 * time.Minute},
		{"StopTimeout", &l.StopTimeout, 5 * time.Second},
	} {
		if *d.v == 0 {
			*d.v = d.std
		}
		if *d.v < 0 {
			errs = append(errs, fmt.Errorf("limit %s is negative", d.name))
		}
	}
	return errors.Join(errs...)
}

// ObservedRead is a read that an application did by its own choice, as it
// reports it before it lets a router choose.
type ObservedRead struct {
	At      time.Time
	Server  string
	Keys    []key.Key
	Session string
}

// Observer takes what applications report. Observe is called by many at once
// and must not block; it owns the reads. An error says that none was taken: a
// [ReadError] is the caller's mistake (400), any other a 503.
type Observer interface {
	Observe(ctx context.Context, reads []ObservedRead) error
}

// ReadError says what is wrong with one read of a report.
type ReadError struct {
	Read    int    // its place in the report
	Field   string // at, server, keys or session
	Message string
}

// Error implements error.
func (e *ReadError) Error() string { return item("reads", e.Read) + "." + e.Field + ": " + e.Message }

// Options configures a Server. Router is required, and so is an address.
type Options struct {
	Router   *router.Router
	HTTPAddr string // host:port; empty: no HTTP
	RESPAddr string // host:port; empty: no RESP
	TLS      *tls.Config
	Auth     *Auth        // nil: everybody may do everything, on loopback only
	Metrics  http.Handler // /metrics; nil: not found
	Observer Observer     // /v1/observe; nil: not found
	Acceptor Acceptor     // /v1/servers/{name}/accept; nil: not found
	// Oldest tells the oldest transaction that the stream WRITES still holds and
	// when it was committed, for /v1/servers; zero: none is known. It is called by
	// many at once and must not block. Nil: never known.
	Oldest  func() (gtid.GTID, time.Time)
	Version string // as INFO and HELLO show it
	Limits  Limits
	Log     *slog.Logger // default: discarded
}

func (o *Options) validate() error {
	var errs []error
	if o.Router == nil {
		errs = append(errs, errors.New("the router is missing"))
	}
	if o.HTTPAddr == "" && o.RESPAddr == "" {
		errs = append(errs, errors.New("neither an HTTP nor a RESP address is given"))
	}
	if o.Auth == nil && o.TLS != nil && o.TLS.ClientAuth == tls.VerifyClientCertIfGiven {
		errs = append(errs, errors.New("client certificates are looked at, and without auth nobody needs one"))
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Version == "" {
		o.Version = "devel"
	}
	return errors.Join(append(errs, o.Limits.validate())...)
}

// LoadTLS reads the certificate of a listener. With a clientCA, callers may show
// a certificate signed by it (mTLS), which [Auth] gives its roles; one that shows
// another gets no connection, one that shows none needs a token. [Open] refuses it
// without Auth: nobody would be asked for anything.
func LoadTLS(certFile, keyFile, clientCA string) (*tls.Config, error) {
	var errs []error
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		errs = append(errs, fmt.Errorf("load certificate: %w", err))
	}
	c := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if clientCA != "" {
		c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
		pem, err := os.ReadFile(clientCA)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("load client CA: %w", err))
		case !c.ClientCAs.AppendCertsFromPEM(pem):
			errs = append(errs, fmt.Errorf("load client CA %s: it holds no certificate", clientCA))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

// listen opens one listener. One that others than this host may reach needs
// authentication.
func (o *Options) listen(ctx context.Context, what, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", what, err)
	}
	if !tcp.IP.IsLoopback() && o.Auth == nil {
		return nil, fmt.Errorf("listen for %s on %s: an address that is not loopback needs auth", what, addr)
	}
	if !tcp.IP.IsLoopback() && o.TLS == nil {
		o.Log.Warn("listening without TLS beyond loopback; tokens can be read on the way", "listener", what, "addr", addr)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", tcp.String())
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", what, err)
	}
	return ln, nil
}
