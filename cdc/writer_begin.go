package cdc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// beginAttempts bounds how often Begin reads the tail again because a message
// of the writer before came in behind it.
const beginAttempts = 5

// Begin announces the primary: what is lost, which timeline and history goes
// on, and, where there is none to go on with, the first checkpoint. It returns
// the set from which the primary's binlog has to be read. It is called once,
// before Run. A crash anywhere in it leaves a stream from which the next writer
// begins again. After [ErrSteppedBack] the caller closes, opens again and asks
// the primary again.
func (w *Writer) Begin(ctx context.Context, f PrimaryFacts) (gtid.Set, error) {
	if err := f.validate(); err != nil {
		return gtid.Set{}, fmt.Errorf("announce primary: %w", err)
	}
	for attempt := 1; ; attempt++ {
		set, err := w.begin(ctx, &f)
		if err == nil {
			return set, nil
		}
		// What came in behind the tail is compared with facts that are older; for
		// the run that is announced, or a stream begun anew, nothing is called
		// lost by that. Otherwise the facts have to be asked again.
		known := w.tail.Empty || w.tail.Announced.ServerUUID == f.UUID && w.tail.Announced.Epoch == f.Epoch
		if !errors.Is(err, ErrSteppedBack) || !known || attempt == beginAttempts {
			w.fail(err)
			return gtid.Set{}, fmt.Errorf("announce primary: %w", err)
		}
		w.inflight, w.special, w.doubt = nil, nil, nil
		anywhere := w.tail.Anywhere
		if err := w.readTail(ctx); err != nil {
			w.fail(err)
			return gtid.Set{}, fmt.Errorf("announce primary: %w", err)
		}
		w.tail.Anywhere = anywhere // what servers have by now may be newer than the facts
	}
}

func (w *Writer) begin(ctx context.Context, f *PrimaryFacts) (gtid.Set, error) {
	v := plan(w.tail, f, w.o.Groups)
	// Numbers first: a crash from here on wastes them, and nothing else.
	var (
		num numbering
		inc = w.led.at.header.Incarnation
	)
	if w.tail.Empty {
		rand.Read(inc[:])
	}
	err := w.conn.retry(ctx, "begin a timeline", func(ctx context.Context) (err error) {
		if num, err = w.conn.takeTimeline(ctx, w.led.at.header.Timeline, w.tail.History, v.newHistory, w.led.next); err != nil {
			return err
		}
		// Before its first message, so that a reader that sees the message finds the
		// incarnation in KV.
		return nameIncarnation(ctx, w.conn.kv, w.Generation(), inc)
	})
	if err != nil {
		return gtid.Set{}, err
	}
	w.header = event.Header{
		Incarnation: inc, Generation: w.Generation(), Timeline: num.Timelines[len(num.Timelines)-1].Number,
		Fold: key.FoldVersion, SecretPrint: w.conn.secret.Print(),
	}
	v.ann.Timelines, v.ann.History = num.Timelines, w.tail.History
	if v.newHistory {
		v.ann.History = num.History
		w.log.Info("beginning a new history", "history", num.History, "why", v.why)
	}
	w.since = checkpointClock{at: time.Now()}
	if v.newHistory {
		// Its checkpoint comes first: who starts there has everything before as
		// its horizon, and no reader needs older binlog (rules §5.3).
		cp := &event.Checkpoint{
			History: num.History, Delivered: v.delivered, Lost: v.ann.Lost, LostIDs: v.ann.LostIDs, LossAt: w.led.lossAt,
			KnownEmpty: v.knownEmpty, Announced: event.Announcement{NewlyLost: w.led.everLost.Union(v.ann.NewlyLost)},
			Timelines: num.Timelines, Groups: v.ann.Groups,
		}
		if err := w.say(ctx, cp); err != nil {
			return gtid.Set{}, err
		}
	}
	if err := w.say(ctx, &v.ann); err != nil {
		return gtid.Set{}, err
	}
	if !v.hole.IsEmpty() {
		h := &event.Hole{GTIDs: v.hole, Reason: "purged from the primary's binlog before it was read"}
		if err := w.say(ctx, h); err != nil {
			return gtid.Set{}, err
		}
	}
	if !v.newHistory {
		// With the new group columns in it: nobody starts at an older one.
		if err := w.say(ctx, w.led.checkpoint()); err != nil {
			return gtid.Set{}, err
		}
	}
	if err := w.nameStored(ctx); err != nil {
		return gtid.Set{}, err
	}
	w.defs.release(w.changed)
	w.log.Info("announced primary", "server", f.Server, "epoch", f.Epoch, "history", v.ann.History, "timeline", w.header.Timeline,
		"lost", v.ann.NewlyLost.Count(), "hole", v.hole.Count())
	return v.from(w.tail, f), nil
}

// say publishes one item and waits until it is stored.
func (w *Writer) say(ctx context.Context, it event.Item) error {
	w.dispatch(w.encode(w.whole(it)))
	tick := time.NewTicker(writerTick)
	defer tick.Stop()
	_, w.changed = w.conn.Connected()
	for {
		for w.doubt == nil && len(w.special) > 0 && len(w.inflight) < w.o.InFlight {
			d, err := w.compose()
			if err != nil {
				return err
			}
			w.dispatch(w.encode(d))
		}
		if len(w.inflight) == 0 && w.doubt == nil {
			return nil
		}
		if err := w.await(ctx, tick.C); err != nil {
			return err
		}
	}
}
