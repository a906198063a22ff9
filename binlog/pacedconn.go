package binlog

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A binlog is sent as its transactions commit: each group of commits wakes the
// server's dump thread, and each of its sends would wake this process and
// everything behind the tailer, down to each follower of the stream. Under load
// that work is taken from the server, and from whatever shares a processor with
// Tidegate. A pacedConn that finds data at nearly every look looks once in
// its pause instead, and asks the kernel not to wake it for less than
// paceWake bytes meanwhile. What was measured: decisions/paced-reads.md.
const (
	// paceGap is how soon behind the one before data must be there, paceRuns
	// times without a break, until the connection counts as busy.
	paceGap  = 2 * time.Millisecond
	paceRuns = 8
	// paceWake bytes in one read mean that more are waiting: there is no pause.
	paceWake = 64 << 10
)

// pacedConn is the bare connection of a dump, below TLS. Read is called by one
// goroutine; the rest as for any net.Conn.
type pacedConn struct {
	net.Conn
	pause time.Duration
	raw   syscall.RawConn // nil: never paced
	runs  int             // reads in a row that came within paceGap
	last  time.Time       // when the last read returned
	full  bool            // the last read may have left data in the socket
	paced bool            // the socket wakes nobody for less than paceWake
}

// paceReads wraps a connection. Pacing begins with begin.
func paceReads(c net.Conn) *pacedConn { return &pacedConn{Conn: c} }

// begin lets pacing begin: questions and answers would only be slowed by it. With
// no pause, and where the connection is no socket, reads stay as they are.
func (c *pacedConn) begin(pause time.Duration) {
	if s, ok := c.Conn.(syscall.Conn); ok && pause > 0 {
		c.pause = pause
		c.raw, _ = s.SyscallConn()
	}
}

// Read implements net.Conn.
func (c *pacedConn) Read(p []byte) (int, error) {
	if c.raw == nil {
		return c.Conn.Read(p)
	}
	if c.paced {
		if !c.full {
			time.Sleep(c.pause - time.Since(c.last))
		}
		n, there, err := c.look(p)
		if there || err != nil {
			return c.took(n, len(p)), err
		}
		c.wakeAt(1)
	}
	n, err := c.Conn.Read(p)
	if now := time.Now(); now.Sub(c.last) > paceGap {
		c.runs = 0
	} else if c.runs++; c.runs >= paceRuns && err == nil {
		c.wakeAt(paceWake)
	}
	return c.took(n, len(p)), err
}

func (c *pacedConn) took(n, room int) int {
	c.full, c.last = n == room || n >= paceWake, time.Now()
	return n
}

// look reads what is there and does not wait. At the end of the stream, and where
// the read fails, Read is to find that out by itself: there is false.
func (c *pacedConn) look(p []byte) (n int, there bool, err error) {
	var failed error
	err = c.raw.Read(func(fd uintptr) bool {
		n, failed = unix.Read(int(fd), p)
		return true
	})
	return max(n, 0), failed == nil && n > 0, err
}

// wakeAt says for how many bytes the kernel wakes who reads the socket.
func (c *pacedConn) wakeAt(bytes int) {
	var failed error
	err := c.raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes)
	})
	c.runs, c.paced = 0, bytes > 1 && err == nil && failed == nil
}
