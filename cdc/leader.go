package cdc

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"tidegate/cdc/event"
)

// Lease keys elect: the leader key among the writers of a pair, a watch key among
// those who may watch one server. They are a convenience: what protects the
// stream is the fence of each publish, and what protects a state its epoch.
// Nothing compares clocks: a standby measures by its own how long a key's
// revision stayed the same.
const (
	leaseRenew    = 500 * time.Millisecond
	leaseTakeover = 2 * time.Second // with leasePoll, a takeover is within 3 s
	leasePoll     = 200 * time.Millisecond
)

// leaseRecord is the value of a lease key.
type leaseRecord struct {
	Holder     string           `json:"holder"`               // random, for each holding
	Process    string           `json:"process"`              // random, for each connection
	Name       string           `json:"name"`                 // for people
	Generation event.Generation `json:"generation,omitempty"` // leader key only
	Released   bool             `json:"released,omitempty"`
	Beat       uint64           `json:"beat"`
}

// lease is a lease key as its holder has it. One goroutine uses it.
type lease struct {
	kv       store
	key      string
	record   leaseRecord
	revision uint64
}

// sighting is how long a revision of a lease key has been seen.
type sighting struct {
	revision uint64
	since    time.Time
}

// look takes the key's present revision in, and tells for how long it has been
// the same.
func (s *sighting) look(revision uint64) time.Duration {
	if s.since.IsZero() || revision != s.revision {
		*s = sighting{revision, time.Now()}
	}
	return time.Since(s.since)
}

// dead tells that the holder of a record can not be alive: an embedded store is
// open in one process at a time, so its other holders are gone.
func (c *Conn) dead(r *leaseRecord) bool { return c.server != nil && r.Process != c.process }

// acquireLease waits until the key is free, released, or unchanged for
// leaseTakeover, and takes it; the leader key with the next generation. seen is
// what the caller has seen of the key already.
func acquireLease(ctx context.Context, c *Conn, key, name string, seen sighting) (*lease, error) {
	told := false
	tick := time.NewTicker(leasePoll)
	defer tick.Stop()
	for {
		var old leaseRecord
		value, rev, err := c.kvGet(ctx, key)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("wait for key %s: %w", key, context.Cause(ctx))
		case err != nil && !isTransport(err) && !errors.Is(err, context.DeadlineExceeded):
			return nil, fmt.Errorf("wait for key %s: %w", key, err)
		case err != nil:
			seen = sighting{} // an unanswered look proves nothing of the holder
		default:
			if rev > 0 {
				if err := json.Unmarshal(value, &old); err != nil {
					return nil, fmt.Errorf("key %s in NATS KV: %w", key, err)
				}
			}
			if age := seen.look(rev); rev == 0 || old.Released || c.dead(&old) || age >= leaseTakeover {
				l, err := takeLease(ctx, c, key, name, rev)
				if err == nil {
					c.log.Info("took a lease key", "key", key, "generation", l.record.Generation, "from", old.Name, "released", old.Released)
					return l, nil
				}
				if !isConflict(err) && !isTransport(err) && !errors.Is(err, context.DeadlineExceeded) {
					return nil, err
				}
				seen = sighting{}
			} else if !told {
				told = true
				c.log.Info("standing by", "key", key, "holder", old.Name, "generation", old.Generation)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func takeLease(ctx context.Context, c *Conn, key, name string, rev uint64) (*lease, error) {
	l := &lease{kv: c.kv, key: key, record: leaseRecord{Holder: rand.Text(), Process: c.process, Name: name}}
	err := c.bounded(ctx, func(ctx context.Context) error {
		if key == keyLeader {
			n, err := c.draw(ctx, keyGeneration, func(n numbers) uint64 { return n.Generation }, func(v uint64) numbers { return numbers{Generation: v} })
			if err != nil {
				return err
			}
			l.record.Generation = event.Generation(n)
		}
		var err error
		l.revision, err = l.write(ctx, rev)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take key %s: %w", key, err)
	}
	return l, nil
}

// keep renews the lease until ctx ends, and then releases it. It returns
// [ErrFenced] when another took it.
func (l *lease) keep(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(leaseRenew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			release, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if err := l.release(release); err != nil && !errors.Is(err, ErrFenced) && !isConflict(err) {
				log.Warn("a lease key stays until it expires", "key", l.key, "error", err)
			}
			return nil
		case <-tick.C:
		}
		// A renewal that fails for want of NATS is tried again; whoever took over
		// meanwhile is protected otherwise.
		one, cancel := context.WithTimeout(ctx, leaseTakeover)
		err := l.renew(one)
		cancel()
		if errors.Is(err, ErrFenced) {
			return err
		}
	}
}

func (l *lease) write(ctx context.Context, rev uint64) (uint64, error) {
	value, err := json.Marshal(l.record)
	if err != nil {
		return 0, err
	}
	return l.kv.put(ctx, l.key, value, rev)
}

// renew tells that the holder lives. ErrFenced: another took the key.
func (l *lease) renew(ctx context.Context) error {
	l.record.Beat++
	rev, err := l.write(ctx, l.revision)
	if err == nil {
		l.revision = rev
		return nil
	}
	if !isConflict(err) {
		return fmt.Errorf("renew key %s: %w", l.key, err)
	}
	if err := l.reread(ctx); err != nil {
		return fmt.Errorf("renew key %s: %w", l.key, err)
	}
	return nil
}

// release lets a standby take over at once. ErrFenced: another took the key.
func (l *lease) release(ctx context.Context) error {
	l.record.Released = true
	_, err := l.write(ctx, l.revision)
	if isConflict(err) { // the renewal that the end interrupted may have been done
		if err = l.reread(ctx); err == nil {
			_, err = l.write(ctx, l.revision)
		}
	}
	if err != nil {
		return fmt.Errorf("release key %s: %w", l.key, err)
	}
	return nil
}

// reread takes in the revision of a write that was done but reported lost: its
// holder recognises it. ErrFenced: another took the key.
func (l *lease) reread(ctx context.Context) error {
	value, rev, err := l.kv.get(ctx, l.key)
	if err != nil {
		return err
	}
	var now leaseRecord
	if err := json.Unmarshal(value, &now); rev > 0 && err == nil && now.Holder == l.record.Holder {
		l.revision = rev
		return nil
	}
	return fmt.Errorf("held by %q, generation %d: %w", now.Name, now.Generation, ErrFenced)
}

func (c *Conn) kvGet(ctx context.Context, key string) (value []byte, rev uint64, err error) {
	err = c.bounded(ctx, func(ctx context.Context) error {
		value, rev, err = c.kv.get(ctx, key)
		return err
	})
	return value, rev, err
}
