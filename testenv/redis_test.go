package testenv_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// redisSays runs redis-cli and returns what it printed.
func redisSays(t *testing.T, r *testenv.Redis, args ...string) string {
	t.Helper()
	argv := r.CLI(args...)
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestRedis(t *testing.T) {
	t.Parallel()
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	r := testenvtest.Redis(t, testenv.RedisOptions{Password: "pass word", Durable: true, Args: []string{"--maxmemory", "64mb"}})
	if got := redisSays(t, r, "SET", "k", "v"); got != "OK" {
		t.Fatalf("SET: %q", got)
	}
	if got := redisSays(t, r, "CONFIG", "GET", "maxmemory"); !strings.Contains(got, "67108864") {
		t.Errorf("further options are not used: %q", got)
	}
	for _, end := range []func() error{r.Kill, func() error { return r.Stop(ctx) }} {
		addr, before := r.Addr(), redisSays(t, r, "INFO", "server")
		must(t, end())
		if r.Running() {
			t.Fatal("still running")
		}
		must(t, r.Start(ctx))
		if got := redisSays(t, r, "GET", "k"); got != "v" || r.Addr() != addr {
			t.Errorf("after a restart: %q at %s", got, r.Addr())
		}
		if redisSays(t, r, "INFO", "server") == before {
			t.Error("the same run of Redis")
		}
	}
	unauthorised := testenv.RedisCLI(r.CLI()[:len(r.CLI())-7], r.Addr(), "", "GET", "k")
	if out, _ := exec.Command(unauthorised[0], unauthorised[1:]...).CombinedOutput(); !strings.Contains(string(out), "NOAUTH") {
		t.Errorf("without a password: %s", out)
	}
	if _, err := testenv.StartRedis(ctx, testenv.RedisOptions{Args: []string{"--no-such-option", "1"}}); err == nil ||
		!strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("a bad option: %v, want the log in the error", err)
	}
}

func TestRedisThroughProxy(t *testing.T) {
	t.Parallel()
	r := testenvtest.Redis(t, testenv.RedisOptions{})
	p := startProxy(t, r.Addr())
	argv := testenv.RedisCLI(r.CLI()[:len(r.CLI())-4], p.Addr(), "", "PING")
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "PONG" {
		t.Fatalf("%v %s", err, out)
	}
	must(t, r.Pause()) // frozen: connects, and says nothing
	p.SetLatency(time.Millisecond)
	c := dial(t, p)
	_, err := c.Write([]byte("PING\r\n"))
	must(t, err)
	silent(t, c)
	must(t, r.Resume())
	expect(t, c, []byte("+PONG\r\n"), testenvtest.HangTimeout)
}
