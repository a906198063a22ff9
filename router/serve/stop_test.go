package serve_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"tidegate/router"
	"tidegate/router/routertest"
	"tidegate/router/serve"
)

func TestStopLetsRequestsFinish(t *testing.T) {
	s := start(t, routertest.Healthy(t), func(_ *serve.Options, o *router.Options) { o.ProbeWait = 300 * time.Millisecond })
	waiting := `{"level":"strong","floor":"` + uuidA + `:101"}` // waits for a probe that never comes
	got := make(chan string, 1)
	go func() {
		status, _, body := s.do("POST", "/v1/route", waiting)
		got <- fmt.Sprint(status, " ", body)
	}()
	c := dialRESP(t, s)
	c.send(cmd("ROUTE", "LEVEL", "strong", "FLOOR", uuidA+":101"))
	idle := dialRESP(t, s)
	idle.send("PING\r\n")
	idle.want("+PONG\r\n")
	waitUntil(t, func() string {
		if n := s.Counters(); n.HTTPRequests != 1 || n.RESPCommands != 2 {
			return fmt.Sprintf("not all requests have arrived: %+v", n)
		}
		return ""
	})
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if g := <-got; !strings.HasPrefix(g, "503 ") || !strings.Contains(g, "write_unseen") {
		t.Errorf("the HTTP request in flight got %s", g)
	}
	if g := c.line(); !strings.HasPrefix(g, "-ERR write_unseen") {
		t.Errorf("the RESP command in flight got %s", g)
	}
	c.wantEOF()
	idle.wantEOF()
	for _, addr := range []net.Addr{s.HTTPAddr(), s.RESPAddr()} {
		if conn, err := net.Dial("tcp", addr.String()); err == nil {
			_ = conn.Close()
			t.Errorf("%s still answers", addr)
		}
	}
}

func TestStopIsBounded(t *testing.T) {
	s := start(t, routertest.Healthy(t), func(o *serve.Options, r *router.Options) {
		o.Limits.StopTimeout = 50 * time.Millisecond
		r.ProbeWait = time.Hour // longer than any test: only the cut ends it
	})
	c := dialRESP(t, s)
	c.send(cmd("ROUTE", "LEVEL", "strong", "FLOOR", uuidA+":101"))
	waitUntil(t, func() string {
		if n := s.Counters(); n.RESPCommands != 1 {
			return "the command has not arrived"
		}
		return ""
	})
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if g, err := io.ReadAll(c); strings.Contains(string(g), "write_unseen") {
		t.Errorf("the command was answered with %q (%v) and not cut off", g, err)
	}
}

func TestOpenReportsEverythingWrong(t *testing.T) {
	_, err := serve.Open(context.Background(), serve.Options{Limits: serve.Limits{Conns: -1, BodyTimeout: -1}})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"router is missing", "neither an HTTP nor a RESP", "Conns", "BodyTimeout"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not tell of %q", err, part)
		}
	}
}

func TestRunOnceAndCloseTwice(t *testing.T) {
	s := start(t, routertest.Healthy(t))
	if status, _, _ := s.do("GET", "/healthz", ""); status != 200 {
		t.Fatal(status)
	}
	if err := s.Run(context.Background()); err == nil {
		t.Error("ran twice")
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
