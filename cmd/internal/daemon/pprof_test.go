package daemon_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestProfiles: /debug/pprof is served on a port of its own, and only when the
// configuration names one; never among the answers.
func TestProfiles(t *testing.T) {
	w := newWorldFor(t, servers)
	profiles := w.port()
	for _, on := range []bool{false, true} {
		text := w.configText(settings{http: "127.0.0.1:0"})
		if on {
			text = strings.Replace(text, "listen: {", `listen: {pprof: "`+profiles+`", `, 1)
		}
		p, _ := w.startText(text)
		code, body, err := get(w.ctx, "http://"+p.Server.HTTPAddr().String()+"/debug/pprof/")
		w.must(err)
		if code != http.StatusNotFound {
			t.Errorf("option %t: profiles among the answers: %d %s", on, code, body)
		}
		for path, says := range map[string]string{"": "goroutine", "goroutine?debug=1": "goroutine profile: total ", "heap?debug=1": "heap profile: ", "cmdline": "daemon.test"} {
			code, body, err := get(w.ctx, "http://"+profiles+"/debug/pprof/"+path)
			switch {
			case !on:
				if err == nil {
					t.Errorf("%s is served without the option: %d %s", path, code, body)
				}
			case err != nil || code != http.StatusOK || !strings.Contains(string(body), says):
				t.Errorf("%s: %d, %v; no %q in %.200s", path, code, err, says, body)
			}
		}
		p.end()
		if _, _, err := get(w.ctx, "http://"+profiles+"/debug/pprof/"); err == nil {
			t.Errorf("option %t: profiles are served after the end", on)
		}
	}
}
