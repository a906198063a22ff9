package main_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"syscall"
	"testing"
	"time"

	"tidegate/cmd/internal/observe"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// readsEach is how many reads of each server are reported, readGap how far their
// moments are apart.
const (
	readsEach = 10
	readGap   = 100 * time.Millisecond
)

// reportReads reports reads of app.posts/1, which c shows and b lacks. Reads are
// judged by what was proven at their moment, so theirs are taken from a while
// over which the router has said so.
func reportReads(t *testing.T, addr string, names ...string) {
	t.Helper()
	var since time.Time
	testenvtest.WaitUntil(t, stepTimeout, func() (bool, string) {
		switch yesC, yesB := serves(t, addr, "c"), serves(t, addr, "b"); {
		case !yesC || yesB:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) > (readsEach+1)*readGap, "c does not show the write, or b does"
	})
	var reads []map[string]any
	for i := range readsEach {
		for _, name := range names {
			at := since.Add(time.Duration(i+1) * readGap)
			reads = append(reads, map[string]any{"at": at.UnixMilli(), "server": name, "keys": []string{"app.posts/1"}})
		}
	}
	body, err := json.Marshal(map[string]any{"reads": reads})
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Post("http://"+addr+"/v1/observe", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("the report was answered %s", res.Status)
	}
}

// untilJudged repeats a run of observe until it has judged its reads. It does not
// judge those whose moments the program missed, as it may on a busy machine.
func untilJudged(t *testing.T, run func() (judged bool)) {
	t.Helper()
	const most = 5
	for range most {
		if run() || t.Failed() {
			return
		}
	}
	t.Errorf("reads were left undecided in %d runs", most)
}

// A write from before the start is not known by its key: a replica that lacks it
// is not called fine, and the server that shows all is.
func testObserveOldWrite(t *testing.T, a, b *testenv.Server) {
	if err := b.StopSQLThread(testenvtest.Context(t, stepTimeout)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.StartSQLThread(testenvtest.Context(t, stepTimeout)); err != nil {
			t.Error(err)
		}
	}()
	execSQL(t, a, "UPDATE app.posts SET v = v + 1 WHERE id = 1")
	untilJudged(t, func() bool {
		// In a place of its own, so that no run before has read the write.
		r, addr := newOnServers(t, "").serving(t, "observe", "--json")
		reportReads(t, addr, "b")
		var tally observe.Tally
		oneDocument(t, r.end(syscall.SIGINT).want(t, exitOK).out, &tally)
		if tally.Reads != readsEach || tally.Undecided != readsEach {
			t.Errorf("reads of a replica that lacks the write: %+v, want all undecided", tally)
		}
		return tally.Because.Unproven > 0
	})
}
