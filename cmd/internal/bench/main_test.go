package bench_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"tidegate/cmd/internal/bench"
)

// TestMain is the child too: rows start this program again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == bench.ChildCommand {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := bench.Child(ctx, os.Args[2:])
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m,
		// vitess' collations bring glog, whose init starts a flusher for ever.
		goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}
