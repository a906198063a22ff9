package testenv

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// pipeChunk is how much a pipe reads at once.
	pipeChunk = 16 << 10
	// pipeQueue bounds the chunks that wait for their time, each way: with the
	// kernel's buffers that is what a stalled connection takes before its
	// sender blocks.
	pipeQueue = 64
	// rateStep is how long a limited connection's slice takes.
	rateStep = 10 * time.Millisecond
)

// pipe is one connection through a proxy.
type pipe struct {
	p      *Proxy
	client *net.TCPConn
	target *net.TCPConn

	once sync.Once
	gone chan struct{} // closed when the pipe is broken or has ended
}

// chunk is some bytes and when they were read.
type chunk struct {
	data []byte
	at   time.Time
}

// reset closes a connection so that its peer sees a reset, not an end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// reset breaks the pipe at both ends, also one that breakAfter has broken. It
// does not block.
func (c *pipe) reset() {
	c.once.Do(func() { close(c.gone) })
	reset(c.client)
	reset(c.target)
}

// breakAfter breaks the pipe, but what was written in direction d still arrives:
// the end there gets it and then the end of the stream. A reset would throw away
// what waits in the kernel's buffers, and so would a close when that end sends
// something itself: it is read until it closes.
func (c *pipe) breakAfter(d Direction) {
	c.once.Do(func() {
		close(c.gone)
		to, other := c.target, c.client
		if d == FromTarget {
			to, other = c.client, c.target
		}
		reset(other)
		_ = to.CloseWrite()
	})
}

// run carries bytes until both ways have ended.
func (c *pipe) run() {
	var wg sync.WaitGroup
	wg.Go(func() { c.carry(c.client, c.target, ToTarget) })
	wg.Go(func() { c.carry(c.target, c.client, FromTarget) })
	wg.Wait()
	c.once.Do(func() { close(c.gone) })
	_ = c.client.Close()
	_ = c.target.Close()
}

// carry moves one way. The end of the input is passed on as what it was, in
// order or a reset, once everything before it was delivered.
func (c *pipe) carry(from, to *net.TCPConn, d Direction) {
	queue := make(chan chunk, pipeQueue)
	ended := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(queue)
		for {
			buf := make([]byte, pipeChunk)
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case queue <- chunk{data: buf[:n], at: time.Now()}:
				case <-c.gone: // thrown away, see breakAfter
				}
			}
			if err != nil {
				ended <- err
				return
			}
		}
	})
	for ch := range queue {
		if !c.deliver(ch, to, d) {
			c.broken()
			break
		}
	}
	wg.Wait()
	err := <-ended
	if !c.awaitOpen(d, time.Time{}) { // a stalled end is held too
		return
	}
	if errors.Is(err, io.EOF) {
		_ = to.CloseWrite()
	} else {
		c.broken()
	}
}

// broken is reset, unless the pipe was broken before.
func (c *pipe) broken() {
	select {
	case <-c.gone:
	default:
		c.reset()
	}
}

// deliver writes one chunk under the faults of the moment; false means that the
// pipe is broken.
func (c *pipe) deliver(ch chunk, to *net.TCPConn, d Direction) bool {
	for len(ch.data) > 0 {
		if !c.awaitOpen(d, ch.at) {
			return false
		}
		n, wait := c.allowance(len(ch.data))
		written, ok := c.write(to, ch.data[:n], d)
		ch.data = ch.data[written:]
		if !ok {
			return false
		}
		if wait > 0 && !c.pause(wait) {
			return false
		}
	}
	return true
}

// awaitOpen blocks while the direction is stalled or the bytes read at the
// given time are not due yet; false means that the pipe is broken.
func (c *pipe) awaitOpen(d Direction, at time.Time) bool {
	for {
		c.p.mu.Lock()
		stalled, due, changed := c.p.stalled&d != 0, at.Add(c.p.latency), c.p.changed
		c.p.mu.Unlock()
		wait := time.Until(due)
		if !stalled && wait <= 0 {
			select {
			case <-c.gone:
				return false
			default:
				return true
			}
		}
		var after <-chan time.Time
		if !stalled {
			after = time.After(wait)
		}
		select {
		case <-c.gone:
			return false
		case <-changed:
		case <-after:
		}
	}
}

// allowance is how much of size bytes may be written now, and how long to rest
// after it.
func (c *pipe) allowance(size int) (n int, rest time.Duration) {
	c.p.mu.Lock()
	rate := c.p.rate
	c.p.mu.Unlock()
	if rate == 0 {
		return size, 0
	}
	n = min(size, max(1, int(rate*int64(rateStep)/int64(time.Second))))
	return n, time.Duration(int64(n) * int64(time.Second) / rate)
}

// write writes data, or, while a cut is pending, what that leaves of it. Who
// writes the last byte cuts; who comes after that waits for it.
func (c *pipe) write(to *net.TCPConn, data []byte, d Direction) (int, bool) {
	i := d.index()
	for {
		c.p.mu.Lock()
		pending, changed := c.p.cuts[i], c.p.changed
		if pending != nil && pending.left == 0 { // another pipe is about to cut
			c.p.mu.Unlock()
			select {
			case <-c.gone:
				return 0, false
			case <-changed: // Pass came in between
			}
			continue
		}
		if pending != nil {
			data = data[:min(int64(len(data)), pending.left)]
			pending.left -= int64(len(data))
		}
		c.p.mu.Unlock()
		n, err := to.Write(data)
		c.p.bytes[i].Add(int64(n))
		if pending == nil {
			return n, err == nil
		}
		return n, c.settle(pending, d, len(data)-n) && err == nil
	}
}

// settle gives the bytes that could not be written back to a cut, and carries
// it out when nothing is left of it; false means that it did.
func (c *pipe) settle(pending *cut, d Direction, unwritten int) bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.p.cuts[d.index()] != pending { // ended by Pass, or replaced
		return true
	}
	pending.left += int64(unwritten)
	if pending.left > 0 {
		c.p.announceLocked()
		return true
	}
	c.p.strikeLocked(d)
	return false
}

func (c *pipe) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.gone:
		return false
	case <-timer.C:
		return true
	}
}
