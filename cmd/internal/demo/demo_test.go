package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tidegate/cmd/internal/demo"
	"tidegate/testenv/testenvtest"
)

// A whole demo on real servers: the point of it must be there to see, and what
// is printed of it must have the promised form.
func TestDemo(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	res, err := demo.Run(ctx, demo.Options{Length: 14 * time.Second, Seed: 20261130, Out: out})
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
	form := regexp.MustCompile(`^\{"seconds":14(\.\d+)?,"policies":\{` +
		`"any_replica":\{"reads":\d+,"stale":\d+,"replica_share":1\},` +
		`"sticky_5s":\{"reads":\d+,"stale":\d+,"replica_share":0\.\d+\},` +
		`"tidegate":\{"reads":\d+,"stale":0,"replica_share":0\.\d+,"oracle_share":(0\.\d+|1)\}\}\}$`)
	if !form.Match(line) {
		t.Errorf("the line %s is not of the form %s", line, form)
	}
	p := res.Policies
	if p.AnyReplica.Stale == 0 || p.Sticky5s.Stale == 0 {
		t.Errorf("stale reads: any replica %d, sticky %d; want some of both\n%s", p.AnyReplica.Stale, p.Sticky5s.Stale, shown)
	}
	if n := p.Tidegate.Reads; n < 200 || n != p.AnyReplica.Reads || n != p.Sticky5s.Reads {
		t.Errorf("reads: %d, %d and %d; want the same number, at least 200", p.AnyReplica.Reads, p.Sticky5s.Reads, n)
	}
	// Whatever Tidegate reads rightly on a replica, the oracle could have; and a
	// router that sends everything to the primary is no feat.
	if got, best := p.Tidegate.ReplicaShare, p.Tidegate.OracleShare; got > best || got < best/2 {
		t.Errorf("replica share %.3f, the oracle's %.3f: want at most that, and at least half", got, best)
	}
	for _, want := range []string{"seed 20261130", "curl -s 'http://127.0.0.1:", "applier stopped", "a transaction of"} {
		if !strings.Contains(string(shown), want) {
			t.Errorf("the display never says %q:\n%s", want, shown)
		}
	}
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
