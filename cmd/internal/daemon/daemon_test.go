package daemon_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"tidegate/cdc/key"
	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/daemon"
	"tidegate/router"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

func configFor(t testing.TB, c *testenv.Cluster) *config.Config {
	t.Helper()
	text := "cluster: test\ndata_dir: " + t.TempDir() + "\nlisten: {http: \"127.0.0.1:0\", resp: \"127.0.0.1:0\"}\nkeys: {app.posts: [author_id]}\nservers:\n"
	for _, s := range c.Servers() {
		text += fmt.Sprintf("  - {name: %s, addr: %q, user: %s, password: %s}\n", s.Name(), s.Addr(), testenv.TidegateUser, testenv.TidegatePassword)
	}
	cfg, err := config.Parse("test", []byte(text), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestFromCommitToAnswer(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{})
	ctx := testenvtest.Context(t, time.Minute)
	primary := c.Primary()
	if err := primary.Exec(ctx, "CREATE TABLE app.posts (id INT PRIMARY KEY, author_id INT, body VARCHAR(100))"); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	d, err := daemon.Open(ctx, configFor(t, c), daemon.Options{Parts: daemon.Parts{Tail: true, Serve: true}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- d.Run(run) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	ready, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := d.Ready(ready); err != nil {
		t.Fatal(err)
	}
	k, err := key.Parse("app.posts/1")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(server string) router.Answer {
		var ans router.Answer
		if err := d.Router.Serve(&router.Request{Server: server, Keys: []key.Key{k}, Explain: true}, &ans); err != nil {
			t.Fatal(err)
		}
		return ans
	}
	for _, s := range []string{"a", "b", "c"} {
		testenvtest.WaitUntil(t, 10*time.Second, func() (bool, string) {
			ans := ask(s)
			return ans.Yes, fmt.Sprintf("%s: %s %s", s, ans.Reason, ans.Detail)
		})
	}
	b := c.Server("b")
	if err := b.StopSQLThread(ctx); err != nil {
		t.Fatal(err)
	}
	if err := primary.Exec(ctx, "INSERT INTO app.posts VALUES (1, 7, 'x')"); err != nil {
		t.Fatal(err)
	}
	testenvtest.WaitUntil(t, 10*time.Second, func() (bool, string) {
		ans := ask("b")
		return !ans.Yes && ans.Reason == router.ReasonKeyBehind, fmt.Sprintf("b: %v %s %s", ans.Yes, ans.Reason, ans.Detail)
	})
	testenvtest.WaitUntil(t, 10*time.Second, func() (bool, string) {
		ans := ask("c")
		return ans.Yes, fmt.Sprintf("c: %s %s", ans.Reason, ans.Detail)
	})
	if err := b.StartSQLThread(ctx); err != nil {
		t.Fatal(err)
	}
	testenvtest.WaitUntil(t, 10*time.Second, func() (bool, string) {
		ans := ask("b")
		return ans.Yes, fmt.Sprintf("b: %s %s", ans.Reason, ans.Detail)
	})
}
