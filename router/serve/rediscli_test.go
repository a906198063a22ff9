package serve_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"tidegate/router"
	"tidegate/router/serve"
	"tidegate/testenv"
)

func TestRedisCLI(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	cli, err := testenv.FindRedisCLI(ctx, testenv.Provisioning{})
	if err != nil {
		t.Fatalf("no redis-cli: %v", err)
	}
	run := func(s *service, password string, args ...string) string {
		t.Helper()
		argv := testenv.RedisCLI(cli, s.resp, password, append([]string{"--no-raw"}, args...)...)
		out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		if err != nil && len(out) == 0 {
			t.Fatalf("%v: %v", argv, err)
		}
		return string(out)
	}
	s := start(t, lagging(t))
	yes := "1) (integer) 1\n2) \"applied\"\n3) (nil)\n4) (nil)\n5) (integer) 0\n6) \"cccccccc-0000-0000-0000-000000000003\"\n7) \"12\"\n"
	for _, c := range []struct{ ask, want string }{
		{"PING", "PONG\n"},
		{"SERVE c KEYS 1 app.posts/42", yes},
		{"-3 SERVE c KEYS 1 app.posts/42", yes},
		{"SERVE c KEYS 1 nonsense", "(error) ERR bad_key field=key[0] offset=8 "},
		{"COMMAND COUNT", "(integer) 11\n"},
	} {
		if got := run(s, "", strings.Fields(c.ask)...); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", c.ask, got, c.want)
		}
	}
	locked := start(t, lagging(t), func(o *serve.Options, _ *router.Options) { o.Auth = testAuth(t) })
	if got := run(locked, readToken, "SERVE", "c", "KEYS", "1", "app.posts/42"); got != yes {
		t.Errorf("with a token: got\n%s", got)
	}
	if got := run(locked, "", "SERVE", "c", "KEYS", "1", "app.posts/42"); !strings.Contains(got, "NOAUTH") {
		t.Errorf("without a token: got\n%s", got)
	}
}
