package index_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// hang is when a test gives up waiting. It only stops a test that hangs, and says
// nothing of how long anything may take.
const hang = 2 * time.Minute

func TestMain(m *testing.M) {
	prepare()
	goleak.VerifyTestMain(m,
		// cdc/key reaches Vitess' collations and with them glog, whose package
		// initialization starts a daemon that never ends.
		goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		// Pebble does not end it when it fails to open, which the tests of a full
		// disk make it do.
		goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2.(*ConcurrencyLimitScheduler).periodicGranter"),
	)
}
