package cdc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tidegate/cdc/event"
)

// feedAhead is how many decoded messages wait for the sink. Decoding runs beside
// the sink; a slow sink slows the consumer and drops nothing.
const feedAhead = 8

// decoded is one message of WRITES or STATE, or why there are no more.
type decoded struct {
	seq        uint64
	bytes      int
	subject    string
	message    *event.Message
	state      *event.ServerState
	definition *event.TableDefinition
	err        error
}

// decode reads the feed until it breaks or ctx ends; the last value carries the
// error.
func (f *feed) decode(ctx context.Context, out chan<- decoded, read func(raw) decoded) {
	for {
		var d decoded
		r, err := f.next()
		if err != nil {
			d.err = err
		} else {
			d = read(r)
			d.seq, d.bytes, d.subject = r.seq, len(r.data), r.subject
		}
		select {
		case out <- d:
		case <-ctx.Done():
			return
		}
		if d.err != nil {
			return
		}
	}
}

func (f *Follower) decodeWrites(r raw) decoded {
	m, err := event.DecodeMessage(r.data)
	switch {
	case errors.Is(err, event.ErrNewerFormat):
		return decoded{err: corrupt(r.seq, err)}
	case err != nil:
		// A stream that holds what nobody wrote can only be rebuilt from.
		return decoded{err: fmt.Errorf("%w: %w", errRebuild, corrupt(r.seq, err))}
	}
	f.conn.given.note(numbersOf(m))
	return decoded{message: m}
}

// decodeState reads a message of STATE; last holds the state before of each
// server.
func (f *Follower) decodeState(r raw, last map[string]*event.ServerState) decoded {
	var d decoded
	if strings.HasPrefix(r.subject, f.conn.names.posPrefix) {
		before := last[r.subject]
		if before == nil {
			before = &event.ServerState{}
		}
		if d.state, d.err = event.DecodeServerStateAfter(r.data, before); d.err == nil {
			last[r.subject] = d.state
			f.conn.given.note(numbers{Epoch: uint64(d.state.Epoch)})
		}
	} else {
		d.definition, d.err = event.DecodeTableDefinition(r.data)
	}
	if d.err != nil {
		d.err = fmt.Errorf("%w: message %d of STATE, %s: %w", errSink, r.seq, r.subject, d.err)
	}
	return d
}

// followState reads STATE: the latest value of each subject, then each new one,
// and from the beginning again after each interruption. That covers a STATE that
// was purged, replaced or stepped back, since values are whole.
func (f *Follower) followState(ctx context.Context, out chan<- decoded) error {
	var pause backoff
	for {
		err := f.stateSession(ctx, out)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if pause.attempts == 0 {
			f.log.Info("follower opens STATE again", "error", err)
		}
		if err := f.restState(ctx, &pause); err != nil {
			return err
		}
	}
}

func (f *Follower) restState(ctx context.Context, pause *backoff) error {
	_, changed := f.conn.Connected()
	timer := time.NewTimer(min(minBackoff<<min(pause.attempts, 10), maxBackoff))
	defer timer.Stop()
	pause.attempts++
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-changed:
	case <-timer.C:
	}
	return nil
}

func (f *Follower) stateSession(ctx context.Context, out chan<- decoded) error {
	_, changed := f.conn.Connected()
	feed, err := f.conn.openFeed(ctx, f.conn.names.state, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubjects: []string{f.conn.names.posPrefix + "*", f.conn.names.schemaPrefix + "*.*"},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	in, done := make(chan decoded), make(chan struct{})
	go func() {
		defer close(done)
		last := map[string]*event.ServerState{} // by subject: as many as STATE has
		feed.decode(ctx, in, func(r raw) decoded { return f.decodeState(r, last) })
	}()
	defer func() {
		cancel()
		feed.close()
		<-done
	}()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
			return errDisconnected
		case d := <-in:
			if d.err != nil && !errors.Is(d.err, errSink) {
				return d.err
			}
			select {
			case out <- d:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if d.err != nil {
				return d.err
			}
		}
	}
}

// findStart returns the sequence of the checkpoint to start at: the newest that
// StartAt accepts, else the oldest that is still there. errWait: there is none.
func (f *Follower) findStart(ctx context.Context, info *jetstream.StreamInfo) (uint64, error) {
	st := &info.State
	if st.Msgs == 0 {
		f.caughtUpEmpty(st.LastSeq)
		return 0, fmt.Errorf("WRITES is empty: %w", errWait)
	}
	var (
		inc  [16]byte
		refs []checkpointRef
	)
	err := f.conn.bounded(ctx, func(ctx context.Context) (err error) {
		if inc, err = loadIncarnation(ctx, f.conn.kv); err != nil {
			return err
		}
		refs, err = loadCheckpoints(ctx, f.conn.kv, inc)
		return err
	})
	if err != nil {
		return 0, err
	}
	oldest := uint64(0)
	for i := len(refs) - 1; i >= 0; i-- {
		seq := refs[i].Seq
		if seq < st.FirstSeq || seq > st.LastSeq {
			continue
		}
		cp, h, err := f.readCheckpoint(ctx, seq, st.LastSeq)
		if err != nil {
			return 0, err
		}
		if cp == nil || h.Incarnation != inc {
			continue
		}
		oldest = seq
		if f.o.StartAt == nil || f.o.StartAt(cp) {
			return seq, nil
		}
	}
	if oldest == 0 {
		// KV names none: the newest one that the stream itself has.
		err := f.conn.scan(ctx, st.FirstSeq, st.LastSeq, func(r raw) error {
			m, err := event.DecodeMessage(r.data)
			if err != nil {
				return corrupt(r.seq, err)
			}
			if m.Incarnation == inc && startsCheckpoint(m) {
				cp, _, err := f.readCheckpoint(ctx, r.seq, st.LastSeq)
				if err != nil {
					return err
				}
				if cp != nil {
					oldest = r.seq
				}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	if oldest == 0 {
		return 0, fmt.Errorf("WRITES from %d to %d: %w", st.FirstSeq, st.LastSeq, errWait)
	}
	return oldest, nil
}

// caughtUpEmpty tells of a stream without messages: connected, nothing to read.
func (f *Follower) caughtUpEmpty(last uint64) {
	f.n.lastSeq.Store(last)
	f.o.Sink.CaughtUp(last, false)
}

// readCheckpoint reads the checkpoint that begins at seq; nil when what lies
// there is none, or is not complete.
func (f *Follower) readCheckpoint(ctx context.Context, seq, last uint64) (*event.Checkpoint, event.Header, error) {
	var (
		join assembler
		cp   *event.Checkpoint
		h    event.Header
	)
	first := true
	err := f.conn.scan(ctx, seq, last, func(r raw) error {
		m, err := event.DecodeMessage(r.data)
		if err != nil {
			return corrupt(r.seq, err)
		}
		if first && !startsCheckpoint(m) {
			return errFound
		}
		if first = false; m.SecretPrint != f.conn.secret.Print() {
			return fmt.Errorf("checkpoint at %d: %w", seq, ErrSecret)
		}
		whole, err := join.add(m)
		if err != nil || whole == nil {
			return err
		}
		cp, _ = one[*event.Checkpoint](whole)
		h = whole.Header
		return errFound
	})
	if err != nil && !errors.Is(err, errFound) && !errors.Is(err, errBadParts) {
		return nil, h, err
	}
	return cp, h, nil
}
