package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// respConns are the open RESP connections.
type respConns struct {
	mu       sync.Mutex // guards open and stopping
	open     map[*respConn]struct{}
	stopping bool
	stopped  chan struct{}      // closed with stopping
	cancel   context.CancelFunc // ends waits of commands
	wg       sync.WaitGroup
}

// respConn is one connection; all but wake is its own goroutine's.
type respConn struct {
	s       *Server
	id      uint64
	conn    net.Conn
	f       frames
	w       reply
	a       *ask
	who     *Credential // nil: nobody yet
	name    string      // CLIENT SETNAME
	quit    bool
	ending  atomic.Bool
	readBy  time.Time // deadline that is set
	partial bool      // it is for the rest of a command
	writeBy time.Time
	ctx     context.Context
}

// flushBytes is how much of a pipeline's answers is held back at most.
const flushBytes = 32 << 10

// runRESP accepts until the listener is closed, and waits for every connection.
func (s *Server) runRESP() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer s.resp.wg.Wait()
	s.resp.mu.Lock()
	s.resp.cancel = cancel
	s.resp.mu.Unlock()
	ln := net.Listener(s.respLn)
	if s.o.TLS != nil {
		ln = tls.NewListener(ln, s.o.TLS)
	}
	pause := time.Duration(0)
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			if !passing(err) {
				return fmt.Errorf("serve RESP: %w", err)
			}
			// A host that has run out of files must not lose its router, which is
			// what keeps reads off the primary (P7): those that are in are answered,
			// others wait. net/http does the same.
			pause = min(max(2*pause, acceptPauseMin), acceptPauseMax)
			s.o.Log.Warn("RESP connections can't be accepted", "error", err, "again_in", pause)
			if !s.restAccept(pause) {
				return nil
			}
			continue
		}
		pause = 0
		c := &respConn{
			s: s, conn: conn, id: s.ids.Add(1), a: new(ask), ctx: ctx, w: reply{proto: 2},
			f: frames{maxBytes: s.o.Limits.FrameBytes, maxArgs: s.o.Limits.FrameArgs},
		}
		if !s.enter(c) {
			_ = conn.Close()
			continue
		}
		s.resp.wg.Go(func() {
			defer s.leave(c)
			c.run()
		})
	}
}

// Pauses after a connection that could not be accepted.
const (
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

// passing tells the errors of accepting that the next attempt may not meet: no
// file or memory left, or a caller that left before it was let in.
func passing(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.ECONNRESET} {
		if errors.Is(err, e) {
			return true
		}
	}
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// restAccept waits; false when the server stops.
func (s *Server) restAccept(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.resp.stopped:
		return false
	}
}

func (s *Server) enter(c *respConn) bool {
	s.resp.mu.Lock()
	defer s.resp.mu.Unlock()
	if s.resp.stopping {
		return false
	}
	s.resp.open[c] = struct{}{}
	return true
}

func (s *Server) leave(c *respConn) {
	s.resp.mu.Lock()
	delete(s.resp.open, c)
	s.resp.mu.Unlock()
	_ = c.conn.Close() // whatever it says, the connection is gone
}

// stopRESP wakes every connection that waits for a command, and waits for those
// that answer one.
func (s *Server) stopRESP(ctx context.Context) error {
	err := s.respLn.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	s.resp.mu.Lock()
	s.resp.stopping = true
	close(s.resp.stopped)
	for c := range s.resp.open {
		c.ending.Store(true)
		_ = c.conn.SetReadDeadline(time.Unix(1, 0))
	}
	s.resp.mu.Unlock()
	done := make(chan struct{})
	go func() { s.resp.wg.Wait(); close(done) }()
	select {
	case <-done:
		return err
	case <-ctx.Done():
	}
	s.o.Log.Warn("RESP commands were cut off at the stop", "after", s.o.Limits.StopTimeout)
	s.resp.mu.Lock()
	for c := range s.resp.open {
		_ = c.conn.Close()
	}
	if s.resp.cancel != nil { // what still waits ends, and has nobody left to answer
		s.resp.cancel()
	}
	s.resp.mu.Unlock()
	<-done
	return err
}

// run answers commands until the caller leaves, breaks the protocol, is idle for
// too long, or the server stops. Answers of a pipeline go out together.
func (c *respConn) run() {
	ctx, cancel := context.WithTimeout(c.ctx, c.s.o.Limits.HeaderTimeout)
	state, err := tlsState(ctx, c.conn)
	cancel()
	if err != nil {
		return
	}
	if c.s.o.Auth != nil {
		c.who = c.s.o.Auth.cert(state)
	}
	for {
		if !c.pipeline() || c.quit || c.ending.Load() {
			_ = c.flush()
			return
		}
		if c.flush() != nil {
			return
		}
		if c.f.shrink() {
			c.a = new(ask) // its keys lie in the buffer that was given back
		}
		if !c.wait() {
			return
		}
	}
}

// pipeline answers every complete command that is there; false: the connection
// can't go on.
func (c *respConn) pipeline() bool {
	for !c.quit {
		args, ok, ferr := c.f.next()
		if ferr != nil {
			c.s.counters.respErrors.Add(1)
			c.w.err(&wireError{code: ferr.code, offset: ferr.offset, message: "Protocol error: " + ferr.text})
			return false
		}
		if !ok {
			return true
		}
		c.s.counters.respCommands.Add(1)
		c.command(args)
		if len(c.w.b) >= flushBytes && c.flush() != nil {
			return false
		}
	}
	return true
}

// wait reads more. The whole of a command must be there BodyTimeout after its
// first byte. Between commands the deadline is moved only when a good part of
// it has passed: moving it costs, and idle is measured in minutes.
func (c *respConn) wait() bool {
	now := time.Now()
	idle := c.s.o.Limits.IdleTimeout
	switch partial := c.f.r < c.f.w; {
	case partial && !c.partial:
		c.readBy = now.Add(c.s.o.Limits.BodyTimeout)
	case !partial && (c.partial || c.readBy.Before(now.Add(idle-idle/4))):
		c.readBy = now.Add(idle)
	default:
		return c.f.fill(c.conn) == nil
	}
	c.partial = c.f.r < c.f.w
	if c.conn.SetReadDeadline(c.readBy) != nil || c.ending.Load() { // the stop may have come between
		return false
	}
	return c.f.fill(c.conn) == nil
}

func (c *respConn) flush() error {
	if len(c.w.b) == 0 {
		return nil
	}
	// As with reading, the deadline is moved only when much of it has passed.
	limit := c.s.o.Limits.WriteTimeout
	if now := time.Now(); c.writeBy.Before(now.Add(limit / 2)) {
		c.writeBy = now.Add(limit)
		if err := c.conn.SetWriteDeadline(c.writeBy); err != nil {
			return err
		}
	}
	_, err := c.conn.Write(c.w.b)
	if c.w.b = c.w.b[:0]; cap(c.w.b) > maxKeptBytes {
		c.w.b = nil
	}
	return err
}

func (c *respConn) fail(e *wireError) {
	c.s.counters.respErrors.Add(1)
	c.w.err(e)
}

func (c *respConn) wrongArgs(command string) {
	c.fail(bad(CodeBadField, "", -1, "wrong number of arguments for "+strconv.Quote(command)))
}
