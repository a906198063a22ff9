package serve_test

import (
	"context"
	"strings"
	"testing"

	"tidegate/router"
	"tidegate/router/serve"
)

// TestExcludeOfNobody: a mistyped name must not lead to the server that the
// caller means to avoid.
func TestExcludeOfNobody(t *testing.T) {
	s := start(t, lagging(t))
	status, _, out := s.do("POST", "/v1/route", `{"level":"eventual","exclude":["b","cc"]}`)
	e, _ := decode(t, out)["error"].(map[string]any)
	if status != 400 || e["code"] != "bad_field" || e["field"] != "exclude[1]" {
		t.Errorf("got %d %s", status, out)
	}
	if status, _, out := s.do("POST", "/v1/route", `{"level":"eventual","exclude":["b","b"]}`); status != 200 || decode(t, out)["target"] != "c" {
		t.Errorf("known names: got %d %s", status, out)
	}
	_, _, out = s.do("POST", "/v1/batch", `{"requests":[{"level":"eventual","exclude":["cc"]}]}`)
	answers, _ := decode(t, out)["answers"].([]any)
	if len(answers) != 1 || !strings.Contains(out, `"field":"exclude[0]"`) {
		t.Errorf("in a batch: got %s", out)
	}
	if n := s.redisExample(t, "> ROUTE LEVEL eventual EXCLUDE 1 cc\n(error) ERR bad_field field=exclude[0] *\n"); n != 1 {
		t.Errorf("%d RESP commands ran", n)
	}
}

// TestAcceptSaysWhatIsWanted: what is wrong with a set or a table is said of what
// was given.
func TestAcceptSaysWhatIsWanted(t *testing.T) {
	s := start(t, lagging(t), func(o *serve.Options, _ *router.Options) {
		o.Acceptor = func(context.Context, serve.Acceptance) error { return nil }
	})
	for _, tt := range []struct{ body, code, field, has, hasNot string }{
		{`{"gtids":"zzz","author":"x"}`, "bad_gtid", "gtids", "", "empty"},
		{`{"gtids":"","author":"x"}`, "bad_gtid", "gtids", "empty", ""},
		{`{"table":"posts","author":"x"}`, "bad_field", "table", "schema.table", "/value"},
	} {
		status, _, out := s.do("POST", "/v1/servers/b/accept", tt.body)
		e, _ := decode(t, out)["error"].(map[string]any)
		message, _ := e["message"].(string)
		if status != 400 || e["code"] != tt.code || e["field"] != tt.field || !strings.Contains(message, tt.has) || tt.hasNot != "" && strings.Contains(message, tt.hasNot) {
			t.Errorf("%s: got %d %s", tt.body, status, out)
		}
	}
	if status, _, out := s.do("POST", "/v1/servers/b/accept", `{"table":"*","author":"x"}`); status != 200 {
		t.Errorf("the server as a whole: got %d %s", status, out)
	}
}
