package index_test

import (
	"testing"

	"go.uber.org/goleak"
)

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
