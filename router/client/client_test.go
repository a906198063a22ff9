package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tidegate/router"
	"tidegate/router/client"
	"tidegate/router/routertest"
	"tidegate/router/serve"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// vitess' collations bring glog, whose init starts a flusher for ever.
		goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// startRouter runs a real router over a world and returns its URL and how to
// kill it.
func startRouter(t testing.TB, w *routertest.World, change ...func(*router.Options)) (url string, kill func()) {
	t.Helper()
	o := router.Options{
		View: func() router.Snapshot { return w }, Clock: func() int64 { return routertest.Now }, ProbeWait: time.Millisecond,
	}
	for _, c := range change {
		c(&o)
	}
	r, err := router.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := serve.Open(ctx, serve.Options{Router: r, HTTPAddr: "127.0.0.1:0"})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var once sync.Once
	kill = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
	t.Cleanup(kill)
	return "http://" + s.HTTPAddr().String(), kill
}

func newClient(t testing.TB, change func(*client.Options), urls ...string) *client.Client {
	t.Helper()
	o := client.Options{URLs: urls, Timeout: 2 * time.Second}
	if change != nil {
		change(&o)
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func lagging(t testing.TB) *routertest.World {
	w := routertest.Healthy(t)
	w.Records[routertest.Own(t, "app.posts/42")] = routertest.V(50)
	w.Behind(t, 1, "1-40", 40)
	return w
}

func TestRouteAndServe(t *testing.T) {
	url, _ := startRouter(t, lagging(t))
	c := newClient(t, nil, url)
	ctx := t.Context()
	d, err := c.Route(ctx, client.Query{Keys: []string{"app.posts/42"}})
	if err != nil || d.Where != client.Target || d.Target != "c" || d.Reason != "applied" || d.Addr != "db-c:3306" || d.Epoch != "12" || d.Notice == nil || d.Notice.Key != "app.posts/42" {
		t.Errorf("route: got %+v, %v", d, err)
	}
	d, err = c.Route(ctx, client.Query{Keys: []string{"app.posts/42"}, Exclude: []string{"c"}})
	if err != nil || d.Target != "a" || d.Role != "primary" || d.Reason != "key_behind" {
		t.Errorf("route without c: got %+v, %v", d, err)
	}
	v, err := c.Serve(ctx, "b", client.Query{Keys: []string{"app.posts/42"}})
	if err != nil || v.Serve || v.Reason != "key_behind" || v.Otherwise != "primary" || len(v.Blocked) != 1 || v.Need == "" {
		t.Errorf("serve: got %+v, %v", v, err)
	}
	v, err = c.Serve(ctx, "b", client.Query{Level: "bounded", MaxStaleness: 30 * time.Millisecond})
	if err != nil || !v.Serve || v.Stale {
		t.Errorf("serve bounded: got %+v, %v", v, err)
	}
	_, err = c.Serve(ctx, "b", client.Query{Keys: []string{"app.posts"}})
	var e *client.Error
	if !errors.As(err, &e) || e.Code != "bad_key" || e.Field != "keys[0]" || e.Offset != 9 {
		t.Errorf("a mistake: got %v", err)
	}
	if n := c.Counters(); n.Failed != 0 || n.Asked != 5 {
		t.Errorf("got %+v", n)
	}
}

func TestWhatTheRouterRefusesIsNotOverruled(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(w *routertest.World)
		where  client.Where
		reason string
	}{
		{"no primary", func(w *routertest.World) { w.HasPrimary = false }, client.Nowhere, "no_primary"},
		{"budget", func(w *routertest.World) { w.Leases[1], w.Leases[2] = 0, 0 }, client.Nowhere, "budget"},
		{"a blind router sends the caller where it writes", func(w *routertest.World) { w.CutOff() }, client.Primary, "no_primary"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := routertest.Healthy(t)
			c.change(w)
			url, _ := startRouter(t, w, func(o *router.Options) {
				if c.reason == "budget" {
					o.PrimaryReadsPerSecond = -1
				}
			})
			cl := newClient(t, nil, url)
			d, err := cl.Route(t.Context(), client.Query{Keys: []string{"app.posts/1"}})
			if err != nil || d.Where != c.where || d.Reason != c.reason || d.RetryAfter <= 0 {
				t.Errorf("got %+v, %v; want %v %s", d, err, c.where, c.reason)
			}
			if n := cl.Counters(); n.Failed != 0 || n.Fallbacks != 0 {
				t.Errorf("a refusal counts as a dead router: %+v", n)
			}
		})
	}
}

// TestAllRoutersKilled: clients keep within their budget, and ask in vain only as
// often as the breaker lets them. Once all are dead, a bubble's clock counts.
func TestAllRoutersKilled(t *testing.T) {
	url1, kill1 := startRouter(t, routertest.Healthy(t))
	url2, kill2 := startRouter(t, routertest.Healthy(t))
	c := newClient(t, nil, url1, url2)
	q := client.Query{Keys: []string{"app.posts/42"}}
	kill1()
	for range 20 { // the other one answers for both
		if d, err := c.Route(t.Context(), q); err != nil || d.Where != client.Target {
			t.Fatalf("one router is left: got %+v, %v", d, err)
		}
	}
	kill2()
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, func(o *client.Options) { o.PrimaryReadsPerSecond = 100 }, url1, url2)
		const readers, rounds = 8, 600
		var primary, nowhere, other atomic.Int64
		var wg sync.WaitGroup
		for range readers {
			wg.Go(func() {
				for range rounds {
					d, err := c.Route(context.Background(), q)
					switch {
					case err == nil && d.Where == client.Primary && d.Reason == client.RouterDown:
						primary.Add(1)
					case err == nil && d.Where == client.Nowhere && d.RetryAfter > 0:
						nowhere.Add(1)
					default:
						other.Add(1)
					}
					<-time.After(time.Millisecond)
				}
			})
		}
		wg.Wait()
		// 600 ms at 100 a second, and a burst of 10.
		if n := primary.Load(); n < 60 || n > 71 {
			t.Errorf("%d reads went to the primary in 600 ms, the budget is 100 a second and a burst of 10", n)
		}
		if n := nowhere.Load() + primary.Load(); n != readers*rounds || other.Load() != 0 {
			t.Errorf("%d of %d were refused or sent to the primary, %d otherwise", n, readers*rounds, other.Load())
		}
	})
	if d, err := c.Route(t.Context(), client.Query{Level: "eventual"}); err != nil || d.Where != client.Anywhere || !d.Stale {
		t.Errorf("eventual without a router: got %+v, %v", d, err)
	}
	if v, err := c.Serve(t.Context(), "b", client.Query{Level: "bounded", MaxStaleness: time.Second}); err != nil || !v.Serve || !v.Stale {
		t.Errorf("bounded without a router: got %+v, %v", v, err)
	}
}

// TestHangingRouterCostsTheTimeoutAndThenNothing: a router that never answers is
// waited for as often as the breaker needs, and not asked again.
func TestHangingRouterCostsTheTimeoutAndThenNothing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	done := make(chan struct{})
	go func() { // connects, never answers
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			defer conn.Close()
		}
	}()
	defer func() {
		_ = ln.Close()
		<-done
	}()
	c := newClient(t, func(o *client.Options) {
		o.Timeout, o.BreakerFailures, o.BreakerMin, o.BreakerMax = 20*time.Millisecond, 3, time.Hour, time.Hour
	}, "http://"+ln.Addr().String())
	q := client.Query{Keys: []string{"app.posts/42"}}
	for range 1003 {
		if d, err := c.Route(t.Context(), q); err != nil || d.Where == client.Target || d.Where == client.Primary && d.Reason != client.RouterDown {
			t.Fatalf("got %+v, %v", d, err)
		}
	}
	// Connections, of which none is used twice; one may still be on its way.
	if n := asked.Load(); n > 3 {
		t.Errorf("a router that hangs was asked %d times of 1003, want 3 until the breaker opened", n)
	}
}

// TestFloorMayTakeAProbe: a router that waits for the primary's next probe is
// not dead, however short the client's patience is otherwise.
func TestFloorMayTakeAProbe(t *testing.T) {
	url, _ := startRouter(t, routertest.Healthy(t), func(o *router.Options) { o.ProbeWait = 150 * time.Millisecond })
	c := newClient(t, func(o *client.Options) { o.Timeout = 50 * time.Millisecond }, url)
	unseen := routertest.Healthy(t).States[0].UUID.String() + ":1000000"
	d, err := c.Route(t.Context(), client.Query{Level: "session", Floor: unseen})
	if err != nil || d.Where == client.Target || d.Reason != "write_unseen" {
		t.Errorf("got %+v, %v", d, err)
	}
	if n := c.Counters(); n.Failed != 0 {
		t.Errorf("counted as no answer: %+v", n)
	}
}

func TestBreakerClosesWhenTheRouterIsBack(t *testing.T) {
	var healthy atomic.Bool
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if !healthy.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = w.Write([]byte(`{"target":"b","reason":"applied"}`))
	}))
	defer s.Close()
	c := newClient(t, func(o *client.Options) {
		o.BreakerFailures, o.BreakerMin, o.BreakerMax = 2, 20*time.Millisecond, 40*time.Millisecond
	}, s.URL)
	q := client.Query{Keys: []string{"app.posts/42"}}
	for range 50 {
		if d, err := c.Route(t.Context(), q); err != nil || d.Reason != client.RouterDown {
			t.Fatalf("got %+v, %v", d, err)
		}
	}
	if n := asked.Load(); n > 10 {
		t.Errorf("a failing router was asked %d of 50 times", n)
	}
	healthy.Store(true)
	deadline := time.Now().Add(5 * time.Second)
	for {
		d, err := c.Route(t.Context(), q)
		if err == nil && d.Where == client.Target {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still not asked again: %+v, %v", d, err)
		}
	}
}

func TestCallersOwnDeadlineIsNotTheRoutersFault(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c := newClient(t, func(o *client.Options) { o.Timeout = time.Minute }, "http://"+ln.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Route(ctx, client.Query{Level: "eventual"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the caller's deadline", err)
	}
	if n := c.Counters(); n.Failed != 0 {
		t.Errorf("counted as a failure of the router: %+v", n)
	}
}

func TestTokenIsSent(t *testing.T) {
	got := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error":{"code":"unauthorized","message":"no"}}`))
	}))
	defer s.Close()
	c := newClient(t, func(o *client.Options) { o.Token = "secret" }, s.URL)
	_, err := c.Serve(t.Context(), "b", client.Query{Level: "eventual"})
	var e *client.Error
	if !errors.As(err, &e) || e.Status != 401 || <-got != "Bearer secret" {
		t.Errorf("got %v", err)
	}
}

func TestNewReportsEverythingWrong(t *testing.T) {
	_, err := client.New(client.Options{URLs: []string{"ftp://x", "%"}, Timeout: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"ftp://x", "%", "Timeout"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not tell of %q", err, part)
		}
	}
	if _, err := client.New(client.Options{}); err == nil {
		t.Error("accepted without a router")
	}
}

// TestSomethingElseThatSays200: what is not a router's answer names no server,
// and leaves nothing of itself in the answer of the next router.
func TestSomethingElseThatSays200(t *testing.T) {
	for _, says := range []string{`{}`, `null`, `{"status":"ok"}`, `{"serve":true}`, `{"server_uuid":"not this one","target":7,"serve":1}`} {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(says)) }))
		c := newClient(t, nil, other.URL)
		q := client.Query{Keys: []string{"app.posts/42"}}
		d, err := c.Route(t.Context(), q)
		if err != nil || d.Where != client.Primary || d.Reason != client.RouterDown {
			t.Errorf("%s: route: got %+v, %v", says, d, err)
		}
		v, err := c.Serve(t.Context(), "b", q)
		if err != nil || v.Serve || v.Reason != client.RouterDown || v.ServerUUID != "" {
			t.Errorf("%s: serve: got %+v, %v", says, v, err)
		}
		other.Close()
	}
}

// TestWhoLeavesSaysNothingOfTheRouter: callers in a hurry must not keep alive
// the trust in a router that hangs.
func TestWhoLeavesSaysNothingOfTheRouter(t *testing.T) {
	arrived, hang := make(chan struct{}, 16), make(chan struct{})
	dead := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer dead.Close()
	defer close(hang)
	c := newClient(t, func(o *client.Options) {
		o.Timeout, o.BreakerFailures, o.BreakerMin, o.BreakerMax = time.Second, 2, time.Hour, time.Hour
	}, dead.URL)
	q := client.Query{Keys: []string{"app.posts/42"}}
	fail := func() {
		t.Helper()
		if d, err := c.Route(t.Context(), q); err != nil || d.Reason != client.RouterDown {
			t.Fatalf("got %+v, %v", d, err)
		}
		<-arrived
	}
	fail()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := c.Route(ctx, q); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want that the caller left", err)
	}
	fail() // the second in a row: the breaker opens
	if _, err := c.Route(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	select {
	case <-arrived:
		t.Error("the router was asked once more: the breaker has forgotten a failure")
	default:
	}
}
