package cdc

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// Keys of the bucket. Everything in it outlives a purge, a step-back or a
// replacement of the streams.
const (
	keySecret      = "secret"      // hex
	keyStream      = "stream"      // streamRecord
	keyNumbering   = "numbering"   // numbering
	keyCheckpoints = "checkpoints" // []checkpointRef, newest last
	keyEpoch       = "epoch"       // decimal counter
	keyGeneration  = "generation"  // decimal counter
	keyLeader      = "leader"      // leaseRecord
	acceptedPrefix = "accepted."   // + random id: Acceptance
)

// store is what cdc needs of the bucket; tests break each step of it.
type store interface {
	// get returns revision 0 and no error for a key that does not exist.
	get(ctx context.Context, key string) (value []byte, revision uint64, err error)
	// put writes the value if the key still has that revision (0: does not
	// exist); a lost race satisfies isConflict.
	put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	keys(ctx context.Context, prefix string) ([]string, error)
}

type kvStore struct {
	kv  jetstream.KeyValue
	say func(error) error // why NATS is away
}

func (s kvStore) get(ctx context.Context, key string) ([]byte, uint64, error) {
	e, err := s.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read %s from NATS KV: %w", key, s.say(err))
	}
	return e.Value(), e.Revision(), nil
}

func (s kvStore) put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	update := s.kv.Update
	if revision == 0 {
		// A key that somebody deleted has a revision, that of the deletion.
		update = func(ctx context.Context, key string, value []byte, _ uint64) (uint64, error) {
			return s.kv.Create(ctx, key, value)
		}
	}
	rev, err := update(ctx, key, value, revision)
	if err != nil {
		return 0, fmt.Errorf("write %s to NATS KV: %w", key, s.say(err))
	}
	return rev, nil
}

func (s kvStore) keys(ctx context.Context, prefix string) ([]string, error) {
	l, err := s.kv.ListKeysFiltered(ctx, prefix+">")
	if err != nil {
		return nil, fmt.Errorf("list %s* in NATS KV: %w", prefix, s.say(err))
	}
	var out []string
	for k := range l.Keys() {
		out = append(out, k)
	}
	slices.Sort(out)
	return out, nil
}

// change reads a key, lets fn make the new value and writes it, again and
// again until nobody else came between. fn returns nil to leave it as it is.
func change(ctx context.Context, s store, key string, fn func(old []byte) ([]byte, error)) error {
	var pause backoff
	for {
		old, rev, err := s.get(ctx, key)
		if err != nil {
			return err
		}
		value, err := fn(old)
		if err != nil || value == nil {
			return err
		}
		if _, err = s.put(ctx, key, value, rev); !isConflict(err) {
			return err
		}
		if !pause.wait(ctx) {
			return context.Cause(ctx)
		}
	}
}

// NextEpoch takes the next number of the epoch counter (rules §1), beyond every
// epoch that is known to have been given. A failed call may have used up a number.
func (c *Conn) NextEpoch(ctx context.Context) (event.Epoch, error) {
	var n uint64
	err := c.bounded(ctx, func(ctx context.Context) (err error) {
		n, err = c.draw(ctx, keyEpoch, func(n numbers) uint64 { return n.Epoch }, func(v uint64) numbers { return numbers{Epoch: v} })
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("take next epoch: %w", err)
	}
	return event.Epoch(n), nil
}

// loadSecret reads the secret of the digests, or makes it: of two processes
// that do so at once one wins, and both use its secret.
func loadSecret(ctx context.Context, s store, wait bool) (key.Secret, error) {
	var secret key.Secret
	err := change(ctx, s, keySecret, func(old []byte) ([]byte, error) {
		if old == nil {
			if wait {
				return nil, fmt.Errorf("digest secret: %w", errNotYet)
			}
			rand.Read(secret[:])
			return fmt.Appendf(nil, "%x", secret[:]), nil
		}
		var err error
		secret, err = parseSecret(old)
		return nil, err
	})
	return secret, err
}

func parseSecret(value []byte) (key.Secret, error) {
	var b []byte
	if _, err := fmt.Sscanf(string(value), "%x", &b); err != nil || len(b) != len(key.Secret{}) {
		return key.Secret{}, errors.New("digest secret in NATS KV is malformed")
	}
	return key.Secret(b), nil
}

// streamRecord names the incarnation of WRITES, by which readers tell its messages
// from those of a stream before. Each writer that finds the stream empty makes a new
// one; the others see to it that the stream's own is named.
type streamRecord struct {
	Incarnation string           `json:"incarnation"`
	Generation  event.Generation `json:"generation,omitempty"` // of the writer that named it
}

func loadIncarnation(ctx context.Context, s store) ([16]byte, error) {
	var inc [16]byte
	value, rev, err := s.get(ctx, keyStream)
	if err != nil || rev == 0 {
		return inc, err
	}
	var r streamRecord
	var b []byte
	if err := json.Unmarshal(value, &r); err != nil {
		return inc, fmt.Errorf("stream record in NATS KV: %w", err)
	}
	if _, err := fmt.Sscanf(r.Incarnation, "%x", &b); err != nil || len(b) != len(inc) {
		return inc, fmt.Errorf("stream record in NATS KV: incarnation %q", r.Incarnation)
	}
	return [16]byte(b), nil
}

// nameIncarnation names the incarnation on behalf of a writer. A writer that was
// superseded gets [ErrFenced] and changes nothing: readers would look for messages
// that it will never write.
func nameIncarnation(ctx context.Context, s store, g event.Generation, inc [16]byte) error {
	name := streamRecord{Incarnation: fmt.Sprintf("%x", inc[:]), Generation: g}
	return change(ctx, s, keyStream, func(old []byte) ([]byte, error) {
		var was streamRecord
		if old != nil {
			if err := json.Unmarshal(old, &was); err != nil {
				return nil, fmt.Errorf("stream record in NATS KV: %w", err)
			}
		}
		switch {
		case was.Generation > g:
			return nil, fmt.Errorf("generation %d named the stream: %w", was.Generation, ErrFenced)
		case was == name:
			return nil, nil
		}
		return json.Marshal(name)
	})
}

// numbering is what must not be given twice: histories, and timelines with
// their first ordinals (rules §1).
type numbering struct {
	History   event.History         `json:"history"`
	Timelines []event.TimelineStart `json:"timelines"`
}

// keptTimelines bounds the list: tokens of older ones are answered with a
// fence (rules §9.2).
const keptTimelines = 512

// takeTimeline begins a timeline at ordinal first, beyond newest (what the
// stream itself has) and every one that is known to have been given, and, if
// fresh, a history likewise. A failed call may have used up numbers.
func (c *Conn) takeTimeline(ctx context.Context, newest uint32, history event.History, fresh bool, first uint64) (numbering, error) {
	var n numbering
	known, err := c.floor(ctx)
	if err != nil {
		return n, err
	}
	newest = max(newest, uint32(known.Timeline))
	if fresh {
		history = max(history, event.History(known.History))
	}
	err = change(ctx, c.kv, keyNumbering, func(old []byte) ([]byte, error) {
		n = numbering{}
		if old != nil {
			if err := json.Unmarshal(old, &n); err != nil {
				return nil, fmt.Errorf("numbering in NATS KV: %w", err)
			}
		}
		if k := len(n.Timelines); k > 0 {
			newest = max(newest, n.Timelines[k-1].Number)
		}
		n.History = max(n.History, history)
		if fresh {
			n.History++
		}
		n.Timelines = append(n.Timelines, event.TimelineStart{Number: newest + 1, First: first})
		n.Timelines = n.Timelines[max(0, len(n.Timelines)-keptTimelines):]
		return json.Marshal(n)
	})
	if err != nil {
		return n, err
	}
	return n, c.keep(numbers{Timeline: uint64(n.Timelines[len(n.Timelines)-1].Number), History: uint64(n.History)})
}

// checkpointRef says where a checkpoint lies.
type checkpointRef struct {
	Seq         uint64 `json:"seq"` // of its first message
	Ordinal     uint64 `json:"ordinal"`
	Incarnation string `json:"incarnation"`
}

// keptCheckpoints is how many checkpoints are named, newest last: an index
// takes the newest, a replica's tailer the newest that it has passed, a writer
// one that is old enough to compare identities.
const keptCheckpoints = 64

func loadCheckpoints(ctx context.Context, s store, inc [16]byte) ([]checkpointRef, error) {
	value, rev, err := s.get(ctx, keyCheckpoints)
	if err != nil || rev == 0 {
		return nil, err
	}
	var refs []checkpointRef
	if err := json.Unmarshal(value, &refs); err != nil {
		return nil, fmt.Errorf("checkpoints in NATS KV: %w", err)
	}
	want := fmt.Sprintf("%x", inc[:])
	return slices.DeleteFunc(refs, func(r checkpointRef) bool { return r.Incarnation != want }), nil
}

func addCheckpoint(ctx context.Context, s store, ref checkpointRef) error {
	return change(ctx, s, keyCheckpoints, func(old []byte) ([]byte, error) {
		var refs []checkpointRef
		if old != nil {
			if err := json.Unmarshal(old, &refs); err != nil {
				return nil, fmt.Errorf("checkpoints in NATS KV: %w", err)
			}
		}
		// What lies at or behind a stream that stepped back is gone.
		refs = slices.DeleteFunc(refs, func(r checkpointRef) bool {
			return r.Incarnation != ref.Incarnation || r.Seq >= ref.Seq
		})
		refs = append(refs, ref)
		return json.Marshal(refs[max(0, len(refs)-keptCheckpoints):])
	})
}

// Acceptance is an operator's word that something about a server is in order
// (rules §1): exactly one of Table, GTIDs, Restart. It ends with the data set.
type Acceptance struct {
	Server  string   `json:"server"`
	DataSet uint64   `json:"data_set"`
	Table   string   `json:"table,omitempty"` // schema.table; "*": the server as a whole
	GTIDs   gtid.Set `json:"gtids,omitzero"`
	Copy    bool     `json:"copy,omitempty"` // made from a server that is right
	Restart bool     `json:"restart,omitempty"`
	// Epoch, Executed and LossSeen are the server's when the acceptance was
	// given: what happens later is not accepted.
	Epoch    event.Epoch   `json:"epoch"`
	Executed gtid.Set      `json:"executed,omitzero"`
	LossSeen event.Version `json:"loss_seen,omitempty"`
	Author   string        `json:"author"`
	Reason   string        `json:"reason,omitempty"`
	At       time.Time     `json:"at"`
}

// Accept records an acceptance. Records are never changed or deleted.
func (c *Conn) Accept(ctx context.Context, a Acceptance) error {
	value, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	return c.bounded(ctx, func(ctx context.Context) error {
		if _, err := c.kv.put(ctx, acceptedPrefix+strings.ToLower(rand.Text()), value, 0); err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		return nil
	})
}

// Accepted lists all acceptances, oldest first.
func (c *Conn) Accepted(ctx context.Context) ([]Acceptance, error) {
	var out []Acceptance
	err := c.bounded(ctx, func(ctx context.Context) error {
		out = nil
		keys, err := c.kv.keys(ctx, acceptedPrefix)
		if err != nil {
			return err
		}
		for _, k := range keys {
			value, _, err := c.kv.get(ctx, k)
			if err != nil {
				return err
			}
			var a Acceptance
			if err := json.Unmarshal(value, &a); err != nil {
				return fmt.Errorf("acceptance %s: %w", k, err)
			}
			out = append(out, a)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list acceptances: %w", err)
	}
	slices.SortStableFunc(out, func(a, b Acceptance) int { return a.At.Compare(b.At) })
	return out, nil
}
