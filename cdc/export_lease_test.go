package cdc

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// MemoryConn is a connection to a key-value store in memory, without NATS, on
// which leases can be taken.
func MemoryConn(process string, s *MemoryStore) *Conn {
	o := Options{Cluster: "shop", DataDir: "none", Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	o.setDefaults()
	return &Conn{o: o, kv: s, process: process, log: o.Log, life: context.Background()}
}

// MemoryStore is the bucket of several MemoryConns.
type MemoryStore struct {
	mu     sync.Mutex
	values map[string]memoryValue
}

type memoryValue struct {
	value    []byte
	revision uint64
}

func (s *MemoryStore) get(_ context.Context, key string) ([]byte, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.values[key]
	return v.value, v.revision, nil
}

// conflict is what NATS says of a lost race.
var conflict = &jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence}

func (s *MemoryStore) put(_ context.Context, key string, value []byte, revision uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[string]memoryValue{}
	}
	if have := s.values[key].revision; have != revision {
		return 0, fmt.Errorf("revision %d, not %d: %w", have, revision, conflict)
	}
	s.values[key] = memoryValue{value, revision + 1}
	return revision + 1, nil
}

func (s *MemoryStore) keys(context.Context, string) ([]string, error) { return nil, nil }

// TakeWatch waits for a server's watch key, as a standby does.
func (c *Conn) TakeWatch(ctx context.Context, server string) (keep func(context.Context) error, err error) {
	l, err := acquireLease(ctx, c, watchPrefix+server, "test", sighting{})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return l.keep(ctx, c.log) }, nil
}

// LeasePoll is how often a standby looks.
const LeasePoll = leasePoll
