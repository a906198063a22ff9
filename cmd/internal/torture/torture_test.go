package torture_test

import (
	"context"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidegate/cmd/internal/torture"
	"tidegate/testenv/checker"
)

func TestMain(m *testing.M) {
	// glog, which a library brings in, flushes for as long as the process lives.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// run tortures a router and judges its history a second time.
func run(t *testing.T, o torture.Options) *checker.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	o.Seed, o.History = 1, filepath.Join(t.TempDir(), "history.jsonl")
	rep, err := torture.Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d reads, violations %v, replica share %.3f of the oracle's %.3f", rep.Reads, rep.Violations, rep.ReplicaShare, rep.OracleShare)
	again, err := checker.JudgeFile(o.History)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(rep, again) {
		t.Errorf("the history replays to another verdict: %+v, was %+v", again, rep)
	}
	return rep
}

// The whole program, real servers, faults: no answer may be wrong (P1-P4).
func TestRealRouterIsNeverWrong(t *testing.T) {
	rep := run(t, torture.Options{Router: "real", Faults: "receiver,replica-kill,cut", Duration: 10 * time.Second, After: time.Second})
	for _, v := range rep.Details {
		t.Errorf("violation %s: %s (answer: %s)", v.Class, v.Text, v.Read.Reason)
	}
	if idle := rep.Idle(); len(idle) > 0 {
		t.Errorf("faults that struck no read: %v", idle)
	}
	if rep.Reads < 200 || rep.ReplicaShare < 0.1 {
		t.Errorf("%d reads after a yes, %.3f of the decisions for a replica: too few to prove anything", rep.Reads, rep.ReplicaShare)
	}
}

// A checker that lets these two pass would let everything pass.
func TestBrokenRoutersAreCaught(t *testing.T) {
	for router, o := range map[string]torture.Options{
		"hints":  {Faults: "none", Duration: 20 * time.Second, Sessions: 24},
		"window": {Faults: "receiver", Duration: 10 * time.Second, After: time.Second},
	} {
		t.Run(router, func(t *testing.T) {
			o.Router = router
			if rep := run(t, o); rep.NumViolations() == 0 || rep.OK() {
				t.Errorf("not caught in %d reads", rep.Reads)
			}
		})
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]torture.Options{
		"router": {Router: "magic", Faults: "none", Duration: time.Second},
		"fault":  {Router: "window", Faults: "router", Duration: time.Second},
	} {
		if _, err := torture.Run(t.Context(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
