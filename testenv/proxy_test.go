package testenv_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return l.Addr().String()
}

func startProxy(t *testing.T, target string) *testenv.Proxy {
	t.Helper()
	p, err := testenv.StartProxy(target)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

func dial(t *testing.T, p *testenv.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// expect reads exactly want within the time given.
func expect(t *testing.T, c net.Conn, want []byte, within time.Duration) {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(within)))
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes, %v; want %d", n, err, len(want))
	}
}

// silent expects nothing to arrive for a while.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
}

func TestProxy(t *testing.T) {
	t.Parallel()
	target := echo(t)
	const within = testenvtest.HangTimeout
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB

	t.Run("pass and count", func(t *testing.T) {
		p := startProxy(t, target)
		c := dial(t, p)
		go func() { _, _ = c.Write(big) }()
		expect(t, c, big, within)
		testenvtest.WaitUntil(t, within, func() (bool, string) { // counted once they are sent
			to, from := p.Bytes()
			return to == int64(len(big)) && from == int64(len(big)), fmt.Sprintf("counted %d and %d, want %d", to, from, len(big))
		})
		must(t, c.(*net.TCPConn).CloseWrite()) // an end passes through and back
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("after the end: %d, %v", n, err)
		}
		testenvtest.WaitUntil(t, within, func() (bool, string) {
			open, accepted := p.Connections()
			return open == 0 && accepted == 1, "still open"
		})
	})
	t.Run("stall", func(t *testing.T) {
		p := startProxy(t, target)
		c := dial(t, p)
		for _, d := range []testenv.Direction{testenv.ToTarget, testenv.FromTarget, testenv.BothWays} {
			p.Stall(d)
			_, err := c.Write([]byte("held"))
			must(t, err)
			silent(t, c)
			p.Stall(0)
			expect(t, c, []byte("held"), within)
		}
		p.Stall(testenv.BothWays)
		other := dial(t, p) // accepted, and as silent
		_, err := other.Write([]byte("late"))
		must(t, err)
		silent(t, other)
		must(t, p.Pass())
		expect(t, other, []byte("late"), within)
	})
	t.Run("refuse", func(t *testing.T) {
		p := startProxy(t, target)
		c := dial(t, p)
		_, err := c.Write([]byte("x"))
		must(t, err)
		expect(t, c, []byte("x"), within)
		must(t, p.Refuse())
		must(t, p.Refuse())
		if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial: %v, want refused", err)
		}
		_, err = c.Write([]byte("y")) // open ones go on
		must(t, err)
		expect(t, c, []byte("y"), within)
		must(t, p.Pass())
		dial(t, p)
	})
	t.Run("cut all", func(t *testing.T) {
		p := startProxy(t, target)
		c := dial(t, p)
		_, err := c.Write([]byte("x"))
		must(t, err)
		expect(t, c, []byte("x"), within)
		p.CutAll()
		must(t, c.SetReadDeadline(time.Now().Add(within)))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v, want a reset", err)
		}
		_, err = dial(t, p).Write([]byte("again"))
		must(t, err)
	})
	t.Run("cut after", func(t *testing.T) {
		for _, d := range []testenv.Direction{testenv.ToTarget, testenv.FromTarget} {
			p := startProxy(t, target)
			c := dial(t, p)
			const n = 100_001
			struck, err := p.CutAfter(d, n)
			must(t, err)
			go func() { _, _ = c.Write(big) }()
			must(t, c.SetReadDeadline(time.Now().Add(within)))
			got, err := io.ReadAll(c)
			if len(got) > n || (d == testenv.FromTarget && len(got) != n) {
				t.Errorf("%d bytes came back before %v, want %d", len(got), err, n)
			}
			<-struck
			to, from := p.Bytes()
			if counted := map[testenv.Direction]int64{testenv.ToTarget: to, testenv.FromTarget: from}[d]; counted != n {
				t.Errorf("counted %d bytes, want %d", counted, n)
			}
			again := dial(t, p) // it strikes once
			go func() { _, _ = again.Write(big) }()
			expect(t, again, big, within)
		}
		p := startProxy(t, target)
		if _, err := p.CutAfter(testenv.BothWays, 1); err == nil {
			t.Error("both ways accepted")
		}
		if _, err := p.CutAfter(testenv.ToTarget, -1); err == nil {
			t.Error("a negative count accepted")
		}
	})
	t.Run("latency and bandwidth", func(t *testing.T) {
		p := startProxy(t, target)
		c := dial(t, p)
		p.SetLatency(60 * time.Millisecond)
		began := time.Now()
		_, err := c.Write([]byte("ping"))
		must(t, err)
		expect(t, c, []byte("ping"), within)
		if took := time.Since(began); took < 120*time.Millisecond {
			t.Errorf("round trip %s, want at least 120ms", took)
		}
		must(t, p.Pass())
		p.SetBandwidth(1 << 20)
		began = time.Now()
		go func() { _, _ = c.Write(big[:256<<10]) }()
		expect(t, c, big[:256<<10], within)
		if took := time.Since(began); took < 220*time.Millisecond {
			t.Errorf("256 KiB at 1 MiB/s took %s, want at least 220ms", took)
		}
	})
	t.Run("no target", func(t *testing.T) {
		port, err := testenv.ReservePort()
		must(t, err)
		defer port.Release()
		p := startProxy(t, port.Addr())
		c, err := net.Dial("tcp", p.Addr())
		if err == nil { // the reset may come before Dial has returned
			defer func() { _ = c.Close() }()
			must(t, c.SetReadDeadline(time.Now().Add(within)))
			_, err = c.Read(make([]byte, 1))
		}
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("dial and read: %v, want a broken connection", err)
		}
		if _, err := testenv.StartProxy("nonsense"); err == nil {
			t.Error("a target without a port accepted")
		}
	})
}

// TestCutArrives: what a cut lets through arrives, also at an end that reads
// late and sends all the time: to a connection that is closed, which would be
// answered with a reset that throws away what is still on its way.
func TestCutArrives(t *testing.T) {
	t.Parallel()
	const n = 3_000_001
	for _, d := range []testenv.Direction{testenv.ToTarget, testenv.FromTarget} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		p := startProxy(t, l.Addr().String())
		client := dial(t, p)
		target, err := l.Accept()
		must(t, err)
		must(t, l.Close())
		from, to := client, target
		if d == testenv.FromTarget {
			from, to = target, client
		}
		struck, err := p.CutAfter(d, n)
		must(t, err)
		send := func(c net.Conn) {
			for data := make([]byte, 1<<10); ; {
				if _, err := c.Write(data); err != nil {
					return
				}
			}
		}
		go send(from)
		go send(to)
		go func() { _, _ = io.Copy(io.Discard, from) }()
		<-struck
		must(t, to.SetReadDeadline(time.Now().Add(testenvtest.HangTimeout)))
		if got, err := io.Copy(io.Discard, to); got != n || err != nil {
			t.Errorf("direction %d: %d bytes arrived, then %v; want %d and the end", d, got, err, n)
		}
		must(t, to.Close())
		must(t, from.Close())
	}
}

// TestReplicationThroughProxy cuts a channel in the middle of a transaction's
// event, and stalls it.
func TestReplicationThroughProxy(t *testing.T) {
	t.Parallel()
	c := testenvtest.Cluster(t, testenv.Options{Servers: 2})
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	a, b := c.Server("a"), c.Server("b")
	must(t, a.Exec(ctx, "CREATE TABLE app.t (id INT PRIMARY KEY, v MEDIUMBLOB)"))
	p, err := a.Proxy()
	must(t, err)
	must(t, b.RepointTo(ctx, a, p.Addr()))
	must(t, c.WaitInSync(ctx))

	struck, err := p.CutAfter(testenv.FromTarget, 500_000)
	must(t, err)
	must(t, a.Exec(ctx, "INSERT INTO app.t VALUES (1, REPEAT('x', 1000000))"))
	<-struck
	must(t, c.WaitInSync(ctx)) // it connects again and fetches the whole
	if _, accepted := p.Connections(); accepted < 2 {
		t.Errorf("%d connections, want one more after the cut", accepted)
	}
	if got := query(t, b, "SELECT LENGTH(v) FROM app.t"); got != "1000000" {
		t.Errorf("length %s", got)
	}
	p.Stall(testenv.FromTarget)
	must(t, a.Exec(ctx, "INSERT INTO app.t VALUES (2, '')"))
	if status, err := b.ReplicaStatus(ctx); err != nil || status["Replica_IO_Running"] != "Yes" {
		t.Errorf("a stalled channel looks broken: %v %v", status, err)
	}
	if got := query(t, b, "SELECT COUNT(*) FROM app.t"); got != "1" {
		t.Errorf("%s rows through a stalled proxy", got)
	}
	must(t, p.Pass())
	must(t, c.WaitInSync(ctx))
}
