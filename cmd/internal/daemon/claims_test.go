package daemon_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// told is what a router says of itself over HTTP.
type told struct {
	Ready                   bool
	Reason, Detail, Primary string
	Servers                 []struct {
		Name, Role, Reason, Detail string
		Eligible                   bool
	}
}

// told reads /v1/servers.
func (w *world) told(p *program) (out told) {
	w.t.Helper()
	addr := "http://" + p.Server.HTTPAddr().String()
	code, body, err := get(w.ctx, addr+"/v1/servers")
	w.must(err)
	if code != http.StatusOK {
		w.t.Fatalf("/v1/servers: %d %s", code, body)
	}
	w.must(json.Unmarshal(body, &out))
	return out
}

// says waits until what the router says of itself, as text, is what ok wants.
func (w *world) says(p *program, what string, ok func(told) bool) {
	w.t.Helper()
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		got := w.told(p)
		return ok(got), fmt.Sprintf("want %s: %+v", what, got)
	})
}

// readiness waits until /readyz has the status, and a detail that contains the
// text.
func (w *world) readiness(p *program, status int, detail string) {
	w.t.Helper()
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		code, body, err := get(w.ctx, "http://"+p.Server.HTTPAddr().String()+"/readyz")
		w.must(err)
		return code == status && strings.Contains(string(body), detail), fmt.Sprintf("/readyz: %d %s; want %d ... %s", code, body, status, detail)
	})
}

// identity makes the server come back under a UUID.
func (w *world) identity(s *testenv.Server, uuid string) {
	w.t.Helper()
	w.must(s.Kill())
	w.must(os.WriteFile(filepath.Join(s.DataDir(), "auto.cnf"), []byte("[auto]\nserver-uuid="+uuid+"\n"), 0o640))
	w.must(s.Start(w.ctx))
}

// TestTwoServersOfOneUUID: a replica that was copied with its auto.cnf claims to
// be the other one, then the primary. Both who claim one UUID are refused and
// said to be, whoever is right; the third is not. With a UUID of its own all is
// well again.
func TestTwoServersOfOneUUID(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.c.Primary(), w.c.Replicas()[0], w.c.Replicas()[1]
	p := w.start(everything, settings{http: "127.0.0.1:0"})
	p.ready()
	l := p.load()
	w.everybody(l)
	own, err := c.UUID(w.ctx)
	w.must(err)
	t.Cleanup(func() {
		if now, err := c.UUID(testenvtest.Context(t, settle)); err != nil || now != own {
			w.identity(c, own)
		}
	})
	for _, other := range []*testenv.Server{b, a} {
		uuid, err := other.UUID(w.ctx)
		w.must(err)
		w.identity(c, uuid)
		for s, twin := range map[*testenv.Server]*testenv.Server{c: other, other: c} {
			w.refused(askRouter(p.Router), s.Name(), "app.posts/1", "excluded", "server "+twin.Name()+" has the same server_uuid "+uuid)
		}
		w.says(p, "both excluded", func(x told) bool {
			n := 0
			for _, s := range x.Servers {
				if (s.Name == c.Name() || s.Name == other.Name()) && !s.Eligible && s.Reason == "excluded" && strings.Contains(s.Detail, "same server_uuid") {
					n++
				}
			}
			return n == 2
		})
		if other == b {
			w.answers(l, a.Name())
		} else {
			// MySQL has ended the receiver of whom c claimed to be before.
			w.must(b.StartIOThread(w.ctx))
			w.answers(l, b.Name())
		}
	}
	w.identity(c, own)
	w.everybody(l)
	w.readiness(p, http.StatusOK, "")
}

// TestNoPrimaryOrTwo: the primary becomes read-only, and there is none; then a
// replica is let loose beside it, and there are two. Nobody is given a yes for a
// key, it is said why, and one alone is enough again.
func TestNoPrimaryOrTwo(t *testing.T) {
	w := newWorld(t)
	a, b := w.c.Primary(), w.c.Replicas()[0]
	p := w.start(everything, settings{http: "127.0.0.1:0"})
	p.ready()
	w.says(p, "the primary", func(x told) bool { return x.Ready && x.Primary == a.Name() })
	for _, s := range w.c.Servers() { // the table is known: without a primary nobody looks it up
		w.yes(p, s.Name(), "app.posts/1")
	}

	t.Cleanup(func() { // whatever comes, for the tests after it
		ctx := testenvtest.Context(t, settle)
		if err := a.SetReadOnly(ctx, false); err != nil {
			t.Error(err)
		}
	})
	w.must(a.SetReadOnly(w.ctx, true))
	for _, s := range w.c.Servers() {
		w.refused(askRouter(p.Router), s.Name(), "app.posts/1", "no_primary", "")
	}
	w.says(p, "no primary", func(x told) bool { return !x.Ready && x.Primary == "" })
	w.readiness(p, http.StatusServiceUnavailable, "")
	w.must(a.SetReadOnly(w.ctx, false))
	for _, s := range w.c.Servers() {
		w.yes(p, s.Name(), "app.posts/1")
	}
	w.readiness(p, http.StatusOK, "")

	w.must(b.Exec(w.ctx, "STOP REPLICA; RESET REPLICA ALL"))
	w.must(b.SetReadOnly(w.ctx, false))
	for _, s := range w.c.Servers() {
		w.refused(askRouter(p.Router), s.Name(), "app.posts/1", "no_primary", "both "+a.Name()+" and "+b.Name()+" are primaries")
	}
	w.says(p, "no primary", func(x told) bool { return !x.Ready && x.Primary == "" })
	w.readiness(p, http.StatusServiceUnavailable, "")
	w.must(b.RepointTo(w.ctx, a, ""))
	w.must(b.SetReadOnly(w.ctx, true))
	for _, s := range w.c.Servers() {
		w.yes(p, s.Name(), "app.posts/1")
	}
	w.says(p, "the primary again", func(x told) bool { return x.Ready && x.Primary == a.Name() })
}
