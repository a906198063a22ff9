package cdc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tidegate/cdc/event"
)

// resync looks which of the messages in flight the stream has, and sends the
// others again, in order and byte for byte: never blindly, so that nothing is
// in the stream twice, and nothing is left out. An older copy that arrives late
// is refused by the fence. Nothing is unanswered when it is called.
func (w *Writer) resync(ctx context.Context) error {
	w.counters.resyncs.Add(1)
	if w.pause.attempts == 1 {
		w.log.Warn("publishing to WRITES is interrupted", "error", w.doubt)
	}
	end, err := w.look(ctx)
	if err != nil {
		return err
	}
	stored, err := w.recognise(end)
	if err != nil {
		return fmt.Errorf("after %w: %w", w.doubt, err)
	}
	if stored > 0 {
		w.inflight[stored-1].seq = end.seq
	}
	for _, o := range w.inflight[:stored] {
		w.stored(o)
	}
	w.inflight = w.inflight[stored:]
	if stored == 0 && !w.pause.wait(ctx) {
		return context.Cause(ctx)
	}
	w.doubt = nil
	expect := w.base.seq
	if end.data == nil {
		expect = 0
	}
	seq := w.base.seq
	for _, o := range w.inflight {
		seq++
		o.expect, o.seq = expect, seq
		expect = seq
		w.send(o)
	}
	w.led.at.seq = seq
	if len(w.inflight) == 0 {
		w.subjectEmpty = end.data == nil
	}
	w.defs.release(w.changed)
	return nil
}

// look asks for the end of the stream until there is an answer.
func (w *Writer) look(ctx context.Context) (tip, error) {
	var pause backoff
	for {
		up, changed := w.conn.Connected()
		if up {
			var end tip
			err := w.conn.bounded(ctx, func(ctx context.Context) (err error) {
				end, err = w.pub.last(ctx)
				return err
			})
			if err == nil {
				w.changed = changed // what happened before was looked at
				return end, nil
			}
			if isGone(err) {
				return tip{}, fmt.Errorf("%w: %w", ErrSteppedBack, err)
			}
			up = pause.wait(ctx)
		}
		select {
		case <-ctx.Done():
			return tip{}, context.Cause(ctx)
		case <-w.leaseLost:
			return tip{}, w.leaseErr
		default:
		}
		if err := w.failed(); err != nil {
			return tip{}, err
		}
		if up {
			continue
		}
		timer := time.NewTimer(maxBackoff)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-w.leaseLost:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// recognise tells how many of the messages in flight the stream ends with.
func (w *Writer) recognise(end tip) (int, error) {
	if end.data == nil {
		if w.base.header.Count == 0 && end.seq == w.base.seq {
			return 0, nil // it was empty when the writer began
		}
		return 0, fmt.Errorf("%w: it is empty, %d messages were stored", ErrSteppedBack, w.base.header.Count)
	}
	digest := event.DigestOf(end.data)
	if end.seq == w.base.seq && digest == w.base.digest {
		return 0, nil
	}
	for i, o := range w.inflight {
		if o.digest == digest {
			return i + 1, nil
		}
	}
	m, err := event.DecodeMessage(end.data)
	switch {
	case errors.Is(err, event.ErrNewerFormat):
		return 0, fmt.Errorf("message %d: %w (%w)", end.seq, ErrFenced, err)
	case err == nil && m.Generation > w.header.Generation:
		return 0, fmt.Errorf("message %d is of generation %d, ours is %d: %w", end.seq, m.Generation, w.header.Generation, ErrFenced)
	}
	return 0, fmt.Errorf("%w: it ends at %d with a message that is not ours, ours at %d", ErrSteppedBack, end.seq, w.base.seq)
}

// nameCheckpoints writes to KV where checkpoints lie, once they are stored. A
// crash before it does so costs a reader the longer way from the one before.
func (w *Writer) nameCheckpoints(ctx context.Context) error {
	for {
		if err := w.nameStored(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.refWake:
		}
	}
}

func (w *Writer) nameStored(ctx context.Context) error {
	w.mu.Lock()
	refs := w.refs
	w.refs = nil
	w.mu.Unlock()
	for _, c := range refs {
		err := w.conn.retry(ctx, "name a checkpoint", func(ctx context.Context) error {
			return addCheckpoint(ctx, w.conn.kv, c.ref)
		})
		if err != nil {
			return err
		}
		for _, done := range c.waiters {
			close(done)
		}
	}
	return nil
}
