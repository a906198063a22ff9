package daemon_test

import (
	"testing"
	"time"

	"tidegate/cmd/internal/daemon"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestClocksAnHourApart: the tail half runs where the wall clock is an hour ahead
// or behind of the serve half's, and moves between such hosts; how long they have
// been up differs by an hour and more anyway. Answers stay right, and come back
// after each move by themselves, also of a replica with relaxed durability, which
// alone is asked whether it may have been restarted meanwhile (rules 2.5).
func TestClocksAnHourApart(t *testing.T) {
	t.Parallel()
	relaxed := testenv.ServerOptions{Args: []string{"--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"}}
	w := newWorldOn(t, testenv.Options{PerServer: map[string]testenv.ServerOptions{"b": relaxed}})
	n := testenvtest.NATS(t, testenv.NATSOptions{})
	var p *program
	var l *load
	for _, host := range []daemon.Host{
		{WallAhead: time.Hour, BootAhead: time.Hour},
		{WallAhead: time.Hour, BootAhead: time.Hour}, // a restart
		{WallAhead: -time.Hour},
		{WallAhead: -time.Hour}, // a restart
		{BootAhead: 2 * time.Hour},
	} {
		tail := w.start(tailOnly, settings{nats: n.URL(), host: host})
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
		at := time.UnixMicro(p.state(w.c.Primary()).ProbedUnixMicro)
		if off := time.Until(at) - host.WallAhead; off.Abs() > 30*time.Minute {
			t.Errorf("the tail half's clock is %s ahead, want %s", time.Until(at), host.WallAhead)
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
