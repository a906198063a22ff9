package index

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// PebbleOptions configures [OpenPebble].
type PebbleOptions struct {
	// Dir is the folder of the database. It is made when it does not exist.
	Dir string
	// FS is the file system; nil: the operating system's.
	FS vfs.FS
	// CacheBytes bounds the block cache, which only a start needs; 0: 8 MiB.
	CacheBytes int64
	// Log receives Pebble's errors; nil: they are only returned.
	Log *slog.Logger
}

// Pebble is a [Store] in a Pebble database. Commit waits for the write-ahead log
// to be durable. The first error of Pebble, also one in the background (a full
// disk), stays: every later Commit returns it, since what is durable is then
// uncertain. A new process recovers.
type Pebble struct {
	db *pebble.DB

	mu     sync.Mutex
	failed error
	log    *slog.Logger
	closed bool
}

const (
	defaultCacheBytes = 8 << 20
	memTableBytes     = 16 << 20
)

// OpenPebble opens or makes the database in a folder. A folder that another
// process has open is an error.
func OpenPebble(o PebbleOptions) (*Pebble, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Pebble{log: o.Log}
	cache := pebble.NewCache(o.CacheBytes)
	defer cache.Unref()
	db, err := pebble.Open(o.Dir, &pebble.Options{
		FS: o.FS, Cache: cache, MemTableSize: memTableBytes,
		FormatMajorVersion: pebble.FormatNewest,
		Logger:             pebbleLog{p},
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { p.fail(fmt.Errorf("pebble in the background: %w", err)) },
		},
	})
	if err == nil {
		err = p.err()
	}
	if err != nil {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
		if errors.Is(err, syscall.EAGAIN) { // Pebble's lock of the folder
			err = fmt.Errorf("another process uses this data_dir; stop it, or name another data_dir: %w", err)
		}
		return nil, fmt.Errorf("open index database in %s: %w", o.Dir, err)
	}
	p.db = db
	return p, nil
}

// Close releases the folder. It may be called twice.
func (p *Pebble) Close() error {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	if closed {
		return nil
	}
	if err := p.db.Close(); err != nil {
		return fmt.Errorf("close index database: %w", err)
	}
	return nil
}

func (p *Pebble) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
	}
}

func (p *Pebble) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// Get implements [Store].
func (p *Pebble) Get(key []byte) (value []byte, ok bool, err error) {
	v, closer, err := p.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("get %q: %w", key, err)
	}
	value = append([]byte(nil), v...)
	return value, true, closer.Close()
}

// Scan implements [Store].
func (p *Pebble) Scan(from, to []byte, fn func(key, value []byte) error) (err error) {
	it, err := p.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return fmt.Errorf("scan from %q: %w", from, err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("scan at %q: %w", it.Key(), err)
		}
		if err := fn(it.Key(), v); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("scan from %q: %w", from, err)
	}
	return nil
}

// Begin implements [Store].
func (p *Pebble) Begin() Batch { return &pebbleBatch{p: p, b: p.db.NewBatch()} }

type pebbleBatch struct {
	p   *Pebble
	b   *pebble.Batch
	err error
}

func (b *pebbleBatch) note(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *pebbleBatch) Set(key, value []byte)       { b.note(b.b.Set(key, value, nil)) }
func (b *pebbleBatch) Delete(key []byte)           { b.note(b.b.Delete(key, nil)) }
func (b *pebbleBatch) DeleteRange(from, to []byte) { b.note(b.b.DeleteRange(from, to, nil)) }

func (b *pebbleBatch) Commit() error {
	err := b.err
	if err == nil {
		err = b.p.err()
	}
	if err == nil {
		err = b.b.Commit(pebble.Sync)
	}
	if err == nil {
		// Pebble reports a failed commit to its logger, which must not end the
		// process here.
		err = b.p.err()
	}
	err = errors.Join(err, b.b.Close())
	if err != nil {
		err = fmt.Errorf("commit index batch: %w", err)
		b.p.fail(err)
	}
	return err
}

// pebbleLog is Pebble's logger. What Pebble calls fatal is kept as the store's
// error: the index stops, and with it the process, by its own way.
type pebbleLog struct{ p *Pebble }

// Infof drops what Pebble says of its daily work.
func (pebbleLog) Infof(string, ...any) {}

// Errorf logs an error that Pebble goes on from.
func (l pebbleLog) Errorf(format string, args ...any) {
	l.p.log.Warn("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf keeps an error after which nothing may be written any more.
func (l pebbleLog) Fatalf(format string, args ...any) {
	e := &fatalError{text: "pebble: " + fmt.Sprintf(format, args...)}
	for _, a := range args {
		if err, ok := a.(error); ok {
			e.cause = err
		}
	}
	l.p.fail(e)
}

// fatalError is what Pebble logged, with the error that it put into the text.
type fatalError struct {
	text  string
	cause error
}

func (e *fatalError) Error() string { return e.text }
func (e *fatalError) Unwrap() error { return e.cause }
