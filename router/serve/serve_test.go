package serve_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidegate/router"
	"tidegate/router/routertest"
	"tidegate/router/serve"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// vitess' collations bring glog, whose init starts a flusher for ever.
		goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// service is a running server over a world that a test may exchange.
type service struct {
	t     testing.TB
	world atomic.Pointer[routertest.World]
	*serve.Server
	url    string
	resp   string
	client *http.Client
	router *router.Router
	stop   func() error // ends Run and waits for it
}

// start runs a server on free ports of this host; change may hurt the options.
func start(t testing.TB, w *routertest.World, change ...func(*serve.Options, *router.Options)) *service {
	t.Helper()
	s := &service{t: t}
	s.world.Store(w)
	ro := router.Options{
		View:      func() router.Snapshot { return s.world.Load() },
		Clock:     func() int64 { return routertest.Now },
		ProbeWait: 20 * time.Millisecond,
		Servers:   []router.ServerOptions{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}, {Name: "c", Weight: 1}},
	}
	o := serve.Options{HTTPAddr: "127.0.0.1:0", RESPAddr: "127.0.0.1:0", Version: "test"}
	for _, c := range change {
		c(&o, &ro)
	}
	r, err := router.New(ro)
	if err != nil {
		t.Fatal(err)
	}
	o.Router, s.router = r, r
	ctx, cancel := context.WithCancel(context.Background())
	if s.Server, err = serve.Open(ctx, o); err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	transport := &http.Transport{}
	s.client = &http.Client{Transport: transport}
	ended := false
	s.stop = func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := s.stop(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	if a := s.HTTPAddr(); a != nil {
		s.url = "http://" + a.String()
	}
	if a := s.RESPAddr(); a != nil {
		s.resp = a.String()
	}
	return s
}

// do sends one request and returns status, headers and body.
func (s *service) do(method, path, body string, header ...string) (int, http.Header, string) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(b)
}

func decode(t testing.TB, body string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("answer is not JSON: %v: %s", err, body)
	}
	return m
}

// lagging is a healthy world in which b lacks the newest write of app.posts/42.
func lagging(t testing.TB) *routertest.World {
	w := routertest.Healthy(t)
	w.Records[routertest.Own(t, "app.posts/42")] = routertest.V(50)
	w.Behind(t, 1, "1-40", 40)
	return w
}

// waits is how many routes waited for a probe.
func (s *service) waits() uint64 { return s.router.Counters().Waits }
