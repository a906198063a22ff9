package cdc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"tidegate/cdc/event"
)

// KeptTail is what a writer knew of WRITES when it ended. The next one of the
// same process goes on from there, and reads only what came since: a failover
// does not wait for the tail, which grows with what has to be compared. The zero
// value has nothing. It may be used by many at once.
type KeptTail struct {
	mu  sync.Mutex
	led *ledger
}

func (k *KeptTail) take() *ledger {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	led := k.led
	k.led = nil
	return led
}

// keep leaves the ledger to the next writer, if it is that of whole messages.
// Whether the newest of them were stored is for the next one to see.
func (w *Writer) keep() {
	k := w.o.Kept
	if k == nil || w.torn || len(w.special) > 0 || w.led.history == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.led, w.led = w.led, nil
}

// errNotKept: nothing was kept, or the stream is not what it was.
var errNotKept = errors.New("nothing was kept of the stream")

// goOn builds the ledger from what was kept: the stream has to have the newest
// message of that, byte for byte, and what came behind it has to follow it (rules
// §5.4).
func (w *Writer) goOn(ctx context.Context, end tip) (*ledger, error) {
	led := w.o.Kept.take()
	if led == nil || end.data == nil || led.at.seq < end.first || led.at.seq > end.seq {
		return nil, errNotKept
	}
	r := replayer{led: led, started: true, read: &w.counters.tailMessages}
	at := led.at
	err := w.conn.scan(ctx, at.seq, end.seq, func(m raw) error {
		if m.seq != at.seq {
			return r.take(m)
		}
		r.read.Add(1)
		if event.DigestOf(m.data) != at.digest {
			return fmt.Errorf("%w: message %d is another one", errNotKept, m.seq)
		}
		return nil
	})
	if errors.Is(err, errUnusable) {
		return nil, fmt.Errorf("%w: %w", errNotKept, err)
	}
	return led, err
}
