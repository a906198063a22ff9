package cdc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// noExpectation: a publish that may follow anything.
const noExpectation = ^uint64(0)

// publisher is the way to one stream; tests put faults here.
type publisher interface {
	// send hands a message over and does not wait. done is called exactly once,
	// from any goroutine, perhaps before send returns: with the message's
	// sequence, or with an error that leaves open whether it was stored (but for
	// errWrongLast and a refusal by the server). expect is what the subject's
	// last sequence must be. The publisher must not modify data.
	send(subject string, data []byte, expect uint64, id string, done func(seq uint64, err error))
	// expire lets every publish that is still unanswered fail with cause.
	expire(cause error)
	// last returns the stream's newest message as its leader has it. Sequence 0
	// is a stream that never had one; a nil message one that is empty now.
	last(ctx context.Context) (tip, error)
	// message returns one message; errors.Is jetstream.ErrMsgNotFound when it
	// is not there.
	message(ctx context.Context, seq uint64) ([]byte, error)
}

// tip is the end of a stream.
type tip struct {
	first, seq uint64
	data       []byte // nil: no message is held
}

// natsPublisher publishes without waiting and matches acks by reply subject.
// JetStream's own asynchronous publishing retries by itself, which could send
// a message twice after its successor; here nothing is sent but by the caller.
type natsPublisher struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	stream string
	prefix string
	sub    *nats.Subscription

	mu      sync.Mutex
	token   uint64
	waiting map[uint64]func(uint64, error)
}

func newPublisher(c *Conn, stream string) (*natsPublisher, error) {
	p := &natsPublisher{nc: c.nc, js: c.js, stream: stream, prefix: c.nc.NewInbox() + ".", waiting: map[uint64]func(uint64, error){}}
	sub, err := c.nc.Subscribe(p.prefix+"*", p.ack)
	if err != nil {
		return nil, fmt.Errorf("subscribe to acks: %w", err)
	}
	p.sub = sub
	return p, nil
}

func (p *natsPublisher) close() error {
	p.expire(ErrClosed)
	if err := p.sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("unsubscribe from acks: %w", err)
	}
	return nil
}

func (p *natsPublisher) send(subject string, data []byte, expect uint64, id string, done func(uint64, error)) {
	m := &nats.Msg{Subject: subject, Data: data}
	if expect != noExpectation || id != "" {
		m.Header = nats.Header{}
	}
	if expect != noExpectation {
		m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(expect, 10)}
	}
	if id != "" {
		m.Header[jetstream.MsgIDHeader] = []string{id}
	}
	p.mu.Lock()
	p.token++
	token := p.token
	p.waiting[token] = done
	p.mu.Unlock()
	m.Reply = p.prefix + strconv.FormatUint(token, 36)
	if err := p.nc.PublishMsg(m); err != nil {
		p.finish(token, 0, fmt.Errorf("publish to %s: %w", subject, err))
	}
}

func (p *natsPublisher) finish(token uint64, seq uint64, err error) {
	p.mu.Lock()
	done := p.waiting[token]
	delete(p.waiting, token)
	p.mu.Unlock()
	if done != nil {
		done(seq, err)
	}
}

func (p *natsPublisher) expire(cause error) {
	p.mu.Lock()
	waiting := p.waiting
	p.waiting = map[uint64]func(uint64, error){}
	p.mu.Unlock()
	for _, done := range waiting {
		done(0, cause)
	}
}

// ackBody is what JetStream answers.
type ackBody struct {
	Seq   uint64              `json:"seq"`
	Error *jetstream.APIError `json:"error"`
}

func (p *natsPublisher) ack(m *nats.Msg) {
	token, err := strconv.ParseUint(m.Subject[len(p.prefix):], 36, 64)
	if err != nil {
		return // not one of ours
	}
	if len(m.Data) == 0 && m.Header.Get("Status") != "" {
		p.finish(token, 0, fmt.Errorf("publish to %s: status %s: %w", p.stream, m.Header.Get("Status"), errNoStream))
		return
	}
	var a ackBody
	switch err := json.Unmarshal(m.Data, &a); {
	case err != nil:
		p.finish(token, 0, fmt.Errorf("read ack of %s: %w", p.stream, err))
	case a.Error != nil && isConflict(a.Error):
		p.finish(token, 0, fmt.Errorf("publish to %s: %w: %s", p.stream, errWrongLast, a.Error.Description))
	case a.Error != nil:
		p.finish(token, 0, fmt.Errorf("publish to %s: %w", p.stream, a.Error))
	default:
		p.finish(token, a.Seq, nil)
	}
}

func (p *natsPublisher) last(ctx context.Context) (tip, error) {
	for {
		s, err := p.js.Stream(ctx, p.stream)
		if err != nil {
			return tip{}, fmt.Errorf("look up stream %s: %w", p.stream, err)
		}
		st := s.CachedInfo().State
		t := tip{first: st.FirstSeq, seq: st.LastSeq}
		if st.Msgs == 0 {
			return t, nil
		}
		m, err := s.GetMsg(ctx, st.LastSeq)
		if errors.Is(err, jetstream.ErrMsgNotFound) && ctx.Err() == nil {
			continue // gone between the two questions: look again
		}
		if err != nil {
			return tip{}, fmt.Errorf("read last message of %s: %w", p.stream, err)
		}
		t.data = m.Data
		return t, nil
	}
}

func (p *natsPublisher) message(ctx context.Context, seq uint64) ([]byte, error) {
	s, err := p.js.Stream(ctx, p.stream)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", p.stream, err)
	}
	m, err := s.GetMsg(ctx, seq)
	if err != nil {
		return nil, fmt.Errorf("read message %d of %s: %w", seq, p.stream, err)
	}
	return m.Data, nil
}
