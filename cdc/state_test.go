package cdc_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

func TestStatePublisher(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	sp := cdc.NewStatePublisher(c)
	run := start(t, sp.Run)
	// Thousands of values, of which the newest counts; publishing never waits.
	for n := range int64(5000) {
		for _, server := range []string{"a.1", "b *>"} {
			s := &event.ServerState{Server: server, Alive: true, UptimeSeconds: n}
			if err := sp.Publish(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	def := &event.TableDefinition{Definition: key.Definition{Schema: "a.b", Table: "c d", Version: 3}}
	if err := sp.PublishDefinition(def); err != nil {
		t.Fatal(err)
	}
	r := newRecorder()
	follow(t, c, r)
	newest := func(want int64, alive bool) {
		t.Helper()
		eventually(t, func() (reason string) {
			r.do(func() {
				for _, name := range []string{"a.1", "b *>"} {
					if s := r.states[name]; s == nil || s.UptimeSeconds != want || s.Alive != alive {
						reason = fmt.Sprintf("state of %s: %+v", name, s)
					}
				}
				if d := r.defs["a.b.c d"]; d == nil || d.Version != 3 {
					reason = fmt.Sprintf("definitions: %v", sortedKeys(r.defs))
				}
			})
			return reason
		})
	}
	newest(4999, true)
	if n := sp.Counters().Published; n >= 10000 {
		t.Errorf("%d values were published of 10000 that were handed over", n)
	}
	// A reader that comes late gets the newest values; so does one after NATS
	// was away.
	c.StopServer()
	if err := sp.Publish(t.Context(), &event.ServerState{Server: "a.1", Alive: true, UptimeSeconds: 6000}); err != nil {
		t.Fatal(err)
	}
	if err := sp.Publish(t.Context(), &event.ServerState{Server: "b *>", Alive: true, UptimeSeconds: 6000}); err != nil {
		t.Fatal(err)
	}
	if err := c.StartServer(); err != nil {
		t.Fatal(err)
	}
	newest(6000, true)
	if err := run.stop(); err != nil {
		t.Fatal(err)
	}
	newest(6000, false) // the farewell
	if s, err := c.LastState(t.Context(), "b *>"); err != nil || s == nil || s.Alive || s.Down == "" {
		t.Errorf("last state %+v, %v", s, err)
	}
	if s, err := c.LastState(t.Context(), "unheard of"); err != nil || s != nil {
		t.Errorf("state of an unknown server: %+v, %v", s, err)
	}
}

// TestStateTooLarge: a state that NATS does not take becomes a "down", not an
// old state that stays in force.
func TestStateTooLarge(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	sp := cdc.NewStatePublisher(c)
	start(t, sp.Run)
	s := &event.ServerState{Server: "a", Alive: true, ReplicationErr: strings.Repeat("x", 9<<20)}
	if err := sp.Publish(t.Context(), s); err == nil {
		t.Error("no error")
	}
	eventually(t, func() string {
		if got, err := c.LastState(t.Context(), "a"); err != nil || got == nil || got.Alive || !strings.Contains(got.Down, "bytes") {
			return fmt.Sprintf("last state %+v, %v", got, err)
		}
		return ""
	})
}

// TestSmallPayloads: group commit keeps to what the server takes, also where
// that is less than a batch of its own.
func TestSmallPayloads(t *testing.T) {
	srv := natsServer(t, func(o *server.Options) { o.MaxPayload = 16 << 10 })
	c := open(t, external(t, srv.ClientURL()))
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	r := newRecorder()
	follow(t, c, r)
	const last = 20_000
	for n := int64(1); n <= last; n++ {
		if err := w.Append(t.Context(), tx(n)); err != nil {
			t.Fatal(err)
		}
	}
	r.wantNumbered(t, 1, last)
	w.end(t)
}

// TestDefinitionTooLarge: a definition that NATS does not take makes its table
// unknown, whatever was known of it before, and the stream goes on.
func TestDefinitionTooLarge(t *testing.T) {
	srv := natsServer(t, func(o *server.Options) { o.MaxPayload = 64 << 10 })
	o := options(t, t.TempDir())
	o.URL = srv.ClientURL()
	c := open(t, o)
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	r := newRecorder()
	follow(t, c, r)
	def := func(version key.DefVersion, members int) event.TableDefinition {
		d := event.TableDefinition{Definition: key.Definition{Schema: "app", Table: "t", Version: version, FoldNames: true}, Engine: "InnoDB"}
		d.Primary = []key.Column{{Name: "id", Type: key.TypeEnum}}
		for i := range members {
			d.Primary[0].Members = append(d.Primary[0].Members, fmt.Sprintf("member %d", i))
		}
		return d
	}
	known := func(what string, ok func(*event.TableDefinition) bool) {
		t.Helper()
		eventually(t, func() (reason string) {
			r.do(func() {
				if d := r.defs["app.t"]; d == nil || !ok(d) {
					reason = fmt.Sprintf("%s: readers know %+v", what, d)
				}
			})
			return reason
		})
	}
	define := func(d event.TableDefinition) {
		t.Helper()
		if err := w.Definitions(t.Context(), []event.TableDefinition{d}); err != nil {
			t.Fatal(err)
		}
	}
	define(def(1, 3))
	known("small", func(d *event.TableDefinition) bool { return d.Version == 1 && !d.Dropped })
	define(def(2, 8000))
	known("too large", func(d *event.TableDefinition) bool { return d.Version == 2 && d.Dropped && d.FoldNames })
	w.numbered(t, 1, 5)
	w.stored(t, 5)
	r.wantAll(t, w)
	if n := w.Counters().TooLarge; n != 1 {
		t.Errorf("%d definitions are counted as too large, want 1", n)
	}
	define(def(3, 4))
	known("small again", func(d *event.TableDefinition) bool { return d.Version == 3 && !d.Dropped })
	w.end(t)
}

func TestTicks(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	var now atomic.Int64
	lease := 10 * time.Second
	col, err := cdc.OpenTickCollector(c, lease, now.Load)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan uint64, 10000)
	router := func() (*cdc.Ticks, *running) {
		ticks := cdc.NewTicks(c, cdc.TickOptions{Interval: time.Millisecond, Clock: now.Load, Sent: func(n uint64, _ int64) {
			select {
			case sent <- n:
			default: // only the first one is looked at
			}
		}})
		return ticks, start(t, ticks.Run)
	}
	one, runOne := router()
	two, runTwo := router()
	if one.Incarnation() == two.Incarnation() {
		t.Error("two routers with one incarnation")
	}
	eventually(t, func() string {
		live := col.Live()
		if len(live) != 2 || live[0].Tick < 3 || live[1].Tick < 3 {
			return fmt.Sprintf("live routers: %v", live)
		}
		return ""
	})
	if err := runOne.stop(); err != nil {
		t.Error(err)
	}
	now.Add(int64(lease) + 1)
	eventually(t, func() string {
		if live := col.Live(); len(live) != 1 || live[0].Router != two.Incarnation() {
			now.Add(int64(lease) + 1) // a last tick of the other may have come in late
			return fmt.Sprintf("live routers: %v, want only %x", live, two.Incarnation())
		}
		return ""
	})
	if err := runTwo.stop(); err != nil {
		t.Error(err)
	}
	if first := <-sent; first != 1 {
		t.Errorf("the first tick is %d", first)
	}
	if err := col.Close(); err != nil {
		t.Error(err)
	}
	if err := col.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestEpochsAndAcceptances(t *testing.T) {
	c := open(t, options(t, t.TempDir()))
	const callers, each = 4, 10
	got := make(chan event.Epoch, callers*each)
	var runs []*running
	for range callers {
		runs = append(runs, start(t, func(ctx context.Context) error {
			for range each {
				e, err := c.NextEpoch(ctx)
				if err != nil {
					return err
				}
				got <- e
			}
			return nil
		}))
	}
	for _, r := range runs {
		if err := r.wait(t); err != nil {
			t.Fatal(err)
		}
	}
	close(got)
	seen := map[event.Epoch]bool{}
	for e := range got {
		if e == 0 || seen[e] {
			t.Errorf("epoch %d was given twice", e)
		}
		seen[e] = true
	}
	list := []cdc.Acceptance{
		{Server: "b", DataSet: 7, Table: "app.posts", Author: "ann", Reason: "checked", At: time.Unix(10, 0).UTC()},
		{Server: "b", DataSet: 7, GTIDs: gtid.Of(gb(1)), Author: "bob", At: time.Unix(20, 0).UTC()},
		{Server: "c", DataSet: 8, Restart: true, Author: "bob", At: time.Unix(5, 0).UTC()},
	}
	for _, a := range list {
		if err := c.Accept(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	have, err := c.Accepted(t.Context())
	if err != nil || len(have) != 3 {
		t.Fatalf("%d acceptances, %v", len(have), err)
	}
	if !have[0].Restart || have[1].Table != "app.posts" || !have[2].GTIDs.Equal(gtid.Of(gb(1))) || have[1].Reason != "checked" || !have[1].At.Equal(list[0].At) {
		t.Errorf("acceptances %+v", have)
	}
}
