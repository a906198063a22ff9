package serve

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Server answers over HTTP, RESP or both.
type Server struct {
	o        Options
	httpLn   *limitedListener // nil: no HTTP
	respLn   *limitedListener // nil: no RESP
	http     *http.Server
	resp     respConns
	idPrefix string
	ids      atomic.Uint64
	counters counters
	ran      atomic.Bool
}

type counters struct {
	httpRequests, httpErrors, respCommands, respErrors, connsRefused atomic.Uint64
}

// Counters is a reading of a server's counters; all but the last two count
// since the start.
type Counters struct {
	HTTPRequests uint64
	HTTPErrors   uint64 // requests that were answered by an error
	RESPCommands uint64
	RESPErrors   uint64
	ConnsRefused uint64 // beyond Limits.Conns
	HTTPConns    int64  // open now
	RESPConns    int64
}

// Counters reads the counters. It may be called at any time.
func (s *Server) Counters() Counters {
	c := Counters{
		HTTPRequests: s.counters.httpRequests.Load(), HTTPErrors: s.counters.httpErrors.Load(),
		RESPCommands: s.counters.respCommands.Load(), RESPErrors: s.counters.respErrors.Load(),
		ConnsRefused: s.counters.connsRefused.Load(),
	}
	if s.httpLn != nil {
		c.HTTPConns = s.httpLn.open.Load()
	}
	if s.respLn != nil {
		c.RESPConns = s.respLn.open.Load()
	}
	return c
}

// Open checks the options, all of them at once, and opens the listeners; nobody
// is answered before Run. Close frees a server that is never run.
func Open(ctx context.Context, o Options) (*Server, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	s := &Server{o: o}
	s.resp.open, s.resp.stopped = map[*respConn]struct{}{}, make(chan struct{})
	var prefix [4]byte
	if _, err := rand.Read(prefix[:]); err != nil {
		return nil, fmt.Errorf("serve: read random bytes: %w", err)
	}
	s.idPrefix = hex.EncodeToString(prefix[:]) + "-"
	httpLn, err1 := o.listen(ctx, "HTTP", o.HTTPAddr)
	respLn, err2 := o.listen(ctx, "RESP", o.RESPAddr)
	if httpLn != nil {
		s.httpLn = s.limit(httpLn, httpFarewell())
		s.http = s.httpServer()
	}
	if respLn != nil {
		s.respLn = s.limit(respLn, "-ERR "+string(CodeUnavailable)+" too many connections\r\n")
	}
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.Join(fmt.Errorf("serve: %w", err), s.Close())
	}
	return s, nil
}

// httpFarewell is what a caller beyond the limit of connections reads.
func httpFarewell() string {
	e := fail(http.StatusServiceUnavailable, CodeUnavailable, "", "too many connections")
	e.retryAfter = time.Second
	body := string(e.appendError(nil, ""))
	return "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// HTTPAddr is where HTTP is answered; nil: nowhere.
func (s *Server) HTTPAddr() net.Addr {
	if s.httpLn == nil {
		return nil
	}
	return s.httpLn.Addr()
}

// RESPAddr is where RESP is answered; nil: nowhere.
func (s *Server) RESPAddr() net.Addr {
	if s.respLn == nil {
		return nil
	}
	return s.respLn.Addr()
}

// Run answers until ctx ends, then lets requests in flight finish, at most
// Limits.StopTimeout, and returns nil. Every goroutine that it started has
// ended when it returns. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return errors.New("serve: run twice")
	}
	g, ctx := errgroup.WithContext(ctx)
	if s.httpLn != nil {
		g.Go(func() error { return s.runHTTP() })
	}
	if s.respLn != nil {
		g.Go(func() error { return s.runRESP() })
	}
	g.Go(func() error {
		<-ctx.Done()
		return s.stop(context.WithoutCancel(ctx))
	})
	return g.Wait()
}

func (s *Server) runHTTP() error {
	err := error(nil)
	if s.o.TLS != nil {
		err = s.http.ServeTLS(s.httpLn, "", "")
	} else {
		err = s.http.Serve(s.httpLn)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve HTTP: %w", err)
}

// stop ends both listeners gracefully, and by force after StopTimeout.
func (s *Server) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Limits.StopTimeout)
	defer cancel()
	var g errgroup.Group
	if s.httpLn != nil {
		g.Go(func() error {
			err := s.http.Shutdown(ctx)
			if errors.Is(err, context.DeadlineExceeded) {
				s.o.Log.Warn("HTTP requests were cut off at the stop", "after", s.o.Limits.StopTimeout)
				return s.http.Close()
			}
			return err
		})
	}
	if s.respLn != nil {
		g.Go(func() error { return s.stopRESP(ctx) })
	}
	return g.Wait()
}

// Close frees the listeners. It may be called twice, and after Run.
func (s *Server) Close() error {
	var errs []error
	for _, ln := range []*limitedListener{s.httpLn, s.respLn} {
		if ln == nil {
			continue
		}
		if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *Server) requestID() string {
	return s.idPrefix + strconv.FormatUint(s.ids.Add(1), 10)
}

// limitedListener turns callers away beyond a number of connections, so that
// those that are in are still answered.
type limitedListener struct {
	net.Listener
	max      int64
	open     atomic.Int64
	refused  *atomic.Uint64
	farewell string
}

func (s *Server) limit(ln net.Listener, farewell string) *limitedListener {
	if s.o.TLS != nil {
		farewell = ""
	}
	return &limitedListener{Listener: ln, max: int64(s.o.Limits.Conns), refused: &s.counters.connsRefused, farewell: farewell}
}

// Accept returns the next connection that is let in.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.max {
			return &limitedConn{Conn: c, l: l}, nil
		}
		l.open.Add(-1)
		l.refused.Add(1)
		if l.farewell != "" {
			_, _ = c.Write([]byte(l.farewell)) // it fits the empty send buffer; nobody waits for it
		}
		_ = c.Close()
	}
}

type limitedConn struct {
	net.Conn
	l    *limitedListener
	once sync.Once
}

// Close gives the place back, once.
func (c *limitedConn) Close() error {
	c.once.Do(func() { c.l.open.Add(-1) })
	return c.Conn.Close()
}

// tlsState returns the state of a TLS connection after its handshake; nil for
// one without TLS.
func tlsState(ctx context.Context, c net.Conn) (*tls.ConnectionState, error) {
	t, ok := c.(*tls.Conn)
	if !ok {
		return nil, nil
	}
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	state := t.ConnectionState()
	return &state, nil
}
