package rulestest

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// vitess' collations bring glog, whose init starts a flusher for ever.
		goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}
