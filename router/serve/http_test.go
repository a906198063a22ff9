package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tidegate/cdc/event"
	"tidegate/router"
	"tidegate/router/routertest"
	"tidegate/router/serve"
)

const uuidA = routertest.UUIDA

func TestServeAnswersEveryField(t *testing.T) {
	s := start(t, lagging(t))
	for _, c := range []struct{ name, path, want string }{
		{"yes", "/v1/serve?replica=c&key=app.posts/42", `{"serve":true,"reason":"applied","detail":null,"level":"key","replica":"c","addr":"db-c:3306",
			"server_uuid":"cccccccc-0000-0000-0000-000000000003","epoch":"12","blocked":[],"need":null,"behind_txns":null,"eta_ms":null,
			"staleness_ms":30.000,"watermark_age_ms":50.000,"otherwise":null,"stale":false,"floor_lost":false}`},
		{"no", "/v1/serve?replica=b&key=app.posts/42&key=app.posts/43", `{"serve":false,"reason":"key_behind","detail":null,"level":"key","replica":"b","addr":"db-b:3306",
			"server_uuid":"bbbbbbbb-0000-0000-0000-000000000002","epoch":"11","blocked":["app.posts/42"],"need":"` + uuidA + `:50","behind_txns":60,"eta_ms":null,
			"staleness_ms":30.000,"watermark_age_ms":50.000,"otherwise":"primary","stale":false,"floor_lost":false}`},
		{"unknown server", "/v1/serve?replica=z&level=eventual", `{"serve":false,"reason":"unknown_server","detail":null,"level":"eventual","replica":"z","addr":null,
			"server_uuid":null,"epoch":null,"blocked":[],"need":null,"behind_txns":null,"eta_ms":null,
			"staleness_ms":null,"watermark_age_ms":50.000,"otherwise":"primary","stale":false,"floor_lost":false}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, h, body := s.do("GET", c.path, "")
			if status != 200 || h.Get("Content-Type") != "application/json" {
				t.Errorf("got status %d, type %s", status, h.Get("Content-Type"))
			}
			if got, want := decode(t, body), decode(t, c.want); !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%s\nwant\n%s", body, c.want)
			}
		})
	}
}

func TestGetAndPostAreOneQuestion(t *testing.T) {
	s := start(t, lagging(t))
	for _, c := range []struct{ query, body string }{
		{"replica=b&key=app.posts/42", `{"replica":"b","keys":["app.posts/42"]}`},
		{"replica=b&key=app.posts%2F42&key=app.posts%40author_id/7", `{"replica":"b","keys":[{"table":"app.posts","pk":[42]},{"table":"app.posts","group":"author_id","value":"7"}]}`},
		{"replica=b&key=app.posts@author_id/@null", `{"replica":"b","keys":[{"table":"app.posts","group":"author_id","value":null}]}`},
		{"replica=b&level=session&floor=" + uuidA + ":60", `{"replica":"b","level":"session","floor":"` + uuidA + `:60"}`},
		{"replica=b&level=bounded&max_staleness_ms=29.5&class=normal", ` { "replica" : "b" , "level":"bounded", "max_staleness_ms": 2.95e1, "class":"normal", "verbose":false } `},
		{"replica=b&key=app.posts/42&verbose=1", `{"replica":"b","keys":["app.posts/4\u0032"],"verbose":true}`},
	} {
		_, _, get := s.do("GET", "/v1/serve?"+c.query, "")
		status, _, post := s.do("POST", "/v1/serve", c.body)
		if status != 200 || get != post {
			t.Errorf("%s: GET answered\n%s\nPOST %d\n%s", c.query, get, status, post)
		}
	}
}

func TestHeadersAreFieldsAndBodiesWin(t *testing.T) {
	s := start(t, routertest.Healthy(t))
	for _, c := range []struct {
		path, body, level, want string
	}{
		{"/v1/serve?replica=b", "", "eventual", "eventual"},
		{"/v1/serve?replica=b&level=strong", "", "eventual", "strong"},
		{"/v1/serve", `{"replica":"b","level":"strong"}`, "eventual", "strong"},
		{"/v1/serve", `{"replica":"b"}`, "eventual", "eventual"},
	} {
		method := "GET"
		if c.body != "" {
			method = "POST"
		}
		_, _, body := s.do(method, c.path, c.body, "Tidegate-Level", c.level, "Tidegate-Class", "normal")
		if got := decode(t, body)["level"]; got != c.want {
			t.Errorf("%s %s: got level %v, want %s", c.path, c.body, got, c.want)
		}
	}
}

func TestRoute(t *testing.T) {
	s := start(t, lagging(t))
	status, _, body := s.do("POST", "/v1/route", `{"keys":["app.posts/42"]}`)
	want := `{"target":"c","role":"replica","addr":"db-c:3306","server_uuid":"cccccccc-0000-0000-0000-000000000003","epoch":"12","reason":"applied",
		"detail":null,"level":"key","waited_ms":0.000,"staleness_ms":30.000,"stale":false,"floor_lost":false,
		"notice":{"code":"spreading","key":"app.posts/42","since_ms":null,"eta_ms":null}}`
	if got := decode(t, body); status != 200 || !reflect.DeepEqual(got, decode(t, want)) {
		t.Errorf("got %d\n%s\nwant\n%s", status, body, want)
	}
	w := lagging(t)
	w.Learnt = map[event.Version]int64{routertest.V(50): routertest.Now - int64(1500*time.Microsecond)}
	_, _, body = start(t, w).do("POST", "/v1/route", `{"keys":["app.posts/42"]}`)
	notice := map[string]any{"code": "spreading", "key": "app.posts/42", "since_ms": 1.5, "eta_ms": nil}
	if got := decode(t, body)["notice"]; !reflect.DeepEqual(got, any(notice)) {
		t.Errorf("got notice %v, want %v", got, notice)
	}
	for _, c := range []struct{ body, target, reason string }{
		{`{"keys":["app.posts/42"],"exclude":["c"]}`, "a", "key_behind"},
		{`{"keys":["app.posts/42"],"in_transaction":true}`, "a", "primary"},
		{`{"level":"strong"}`, "a", "strong"},
	} {
		status, _, body := s.do("POST", "/v1/route", c.body)
		got := decode(t, body)
		if status != 200 || got["target"] != c.target || got["reason"] != c.reason || got["role"] != "primary" {
			t.Errorf("%s: got %d %s", c.body, status, body)
		}
	}
}

func TestRouteWithoutTargetIs503(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(w *routertest.World)
		body   string
		code   string
	}{
		{"no primary", func(w *routertest.World) { w.HasPrimary = false }, `{"keys":["app.posts/42"]}`, "no_primary"},
		{"floor unseen", func(*routertest.World) {}, `{"level":"strong","floor":"` + uuidA + `:101"}`, "write_unseen"},
		{"budget", func(w *routertest.World) { w.Leases[1], w.Leases[2] = 0, 0 }, `{"level":"eventual"}`, "budget"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := routertest.Healthy(t)
			c.change(w)
			s := start(t, w, func(_ *serve.Options, o *router.Options) { o.PrimaryReadsPerSecond = -1 })
			status, h, body := s.do("POST", "/v1/route", c.body)
			e, _ := decode(t, body)["error"].(map[string]any)
			if status != 503 || e["code"] != c.code || h.Get("Retry-After") != "1" || e["retry_after_ms"] == nil {
				t.Errorf("got %d, Retry-After %q, %s; want 503, 1, code %s", status, h.Get("Retry-After"), body, c.code)
			}
		})
	}
}

func TestBatch(t *testing.T) {
	s := start(t, lagging(t))
	status, _, body := s.do("POST", "/v1/batch", `{"requests":[
		{"replica":"c","keys":["app.posts/42"]},
		{"keys":["app.posts/42"]},
		{"replica":"b","keys":["app.posts/x"]},
		{"replica":"b","keys":["nonsense"]},
		{"replica":"b","unknown":{"deep":[1,2,{"x":null}]}},
		{"level":"strong","floor":"`+uuidA+`:999"}
	]}`)
	if status != 200 {
		t.Fatalf("got %d: %s", status, body)
	}
	answers, _ := decode(t, body)["answers"].([]any)
	if len(answers) != 6 {
		t.Fatalf("got %d answers, want 6: %s", len(answers), body)
	}
	at := func(i int, path ...string) any {
		v := answers[i]
		for _, p := range path {
			m, ok := v.(map[string]any)
			if !ok {
				return nil
			}
			v = m[p]
		}
		return v
	}
	for _, c := range []struct {
		got, want any
	}{
		{at(0, "serve"), true},
		{at(1, "target"), "c"},
		{at(2, "error", "code"), "bad_key"},
		{at(2, "error", "field"), "keys[0]"},
		{at(3, "error", "code"), "bad_key"},
		{at(4, "error", "code"), "unknown_field"},
		{at(4, "error", "field"), "unknown"},
		{at(5, "error", "code"), "write_unseen"},
	} {
		if c.got != c.want {
			t.Errorf("got %v, want %v in %s", c.got, c.want, body)
		}
	}
}

func TestBatchIsBounded(t *testing.T) {
	s := start(t, routertest.Healthy(t), func(_ *serve.Options, o *router.Options) { o.ProbeWait = 200 * time.Millisecond })
	many := func(n int) string {
		return `{"requests":[` + strings.TrimSuffix(strings.Repeat(`{"replica":"b","level":"eventual"},`, n), ",") + `]}`
	}
	if status, _, body := s.do("POST", "/v1/batch", many(serve.MaxBatch)); status != 200 {
		t.Errorf("%d requests: got %d %s", serve.MaxBatch, status, body)
	}
	if status, _, body := s.do("POST", "/v1/batch", many(serve.MaxBatch+1)); status != 413 || !strings.Contains(body, `"too_large"`) {
		t.Errorf("one more: got %d %s", status, body)
	}
	// Routes that wait for the primary's probe wait together.
	// One after another they would outlast the server's WriteTimeout.
	s.client.Timeout = hang
	floor := `{"level":"strong","floor":"` + uuidA + `:101"},`
	_, _, body := s.do("POST", "/v1/batch", `{"requests":[`+strings.TrimSuffix(strings.Repeat(floor, serve.MaxBatch), ",")+`]}`)
	if n := strings.Count(body, `"write_unseen"`); n != serve.MaxBatch {
		t.Errorf("%d of %d waiting routes were answered", n, serve.MaxBatch)
	}
	if n := s.waits(); n != serve.MaxBatch {
		t.Errorf("%d of %d routes waited", n, serve.MaxBatch)
	}
}

func TestServersAndKeys(t *testing.T) {
	w := lagging(t)
	w.IneligibleFor[2] = "excluded"
	s := start(t, w)
	_, _, body := s.do("GET", "/v1/servers", "")
	rep := decode(t, body)
	servers, _ := rep["servers"].([]any)
	if rep["ready"] != true || rep["primary"] != "a" || len(servers) != 3 {
		t.Fatalf("got %s", body)
	}
	b, _ := servers[1].(map[string]any)
	c, _ := servers[2].(map[string]any)
	if b["behind_txns"] != 60.0 || b["eligible"] != true || b["confirmed"] != nil || c["eligible"] != false || c["reason"] != "excluded" {
		t.Errorf("got %s", body)
	}
	_, _, body = s.do("GET", "/v1/servers?verbose=1", "")
	if !strings.Contains(body, `"confirmed":"`+uuidA+`:1-40"`) || !strings.Contains(body, `"delivered":"`+uuidA+`:1-100"`) {
		t.Errorf("verbose without whole sets: %s", body)
	}
	_, _, body = s.do("GET", "/v1/keys?key=app.posts/42", "")
	k := decode(t, body)
	if k["known"] != true || k["ordinal"] != 50.0 || k["gtid"] != uuidA+":50" || k["one_row"] != true {
		t.Errorf("got %s", body)
	}
	_, _, body = s.do("GET", "/v1/keys?key=app.none/42", "")
	if k := decode(t, body); k["known"] != false || k["reason"] != "unknown_table" {
		t.Errorf("got %s", body)
	}
}

func TestEligible(t *testing.T) {
	w := routertest.Healthy(t)
	w.Leases[2] = 0
	s := start(t, w)
	for _, c := range []struct {
		path   string
		status int
	}{
		{"/v1/servers/b/eligible", 200},
		{"/v1/servers/b/eligible?max_staleness_ms=30", 200},
		{"/v1/servers/b/eligible?max_staleness_ms=29", 503},
		{"/v1/servers/c/eligible", 503},
		{"/v1/servers/z/eligible", 404},
		{"/v1/servers/b/eligible?key=app.posts/1", 400},
		{"/v1/servers/b/eligible?level=strong", 400},
	} {
		if status, _, body := s.do("GET", c.path, ""); status != c.status {
			t.Errorf("%s: got %d %s, want %d", c.path, status, body, c.status)
		}
	}
	w2 := routertest.Healthy(t)
	w2.CutOff()
	s.world.Store(w2)
	if status, _, body := s.do("GET", "/v1/servers/b/eligible", ""); status != 503 {
		t.Errorf("a blind router calls a server eligible: %d %s", status, body)
	}
}

func TestHealthAndReady(t *testing.T) {
	w := routertest.Healthy(t)
	s := start(t, w)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200} {
		if status, _, body := s.do("GET", path, ""); status != want {
			t.Errorf("%s: got %d %s, want %d", path, status, body, want)
		}
	}
	w2 := routertest.Healthy(t)
	w2.Watermark = 0
	s.world.Store(w2)
	if status, _, body := s.do("GET", "/readyz", ""); status != 503 || !strings.Contains(body, "watermark_old") {
		t.Errorf("got %d %s, want 503 watermark_old", status, body)
	}
	if status, _, _ := s.do("GET", "/healthz", ""); status != 200 {
		t.Error("the process answers but is not healthy")
	}
	if status, _, _ := s.do("GET", "/metrics", ""); status != 404 {
		t.Errorf("metrics without a handler: got %d, want 404", status)
	}
}

type recorder struct {
	reads []serve.ObservedRead
	err   error
}

func (r *recorder) Observe(_ context.Context, reads []serve.ObservedRead) error {
	if r.err == nil {
		r.reads = append(r.reads, reads...)
	}
	return r.err
}

func TestObserve(t *testing.T) {
	rec := &recorder{}
	s := start(t, routertest.Healthy(t), func(o *serve.Options, _ *router.Options) { o.Observer = rec })
	status, _, body := s.do("POST", "/v1/observe", `{"reads":[
		{"at":"2026-11-30T07:00:00.5Z","server":"b","keys":["app.posts/42",{"table":"app.posts","pk":["7"]}],"session":"s1"},
		{"at":1796022000500,"server":"c"}]}`)
	if status != 200 || body != `{"accepted":2}` {
		t.Fatalf("got %d %s", status, body)
	}
	first, second := rec.reads[0], rec.reads[1]
	if first.Server != "b" || first.Session != "s1" || len(first.Keys) != 2 || first.Keys[1].String() != "app.posts/7" || !first.At.Equal(second.At) {
		t.Errorf("got %+v", rec.reads)
	}
	for _, c := range []struct{ body, field string }{
		{`{"reads":[{"server":"b"}]}`, "reads[0].at"},
		{`{"reads":[{"at":1,"server":"b"},{"at":1}]}`, "reads[1].server"},
		{`{"reads":[{"at":"yesterday","server":"b"}]}`, "reads[0].at"},
		{`{"reads":[{"at":1,"server":"b","keys":["x"]}]}`, "reads[0].keys[0]"},
		{`{"reads":[{"at":1,"server":"b","level":"key"}]}`, "reads[0].level"},
		{`{}`, "reads"},
	} {
		status, _, body := s.do("POST", "/v1/observe", c.body)
		e, _ := decode(t, body)["error"].(map[string]any)
		if status != 400 || e["field"] != c.field {
			t.Errorf("%s: got %d %s, want field %s", c.body, status, body, c.field)
		}
	}
	rec.err = errors.New("the queue is full")
	if status, h, _ := s.do("POST", "/v1/observe", `{"reads":[]}`); status != 503 || h.Get("Retry-After") == "" {
		t.Errorf("an observer that takes nothing: got %d", status)
	}
}

func TestMetricsHandlerIsServed(t *testing.T) {
	s := start(t, routertest.Healthy(t), func(o *serve.Options, _ *router.Options) {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "m 1") })
	})
	if status, _, body := s.do("GET", "/metrics", ""); status != 200 || body != "m 1" {
		t.Errorf("got %d %q", status, body)
	}
}

func TestAnswersAreValidJSONWhateverTheyHold(t *testing.T) {
	w := lagging(t)
	w.States[1].AppAddr = "quote\" back\\ nl\n bad\xff é"
	w.States[1].Alive = false
	w.States[1].Down = "<tag>\x01"
	s := start(t, w)
	_, _, body := s.do("GET", "/v1/serve?replica=b&level=eventual", "")
	var got struct{ Addr, Detail string }
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if got.Addr != "quote\" back\\ nl\n bad\ufffd é" || got.Detail != "<tag>\x01" {
		t.Errorf("got %q", got)
	}
}

// TestABatchArrivesAtOnce: the probe that answers one item began after all of
// them, so that none waits for another one.
func TestABatchArrivesAtOnce(t *testing.T) {
	w := routertest.Healthy(t)
	var now atomic.Int64
	now.Store(routertest.Now)
	s := start(t, w, func(_ *serve.Options, o *router.Options) {
		o.Clock = now.Load
		o.ProbeWait = 50 * time.Millisecond
		news, silence := make(chan struct{}), make(chan struct{})
		close(news)
		rounds := 0
		o.Changed = func() <-chan struct{} {
			rounds++
			defer now.Add(int64(time.Millisecond))
			switch rounds {
			case 1:
				return news
			case 2: // the one probe that there is: its tick is sent now
				next := *w
				next.EAt = now.Load()
				w = &next
			}
			return silence
		}
		o.View = func() router.Snapshot { return w }
	})
	item := `{"level":"strong","floor":"` + uuidA + `:101"},`
	_, _, body := s.do("POST", "/v1/batch", `{"requests":[`+strings.TrimSuffix(strings.Repeat(item, 5), ",")+`]}`)
	if n := strings.Count(body, `"target":"a"`); n != 5 {
		t.Errorf("%d of 5 were answered: %s", n, body)
	}
	if n := s.waits(); n != 1 {
		t.Errorf("%d items waited for a probe, want the first alone", n)
	}
}
