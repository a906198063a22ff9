package daemon_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestFolderOfAnotherCluster: the data of one cluster is never used for
// another, neither the embedded stream nor the index.
func TestFolderOfAnotherCluster(t *testing.T) {
	w := newWorld(t)
	p := w.start(everything, settings{})
	p.ready()
	p.end()
	if _, err := w.open(everything, settings{cluster: "bank"}); err == nil {
		t.Error("the folder of cluster test was opened for cluster bank")
	} else if text := err.Error(); !strings.Contains(text, "test") || !strings.Contains(text, "cluster") {
		t.Errorf("the refusal does not name the cluster: %v", err)
	}
	again := w.start(everything, settings{})
	again.ready()
	w.everybody(again.load())
}

// TestDiskFull: a router that can not write its index any more ends with the
// error, and a restart with room recovers.
func TestDiskFull(t *testing.T) {
	w := newWorld(t)
	n := testenvtest.NATS(t, testenv.NATSOptions{})
	w.start(tailOnly, settings{nats: n.URL()})
	addr := w.port()
	s := settings{nats: n.URL(), dir: t.TempDir(), http: addr, more: "index: {persist_every: 10ms}\n"}
	// It runs once with room: what is limited is a program at work.
	whole := w.child("serve", s)
	l := w.load(askHTTP(addr))
	w.everybody(l)
	w.must(whole.Stop(w.ctx))
	small := w.child("serve", s, envChildFSize+"=20000")
	wait, cancel := context.WithTimeout(w.ctx, 30*time.Second)
	defer cancel()
	var status *exec.ExitError
	if err := small.Wait(wait); !errors.As(err, &status) {
		t.Fatalf("it did not end: %v\n%s", err, small.Log())
	}
	if log := small.Log(); !strings.Contains(log, "file too large") {
		t.Errorf("it does not say why it ended:\n%s", log)
	}
	w.must(whole.Start(w.ctx))
	w.everybody(l)
}
