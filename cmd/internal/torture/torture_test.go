package torture_test

import (
	"context"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidegate/cmd/internal/torture"
	"tidegate/testenv"
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

// run tortures a router on servers of its own.
func run(t *testing.T, o torture.Options) *checker.Report {
	t.Helper()
	// The start of the servers comes on top of the run itself.
	ctx, cancel := context.WithTimeout(context.Background(), testenvtest.StartTimeout+testenvtest.HangTimeout)
	defer cancel()
	return runWith(t, o, func(o torture.Options) (*checker.Report, error) { return torture.Run(ctx, o) })
}

// runWith tortures a router by run, and judges its history a second
// time.
func runWith(t *testing.T, o torture.Options, run func(torture.Options) (*checker.Report, error)) *checker.Report {
	t.Helper()
	o.History = filepath.Join(t.TempDir(), "history.jsonl")
	rep, err := run(o)
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
// proves something once enough reads were judged, some of them on replicas, and
// each fault struck some.
func TestRealRouterIsNeverWrong(t *testing.T) {
	const enough = 200
	reads, replica, struck := 0, 0.0, map[string]bool{}
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
		replica += rep.ReplicaShare * float64(rep.Decisions)
		idle = nil
		for _, f := range rep.Faults {
			if f.Struck > 0 && f.Reads > 0 {
				struck[f.Name] = true
			}
			if !struck[f.Name] {
				idle = append(idle, f.Name)
			}
		}
		if reads >= enough && replica > 0 && len(idle) == 0 {
			return
		}
	}
	t.Errorf("in %d runs %d reads after a yes, about %.0f on replicas, and faults that struck none: %v: too few to prove anything", mostRuns, reads, replica, idle)
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
				once := run
				if router == "hints" {
					once = runWithSlowCommits
				}
				rep := once(t, o)
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

// runWithSlowCommits tortures a router on replicas that let each transaction wait
// between binlog and engine, which is otherwise a matter of microseconds: without
// sync_binlog=1 the dump threads are shown it before the delay of the group
// commit.
func runWithSlowCommits(t *testing.T, o torture.Options) *checker.Report {
	t.Helper()
	slow := testenv.ServerOptions{Args: []string{"--sync-binlog=0", "--binlog-group-commit-sync-delay=20000"}} // in microseconds
	c := testenvtest.Cluster(t, testenv.Options{PerServer: map[string]testenv.ServerOptions{"b": slow, "c": slow}})
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	if err := checker.Prepare(ctx, c); err != nil {
		t.Fatal(err)
	}
	return runWith(t, o, func(o torture.Options) (*checker.Report, error) { return torture.RunOn(ctx, c, o, t.TempDir()) })
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
