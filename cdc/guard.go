package cdc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"
)

// ErrStoreFailed: the embedded store could not write (no room, no permission, a
// disk that fails). The server then stores nothing more until it is started
// again, and what it acknowledged last may not be on the disk: stop. A restart
// with room reads the stream's tail and takes the rest from the binlog again.
var ErrStoreFailed = errors.New("embedded NATS store can not be written")

// ErrStreamsGone: NATS answers and has no more what Open made or found there: its
// store was lost or put back to a time before, or somebody deleted a stream. Open
// again: that makes what is missing, and what it knew goes on in no other way
// (secret, numbers, leases).
var ErrStreamsGone = errors.New("NATS has no more what this process opened")

const (
	// guardEvery is how often the embedded store is looked at. An answer does not
	// depend on it: without acks nothing is delivered, and leases end.
	guardEvery = time.Second
	// wholeEvery is how often it is looked whether all that Open made or found is
	// still in NATS. What two looks in a row miss is gone; one may have come
	// between.
	wholeEvery = 3 * guardEvery
)

// Guard returns nil when ctx ends, and an error when the process should end, to
// be started again: [ErrStoreFailed] when the embedded store can not be written
// any more, [ErrStreamsGone] when streams or bucket are not there any more (who
// only follows waits until a tailer has made them), [ErrSecret] when the bucket
// has another secret than this connection.
func (c *Conn) Guard(ctx context.Context) error {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	whole := time.NewTicker(wholeEvery)
	defer whole.Stop()
	looks := 0 // in a row that missed something
	for {
		if err := c.failure(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-whole.C:
			gone := c.gone(ctx)
			if gone == nil {
				looks = 0
				continue
			}
			looks++
			switch {
			case looks < 2:
			case !c.o.Follow || errors.Is(gone, ErrSecret):
				return gone
			case looks == 2:
				c.log.Warn("waiting for a tailer to make the streams again", "error", gone)
			}
		}
	}
}

// gone says what of all that Open made or found is not there any more, or is
// another one. Nil: everything is there, or nobody can tell now.
func (c *Conn) gone(ctx context.Context) error {
	err := c.bounded(ctx, func(ctx context.Context) error {
		if _, err := c.js.KeyValue(ctx, c.names.bucket); err != nil {
			return fmt.Errorf("bucket %s: %w", c.names.bucket, err)
		}
		for _, name := range []string{c.names.writes, c.names.state} {
			if _, err := c.js.Stream(ctx, name); err != nil {
				return fmt.Errorf("stream %s: %w", name, err)
			}
		}
		value, rev, err := c.kv.get(ctx, keySecret)
		if err != nil {
			return err
		}
		if rev == 0 {
			return fmt.Errorf("digest secret: %w", errNotYet)
		}
		if secret, err := parseSecret(value); err != nil || secret != c.secret {
			return fmt.Errorf("bucket %s was made anew: %w", c.names.bucket, ErrSecret)
		}
		return nil
	})
	switch {
	case errors.Is(err, ErrSecret):
		return err
	case isGone(err), errors.Is(err, errNotYet):
		return fmt.Errorf("%w (its store was lost, or somebody deleted it): %w", ErrStreamsGone, err)
	}
	return nil
}

// failure says why the embedded store takes nothing more; nil: it does, or NATS
// is external.
func (c *Conn) failure() error {
	if c.server == nil {
		return nil
	}
	return c.server.failure()
}

func (e *embedded) failure() error {
	e.mu.Lock()
	srv := e.srv
	e.mu.Unlock()
	if srv == nil {
		return nil
	}
	why := writeError(srv)
	e.mu.Lock()
	defer e.mu.Unlock()
	if why == "" || e.srv != srv { // stopped meanwhile
		return nil
	}
	return fmt.Errorf("%w: %s; nothing more is stored. Its folder %s needs to be writable and to have room (%s); then start again: what was not stored is read from the binlog once more",
		ErrStoreFailed, why, e.dir, freeRoom(e.dir))
}

// writeError is what keeps the server from storing. It is remembered by the
// server until it is started again, so that a look can not miss it.
func writeError(srv *server.Server) string {
	if !srv.JetStreamEnabled() {
		return "JetStream has switched itself off"
	}
	// Other complaints (a stream that is being made or deleted) pass by
	// themselves.
	for _, he := range srv.Healthz(&server.HealthzOptions{Details: true}).Errors {
		if strings.Contains(he.Error, "write error") {
			return he.Error
		}
	}
	return ""
}

func freeRoom(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "free room unknown: " + err.Error()
	}
	return fmt.Sprintf("free now: %d MiB", st.Bavail*uint64(st.Bsize)>>20)
}

// serverLog keeps what the embedded server complained of last, to explain a
// start that failed. Everything else that it says is dropped.
type serverLog struct {
	mu   sync.Mutex
	last string
}

func (l *serverLog) keep(format string, v []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = fmt.Sprintf(format, v...)
}

func (l *serverLog) complaint() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == "" {
		return "it gave no reason"
	}
	return l.last
}

func (l *serverLog) Errorf(format string, v ...any) { l.keep(format, v) }
func (l *serverLog) Fatalf(format string, v ...any) { l.keep(format, v) }
func (l *serverLog) Noticef(string, ...any)         {}
func (l *serverLog) Warnf(string, ...any)           {}
func (l *serverLog) Debugf(string, ...any)          {}
func (l *serverLog) Tracef(string, ...any)          {}

var _ server.Logger = (*serverLog)(nil)
