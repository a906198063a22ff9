package demo_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"tidegate/cmd/internal/demo"
)

// envChild turns the test binary into a demo that runs until it is interrupted
// or killed.
const envChild = "TIDEGATE_TEST_DEMO"

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m,
		// The NATS server has goroutines that run for the whole process once a
		// server was started.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine"),
		// The collation library logs with glog, whose flusher starts with the
		// process and never ends.
		goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
	)
}

// child is `tidegate demo --json` without its command line.
func child() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	res, err := demo.Run(ctx, demo.Options{Out: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := json.NewEncoder(os.Stdout).Encode(res); err != nil {
		return 1
	}
	return 0
}
