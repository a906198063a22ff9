package binlog_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// hang is when a test gives up waiting. It only stops a test that hangs, and says
// nothing of how long anything may take.
const hang = testenvtest.HangTimeout

// servers is one primary for the tests of this package; each test works in a
// schema of its own.
var servers *testenv.Cluster

func TestMain(m *testing.M) {
	os.Exit(testenvtest.Shared(testenv.Options{Servers: 1}, func(c *testenv.Cluster) int {
		servers = c
		// What the sandbox itself runs until it is closed is not ours; its pool of
		// idle connections is closed first.
		before := goleak.IgnoreCurrent()
		code := m.Run()
		if code != 0 {
			return code
		}
		servers.Primary().DB().SetMaxIdleConns(0)
		if err := goleak.Find(before); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}))
}
