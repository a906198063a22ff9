package serve_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"tidegate/router"
	"tidegate/router/routertest"
	"tidegate/router/serve"
)

// TestPagesOfOthersAreRefused: a browser that runs another site's page must not
// reach what loopback alone protects, whatever name it reached this host by.
func TestPagesOfOthersAreRefused(t *testing.T) {
	accepted := 0
	s := start(t, routertest.Healthy(t), func(o *serve.Options, _ *router.Options) {
		o.Acceptor = func(context.Context, serve.Acceptance) error { accepted++; return nil }
	})
	host := strings.TrimPrefix(s.url, "http://")
	for _, tt := range []struct {
		host    string
		origins []string
		status  int
	}{
		{host, nil, 200},
		{host, []string{"http://" + host}, 200},
		{host, []string{"http://evil.example"}, 403},
		{host, []string{"null"}, 403},
		{host, []string{""}, 403},
		{host, []string{"http://" + host, "http://evil.example"}, 403},
		{host, []string{"http://" + host + ".evil.example"}, 403},
		{"evil.example:80", []string{"http://evil.example:80"}, 403},
	} {
		accepted = 0
		for _, ask := range []struct{ method, path, body string }{
			{"POST", "/v1/servers/b/accept", `{"restart":true,"author":"x"}`},
			{"POST", "/v1/route", `{"level":"eventual"}`},
			{"GET", "/v1/servers", ""},
		} {
			req, err := http.NewRequest(ask.method, s.url+ask.path, strings.NewReader(ask.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Host = tt.host
			req.Header["Origin"] = tt.origins
			req.Header.Set("Content-Type", "text/plain")
			res, err := s.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != tt.status {
				t.Errorf("%s, host %s, origin %q: got %d, want %d", ask.path, tt.host, tt.origins, res.StatusCode, tt.status)
			}
		}
		if (accepted == 1) != (tt.status == 200) {
			t.Errorf("origin %q: %d acceptances", tt.origins, accepted)
		}
	}
}

// TestObserveElsewhere: a router that takes no reports says who does, and one
// that does names the read that it refuses.
func TestObserveElsewhere(t *testing.T) {
	const report = `{"reads":[{"at":1796022000500,"server":"b"},{"at":%AT,"server":"zz"}]}`
	for _, tt := range []struct {
		observer           serve.Observer
		at                 string
		status             int
		code, field, wants string
	}{
		{nil, "1796022000500", 404, "not_found", "url", "tidegate observe"},
		{refuser{}, "1796022000500", 400, "bad_field", "reads[1].server", "zz"},
		{refuser{}, "1796022000", 400, "bad_field", "reads[1].at", "seconds"},
	} {
		s := start(t, routertest.Healthy(t), func(o *serve.Options, _ *router.Options) { o.Observer = tt.observer })
		status, _, out := s.do("POST", "/v1/observe", strings.Replace(report, "%AT", tt.at, 1))
		e, _ := decode(t, out)["error"].(map[string]any)
		message, _ := e["message"].(string)
		if status != tt.status || e["code"] != tt.code || e["field"] != tt.field || !strings.Contains(message, tt.wants) {
			t.Errorf("got %d %s, want %d %s about %s with %q", status, out, tt.status, tt.code, tt.field, tt.wants)
		}
	}
}

// refuser knows no server zz.
type refuser struct{}

func (refuser) Observe(_ context.Context, reads []serve.ObservedRead) error {
	for i, r := range reads {
		if r.Server == "zz" {
			return &serve.ReadError{Read: i, Field: "server", Message: `there is no server "zz"`}
		}
	}
	return nil
}
