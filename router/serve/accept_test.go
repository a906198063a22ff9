package serve_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"tidegate/router"
	"tidegate/router/routertest"
	"tidegate/router/serve"
)

func TestAccept(t *testing.T) {
	var got []serve.Acceptance
	var answer error
	s := start(t, routertest.Healthy(t), func(o *serve.Options, _ *router.Options) {
		o.Acceptor = func(_ context.Context, a serve.Acceptance) error {
			got = append(got, a)
			return answer
		}
	})
	const uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	for _, body := range []string{
		`{"table":"app.t","author":"ann","reason":"checked"}`,
		`{"gtids":"` + uuid + `:1-3","author":"ann"}`,
		`{"restart":true,"author":"ann"}`,
		`{"copy":true,"author":"ann"}`,
	} {
		if status, _, out := s.do("POST", "/v1/servers/b/accept", body); status != 200 || out != `{"accepted":true}` {
			t.Errorf("%s: got %d %s", body, status, out)
		}
	}
	if len(got) != 4 || !got[3].Copy || got[0].Server != "b" || got[0].Table != "app.t" || got[0].Reason != "checked" || got[1].GTIDs.Count() != 3 || !got[2].Restart {
		t.Fatalf("got %+v", got)
	}
	for _, c := range []struct{ body, code string }{
		{`{"author":"ann"}`, "bad_field"},
		{`{"restart":false,"author":"ann"}`, "bad_field"},
		{`{"copy":false,"author":"ann"}`, "bad_field"},
		{`{"table":"app.t"}`, "bad_field"},
		{`{"table":"app.t","restart":true,"author":"ann"}`, "bad_field"},
		{`{"gtids":"x","author":"ann"}`, "bad_gtid"},
		{`{"gtids":"","author":"ann"}`, "bad_gtid"},
		{`{"gtids":"aaaaaaaa-0000-0000-0000-000000000001:7-5","author":"ann"}`, "bad_gtid"},
		{`{"everything":true,"author":"ann"}`, "unknown_field"},
		{`{"table":`, "bad_json"},
	} {
		status, _, out := s.do("POST", "/v1/servers/b/accept", c.body)
		e, _ := decode(t, out)["error"].(map[string]any)
		if status != 400 || e["code"] != c.code {
			t.Errorf("%s: got %d %s, want 400 %s", c.body, status, out, c.code)
		}
	}
	if len(got) != 4 {
		t.Errorf("a mistaken request came through: %+v", got[4:])
	}
	for err, want := range map[error]int{serve.ErrUnknownServer: 404, serve.ErrNotAcceptable: 400, errors.New("KV away"): 503} {
		answer = fmt.Errorf("accept: %w", err)
		if status, _, _ := s.do("POST", "/v1/servers/x/accept", `{"restart":true,"author":"ann"}`); status != want {
			t.Errorf("%v: got %d, want %d", err, status, want)
		}
	}
	if status, _, _ := s.do("GET", "/v1/servers/b/accept", ""); status != 405 {
		t.Errorf("GET: got %d", status)
	}
}
