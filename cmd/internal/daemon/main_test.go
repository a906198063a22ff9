package daemon_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// servers are the three MySQL servers that all tests of the package use, one
// test at a time; who breaks them mends them ([heal]).
var servers *testenv.Cluster

// TestMain is the tests, or, where a test started this binary again, the
// program itself (see runChild).
func TestMain(m *testing.M) {
	if file := os.Getenv(envChildConfig); file != "" {
		os.Exit(runChild(file))
	}
	code := testenvtest.Shared(testenv.Options{}, func(c *testenv.Cluster) int {
		servers = c
		return m.Run()
	})
	if err := goleak.Find(
		// The collation library logs with glog, whose flusher starts with the
		// process and never ends.
		goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
	); err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
