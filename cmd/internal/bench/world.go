package bench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/index"
	"tidegate/router"
	"tidegate/router/local"
)

// world is a real index that is fed as a follower would feed it: messages and
// states in their wire form, so that nothing is shared between the sets of
// different servers that the network would not share. One goroutine drives it.
type world struct {
	ix     *index.Index
	posts  *posts
	record int // rows of app.posts that have a record: 0..record-1

	router [16]byte
	tick   uint64
	seq    uint64
	ord    uint64

	names []string // names[0] is the primary
	base  gtid.Set // executed by everybody before the first record
	next  int64    // sequence number of the primary's next transaction
	wire  []byte
	last  []*event.ServerState // of each server
}

const (
	worldUUIDs     = 100
	worldIntervals = 100 // of each UUID, the growing one of the primary included
	intervalStep   = 10
	firstActive    = worldIntervals * intervalStep // where the primary's newest interval begins
)

// worldUUID is the i-th source; the first is the primary's.
func worldUUID(i int) gtid.UUID { return gtid.UUID{0xbe, byte(i >> 8), byte(i), 0x40, 1} }

// newWorld opens an index of a primary and so many replicas whose sets have 100
// UUIDs with 100 intervals each, without a record.
func newWorld(replicas int) (*world, error) {
	w := &world{router: [16]byte{7}, next: firstActive}
	for i := range replicas + 1 {
		w.names = append(w.names, string(rune('a'+i)))
		w.last = append(w.last, &event.ServerState{})
	}
	for u := range worldUUIDs {
		for n := range worldIntervals {
			if u == 0 && n == worldIntervals-1 {
				break // the growing interval is this one
			}
			first := int64(n*intervalStep + 1)
			w.base = w.base.AddInterval(gtid.Source{UUID: worldUUID(u)}, gtid.Interval{First: first, Last: first + intervalStep/2})
		}
	}
	secret := key.Secret{1, 2, 3}
	w.posts = newPosts(key.NewHasher(secret))
	var err error
	w.ix, err = index.Open(index.Options{Clock: local.Clock, Router: w.router, Secret: secret, Cluster: "bench", Servers: w.names})
	if err != nil {
		return nil, err
	}
	return w, w.start()
}

func (w *world) start() error {
	w.seq, w.ord = 1, 1
	cp := &event.Checkpoint{History: 1, Delivered: w.base}
	if err := w.ix.Start(cp, w.seq, w.header(), event.MakeVersion(1, w.ord)); err != nil {
		return err
	}
	if err := w.ix.Definition(&w.posts.def); err != nil {
		return err
	}
	return w.message(&event.Announcement{Server: w.names[0], ServerUUID: worldUUID(0), Epoch: 1, History: 1, Executed: w.base})
}

func (w *world) header() event.Header {
	return event.Header{Incarnation: [16]byte{1}, Count: w.seq, Generation: 1, Timeline: 1, Fold: key.FoldVersion}
}

// message sends items through the wire form into the index.
func (w *world) message(items ...event.Item) error {
	w.seq++
	m := &event.Message{Header: w.header(), First: w.ord + 1, Items: items}
	w.ord += uint64(len(items))
	read, err := event.DecodeMessage(m.AppendBinary(nil))
	if err != nil {
		return err
	}
	if err := w.ix.Writes(w.seq, read); err != nil {
		return err
	}
	w.ix.CaughtUp(w.seq, true)
	return nil
}

// fill writes rows 0..n-1 once each.
func (w *world) fill(n int) error {
	const batch = 1000
	for from := 0; from < n; from += batch {
		if err := w.write(min(batch, n-from), func(i int) int { return from + i }); err != nil {
			return err
		}
	}
	w.record = n
	return nil
}

// write sends one message of n single-row transactions of the primary.
func (w *world) write(n int, row func(i int) int) error {
	items := make([]event.Item, n)
	now := time.Now().UnixMicro()
	for i := range items {
		t, err := w.posts.transaction(w.next, now, int64(row(i)))
		if err != nil {
			return err
		}
		items[i] = t
		w.next++
	}
	return w.message(items...)
}

// executed is what a server has executed that is lag transactions behind.
func (w *world) executed(lag int64) gtid.Set {
	last := w.next - 1 - lag
	if last < firstActive {
		return w.base
	}
	return w.base.AddInterval(gtid.Source{UUID: worldUUID(0)}, gtid.Interval{First: firstActive, Last: last})
}

// state sends the state of server i, lag transactions behind, naming the newest
// tick.
func (w *world) state(i int, lag int64) error {
	s := serverState(w.names[i], i)
	s.Executed, s.Ticks = w.executed(lag), []event.RouterTick{{Router: w.router, Tick: w.tick}}
	w.wire = s.AppendBinary(w.wire[:0])
	// As a follower does it, from bytes as long as a message's own.
	read, err := event.DecodeServerStateAfter(bytes.Clone(w.wire), w.last[i])
	if err != nil {
		return err
	}
	w.last[i] = read
	return w.ix.State(read)
}

// serverState is the i-th server, alive and well; the first is the primary.
func serverState(name string, i int) *event.ServerState {
	s := &event.ServerState{
		Server: name, AppAddr: "127.0.0.1:3306", UUID: worldUUID(i), Epoch: event.Epoch(1 + i), History: 1, LossSeen: 1 << 62, Alive: true,
		Role: event.RoleReplica, Drained: true, GTIDMode: "ON", Follow: "binlog", ServerVersion: "9.7.4",
	}
	if i == 0 {
		s.Role, s.Writable = event.RolePrimary, true
	}
	return s
}

// newTick sends the router's tick.
func (w *world) newTick() {
	w.tick++
	w.ix.TickSent(w.tick, local.Clock())
}

// states sends a tick and the states of all servers, replica i being i*lag
// transactions behind.
func (w *world) states(lag int64) error {
	w.newTick()
	for i := range w.names {
		if err := w.state(i, int64(i)*lag); err != nil {
			return err
		}
	}
	return nil
}

// newRouter is a router over the world, without canary.
func (w *world) newRouter() (*router.Router, error) {
	o := router.Options{
		View: func() router.Snapshot { return w.ix.Snapshot() }, Clock: local.NewDecisionClock().Now,
		Lease: local.DefaultLease, WatermarkMaxAge: local.DefaultWatermarkMaxAge,
	}
	for _, n := range w.names {
		o.Servers = append(o.Servers, router.ServerOptions{Name: n, Weight: 1})
	}
	return router.New(o)
}

// ingest is how often drive brings news: transactions a second, in messages as
// a group commit makes them, and the states of all servers after each.
const ingestPeriod = 10 * time.Millisecond

// drive feeds the world until ctx ends: perSecond transactions on rows that have
// a record, a tick each 50 ms, a state of every server each 10 ms.
func (w *world) drive(ctx context.Context, perSecond int) error {
	ticker := time.NewTicker(ingestPeriod)
	defer ticker.Stop()
	began, sent, ticked := time.Now(), 0, time.Time{}
	for {
		now := time.Now()
		if n := int(now.Sub(began).Seconds()*float64(perSecond)) - sent; n > 0 {
			sent += n
			if err := w.write(n, func(int) int { return rand.IntN(w.record) }); err != nil {
				return fmt.Errorf("ingest: %w", err)
			}
		}
		if now.Sub(ticked) >= local.DefaultTick {
			ticked = now
			w.newTick()
		}
		for i := range w.names {
			// Each replica is another five milliseconds of writes behind.
			if err := w.state(i, int64(i*perSecond/200)); err != nil {
				return fmt.Errorf("ingest: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
