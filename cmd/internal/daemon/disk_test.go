package daemon_test

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tidegate/cdc"
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
	wait, cancel := context.WithTimeout(w.ctx, settle)
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

// TestDiskFullUnderTheStream: a program whose embedded stream can not grow any
// more ends, says what is wrong and what would be right, and a restart with
// room goes on without having lost a write.
func TestDiskFullUnderTheStream(t *testing.T) {
	w := newWorld(t)
	addr := w.port()
	// The index is not written meanwhile, so that the stream meets the limit.
	s := settings{http: addr, more: "index: {persist_every: 1h}\n"}
	whole := w.child("run", s)
	l := w.load(askHTTP(addr))
	w.everybody(l)
	w.must(whole.Stop(w.ctx))
	room := strconv.FormatInt(largestFile(t, w.dir)+64<<10, 10)
	small := w.child("run", s, envChildFSize+"="+room)
	wait, cancel := context.WithTimeout(w.ctx, settle)
	defer cancel()
	var status *exec.ExitError
	if err := small.Wait(wait); !errors.As(err, &status) {
		t.Fatalf("it did not end: %v\n%s", err, small.Log())
	}
	log := small.Log()
	for _, want := range []string{cdc.ErrStoreFailed.Error(), "file too large", filepath.Join(w.dir, "data", "nats"), "free now"} {
		if n := strings.Count(log, want); n == 0 {
			t.Errorf("it does not say %q when it ends:\n%s", want, log)
		}
	}
	if n := strings.Count(log, cdc.ErrStoreFailed.Error()); n != 1 {
		t.Errorf("it says %d times why it ended, want once", n)
	}
	// Without room it does not start to wait either.
	full := w.child("run", s, envChildFSize+"="+room)
	if err := full.Wait(wait); !errors.As(err, &status) {
		t.Fatalf("started without room, it did not end: %v\n%s", err, full.Log())
	}
	w.must(whole.Start(w.ctx))
	w.everybody(l)
}

func largestFile(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes = max(bytes, info.Size())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}
