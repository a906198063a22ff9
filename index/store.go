package index

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"sync"
)

// Store keeps an index across restarts: an ordered map from bytes to bytes that
// changes by whole batches. [OpenPebble] is the one for production.
//
// One index uses a store at a time, and calls Get and Scan only while it is
// opened.
type Store interface {
	// Get returns a copy of the value of a key; ok is false when there is none.
	Get(key []byte) (value []byte, ok bool, err error)
	// Scan calls fn with every key in [from, to) in ascending order. fn must not
	// keep the slices. Its first error ends the scan and is returned.
	Scan(from, to []byte, fn func(key, value []byte) error) error
	// Begin returns an empty batch.
	Begin() Batch
}

// Batch is a list of changes that take effect all together or not at all. The
// caller may reuse the slices that it gave after each call.
type Batch interface {
	Set(key, value []byte)
	Delete(key []byte)
	// DeleteRange deletes every key in [from, to), without those that the batch
	// sets afterwards.
	DeleteRange(from, to []byte)
	// Commit makes the changes durable. After an error it is not known whether
	// they are, and the store must be opened anew. A batch is used once.
	Commit() error
}

// Memory is a [Store] in memory. Its Clone is what a crash at that moment would
// leave. It may be used by several goroutines.
type Memory struct {
	mu   sync.Mutex
	data map[string][]byte
	fail error
}

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{data: map[string][]byte{}} }

// Clone returns a store of its own with the same content.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Memory{data: maps.Clone(m.data)} // values are never modified
}

// Fail makes every later Commit return err without taking effect.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// Get implements [Store].
func (m *Memory) Get(key []byte) (value []byte, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.data[string(key)]
	return bytes.Clone(v), ok, nil
}

// Scan implements [Store].
func (m *Memory) Scan(from, to []byte, fn func(key, value []byte) error) error {
	m.mu.Lock()
	data := maps.Clone(m.data)
	m.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(data)) {
		if k >= string(from) && k < string(to) {
			if err := fn([]byte(k), data[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Begin implements [Store].
func (m *Memory) Begin() Batch { return &memoryBatch{store: m} }

type memoryBatch struct {
	store *Memory
	ops   []func(map[string][]byte)
	done  bool
}

func (b *memoryBatch) Set(key, value []byte) {
	k, v := string(key), bytes.Clone(value)
	b.ops = append(b.ops, func(m map[string][]byte) { m[k] = v })
}

func (b *memoryBatch) Delete(key []byte) {
	k := string(key)
	b.ops = append(b.ops, func(m map[string][]byte) { delete(m, k) })
}

func (b *memoryBatch) DeleteRange(from, to []byte) {
	f, t := string(from), string(to)
	b.ops = append(b.ops, func(m map[string][]byte) {
		maps.DeleteFunc(m, func(k string, _ []byte) bool { return k >= f && k < t })
	})
}

func (b *memoryBatch) Commit() error {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if b.store.fail != nil {
		return b.store.fail
	}
	if b.done {
		return errors.New("batch was committed before")
	}
	b.done = true
	for _, op := range b.ops {
		op(b.store.data)
	}
	return nil
}
