package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Direction is a way through a Proxy.
type Direction uint8

const (
	// ToTarget is from who connected to the target behind the proxy.
	ToTarget Direction = 1 << iota
	// FromTarget is from the target to who connected: the binlog's way.
	FromTarget
	// BothWays is both.
	BothWays = ToTarget | FromTarget
)

// Proxy is a TCP proxy with faults, in front of any server on loopback. It
// begins as a plain pass-through. Faults add up; Pass ends them all. Methods
// may be called by many at once, and take effect on open connections too.
type Proxy struct {
	target string
	port   *Port

	bytes [2]atomic.Int64 // delivered ToTarget, FromTarget

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when anything below changes
	listener net.Listener  // nil while new connections are refused
	pipes    map[*pipe]struct{}
	accepted int64
	stalled  Direction
	latency  time.Duration
	rate     int64 // bytes per second and direction; 0: no limit
	cuts     [2]*cut
	closed   bool

	wg sync.WaitGroup
}

// cut is an order to break all connections after some more bytes.
type cut struct {
	left int64
	done chan struct{}
}

// StartProxy listens on a free loopback port in front of target ("host:port").
// The target need not be there yet. The caller closes the proxy.
func StartProxy(target string) (*Proxy, error) {
	if _, _, err := net.SplitHostPort(target); err != nil {
		return nil, fmt.Errorf("start proxy: target: %w", err)
	}
	port, err := ReservePort()
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	p := &Proxy{target: target, port: port, changed: make(chan struct{}), pipes: map[*pipe]struct{}{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.listenLocked(); err != nil {
		port.Release()
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	return p, nil
}

// Proxy starts a proxy in front of the server; it ends with the cluster.
func (s *Server) Proxy() (*Proxy, error) {
	p, err := StartProxy(s.Addr())
	if err != nil {
		return nil, err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.closed {
		return nil, errors.Join(errors.New("start proxy: the sandbox is closed"), p.Close())
	}
	s.c.proxies = append(s.c.proxies, p)
	return p, nil
}

// Addr is where the proxy listens, as "127.0.0.1:15003". It stays the same.
func (p *Proxy) Addr() string { return p.port.Addr() }

// Target is the address behind it.
func (p *Proxy) Target() string { return p.target }

// Bytes are how many bytes were delivered each way since the start.
func (p *Proxy) Bytes() (toTarget, fromTarget int64) { return p.bytes[0].Load(), p.bytes[1].Load() }

// Connections are how many connections are open now, and how many were ever
// accepted.
func (p *Proxy) Connections() (open int, accepted int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pipes), p.accepted
}

// Pass ends every fault: what was held goes on, new connections are accepted.
func (p *Proxy) Pass() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled, p.latency, p.rate = 0, 0, 0
	p.cuts = [2]*cut{}
	p.announceLocked()
	return p.listenLocked()
}

// Stall holds all bytes of the directions: connections stay open, new ones are
// accepted, nothing arrives, nothing is lost. Other directions are let go, so
// Stall(0) ends it.
func (p *Proxy) Stall(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = d
	p.announceLocked()
}

// Refuse makes the kernel refuse new connections, as when no server listens;
// open ones go on. Pass ends it.
func (p *Proxy) Refuse() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return nil
	}
	err := p.listener.Close()
	p.listener = nil
	if err != nil {
		return fmt.Errorf("proxy to %s: refuse: %w", p.target, err)
	}
	return nil
}

// CutAll breaks every open connection at once, with a reset to both ends.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAllLocked()
}

// CutAfter breaks every open connection when n more bytes, all connections
// together, were delivered in direction d: the n-th byte arrives and the next
// one does not, wherever in a packet or an event that is. The end in direction d
// sees the stream end there, the other one a reset. The channel is closed when
// nothing more is delivered; the end may still be reading. It strikes once; a
// later call replaces one that has not struck yet.
func (p *Proxy) CutAfter(d Direction, n int64) (<-chan struct{}, error) {
	if d != ToTarget && d != FromTarget {
		return nil, errors.New("proxy: cut after: want one direction")
	}
	if n < 0 {
		return nil, fmt.Errorf("proxy: cut after %d bytes: want 0 or more", n)
	}
	c := &cut{left: n, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts[d.index()] = c
	if n == 0 {
		p.strikeLocked(d)
	}
	return c.done, nil
}

// SetLatency delays each byte by latency, one way, both ways; 0 ends that.
func (p *Proxy) SetLatency(latency time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = max(0, latency)
	p.announceLocked()
}

// SetBandwidth limits each connection to bytesPerSecond each way; 0: no limit.
func (p *Proxy) SetBandwidth(bytesPerSecond int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = max(0, bytesPerSecond)
	p.announceLocked()
}

// Close breaks everything and waits until the proxy's goroutines have ended. It
// may be called twice.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	var err error
	if p.listener != nil {
		err = p.listener.Close()
		p.listener = nil
	}
	p.cutAllLocked()
	p.announceLocked()
	p.mu.Unlock()
	p.wg.Wait()
	p.port.Release()
	if err != nil {
		return fmt.Errorf("close proxy to %s: %w", p.target, err)
	}
	return nil
}

func (d Direction) index() int {
	if d == ToTarget {
		return 0
	}
	return 1
}

func (p *Proxy) announceLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) cutAllLocked() {
	for pipe := range p.pipes {
		pipe.reset()
	}
}

// strikeLocked carries out the cut of a direction.
func (p *Proxy) strikeLocked(d Direction) {
	c := p.cuts[d.index()]
	p.cuts[d.index()] = nil
	for pipe := range p.pipes {
		pipe.breakAfter(d)
	}
	close(c.done)
}

// listenLocked listens on the proxy's port unless it does already.
func (p *Proxy) listenLocked() error {
	if p.listener != nil || p.closed {
		return nil
	}
	l, err := net.Listen("tcp", p.Addr())
	if err != nil {
		return fmt.Errorf("proxy to %s: listen: %w", p.target, err)
	}
	p.listener = l
	p.wg.Go(func() { p.accept(l) })
	return nil
}

// accept serves one listener until it is closed.
func (p *Proxy) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed by Refuse or Close
		}
		p.wg.Go(func() { p.serve(conn.(*net.TCPConn)) })
	}
}

// dialTimeout bounds the connection to the target, which is on this machine.
const dialTimeout = 5 * time.Second

func (p *Proxy) serve(client *net.TCPConn) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", p.target)
	if err != nil {
		reset(client) // the target is down: so is what stands in front of it
		return
	}
	pipe := &pipe{p: p, client: client, target: conn.(*net.TCPConn), gone: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		pipe.reset()
		return
	}
	p.pipes[pipe] = struct{}{}
	p.accepted++
	p.mu.Unlock()
	pipe.run()
	p.mu.Lock()
	delete(p.pipes, pipe)
	p.mu.Unlock()
}
