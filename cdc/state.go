package cdc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// StatePublisher keeps STATE current: of each subject the newest value is
// published, those between may be left out, and whoever publishes never waits.
// Publish and PublishDefinition may be called at once by many.
type StatePublisher struct {
	conn *Conn
	wake chan struct{}
	done chan subjectResult

	mu     sync.Mutex
	values map[string]*stateValue
	// held: what there is to say waits, at each connection anew, until release.
	held     bool
	released <-chan struct{}

	published, failed, tooLarge atomic.Uint64
}

// stateValue is the newest value of one subject.
type stateValue struct {
	data    []byte
	state   *event.ServerState // nil: a definition
	version uint64             // counts values
	stored  uint64             // version known to be in STATE
	sending uint64             // version in flight, 0: none
	at      time.Time
	pause   backoff
}

type subjectResult struct {
	subject string
	version uint64
	err     error
}

const (
	stateAckTimeout = 2 * time.Second
	// stateFarewell is how long the last states of a stopping tailer may take.
	stateFarewell = time.Second
	stateInFlight = 64
	stateTick     = 50 * time.Millisecond
)

// NewStatePublisher returns a publisher whose Run has to be started.
func NewStatePublisher(c *Conn) *StatePublisher {
	return &StatePublisher{conn: c, wake: make(chan struct{}, 1), done: make(chan subjectResult, stateInFlight), values: map[string]*stateValue{}}
}

// Publish makes s the newest state of its server. It has the signature that a
// monitor wants; it never blocks. The publisher owns s from now on.
func (p *StatePublisher) Publish(_ context.Context, s *event.ServerState) error {
	data := s.AppendBinary(nil)
	if limit := p.limit(); len(data) > limit {
		// Saying nothing would leave an old state in force until its lease ends;
		// saying "down" is a no with its reason (P3).
		p.tooLarge.Add(1)
		down := &event.ServerState{
			Server: s.Server, AppAddr: s.AppAddr, UUID: s.UUID, Epoch: s.Epoch, DataSet: s.DataSet, History: s.History, LossSeen: s.LossSeen,
			Down: fmt.Sprintf("its state has %d bytes, NATS takes %d", len(data), limit), Follow: s.Follow,
		}
		p.put(p.conn.names.posSubject(s.Server), down.AppendBinary(nil), down)
		return fmt.Errorf("publish state of %s: %d bytes, NATS takes %d: raise its max_payload", s.Server, len(data), limit)
	}
	p.put(p.conn.names.posSubject(s.Server), data, s)
	return nil
}

// PublishDefinition makes d the newest definition of its table; it never
// blocks. After each reconnect all definitions are published again, because an
// ack is not an fsync. The error says that NATS does not take the definition:
// then the table is published without it, as a dropped one, so that readers know
// it no longer by an older definition, and answer no (P3).
func (p *StatePublisher) PublishDefinition(d *event.TableDefinition) error {
	data := d.AppendBinary(nil)
	if limit := p.limit(); len(data) > limit {
		p.tooLarge.Add(1)
		dropped := &event.TableDefinition{
			Definition: key.Definition{Schema: d.Schema, Table: d.Table, Version: d.Version, FoldNames: d.FoldNames},
			Dropped:    true, Engine: d.Engine,
		}
		p.put(p.conn.names.schemaSubject(d.Schema, d.Table), dropped.AppendBinary(nil), nil)
		return fmt.Errorf("publish definition of %s.%s: %d bytes, NATS takes %d: raise its max_payload", d.Schema, d.Table, len(data), limit)
	}
	p.put(p.conn.names.schemaSubject(d.Schema, d.Table), data, nil)
	return nil
}

func (p *StatePublisher) limit() int { return int(p.conn.nc.MaxPayload()) - payloadReserve }

func (p *StatePublisher) put(subject string, data []byte, s *event.ServerState) {
	p.mu.Lock()
	v := p.values[subject]
	if v == nil {
		v = &stateValue{}
		p.values[subject] = v
	}
	v.data, v.state = data, s
	v.version++
	p.mu.Unlock()
	p.poke()
}

// poke has Run look for something to send.
func (p *StatePublisher) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// StateCounters are running totals.
type StateCounters struct{ Published, Failed, TooLarge uint64 }

// Counters may be called at any time.
func (p *StatePublisher) Counters() StateCounters {
	return StateCounters{Published: p.published.Load(), Failed: p.failed.Load(), TooLarge: p.tooLarge.Load()}
}

// Run publishes until ctx ends, and then says of each server that it is no
// longer watched (alive=false), so that its lease ends at once. It returns the
// cause of ctx, or why it can't go on.
func (p *StatePublisher) Run(ctx context.Context) error {
	pub, err := newPublisher(p.conn, p.conn.names.state)
	if err != nil {
		return fmt.Errorf("publish state: %w", err)
	}
	tick := time.NewTicker(stateTick)
	defer tick.Stop()
	_, changed := p.conn.Connected()
	for {
		p.send(pub, changed)
		select {
		case <-ctx.Done():
			p.farewell(pub, tick, changed)
			return errors.Join(context.Cause(ctx), pub.close())
		case <-p.wake:
		case r := <-p.done:
			p.result(r)
		case <-changed:
			_, changed = p.conn.Connected()
			pub.expire(errDisconnected)
			p.again()
		case <-tick.C:
			p.expire(pub)
		}
	}
}

// release lets go what a writer has to say, for as long as the connection that
// changed ends: the stream ended with its own message there. One that was superseded
// while it was cut off would put its definitions over its successor's.
func (p *StatePublisher) release(changed <-chan struct{}) {
	p.mu.Lock()
	p.released = changed
	p.mu.Unlock()
	p.poke()
}

// send publishes the newest value of each subject that has none in flight: that
// keeps the order of each subject and leaves out what is already old. changed is
// closed when the connection changes.
func (p *StatePublisher) send(pub *natsPublisher, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held && p.released != changed {
		return
	}
	inFlight := 0
	for _, v := range p.values {
		if v.sending != 0 {
			inFlight++
		}
	}
	now := time.Now()
	for subject, v := range p.values {
		if inFlight >= stateInFlight {
			return
		}
		if v.sending != 0 || v.stored == v.version || now.Before(v.at) {
			continue
		}
		inFlight++
		v.sending, v.at = v.version, now
		version := v.version
		// done has room for each subject in flight, so that it never blocks.
		pub.send(subject, v.data, noExpectation, "", func(_ uint64, err error) { p.done <- subjectResult{subject, version, err} })
	}
}

func (p *StatePublisher) result(r subjectResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.values[r.subject]
	v.sending = 0
	if r.err == nil {
		p.published.Add(1)
		v.stored, v.at, v.pause = r.version, time.Time{}, backoff{}
		return
	}
	p.failed.Add(1)
	// Tried again at a later tick: the newest value, not the one that failed.
	v.at = time.Now().Add(min(minBackoff<<min(v.pause.attempts, 10), maxBackoff))
	v.pause.attempts++
}

// again makes every definition and state be published once more.
func (p *StatePublisher) again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.values {
		v.stored, v.at, v.pause = 0, time.Time{}, backoff{}
	}
}

func (p *StatePublisher) expire(pub *natsPublisher) {
	p.mu.Lock()
	old := false
	for _, v := range p.values {
		old = old || v.sending != 0 && time.Since(v.at) > stateAckTimeout
	}
	p.mu.Unlock()
	if old {
		pub.expire(errAckTimeout)
	}
}

// farewell publishes each server's last state with alive=false.
func (p *StatePublisher) farewell(pub *natsPublisher, tick *time.Ticker, changed <-chan struct{}) {
	p.mu.Lock()
	var last []*event.ServerState
	for _, v := range p.values {
		if v.state != nil && v.state.Alive {
			s := *v.state
			s.Alive, s.Down = false, "its tailer stopped"
			last = append(last, &s)
		}
	}
	p.mu.Unlock()
	for _, s := range last {
		p.put(p.conn.names.posSubject(s.Server), s.AppendBinary(nil), s)
	}
	deadline := time.Now().Add(stateFarewell)
	for time.Now().Before(deadline) && p.unsaid() {
		p.send(pub, changed)
		select {
		case r := <-p.done:
			p.result(r)
		case <-tick.C:
			p.expire(pub)
		}
	}
}

// unsaid tells whether a state is not known to be in STATE.
func (p *StatePublisher) unsaid() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.values {
		if v.state != nil && v.stored != v.version {
			return true
		}
	}
	return false
}
