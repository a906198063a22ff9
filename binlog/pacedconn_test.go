package binlog

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
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
	c.begin()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c, far
}

func send(t *testing.T, far net.Conn, data []byte) {
	t.Helper()
	if _, err := far.Write(data); err != nil {
		t.Fatal(err)
	}
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
		go func() {
			time.Sleep(3 * pacePause) // the reader has looked in vain by then
			_, _ = far.Write([]byte("!"))
		}()
		one := make([]byte, 1)
		if _, err := c.Read(one); err != nil || one[0] != '!' {
			t.Fatalf("read %q: %v", one, err)
		}
		if c.paced {
			t.Fatal("paced after a look in vain")
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
		if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
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

// TestPacedReadsNeedASocket: what is no socket is read as it is.
func TestPacedReadsNeedASocket(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	c := paceReads(near)
	c.begin()
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
