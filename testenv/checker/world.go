package checker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"tidegate/testenv"
)

// World is what sessions and faults share: the servers, who may write where,
// and the history. Its methods may be called by many at once, but for the
// faults', which strike one at a time.
type World struct {
	Cluster *testenv.Cluster

	rec   *recorder
	log   *slog.Logger
	pools *pools

	answerer Answerer

	lastWrite atomic.Int64
	newest    atomic.Pointer[Write] // acknowledged last

	// gate is held for reading by a write, and for writing by whoever changes
	// the primary.
	gate sync.RWMutex
	line int // guarded by gate
}

// write runs one transaction of a session, and records it whatever became of
// it. A nil error means that it was acknowledged.
func (w *World) write(ctx context.Context, c *writer, session int, rows []WrittenRow, first ...string) (*Write, error) {
	w.gate.RLock()
	defer w.gate.RUnlock()
	if err := c.use(ctx, w.Cluster.Primary().Addr()); err != nil {
		return nil, err // nothing was sent
	}
	t := &Write{Session: session, ID: w.lastWrite.Add(1), Line: w.line, Rows: rows, Begin: w.rec.now()}
	var err error
	t.GTID, err = c.transaction(t.ID, rows, first...)
	t.End = w.rec.now()
	if err != nil {
		c.drop()
		t.Err = err.Error()
	}
	w.rec.add(Line{Write: t})
	if err == nil {
		w.newest.Store(t)
	}
	return t, err
}

// ChangePrimary runs change while nobody writes, and records what the new
// primary has of each key before writes go on. before, when not nil, runs first,
// while writes still arrive: what kills the primary belongs there.
func (w *World) ChangePrimary(ctx context.Context, before, change func(context.Context) error) error {
	fork := Fork{Begin: w.rec.now()}
	if before != nil {
		if err := before(ctx); err != nil {
			return err
		}
	}
	w.gate.Lock()
	defer w.gate.Unlock()
	if err := change(ctx); err != nil {
		return err
	}
	var err error
	if fork.Base, err = w.versions(ctx, w.Cluster.Primary()); err != nil {
		return err
	}
	w.line++
	fork.Line, fork.End = w.line, w.rec.now()
	w.rec.add(Line{Fork: &fork})
	return nil
}

// versions reads the version of every key on a server.
func (w *World) versions(ctx context.Context, s *testenv.Server) ([]int64, error) {
	out := make([]int64, numKeys)
	for t := range tables {
		rows, err := s.DB().QueryContext(ctx, "SELECT k, v FROM "+schema+"."+tables[t].name)
		if err != nil {
			return nil, fmt.Errorf("read versions on %s: %w", s.Name(), err)
		}
		for rows.Next() {
			var k int
			var v int64
			if err := rows.Scan(&k, &v); err != nil {
				return nil, errors.Join(err, rows.Close())
			}
			if k < 0 || k >= numKeys {
				return nil, errors.Join(fmt.Errorf("server %s has a key %d", s.Name(), k), rows.Close())
			}
			out[k] = v
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, fmt.Errorf("read versions on %s: %w", s.Name(), err)
		}
	}
	return out, nil
}

// While records that a server's process is not there while f runs. f returns
// when it is back.
func (w *World) While(server *testenv.Server, f func() error) error {
	down := Down{Server: server.Name(), Begin: w.rec.now()}
	err := f()
	down.End = w.rec.now()
	w.rec.add(Line{Down: &down})
	return err
}

// rebuild wipes r and gives it the data of a server that has been right all
// along; the router's operator, if it needs one, hears of it.
func (w *World) rebuild(ctx context.Context, r, from *testenv.Server, newUUID bool) error {
	err := w.While(r, func() error { return r.WipeAndRebuildFrom(ctx, from, newUUID) })
	if o, ok := w.answerer.(Operator); ok && err == nil {
		o.Rebuilt(r.Name())
	}
	return err
}

// replicas are the names of the replicas.
func (w *World) replicas() []string {
	var names []string
	for _, s := range w.Cluster.Replicas() {
		names = append(names, s.Name())
	}
	return names
}
