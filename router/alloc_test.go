//go:build !race

// The race detector makes sync.Pool forget at random, so that these counts mean
// nothing under it.
package router_test

import (
	"testing"

	"tidegate/router"
)

func TestServeDoesNotAllocate(t *testing.T) {
	w := healthy(t)
	w.Records[own(t, "app.posts/42")] = v(50)
	r := newRouter(t, w)
	for _, ask := range []string{
		"app.posts/42",
		"app.posts/42 floor=" + uuidA + ":1-5:9-20",
		"level=session floor=" + uuidA + ":1-5:9-20",
		"app.posts@author_id/7",
		"level=bounded stale=1s",
	} {
		req := parseAsk(t, ask)
		req.Explain = false
		var ans router.Answer
		n := testing.AllocsPerRun(1000, func() {
			if err := r.Serve(&req, &ans); err != nil || !ans.Yes {
				t.Fatal(ans.Reason, err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations, want none", ask, n)
		}
	}
}

func TestRouteDoesNotAllocateOnAYes(t *testing.T) {
	r := newRouter(t, healthy(t))
	req := parseAsk(t, "app.posts/42")
	req.Explain = false
	var ans router.Answer
	n := testing.AllocsPerRun(1000, func() {
		if err := r.Route(t.Context(), &req, &ans); err != nil || !ans.Yes {
			t.Fatal(ans.Reason, err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
