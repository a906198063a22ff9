package main_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// silentServers accept and say nothing. met is closed once each has been called;
// with hangUp everybody who called is hung up on from then on.
type silentServers struct {
	met   chan struct{}
	hang  bool
	n     int
	mu    sync.Mutex
	calls map[string]bool // addresses that were called
	held  []net.Conn
}

// listen writes a configuration of n silent servers.
func (s *silentServers) listen(t *testing.T, p place) {
	t.Helper()
	s.met, s.calls = make(chan struct{}), map[string]bool{}
	text := "cluster: silent\nservers:\n"
	var wg sync.WaitGroup
	listeners := make([]net.Listener, s.n)
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
		text += fmt.Sprintf("  - {name: s%d, addr: %q, user: u, password: p}\n", i, l.Addr())
		wg.Go(func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				s.called(l.Addr().String(), c)
			}
		})
	}
	t.Cleanup(func() {
		for _, l := range listeners {
			l.Close()
		}
		wg.Wait()
		for _, c := range s.held {
			c.Close()
		}
	})
	p.file(t, "tidegate.yaml", text)
}

func (s *silentServers) called(addr string, c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, c)
	if !s.calls[addr] {
		if s.calls[addr] = true; len(s.calls) == s.n {
			close(s.met)
		}
	}
	if s.hang && len(s.calls) == s.n {
		for _, c := range s.held {
			c.Close()
		}
	}
}

// TestCheckWaitsForSilentServersTogether: servers that accept and then say
// nothing cost one timeout, not one each. Here they hang up once all are called.
func TestCheckWaitsForSilentServersTogether(t *testing.T) {
	t.Parallel()
	p, s := newPlace(t), &silentServers{n: 5, hang: true}
	s.listen(t, p)
	r := p.call(t, "check").want(t, exitFound)
	for i := range s.n {
		if !strings.Contains(r.out, fmt.Sprintf("s%d: broken: can not be reached", i)) {
			t.Errorf("server s%d is not named: %q", i, r.out)
		}
	}
	if strings.Contains(r.out, "read_only = OFF") || !strings.Contains(r.out, "cluster: warning: which server is the primary is not known") {
		t.Errorf("nobody could be read, and something is said of the primary: %q", r.out)
	}
	if !strings.Contains(r.out, "\nP3: ") {
		t.Errorf("P3 is not explained: %q", r.out)
	}
	if strings.Contains(r.out, "timeout") || strings.Contains(r.out, "deadline") {
		t.Errorf("a server was waited for before the others were called: %q", r.out)
	}
}

// TestCheckEndedEarly: what was not looked at is not called broken.
func TestCheckEndedEarly(t *testing.T) {
	t.Parallel()
	p, s := newPlace(t), &silentServers{n: 3}
	s.listen(t, p)
	run := p.start(t, "check")
	<-s.met
	if r := run.end(syscall.SIGTERM).want(t, exitFound); r.out != "" || !strings.Contains(r.err, "ended before every server was looked at") {
		t.Errorf("got %q, %q", r.out, r.err)
	}
}
