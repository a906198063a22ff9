package cdc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// Fault is how a step breaks.
type Fault int

const (
	// Lose: the step is not done, and reported lost.
	Lose Fault = iota + 1
	// LoseAnswer: the step is done, and reported lost.
	LoseAnswer
	// Silence: the step is done, and nothing is reported.
	Silence
	// LoseSilently: the step is not done, and nothing is reported.
	LoseSilently
)

var errInjected = fmt.Errorf("injected: %w", nats.ErrTimeout)

// Faults breaks the step number At, counted from 1, of a publisher or a store.
type Faults struct {
	At      int64
	Fault   Fault
	StripID bool // publish without ids: no de-duplication by the server
	Calls   atomic.Int64

	mu     sync.Mutex
	silent []func(uint64, error)
}

// Struck tells whether the step was reached.
func (f *Faults) Struck() bool { return f.Calls.Load() >= f.At }

type faultyPublisher struct {
	publisher
	f *Faults
}

func (p *faultyPublisher) send(subject string, data []byte, expect uint64, id string, done func(uint64, error)) {
	if p.f.StripID {
		id = ""
	}
	if p.f.Calls.Add(1) != p.f.At {
		p.publisher.send(subject, data, expect, id, done)
		return
	}
	quiet := func(uint64, error) {
		p.f.mu.Lock()
		defer p.f.mu.Unlock()
		p.f.silent = append(p.f.silent, done)
	}
	switch p.f.Fault {
	case Lose:
		done(0, errInjected)
	case LoseAnswer:
		p.publisher.send(subject, data, expect, id, func(uint64, error) { done(0, errInjected) })
	case Silence:
		p.publisher.send(subject, data, expect, id, quiet)
	case LoseSilently:
		quiet(0, nil)
	}
}

func (p *faultyPublisher) expire(cause error) {
	p.f.mu.Lock()
	silent := p.f.silent
	p.f.silent = nil
	p.f.mu.Unlock()
	for _, done := range silent {
		done(0, cause)
	}
	p.publisher.expire(cause)
}

// BreakPublish lets a publish of the writer fail.
func (o *WriterOptions) BreakPublish(f *Faults) {
	o.publisher = func(p publisher) publisher { return &faultyPublisher{p, f} }
}

// SmallMessages makes messages so small that common items need several.
func (o *WriterOptions) SmallMessages(limit int) { o.limit = limit }

type faultyStore struct {
	store
	f *Faults
}

func (s *faultyStore) put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if key == keyLeader || s.f.Calls.Add(1) != s.f.At {
		return s.store.put(ctx, key, value, revision)
	}
	if s.f.Fault == LoseAnswer {
		if _, err := s.store.put(ctx, key, value, revision); err != nil {
			return 0, err
		}
	}
	return 0, errInjected
}

// BreakStore lets a write to KV fail (the leader key aside).
func (c *Conn) BreakStore(f *Faults) { c.kv = &faultyStore{c.kv, f} }

// Embedded server under test.
func (c *Conn) StopServer()        { c.server.stop() }
func (c *Conn) StartServer() error { return c.server.start() }
func (c *Conn) StoreDir() string   { return c.server.dir }

// JetStream is the connection's JetStream, for what only an operator does.
func (c *Conn) JetStream() jetstream.JetStream { return c.js }

// WritesStream, StateStream and WritesSubject are their names.
func (c *Conn) WritesStream() string  { return c.names.writes }
func (c *Conn) StateStream() string   { return c.names.state }
func (c *Conn) WritesSubject() string { return c.names.writesSubject }

// Bucket is the name of the KV bucket.
func (c *Conn) Bucket() string { return c.names.bucket }

// DeleteSecret takes the secret out of the bucket.
func (c *Conn) DeleteSecret(ctx context.Context) error {
	return c.kv.(kvStore).kv.Delete(ctx, keySecret)
}

// SaveStore and RestoreStore copy the stopped server's store, as an operator
// would who puts an older copy back.
func (c *Conn) SaveStore(to string) error { return os.CopyFS(to, os.DirFS(c.server.dir)) }

func (c *Conn) RestoreStore(from string) error {
	// The lock file stays: it is held.
	if err := os.RemoveAll(c.server.dir + "/jetstream"); err != nil {
		return err
	}
	return os.CopyFS(c.server.dir+"/jetstream", os.DirFS(from+"/jetstream"))
}

// Numbering reads what KV says of histories and timelines.
func (c *Conn) Numbering(ctx context.Context) (event.History, []event.TimelineStart, error) {
	var n numbering
	value, _, err := c.kv.get(ctx, keyNumbering)
	if err != nil {
		return 0, nil, err
	}
	err = json.Unmarshal(value, &n)
	return n.History, n.Timelines, err
}

// LeaderTakeover is how long a silent leader is waited for.
const LeaderTakeover = leaseTakeover

// Mortal lets the writer die without a word: after kill it can't renew or give
// back the leader key.
func (o *WriterOptions) Mortal() (kill func()) {
	m := &mortalStore{}
	o.leaseStore = func(s store) store {
		m.store = s
		return m
	}
	return func() { m.dead.Store(true) }
}

type mortalStore struct {
	store
	dead atomic.Bool
}

func (m *mortalStore) put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if m.dead.Load() {
		return 0, errors.New("this process is dead")
	}
	return m.store.put(ctx, key, value, revision)
}

// LoseRenewal lets the writer's first renewal of the leader key be done, and its
// answer stay away: done is closed then.
func (o *WriterOptions) LoseRenewal() (done <-chan struct{}) {
	l := &lostRenewal{done: make(chan struct{})}
	o.leaseStore = func(s store) store {
		l.store = s
		return l
	}
	return l.done
}

type lostRenewal struct {
	store
	lost atomic.Bool
	done chan struct{}
}

func (l *lostRenewal) put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if l.lost.Swap(true) {
		return l.store.put(ctx, key, value, revision)
	}
	if _, err := l.store.put(ctx, key, value, revision); err != nil {
		return 0, err
	}
	close(l.done)
	<-ctx.Done()
	return 0, ctx.Err()
}

// LeaderReleased tells whether the leader key was given back.
func (c *Conn) LeaderReleased(ctx context.Context) (bool, error) {
	value, _, err := c.kv.get(ctx, keyLeader)
	if err != nil {
		return false, err
	}
	var r leaseRecord
	err = json.Unmarshal(value, &r)
	return r.Released, err
}

// ForgetSecret puts another secret in the place of the stream's.
func (c *Conn) ForgetSecret(s key.Secret) { c.secret = s }

// IsTransport is isTransport.
var IsTransport = isTransport

// StepCountersBack gives the counters in KV the values that they had after the
// first draw, as a power cut might.
func (c *Conn) StepCountersBack(ctx context.Context) error {
	var errs []error
	for _, k := range []string{keyEpoch, keyGeneration} {
		errs = append(errs, change(ctx, c.kv, k, func([]byte) ([]byte, error) { return []byte("1"), nil }))
	}
	errs = append(errs, change(ctx, c.kv, keyNumbering, func(old []byte) ([]byte, error) {
		var n numbering
		if err := json.Unmarshal(old, &n); err != nil {
			return nil, err
		}
		n.History, n.Timelines = 1, n.Timelines[:1]
		return json.Marshal(n)
	}))
	return errors.Join(errs...)
}

// Bounded runs one request.
func (c *Conn) Bounded(ctx context.Context, fn func(context.Context) error) error {
	return c.bounded(ctx, fn)
}

// Retry repeats fn as every request of Open is.
func (c *Conn) Retry(ctx context.Context, fn func(context.Context) error) error {
	return c.retry(ctx, "test", fn)
}

// ErrDisconnected is what a request over a lost connection ends with.
var ErrDisconnected = errDisconnected
