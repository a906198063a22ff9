package serve

import (
	"context"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"tidegate/router"
	"tidegate/router/routertest"
)

// exhausted is a listener whose host has no files left for a while.
type exhausted struct {
	net.Listener
	errs []error
}

func (l *exhausted) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: err}
	}
	return l.Listener.Accept()
}

func openServer(t *testing.T) *Server {
	t.Helper()
	w := routertest.Healthy(t)
	r, err := router.New(router.Options{View: func() router.Snapshot { return w }, Clock: func() int64 { return routertest.Now }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Options{Router: r, RESPAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRESPOutlivesAnExhaustedHost: a router that ends because the host is out of
// files is a stampede on the primary (P7).
func TestRESPOutlivesAnExhaustedHost(t *testing.T) {
	s := openServer(t)
	s.respLn.Listener = &exhausted{s.respLn.Listener, []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	c, err := net.Dial("tcp", s.RESPAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len("+PONG\r\n"))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "+PONG\r\n" {
		t.Errorf("got %q, %v", b, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
}

// TestAnIdleConnectionKeepsLittle: what a large command filled is given back once
// it is answered, or 4,096 idle connections hold gigabytes.
func TestAnIdleConnectionKeepsLittle(t *testing.T) {
	s := openServer(t)
	defer s.Close()
	near, far := net.Pipe()
	defer near.Close()
	c := &respConn{s: s, conn: far, a: new(ask), ctx: t.Context(), w: reply{proto: 2}, f: frames{maxBytes: s.o.Limits.FrameBytes, maxArgs: s.o.Limits.FrameArgs}}
	ended := make(chan struct{})
	go func() { defer close(ended); c.run() }()
	command := "SERVE b LEVEL eventual KEYS 8" + strings.Repeat(" app.posts/"+strings.Repeat("2", 15_000), 8) + "\r\n"
	if _, err := io.WriteString(near, command); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 1<<10)
	if n, err := near.Read(answer); err != nil || !strings.HasPrefix(string(answer[:n]), "-ERR bad_key") {
		t.Fatalf("got %q, %v", answer[:n], err)
	}
	_ = near.Close()
	<-ended
	if cap(c.f.buf) > maxKeptBytes {
		t.Errorf("a buffer of %d bytes is kept", cap(c.f.buf))
	}
	for _, p := range c.a.printed[:cap(c.a.printed)] {
		if p != "" {
			t.Errorf("a key of %d bytes is kept, and with it the buffer that it lies in", len(p))
		}
	}
}
