package daemon_test

import (
	"strconv"
	"testing"
	"time"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestClocksAnHourApart: the tail half runs where the clock that all ages, leases
// and ticks are measured by is an hour or two ahead of the serve half's, and moves
// between such hosts. Answers stay right, and come back after each move by
// themselves, also of a replica with relaxed durability, which alone is asked
// whether it may have been restarted meanwhile (rules 2.5): by its server's own
// wall clock, whatever the hosts' clocks say.
func TestClocksAnHourApart(t *testing.T) {
	t.Parallel()
	relaxed := testenv.ServerOptions{Args: []string{"--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"}}
	w := newWorldOn(t, testenv.Options{PerServer: map[string]testenv.ServerOptions{"b": relaxed}})
	n := testenvtest.NATS(t, testenv.NATSOptions{})
	var p *program
	var l *load
	for _, ahead := range []time.Duration{time.Hour, time.Hour /* a restart */, 0, 2 * time.Hour} {
		tail := w.start(tailOnly, settings{nats: n.URL(), ahead: ahead})
		if p == nil { // a tailer makes the streams
			p = w.start(serveOnly, settings{nats: n.URL()})
			l = p.load()
		}
		p.ready()
		w.everybody(l)
		for _, r := range w.c.Replicas() {
			w.must(r.StopSQLThread(w.ctx))
			w.grows(l, 50)
			w.refused(askRouter(p.Router), r.Name(), "app.posts/1", "key_behind", "")
			w.must(r.StartSQLThread(w.ctx))
			w.everybody(l)
		}
		text, err := w.c.Primary().QueryString(w.ctx, "SELECT UNIX_TIMESTAMP()")
		w.must(err)
		now, err := strconv.ParseInt(text, 10, 64)
		w.must(err)
		if off := now - p.state(w.c.Primary()).ProbedUnixMicro/1e6; max(off, -off) > 1800 {
			t.Errorf("probed %d s ago by the server's clock", off)
		}
		tail.end()
		for _, s := range w.c.Servers() {
			testenvtest.WaitUntil(t, settle, func() (bool, string) {
				a, err := askRouter(p.Router)(w.ctx, question{server: s.Name(), key: "app.posts/1"})
				w.must(err)
				return !a.yes, s.Name() + " is answered without a tailer: " + a.String()
			})
		}
	}
}
