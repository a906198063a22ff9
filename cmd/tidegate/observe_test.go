package main_test

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidegate/cmd/internal/observe"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// A write from before the start is not known by its key: a replica that lacks it
// is not called fine, and the server that shows all is.
func testObserveOldWrite(t *testing.T, a, b *testenv.Server) {
	ctx := testenvtest.Context(t, 2*stepTimeout)
	if err := b.StopSQLThread(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.StartSQLThread(testenvtest.Context(t, stepTimeout)); err != nil {
			t.Error(err)
		}
	}()
	execSQL(t, a, "UPDATE app.posts SET v = v + 1 WHERE id = 1")
	r, addr := newOnServers(t, "").serving(t, "observe", "--json")
	// What c shows is known for a while, so that a moment before the reads is.
	var since time.Time
	testenvtest.WaitUntil(t, stepTimeout, func() (bool, string) {
		if !serves(t, addr, "c") || serves(t, addr, "b") {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		return !since.IsZero() && time.Since(since) > 200*time.Millisecond, "c does not show the write, or b does"
	})
	var reads []string
	for i := range readsEach {
		at := time.Now().Add(-time.Duration(i) * 15 * time.Millisecond)
		reads = append(reads, fmt.Sprintf(`{"at":%d,"server":"b","keys":["app.posts/1"]}`, at.UnixMilli()))
	}
	res, err := http.Post("http://"+addr+"/v1/observe", "application/json", strings.NewReader(`{"reads":[`+strings.Join(reads, ",")+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("the report was answered %s", res.Status)
	}
	var tally observe.Tally
	oneDocument(t, r.end(syscall.SIGINT).want(t, exitOK).out, &tally)
	if tally.Reads != readsEach || tally.Undecided != readsEach || tally.Because.Unproven == 0 {
		t.Errorf("reads of a replica that lacks the write: %+v, want all undecided", tally)
	}
}
