package binlog

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pacedPair is a connection whose reader is paced, and its other end.
func pacedPair(t *testing.T) (*pacedConn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := paceReads(near)
	t.Cleanup(func() { _, _ = c.Close(), far.Close() })
	c.begin(4 * time.Millisecond)
	within(t, c, time.Minute)
	return c, far
}

func within(t *testing.T, c *pacedConn, d time.Duration) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, far net.Conn, data []byte) {
	t.Helper()
	if _, err := far.Write(data); err != nil {
		t.Fatal(err)
	}
}

// wakesAt is for how many bytes the kernel wakes who reads.
func wakesAt(t *testing.T, c *pacedConn) (bytes int) {
	t.Helper()
	var failed error
	if err := c.raw.Control(func(fd uintptr) { bytes, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return bytes
}

// untilPaced reads bytes that are there one by one until the connection is paced.
func untilPaced(t *testing.T, c *pacedConn, far net.Conn) {
	t.Helper()
	const sent = 20_000
	send(t, far, bytes.Repeat([]byte("."), sent))
	one := make([]byte, 1)
	n := 0
	for ; !c.paced; n++ {
		if n == sent {
			t.Fatal("never paced, although there was something at each look")
		}
		if _, err := c.Read(one); err != nil {
			t.Fatal(err)
		}
	}
	if got := wakesAt(t, c); got != paceWake {
		t.Fatalf("paced, and woken for %d bytes", got)
	}
	if _, err := io.ReadFull(c, make([]byte, sent-n)); err != nil {
		t.Fatal(err)
	}
}

// TestPacedReads: a busy connection is paced, loses nothing, and goes back to
// being woken by a single byte when nothing comes.
func TestPacedReads(t *testing.T) {
	c, far := pacedPair(t)
	for round := range 3 {
		untilPaced(t, c, far)
		want := make([]byte, 300_000) // more than what wakes a paced reader
		for i := range want {
			want[i] = byte(i * (round + 7) / 3)
		}
		sent := make(chan error, 1)
		go func() {
			var err error
			for i := 0; i < len(want) && err == nil; i += 1000 {
				_, err = far.Write(want[i : i+1000])
			}
			sent <- err
		}()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil {
			t.Fatal(err)
		}
		if err := <-sent; err != nil || !bytes.Equal(got, want) {
			t.Fatalf("sent %v, equal %v", err, bytes.Equal(got, want))
		}
		untilPaced(t, c, far)
		one := make([]byte, 1)
		within(t, c, 50*time.Millisecond)
		if _, err := c.Read(one); !errors.Is(err, os.ErrDeadlineExceeded) || c.paced {
			t.Fatalf("nothing was there: %v, paced %v", err, c.paced)
		}
		if got := wakesAt(t, c); got != 1 {
			t.Fatalf("woken for %d bytes after a look in vain", got)
		}
		within(t, c, time.Minute)
		send(t, far, []byte("!"))
		if _, err := c.Read(one); err != nil || one[0] != '!' {
			t.Fatalf("read %q: %v", one, err)
		}
	}
}

// TestPacedReadsEnd: what ends a read ends a paced one.
func TestPacedReadsEnd(t *testing.T) {
	t.Run("end of the stream", func(t *testing.T) {
		c, far := pacedPair(t)
		untilPaced(t, c, far)
		far.Close()
		if n, err := c.Read(make([]byte, 10)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		c, far := pacedPair(t)
		untilPaced(t, c, far)
		within(t, c, -time.Second)
		if n, err := c.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		c, far := pacedPair(t)
		untilPaced(t, c, far)
		c.Close()
		if n, err := c.Read(make([]byte, 10)); n != 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
}

// TestNoPause: without a pause nothing is paced.
func TestNoPause(t *testing.T) {
	c, far := pacedPair(t)
	c.raw = nil
	c.begin(0)
	send(t, far, bytes.Repeat([]byte("."), 10*paceRuns))
	one := make([]byte, 1)
	for range 10 * paceRuns {
		if _, err := c.Read(one); err != nil || c.paced {
			t.Fatalf("%v, paced %v", err, c.paced)
		}
	}
}

// TestPacedReadsNeedASocket: what is no socket is read as it is.
func TestPacedReadsNeedASocket(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	c := paceReads(near)
	c.begin(4 * time.Millisecond)
	go func() {
		for range 2 * paceRuns {
			_, _ = far.Write([]byte("."))
		}
		far.Close()
	}()
	got, err := io.ReadAll(c)
	if err != nil || len(got) != 2*paceRuns || c.paced {
		t.Errorf("%q, %v, paced %v", got, err, c.paced)
	}
}
