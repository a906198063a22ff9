package serve_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"tidegate/router"
	"tidegate/router/routertest"
	"tidegate/router/serve"
)

// TestBadInputHTTP: each mistake is a 4xx with code, field and offset, and the
// connection goes on.
func TestBadInputHTTP(t *testing.T) {
	s := start(t, routertest.Healthy(t))
	no := -1.0
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		code, field              string
		offset                   float64
	}{
		{"malformed key", "GET", "/v1/serve?replica=b&key=app.posts", "", 400, "bad_key", "key[0]", 9},
		{"malformed second key", "GET", "/v1/serve?replica=b&key=app.posts/1&key=app.po*sts/1", "", 400, "bad_key", "key[1]", 6},
		{"malformed key in JSON", "POST", "/v1/serve", `{"replica":"b","keys":["app.posts/1","app.posts/%zz"]}`, 400, "bad_key", "keys[1]", 10},
		{"key of another type", "GET", "/v1/serve?replica=b&key=app.posts/abc", "", 400, "bad_key", "key[0]", 10},
		{"key with another arity", "GET", "/v1/serve?replica=b&key=app.posts/1,2", "", 400, "bad_key", "key[0]", 10},
		{"group column that is none", "GET", "/v1/serve?replica=b&key=app.posts@title/1", "", 400, "bad_key", "key[0]", 16},
		{"malformed GTID", "GET", "/v1/serve?replica=b&level=session&floor=" + uuidA + ":1-x", "", 400, "bad_gtid", "floor", 39},
		{"floor that names nothing", "GET", "/v1/serve?replica=b&level=session&floor=", "", 400, "bad_gtid", "floor", 0},
		{"floor of commas", "GET", "/v1/serve?replica=b&level=session&floor=,", "", 400, "bad_gtid", "floor", 0},
		{"floor of a space", "GET", "/v1/serve?replica=b&level=session&floor=%20", "", 400, "bad_gtid", "floor", 0},
		{"floor without an interval", "GET", "/v1/serve?replica=b&level=session&floor=" + uuidA, "", 400, "bad_gtid", "floor", 36},
		{"floor of a tag alone", "GET", "/v1/serve?replica=b&level=session&floor=" + uuidA + ":x", "", 400, "bad_gtid", "floor", 38},
		{"floor of an interval that runs backwards", "GET", "/v1/serve?replica=b&level=session&floor=" + uuidA + ":1-5:11-3", "", 400, "bad_gtid", "floor", 41},
		{"malformed GTID in JSON", "POST", "/v1/serve", `{"replica":"b","level":"session","floor":"nope"}`, 400, "bad_gtid", "floor", 0},
		{"malformed JSON", "POST", "/v1/serve", `{"replica":"b",}`, 400, "bad_json", "", 15},
		{"JSON of another shape", "POST", "/v1/serve", `["b"]`, 400, "bad_json", "", 0},
		{"JSON and more", "POST", "/v1/serve", `{"replica":"b","level":"eventual"} x`, 400, "bad_json", "", 35},
		{"JSON without an end", "POST", "/v1/serve", `{"replica":"b`, 400, "bad_json", "", 13},
		{"JSON with half a surrogate", "POST", "/v1/serve", `{"replica":"\ud800"}`, 400, "bad_json", "", 12},
		{"JSON with a control character", "POST", "/v1/serve", "{\"replica\":\"\x01\"}", 400, "bad_json", "", 12},
		{"JSON that is not UTF-8", "POST", "/v1/serve", "{\"replica\":\"\xff\"}", 400, "bad_json", "", 12},
		{"empty body", "POST", "/v1/serve", "", 400, "bad_json", "", 0},
		{"wrong type", "POST", "/v1/serve", `{"replica":7}`, 400, "bad_field", "replica", 11},
		{"keys that are no array", "POST", "/v1/serve", `{"replica":"b","keys":"app.posts/1"}`, 400, "bad_field", "keys", 22},
		{"key that is a number", "POST", "/v1/serve", `{"replica":"b","keys":[1]}`, 400, "bad_key", "keys[0]", 23},
		{"key object without values", "POST", "/v1/serve", `{"replica":"b","keys":[{"table":"app.posts"}]}`, 400, "bad_key", "keys[0]", 23},
		{"key object of both kinds", "POST", "/v1/serve", `{"replica":"b","keys":[{"table":"app.posts","pk":[1],"group":"author_id","value":1}]}`, 400, "bad_key", "keys[0]", 23},
		{"key object with more", "POST", "/v1/serve", `{"replica":"b","keys":[{"table":"app.posts","pk":[1],"x":1}]}`, 400, "unknown_field", "keys[0].x", 57},
		{"unknown query field", "GET", "/v1/serve?replica=b&colour=blue", "", 400, "unknown_field", "colour", no},
		{"unknown JSON field", "POST", "/v1/serve", `{"replica":"b","colour":"blue"}`, 400, "unknown_field", "colour", 24},
		{"a field of a later version: session", "GET", "/v1/serve?replica=b&level=eventual&session=s1", "", 400, "unknown_field", "session", no},
		{"a field of a later version: token", "POST", "/v1/route", `{"level":"eventual","token":"x"}`, 400, "unknown_field", "token", 28},
		{"a field of a later version: wait_ms", "GET", "/v1/serve?replica=b&level=eventual&wait_ms=5", "", 400, "unknown_field", "wait_ms", no},
		{"a field of a later version: seen", "GET", "/v1/serve?replica=b&level=eventual&seen=" + uuidA + ":1", "", 400, "unknown_field", "seen", no},
		{"route has no replica", "POST", "/v1/route", `{"replica":"b","level":"eventual"}`, 400, "unknown_field", "replica", 11},
		{"serve has no exclude", "POST", "/v1/serve", `{"replica":"b","exclude":["a"]}`, 400, "unknown_field", "exclude", 25},
		{"a level of a later version", "GET", "/v1/serve?replica=b&level=latest&key=app.posts/1", "", 400, "bad_field", "level", 0},
		{"a class that is none", "GET", "/v1/serve?replica=b&level=eventual&class=gold", "", 400, "bad_field", "class", 0},
		{"negative staleness", "GET", "/v1/serve?replica=b&level=bounded&max_staleness_ms=-1", "", 400, "bad_field", "max_staleness_ms", 0},
		{"staleness that is no number", "GET", "/v1/serve?replica=b&level=bounded&max_staleness_ms=0x10", "", 400, "bad_field", "max_staleness_ms", 0},
		{"endless staleness", "GET", "/v1/serve?replica=b&level=bounded&max_staleness_ms=1e300", "", 400, "bad_field", "max_staleness_ms", 0},
		{"given twice", "GET", "/v1/serve?replica=b&replica=c&level=eventual", "", 400, "bad_field", "replica", no},
		{"no replica", "GET", "/v1/serve?level=eventual", "", 400, "bad_field", "replica", no},
		{"neither keys nor level", "GET", "/v1/serve?replica=b", "", 400, "level_required", "level", no},
		{"level key without keys", "GET", "/v1/serve?replica=b&level=key", "", 400, "keys_required", "key", no},
		{"level session without a floor", "GET", "/v1/serve?replica=b&level=session", "", 400, "floor_required", "floor", no},
		{"level bounded without a bound", "GET", "/v1/serve?replica=b&level=bounded", "", 400, "bound_required", "max_staleness_ms", no},
		{"bad percent encoding", "GET", "/v1/serve?replica=b&key=%4", "", 400, "bad_query", "key", 10},
		{"no such path", "GET", "/v2/serve", "", 404, "not_found", "url", no},
		{"wrong method", "DELETE", "/v1/serve", "", 405, "method_not_allowed", "", no},
		{"route is a POST", "GET", "/v1/route", "", 405, "method_not_allowed", "", no},
		{"batch of another shape", "POST", "/v1/batch", `{"requests":[1]}`, 400, "bad_field", "requests[0]", 13},
		{"batch without requests", "POST", "/v1/batch", `{}`, 400, "bad_field", "requests", no},
		{"batch with more", "POST", "/v1/batch", `{"requests":[],"x":1}`, 400, "unknown_field", "x", 19},
		{"batch nested too deep", "POST", "/v1/batch", `{"requests":[{"x":` + strings.Repeat("[", 100) + `}]}`, 400, "bad_json", "", 51},
		{"two keys to look at", "GET", "/v1/keys?key=app.posts/1&key=app.posts/2", "", 400, "bad_field", "key", no},
		{"verbose is 0 or 1", "GET", "/v1/servers?verbose=yes", "", 400, "bad_field", "verbose", 0},
		{"oversized URL", "GET", "/v1/serve?replica=b&key=" + strings.Repeat("x", 65<<10), "", 414, "too_large", "url", no},
		{"oversized key", "GET", "/v1/serve?replica=b&key=app.posts/" + strings.Repeat("1", 17<<10), "", 400, "bad_key", "key[0]", 16 << 10},
		{"oversized body", "POST", "/v1/serve", `{"replica":"` + strings.Repeat("b", 1<<20) + `"}`, 413, "too_large", "body", no},
		{"too many keys", "POST", "/v1/serve", `{"replica":"b","keys":[` + strings.TrimSuffix(strings.Repeat(`"a.b/1",`, router.MaxKeys+1), ",") + `]}`, 413, "too_large", "keys", no},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, h, body := s.do(c.method, c.path, c.body)
			e, _ := decode(t, body)["error"].(map[string]any)
			if e == nil {
				t.Fatalf("got %d without an error: %s", status, body)
			}
			offset, ok := e["offset"].(float64)
			if !ok {
				offset = -1
			}
			field, _ := e["field"].(string)
			if status != c.status || e["code"] != c.code || field != c.field || offset != c.offset {
				t.Errorf("got %d %v, field %q, offset %v (%v); want %d %s, %q, %v",
					status, e["code"], field, offset, e["message"], c.status, c.code, c.field, c.offset)
			}
			if e["request_id"] == nil || h.Get("Tidegate-Request-Id") != e["request_id"] {
				t.Errorf("the error has no request id: %s", body)
			}
			if known := strings.Join(serve.Codes(), " "); !strings.Contains(known, fmt.Sprint(e["code"])) {
				t.Errorf("code %v is not in the closed list", e["code"])
			}
		})
	}
}

func TestTokensAreRefusedNotIgnored(t *testing.T) {
	s := start(t, routertest.Healthy(t))
	if status, _, body := s.do("GET", "/v1/serve?replica=b&level=eventual", "", "Tidegate-Token", "x"); status != 400 || !strings.Contains(body, "unknown_field") {
		t.Errorf("got %d %s; a floor that is not looked at would be a wrong yes", status, body)
	}
}

func TestConnectionIsKeptAfterAMistake(t *testing.T) {
	s := start(t, routertest.Healthy(t))
	conn, err := net.Dial("tcp", s.HTTPAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for i, path := range []string{"/v1/serve?replica=b&key=nonsense", "/nothing", "/v1/serve?replica=b&level=eventual"} {
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i+1, err)
		}
		want := []int{400, 404, 200}[i]
		if _, err := r.Discard(int(res.ContentLength)); err != nil || res.StatusCode != want {
			t.Errorf("request %d: got %d, %v; want %d", i+1, res.StatusCode, err, want)
		}
	}
}

func TestOversizedHeaders(t *testing.T) {
	s := start(t, routertest.Healthy(t))
	conn, err := net.Dial("tcp", s.HTTPAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		// The server stops reading somewhere in it, so errors say nothing here.
		fmt.Fprintf(conn, "GET /v1/serve?replica=b&level=eventual HTTP/1.1\r\nHost: x\r\nX-Large: %s\r\n\r\n", strings.Repeat("x", 200<<10))
	}()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if !strings.HasPrefix(line, "HTTP/1.1 431 ") {
		t.Errorf("got %q, %v; want 431", line, err)
	}
}

func TestSlowRequestsAreCut(t *testing.T) {
	s := start(t, routertest.Healthy(t), func(o *serve.Options, _ *router.Options) {
		o.Limits.HeaderTimeout, o.Limits.BodyTimeout, o.Limits.IdleTimeout = 50*time.Millisecond, 80*time.Millisecond, 120*time.Millisecond
	})
	for _, c := range []struct{ name, addr, send string }{
		{"HTTP headers", s.HTTPAddr().String(), "GET /v1/serve HTTP/1.1\r\nHost: x\r\n"},
		{"RESP command", s.resp, "*2\r\n$4\r\nPING\r\n$100\r\nx"},
		{"RESP idle", s.resp, "PING\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", c.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte(c.send)); err != nil {
				t.Fatal(err)
			}
			// Of the test as a whole: who is cut reads an end or a reset.
			_ = conn.SetReadDeadline(time.Now().Add(hang))
			if _, err = io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("still open")
			}
		})
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	s := start(t, routertest.Healthy(t), func(o *serve.Options, _ *router.Options) { o.Limits.Conns = 2 })
	var open []net.Conn
	for range 2 {
		c := dialRESP(t, s)
		c.send("PING\r\n")
		c.want("+PONG\r\n")
		open = append(open, c.Conn)
	}
	extra := dialRESP(t, s)
	extra.want("-ERR unavailable too many connections\r\n")
	extra.wantEOF()
	if n := s.Counters().ConnsRefused; n != 1 {
		t.Errorf("%d connections were counted as refused, want 1", n)
	}
	_ = open[0].Close()
	waitUntil(t, func() string {
		if n := s.Counters().RESPConns; n != 1 {
			return fmt.Sprint(n, " connections are open, want 1")
		}
		return ""
	})
	again := dialRESP(t, s)
	again.send("PING\r\n")
	again.want("+PONG\r\n")
}

// hang is when a test gives up waiting. It only stops a test that hangs, and says
// nothing of how long anything may take.
const hang = 2 * time.Minute

// waitUntil asks until there is no reason left to wait.
func waitUntil(t testing.TB, why func() string) {
	t.Helper()
	deadline := time.After(hang)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		last := why()
		if last == "" {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(last)
		}
	}
}

// TestWhatWouldBeIgnoredIsRefused: a field that nobody reads, or of two one, is
// a guess about what the caller must see.
func TestWhatWouldBeIgnoredIsRefused(t *testing.T) {
	s := start(t, routertest.Healthy(t))
	const path = "/v1/serve?replica=b&key=app.posts/42"
	if status, _, body := s.do("GET", path, `{"floor":"`+uuidA+`:101"}`); status != 400 || !strings.Contains(body, `"body"`) {
		t.Errorf("a GET with a body: got %d %s", status, body)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header["Tidegate-Level"] = []string{"eventual", "strong"}
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 400 {
		t.Errorf("two levels: got %d, want 400", res.StatusCode)
	}
}

func TestHTTPConnectionsAreBounded(t *testing.T) {
	s := start(t, routertest.Healthy(t), func(o *serve.Options, _ *router.Options) { o.Limits.Conns = 1 })
	one, err := net.Dial("tcp", s.HTTPAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	waitUntil(t, func() string {
		if n := s.Counters().HTTPConns; n != 1 {
			return fmt.Sprint(n, " connections are open, want 1")
		}
		return ""
	})
	two, err := net.Dial("tcp", s.HTTPAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	res, err := http.ReadResponse(bufio.NewReader(two), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || !strings.Contains(string(body), `"code":"unavailable"`) {
		t.Errorf("got %d %v %s", res.StatusCode, res.Header, body)
	}
}

// TestConnectionNamesAreBounded: they are kept, and who gives one need not be
// known yet.
func TestConnectionNamesAreBounded(t *testing.T) {
	c := dialRESP(t, start(t, routertest.Healthy(t)))
	long := strings.Repeat("n", 257)
	c.send("CLIENT SETNAME " + long + "\r\n")
	c.want("-ERR too_large field=SETNAME a name has at most 256 bytes\r\n")
	c.send("HELLO 2 SETNAME " + long + "\r\n")
	c.want("-ERR too_large field=SETNAME a name has at most 256 bytes\r\n")
	c.send("CLIENT SETNAME worker-1\r\n")
	c.want("+OK\r\n")
}
