package cdc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// feedBatch is how many messages are asked for ahead. Messages are batches
	// themselves, so that this bounds memory and not throughput.
	feedBatch     = 64
	feedHeartbeat = time.Second
	feedExpiry    = 10 * time.Second
	// feedIdle lets the server forget a consumer whose reader is gone.
	feedIdle = 30 * time.Second
)

// feed reads a stream from a place on, in order, through a consumer of its
// own. It ends at the first trouble; who reads compares its position with the
// stream and opens another one.
type feed struct {
	it       jetstream.MessagesContext
	js       jetstream.JetStream
	stream   string
	consumer string
}

// raw is one message of a stream.
type raw struct {
	subject string
	seq     uint64
	data    []byte
}

func (c *Conn) openFeed(ctx context.Context, stream string, cfg jetstream.ConsumerConfig) (*feed, error) {
	cfg.AckPolicy, cfg.MemoryStorage, cfg.Replicas, cfg.InactiveThreshold = jetstream.AckNonePolicy, true, 1, feedIdle
	var cons jetstream.Consumer
	err := c.bounded(ctx, func(ctx context.Context) (err error) {
		cons, err = c.js.CreateConsumer(ctx, stream, cfg)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create consumer of %s: %w", stream, err)
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(feedBatch), jetstream.PullHeartbeat(feedHeartbeat),
		jetstream.PullExpiry(feedExpiry), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return nil, fmt.Errorf("read consumer of %s: %w", stream, err)
	}
	return &feed{it: it, js: c.js, stream: stream, consumer: cons.CachedInfo().Name}, nil
}

// from is the configuration of a feed that begins at seq.
func from(seq uint64) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(seq, 1)}
}

// next blocks until a message comes, the feed breaks, or it is closed.
func (f *feed) next() (raw, error) {
	m, err := f.it.Next()
	if err != nil {
		return raw{}, fmt.Errorf("read %s: %w", f.stream, err)
	}
	md, err := m.Metadata()
	if err != nil {
		return raw{}, fmt.Errorf("read %s: %w", f.stream, err)
	}
	return raw{subject: m.Subject(), seq: md.Sequence.Stream, data: m.Data()}, nil
}

// close ends next. The consumer is deleted if that is quick; else the server
// forgets it.
func (f *feed) close() {
	f.it.Stop()
	if !f.js.Conn().IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), feedHeartbeat)
	defer cancel()
	// The error has no consequence: an idle consumer is forgotten by the server.
	_ = f.js.DeleteConsumer(ctx, f.stream, f.consumer)
}

// scan calls fn with the messages of WRITES from one sequence to another, both
// included, and tries again from where it was when the connection breaks.
func (c *Conn) scan(ctx context.Context, first, last uint64, fn func(raw) error) error {
	var pause backoff
	for first <= last {
		err := c.scanOnce(ctx, &first, last, fn)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !isTransport(err) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, jetstream.ErrNoHeartbeat) &&
			!errors.Is(err, jetstream.ErrConsumerDeleted) && !errors.Is(err, jetstream.ErrConsumerNotFound) && !errors.Is(err, jetstream.ErrConnectionClosed):
			return err
		}
		if !pause.wait(ctx) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// errGone: what was to be read was purged, or expired, meanwhile.
var errGone = errors.New("the stream has lost it meanwhile")

// goneEvery is how often a scan looks whether what it waits for is still there.
const goneEvery = time.Second

// awaitGone waits until WRITES has no message left up to last; it returns false when
// ctx ends before. Who reads a range would wait for ever then, where nobody writes.
func (c *Conn) awaitGone(ctx context.Context, last uint64) bool {
	tick := time.NewTicker(goneEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		s, err := c.js.Stream(ctx, c.names.writes)
		if err != nil {
			continue // the feed breaks by itself
		}
		if st := s.CachedInfo().State; st.Msgs == 0 || st.FirstSeq > last {
			return true
		}
	}
}

func (c *Conn) scanOnce(ctx context.Context, first *uint64, last uint64, fn func(raw) error) error {
	f, err := c.openFeed(ctx, c.names.writes, from(*first))
	if err != nil {
		return err
	}
	defer f.close()
	stop := context.AfterFunc(ctx, f.it.Stop)
	defer stop()
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	var gone atomic.Bool
	go func() {
		if c.awaitGone(watch, last) {
			gone.Store(true)
			f.it.Stop()
		}
	}()
	for {
		m, err := f.next()
		if gone.Load() {
			return fmt.Errorf("read %s up to %d: %w", c.names.writes, last, errGone)
		}
		if err != nil {
			return err
		}
		if m.seq > last {
			return nil
		}
		if err := fn(m); err != nil {
			return err
		}
		if *first = m.seq + 1; m.seq == last {
			return nil
		}
	}
}
