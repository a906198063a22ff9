package daemon_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestUnixSockets: a whole program reaches its servers over their Unix sockets,
// waits for a server whose socket is not there, and gives applications the address
// that is theirs.
func TestUnixSockets(t *testing.T) {
	w := newWorld(t)
	text := w.configText(settings{})
	for _, s := range w.c.Servers() {
		text = strings.Replace(text, fmt.Sprintf("addr: %q", s.Addr()), fmt.Sprintf("addr: %q, app_addr: %q", s.Socket(), s.Addr()), 1)
	}
	r := w.c.Replicas()[0]
	w.must(r.Stop(w.ctx))
	p, _ := w.startText(text)
	p.ready()
	w.refused(askRouter(p.Router), r.Name(), "app.posts/1", "lease_expired", "nothing has been heard of it")
	w.must(r.Start(w.ctx))
	l := p.load()
	w.everybody(l)
	w.must(r.Kill())
	w.refused(askRouter(p.Router), r.Name(), "app.posts/1", "lease_expired", "")
	w.must(r.Start(w.ctx))
	w.everybody(l)
	if st := p.state(r); st.AppAddr != r.Addr() {
		t.Errorf("applications are told %q, want %q", st.AppAddr, r.Addr())
	}
}
