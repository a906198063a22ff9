package cdc

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"tidegate/cdc/event"
)

// tickBytes: incarnation of the router, number of the tick.
const tickBytes = 16 + 8

// DefaultTick is the default time between two ticks of a router.
const DefaultTick = 50 * time.Millisecond

// TickOptions of [NewTicks].
type TickOptions struct {
	// Incarnation of the router; zero: a random one is made. Ticks of one
	// incarnation are never counted by another (rules §6.1).
	Incarnation [16]byte
	// Interval between ticks. Default [DefaultTick].
	Interval time.Duration
	// Clock is the router's suspend-aware clock in nanoseconds. Required.
	Clock func() int64
	// Sent is told each tick and when it was sent, before it is sent: whoever
	// sees the tick in a state can look it up. Required.
	Sent func(tick uint64, at int64)
}

// Ticks publishes a router's ticks over core NATS. A tick that is lost costs
// freshness and nothing else.
type Ticks struct {
	conn         *Conn
	o            TickOptions
	sent, failed atomic.Uint64
}

// NewTicks returns ticks whose Run has to be started.
func NewTicks(c *Conn, o TickOptions) *Ticks {
	if o.Incarnation == ([16]byte{}) {
		rand.Read(o.Incarnation[:])
	}
	setDefault(&o.Interval, DefaultTick)
	return &Ticks{conn: c, o: o}
}

// Incarnation is under what the ticks are named in server states.
func (t *Ticks) Incarnation() [16]byte { return t.o.Incarnation }

// Counters are how many ticks were sent and how many could not be.
func (t *Ticks) Counters() (sent, failed uint64) { return t.sent.Load(), t.failed.Load() }

// Run sends ticks 1, 2, ... until ctx ends, and returns its cause.
func (t *Ticks) Run(ctx context.Context) error {
	tick := time.NewTicker(t.o.Interval)
	defer tick.Stop()
	body := make([]byte, tickBytes)
	copy(body, t.o.Incarnation[:])
	for n := uint64(1); ; n++ {
		t.o.Sent(n, t.o.Clock())
		binary.LittleEndian.PutUint64(body[16:], n)
		if err := t.conn.nc.Publish(t.conn.names.tick, body); err != nil {
			t.failed.Add(1)
		} else {
			t.sent.Add(1)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// maxRouters bounds what a flood of incarnations may cost.
const maxRouters = 1024

// TickCollector knows the newest tick of each live router, for the probes of
// this process. Its methods may be called at once by many.
type TickCollector struct {
	lease time.Duration
	clock func() int64
	sub   *nats.Subscription

	mu      sync.Mutex
	routers map[[16]byte]liveRouter
}

type liveRouter struct {
	tick uint64
	at   int64 // when it arrived, by this process's clock
}

// OpenTickCollector subscribes. A router is live while its newest tick arrived
// within the lease, by clock (nanoseconds, suspend-aware).
func OpenTickCollector(c *Conn, lease time.Duration, clock func() int64) (*TickCollector, error) {
	t := &TickCollector{lease: lease, clock: clock, routers: map[[16]byte]liveRouter{}}
	sub, err := c.nc.Subscribe(c.names.tick, t.take)
	if err != nil {
		return nil, fmt.Errorf("subscribe to ticks: %w", err)
	}
	t.sub = sub
	return t, nil
}

// Close ends the subscription. It may be called twice.
func (t *TickCollector) Close() error {
	if err := t.sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
		return fmt.Errorf("unsubscribe from ticks: %w", err)
	}
	return nil
}

func (t *TickCollector) take(m *nats.Msg) {
	if len(m.Data) != tickBytes {
		return // not a tick of a version that this program knows
	}
	router, n := [16]byte(m.Data[:16]), binary.LittleEndian.Uint64(m.Data[16:])
	now := t.clock()
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.routers[router]
	if !known && len(t.routers) >= maxRouters {
		t.dropDeadLocked(now)
		if len(t.routers) >= maxRouters {
			return
		}
	}
	if !known || n > old.tick {
		t.routers[router] = liveRouter{tick: n, at: now}
	}
}

func (t *TickCollector) dropDeadLocked(now int64) {
	for router, l := range t.routers {
		if now-l.at > int64(t.lease) {
			delete(t.routers, router)
		}
	}
}

// Live returns the newest tick of each live router, in a fixed order: what a
// probe that begins now names. The slice is the caller's.
func (t *TickCollector) Live() []event.RouterTick {
	now := t.clock()
	t.mu.Lock()
	t.dropDeadLocked(now)
	out := make([]event.RouterTick, 0, len(t.routers))
	for router, l := range t.routers {
		out = append(out, event.RouterTick{Router: router, Tick: l.tick})
	}
	t.mu.Unlock()
	slices.SortFunc(out, func(a, b event.RouterTick) int { return bytes.Compare(a.Router[:], b.Router[:]) })
	return out
}
