// Package testenvtest gives tests real servers: [Cluster] for one test,
// [Shared] for all tests of a package, and [WaitUntil] instead of sleeping.
// A missing server fails the test and says which command would provide it.
package testenvtest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"tidegate/testenv"
)

// StartTimeout bounds a start, provisioning of the packages included.
const StartTimeout = 5 * time.Minute

// HangTimeout ends a wait for what comes by itself. It says nothing of how soon
// that should be: it is there for what never comes, and long enough for a loaded
// machine.
const HangTimeout = 2 * time.Minute

// howToProvide is printed when servers are missing.
const howToProvide = "real MySQL servers are needed here: run 'go run ./cmd/tidegate sandbox' once with a network to fill the package cache, or set " +
	testenv.EnvMySQLD + " to the path of a mysqld"

// Cluster starts servers for one test, prints their version, and ends them when
// the test ends. The test fails when that does not work.
func Cluster(t testing.TB, opts testenv.Options) *testenv.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	c, err := testenv.Start(ctx, opts)
	if err != nil {
		t.Fatalf("%v\n%s", err, howToProvide)
	}
	t.Logf("MySQL %s (%s)", c.MySQL.Version, c.MySQL.Origin)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("end the sandbox: %v", err)
		}
	})
	return c
}

// Shared starts servers for a whole package, from TestMain: run is m.Run (or a
// function that calls it); the servers end after it. It returns the exit code
// for os.Exit, 1 when the servers cannot be had.
//
//	var servers *testenv.Cluster
//
//	func TestMain(m *testing.M) {
//		os.Exit(testenvtest.Shared(testenv.Options{}, func(c *testenv.Cluster) int {
//			servers = c
//			return m.Run()
//		}))
//	}
func Shared(opts testenv.Options, run func(*testenv.Cluster) int) int {
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	c, err := testenv.Start(ctx, opts)
	cancel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: %v\n%s\n", err, howToProvide)
		return 1
	}
	fmt.Printf("MySQL %s (%s)\n", c.MySQL.Version, c.MySQL.Origin)
	code := run(c)
	if err := c.Close(); err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: end the sandbox: %v\n", err)
		return max(code, 1)
	}
	return code
}

// pollEvery is how often WaitUntil asks.
const pollEvery = 5 * time.Millisecond

// WaitUntil calls ok until it says yes, and fails the test with the last why
// when timeout has passed.
func WaitUntil(t testing.TB, timeout time.Duration, ok func() (ok bool, why string)) {
	t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		done, why := ok()
		if done {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("not after %s: %s", timeout, why)
		case <-ticker.C:
		}
	}
}

// Context is a context that ends with the test or after timeout.
func Context(t testing.TB, timeout time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// Redis starts a Redis for one test, and ends it when the test ends.
func Redis(t testing.TB, opts testenv.RedisOptions) *testenv.Redis {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	r, err := testenv.StartRedis(ctx, opts)
	if err != nil {
		t.Fatalf("%v\na real Redis is needed here: run once with a network to fill the package cache, or set %s", err, testenv.EnvRedis)
	}
	closeAtEnd(t, "redis", r.Close)
	return r
}

// NATS starts a NATS server as a process of its own for one test, and ends it
// when the test ends.
func NATS(t testing.TB, opts testenv.NATSOptions) *testenv.NATSProcess {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	n, err := testenv.StartNATS(ctx, opts)
	if err != nil {
		t.Fatalf("%v\n%s", err, howToProvideNATS)
	}
	closeAtEnd(t, "nats", n.Close)
	return n
}

// NATSCluster starts size NATS servers (0: three) for one test, and ends them
// when the test ends.
func NATSCluster(t testing.TB, size int, opts testenv.NATSOptions) *testenv.NATSCluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	c, err := testenv.StartNATSCluster(ctx, size, opts)
	if err != nil {
		t.Fatalf("%v\n%s", err, howToProvideNATS)
	}
	closeAtEnd(t, "nats", c.Close)
	return c
}

const howToProvideNATS = "a real NATS server is needed here: run 'go build github.com/nats-io/nats-server/v2' in this module to see why it cannot be built, or set " + testenv.EnvNATS

// Process starts a program for one test, and kills it when the test ends.
func Process(t testing.TB, program testenv.Program) *testenv.Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	p, err := testenv.StartProcess(ctx, program)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, program.Argv[0], p.Close)
	return p
}

// Proxy starts a proxy in front of target for one test, and closes it when the
// test ends.
func Proxy(t testing.TB, target string) *testenv.Proxy {
	t.Helper()
	p, err := testenv.StartProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, "proxy", p.Close)
	return p
}

func closeAtEnd(t testing.TB, what string, end func() error) {
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Errorf("end %s: %v", what, err)
		}
	})
}
