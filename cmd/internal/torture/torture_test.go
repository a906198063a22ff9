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
	"tidegate/testenv/testenvtest"
)

func TestMain(m *testing.M) {
	// glog, which a library brings in, flushes for as long as the process lives.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// mostRuns bounds how often a router is tortured, each time with another seed,
// for what one run shows only by chance.
const mostRuns = 8

// run tortures a router and judges its history a second time.
func run(t *testing.T, o torture.Options) *checker.Report {
	t.Helper()
	// The start of the servers comes on top of the run itself.
	ctx, cancel := context.WithTimeout(context.Background(), testenvtest.StartTimeout+testenvtest.HangTimeout)
	defer cancel()
	o.History = filepath.Join(t.TempDir(), "history.jsonl")
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

// The whole program, real servers, faults: no answer may be wrong (P1-P4). That
// proves something once enough reads were judged and each fault struck some.
func TestRealRouterIsNeverWrong(t *testing.T) {
	const enough = 200
	reads, struck := 0, map[string]bool{}
	var idle []string
	for seed := range uint64(mostRuns) {
		rep := run(t, torture.Options{Router: "real", Faults: "receiver,replica-kill,cut", Duration: 10 * time.Second, After: time.Second, Seed: seed + 1})
		for _, v := range rep.Details {
			t.Errorf("violation %s: %s (answer: %s)", v.Class, v.Text, v.Read.Reason)
		}
		if rep.NumViolations() > 0 {
			return
		}
		reads += rep.Reads
		idle = nil
		for _, f := range rep.Faults {
			if f.Struck > 0 && f.Reads > 0 {
				struck[f.Name] = true
			}
			if !struck[f.Name] {
				idle = append(idle, f.Name)
			}
		}
		if reads >= enough && len(idle) == 0 {
			return
		}
	}
	t.Errorf("in %d runs %d reads after a yes, and faults that struck none: %v: too few to prove anything", mostRuns, reads, idle)
}

// A checker that lets these two pass would let everything pass.
func TestBrokenRoutersAreCaught(t *testing.T) {
	for router, o := range map[string]torture.Options{
		"hints":  {Faults: "none", Duration: 10 * time.Second, Sessions: 24},
		"window": {Faults: "receiver", Duration: 10 * time.Second, After: time.Second},
	} {
		t.Run(router, func(t *testing.T) {
			o.Router = router
			reads := 0
			for o.Seed = 1; o.Seed <= mostRuns; o.Seed++ {
				rep := run(t, o)
				if rep.NumViolations() > 0 {
					if rep.OK() {
						t.Errorf("a run with violations passes: %v", rep.Violations)
					}
					return
				}
				reads += rep.Reads
			}
			t.Errorf("not caught in %d reads of %d runs", reads, mostRuns)
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
