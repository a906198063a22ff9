package cdc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tidegate/cdc/event"
)

// The leader key elects among the writers of a pair. It is a convenience: what
// protects the stream is the fence of each publish. Nothing compares clocks: a
// standby measures by its own how long the key's revision stayed the same.
const (
	leaseRenew    = 500 * time.Millisecond
	leaseTakeover = 2 * time.Second // with leasePoll, a takeover is within 3 s
	leasePoll     = 200 * time.Millisecond
)

// leaseRecord is the value of the leader key.
type leaseRecord struct {
	Holder     string           `json:"holder"` // random, for each writer
	Name       string           `json:"name"`   // for people
	Generation event.Generation `json:"generation"`
	Released   bool             `json:"released,omitempty"`
	Beat       uint64           `json:"beat"`
}

// lease is the leader key as this writer holds it. One goroutine uses it.
type lease struct {
	kv       store
	record   leaseRecord
	revision uint64
}

// acquireLease waits until the key is free, released, or unchanged for
// leaseTakeover, and takes it with the next generation.
func acquireLease(ctx context.Context, c *Conn, holder, name string) (*lease, error) {
	var (
		seen  uint64 // revision
		since time.Time
		told  bool
	)
	tick := time.NewTicker(leasePoll)
	defer tick.Stop()
	for {
		var old leaseRecord
		value, rev, err := c.kvGet(ctx, keyLeader)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("wait for the leader key: %w", context.Cause(ctx))
		case err != nil && !isTransport(err) && !errors.Is(err, context.DeadlineExceeded):
			return nil, fmt.Errorf("wait for the leader key: %w", err)
		case err != nil:
			since = time.Time{} // an unanswered look proves nothing of the holder
		default:
			if rev > 0 {
				if err := json.Unmarshal(value, &old); err != nil {
					return nil, fmt.Errorf("leader key in NATS KV: %w", err)
				}
			}
			if since.IsZero() || rev != seen {
				seen, since = rev, time.Now()
			}
			if rev == 0 || old.Released || time.Since(since) >= leaseTakeover {
				l, err := takeLease(ctx, c, holder, name, rev)
				if err == nil {
					c.log.Info("writer took the leader key", "generation", l.record.Generation, "from", old.Name, "released", old.Released)
					return l, nil
				}
				if !isConflict(err) && !isTransport(err) && !errors.Is(err, context.DeadlineExceeded) {
					return nil, err
				}
				since = time.Time{}
			} else if !told {
				told = true
				c.log.Info("writer stands by", "leader", old.Name, "generation", old.Generation)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func takeLease(ctx context.Context, c *Conn, holder, name string, rev uint64) (*lease, error) {
	l := &lease{kv: c.kv, record: leaseRecord{Holder: holder, Name: name}}
	err := c.bounded(ctx, func(ctx context.Context) error {
		n, err := next(ctx, c.kv, keyGeneration)
		if err != nil {
			return err
		}
		l.record.Generation = event.Generation(n)
		l.revision, err = l.write(ctx, rev)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take the leader key: %w", err)
	}
	return l, nil
}

func (l *lease) write(ctx context.Context, rev uint64) (uint64, error) {
	value, err := json.Marshal(l.record)
	if err != nil {
		return 0, err
	}
	return l.kv.put(ctx, keyLeader, value, rev)
}

// renew tells that the holder lives. ErrFenced: another writer took the key. A
// write that was done but reported lost is recognised by its holder.
func (l *lease) renew(ctx context.Context) error {
	l.record.Beat++
	rev, err := l.write(ctx, l.revision)
	if err == nil {
		l.revision = rev
		return nil
	}
	if !isConflict(err) {
		return fmt.Errorf("renew the leader key: %w", err)
	}
	value, rev, err := l.kv.get(ctx, keyLeader)
	if err != nil {
		return fmt.Errorf("renew the leader key: %w", err)
	}
	var now leaseRecord
	if err := json.Unmarshal(value, &now); rev > 0 && err == nil && now.Holder == l.record.Holder {
		l.revision = rev
		return nil
	}
	return fmt.Errorf("renew the leader key: held by %q, generation %d: %w", now.Name, now.Generation, ErrFenced)
}

// release lets a standby take over at once.
func (l *lease) release(ctx context.Context) error {
	l.record.Released = true
	if _, err := l.write(ctx, l.revision); err != nil {
		return fmt.Errorf("release the leader key: %w", err)
	}
	return nil
}

func (c *Conn) kvGet(ctx context.Context, key string) (value []byte, rev uint64, err error) {
	err = c.bounded(ctx, func(ctx context.Context) error {
		value, rev, err = c.kv.get(ctx, key)
		return err
	})
	return value, rev, err
}
