package router_test

import (
	"testing"

	"go.uber.org/goleak"

	"tidegate/binlog/gtid"
	"tidegate/router"
	"tidegate/router/routertest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// vitess' collations bring glog, whose init starts a flusher for ever.
		goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// Short names for what every table here is made of.
const (
	uuidA  = routertest.UUIDA
	uuidC  = routertest.UUIDC
	epoch0 = routertest.Now
)

var (
	posts    = routertest.Posts()
	authors  = routertest.Authors()
	postsDef = routertest.PostsDef()
	own      = routertest.Own
	mustKey  = routertest.Key
	mustSet  = routertest.Set
	v        = routertest.V
	healthy  = routertest.Healthy
)

func mustGTID(t testing.TB, s string) gtid.GTID {
	t.Helper()
	g, err := gtid.ParseGTID(s)
	if err != nil {
		t.Fatalf("parse GTID %q: %v", s, err)
	}
	return g
}

func newRouter(t testing.TB, w *routertest.World, change ...func(*router.Options)) *router.Router {
	t.Helper()
	o := router.Options{View: func() router.Snapshot { return w }, Clock: func() int64 { return epoch0 }}
	for _, c := range change {
		c(&o)
	}
	r, err := router.New(o)
	if err != nil {
		t.Fatalf("new router: %v", err)
	}
	return r
}
