package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tidegate/cmd/internal/demo"
	"tidegate/testenv/testenvtest"
)

// mostRuns bounds how often the demo runs, for what a busy machine does not show in
// each run.
const mostRuns = 5

// Whole demos on real servers: the point of them must be there to see, and what
// is printed of each must have the promised form.
func TestDemo(t *testing.T) {
	var stale, sticky, reads int64
	var replica float64 // reads that Tidegate let go to a replica, about
	var missing []string
	for seed := range uint64(mostRuns) {
		res, shown := runDemo(t, 20261130+seed)
		p := res.Policies
		stale += p.AnyReplica.Stale
		sticky += p.Sticky5s.Stale
		reads += p.Tidegate.Reads
		replica += p.Tidegate.ReplicaShare * float64(p.Tidegate.Reads)
		missing = nil
		for _, want := range []string{"applier stopped", "a transaction of"} {
			if !strings.Contains(shown, want) {
				missing = append(missing, want)
			}
		}
		if stale > 0 && sticky > 0 && reads >= 200 && replica > 0 && len(missing) == 0 {
			return
		}
	}
	t.Errorf("in %d runs: %d stale reads from any replica and %d sticky ones, want some of both; %d reads, want 200; about %.0f of Tidegate's on a replica, want some; the last display never says %q",
		mostRuns, stale, sticky, reads, replica, missing)
}

// runDemo runs one demo, checks what holds however busy the machine is, and returns
// its result and its display.
func runDemo(t *testing.T, seed uint64) (demo.Result, string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	res, err := demo.Run(ctx, demo.Options{Length: 14 * time.Second, Seed: seed, Out: out})
	shown, readErr := os.ReadFile(out.Name())
	if readErr != nil {
		t.Fatal(readErr)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, shown)
	}
	line, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", line)
	form := regexp.MustCompile(`^\{"seconds":\d+(\.\d+)?,"policies":\{` +
		`"any_replica":\{"reads":\d+,"stale":\d+,"replica_share":[01]\},` +
		`"sticky_5s":\{"reads":\d+,"stale":\d+,"replica_share":(0(\.\d+)?|1)\},` +
		`"tidegate":\{"reads":\d+,"stale":0,"replica_share":(0(\.\d+)?|1),"oracle_share":(0(\.\d+)?|1)\}\}\}$`)
	if !form.Match(line) {
		t.Errorf("the line %s is not of the form %s", line, form)
	}
	p := res.Policies
	if n := p.Tidegate.Reads; n != p.AnyReplica.Reads || n != p.Sticky5s.Reads {
		t.Errorf("reads: %d, %d and %d; want the same number", p.AnyReplica.Reads, p.Sticky5s.Reads, n)
	}
	// Whatever Tidegate reads rightly on a replica, the oracle could have.
	if got, best := p.Tidegate.ReplicaShare, p.Tidegate.OracleShare; got > best {
		t.Errorf("replica share %.3f, the oracle's %.3f: want at most that", got, best)
	}
	for _, want := range []string{fmt.Sprintf("seed %d", seed), "curl -s 'http://127.0.0.1:"} {
		if !strings.Contains(string(shown), want) {
			t.Errorf("the display never says %q:\n%s", want, shown)
		}
	}
	return res, string(shown)
}

func TestEndedBeforeItBegan(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := demo.Run(ctx, demo.Options{}); !errors.Is(err, demo.ErrNotBegun) {
		t.Errorf("error %v, want %v", err, demo.ErrNotBegun)
	}
	if _, err := demo.Run(ctx, demo.Options{Length: -1}); err == nil || errors.Is(err, demo.ErrNotBegun) {
		t.Errorf("a negative length: %v, want an error that says so", err)
	}
}
