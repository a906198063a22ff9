package binlog

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-sql-driver/mysql"

	"tidegate/cdc/event"
)

func TestInterval(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name    string
		primary bool
		proved  int
		behind  time.Duration
		want    time.Duration
	}{
		{name: "nothing to prove", want: ms},
		{name: "one by one", proved: 1, want: ms},
		{name: "several at once", proved: 3, want: 3 * ms},
		{name: "many at once", proved: 500, want: 4 * ms},
		{name: "a little behind", proved: 1, behind: 10 * ms, want: ms},
		{name: "behind", proved: 1, behind: 160 * ms, want: 10 * ms},
		{name: "far behind", proved: 500, behind: time.Hour, want: 100 * ms},
		{name: "primary", primary: true, proved: 500, want: 100 * ms},
	} {
		s := &session{m: &Monitor{o: MonitorOptions{MinInterval: ms}}, wasPrimary: c.primary, proved: c.proved}
		s.lag.behind = c.behind
		if got := s.interval(); got != c.want {
			t.Errorf("%s: interval %v, want %v", c.name, got, c.want)
		}
	}
}

func TestLagMeter(t *testing.T) {
	at := time.Unix(1000, 0)
	var l lagMeter
	look := func(what string, after time.Duration, executed, waiting uint64, want time.Duration) {
		t.Helper()
		at = at.Add(after)
		if l.look(executed, waiting, at); l.behind != want {
			t.Errorf("%s: behind %v, want %v", what, l.behind, want)
		}
	}
	look("first look", 0, 100, 50, 0)
	look("100 in a second, 50 to go", time.Second, 200, 50, 500*time.Millisecond)
	look("all applied", time.Second, 300, 0, 0)
	look("10 in a quarter, 1000 to go", 250*time.Millisecond, 310, 1000, 25*time.Second)
	look("stands still", time.Second, 310, 2000, 0)
	look("goes on", time.Second, 410, 1900, 19*time.Second)
	look("another data set", time.Second, 5, 10, 0)
}

func TestFactsEvery(t *testing.T) {
	m := &Monitor{o: MonitorOptions{FactsInterval: 250 * time.Millisecond}}
	for took, want := range map[time.Duration]time.Duration{
		time.Millisecond: 250 * time.Millisecond, 8 * time.Millisecond: 800 * time.Millisecond, time.Second: 2 * time.Second,
	} {
		if got := m.factsEvery(took); got != want {
			t.Errorf("after a look of %v: %v, want %v", took, got, want)
		}
	}
}

// TestMonitorAsksStatusSeldom: a tick is named by a cheap probe; what the
// performance schema has to be asked for comes once in AliveInterval, and the
// uptime goes on between.
func TestMonitorAsksStatusSeldom(t *testing.T) {
	scripted(t, func(r *rig) {
		r.start(MonitorOptions{AliveInterval: 10 * time.Second})
		defer r.end()
		full := func() int { r.s.mu.Lock(); defer r.s.mu.Unlock(); return r.s.full }
		if got := full(); got != 1 {
			t.Fatalf("%d full probes at the first meeting, want 1", got)
		}
		began := r.latest().UptimeSeconds
		for tick := uint64(1); tick <= 5; tick++ { // settle lets 1.5 s pass
			r.mu.Lock()
			r.tick = tick
			r.mu.Unlock()
			r.m.Tick()
			r.settle()
			if st := r.latest(); len(st.Ticks) != 1 || st.Ticks[0].Tick != tick {
				t.Errorf("ticks %v, want %d", st.Ticks, tick)
			}
		}
		r.want("full probes for five ticks", full(), 1)
		if got := r.latest().UptimeSeconds - began; got < 7 || got > 8 {
			t.Errorf("uptime has grown by %d s in 7.5 s", got)
		}
		r.settle()
		r.want("full probes after the interval", full(), 2)
	})
}

// TestTicksOfALaggingReplica: a tick alone does not bring a probe forward where
// the replica is behind by more than the wait; elsewhere it does at once.
func TestTicksOfALaggingReplica(t *testing.T) {
	for _, c := range []struct {
		name    string
		primary bool
		behind  time.Duration
		ago     time.Duration // since the last probe
		want    bool
	}{
		{name: "level", want: true},
		{name: "behind", behind: time.Hour, ago: 50 * time.Millisecond},
		{name: "behind, and long ago", behind: time.Hour, ago: time.Second, want: true},
		{name: "a little behind", behind: 16 * time.Millisecond, ago: 50 * time.Millisecond, want: true},
		{name: "primary", primary: true, behind: time.Hour, want: true},
	} {
		ticks := []event.RouterTick{{Tick: 7}}
		s := &session{
			m: &Monitor{
				tr: newTracker(FollowBinlog),
				o: MonitorOptions{
					MinInterval: time.Millisecond, AliveInterval: time.Hour,
					Ticks: func() []event.RouterTick { return ticks },
				},
			},
			wasPrimary: c.primary, probedAt: time.Now().Add(-c.ago), fullAt: time.Now(), ticksSet: true,
		}
		s.lag.behind = c.behind
		if q, _, _, need := s.next(); need != c.want || need && !q.Prompt {
			t.Errorf("%s: probe %v %+v, want %v", c.name, need, q, c.want)
		}
	}
}

// TestLongestPause: a server that is away is looked for often, one that answers
// with an error seldom.
func TestLongestPause(t *testing.T) {
	for _, c := range []struct {
		err  error
		want time.Duration
	}{
		{fmt.Errorf("connect: %w", syscall.ECONNREFUSED), awayPause},
		{fmt.Errorf("probe: %w", mysql.ErrInvalidConn), awayPause},
		{io.ErrUnexpectedEOF, awayPause},
		{context.DeadlineExceeded, awayPause},
		{fmt.Errorf("connect: %w", &mysql.MySQLError{Number: 1045}), time.Minute},
		{fmt.Errorf("dump: %w", gomysql.NewDefaultError(gomysql.ER_MASTER_FATAL_ERROR_READING_BINLOG)), time.Minute},
		{&RefusedError{Server: "a"}, time.Minute},
	} {
		if got := longestPause(c.err, time.Minute); got != c.want {
			t.Errorf("after %v: %v, want %v", c.err, got, c.want)
		}
	}
	if got := longestPause(io.EOF, time.Millisecond); got != time.Millisecond {
		t.Errorf("with a shorter bound: %v", got)
	}
}
