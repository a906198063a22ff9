package cdc

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"tidegate/cdc/event"
)

// outgoing is one message on its way. Its bytes never change: what is sent
// again is the same message.
type outgoing struct {
	data    []byte
	digest  [16]byte
	header  event.Header
	id      string
	expect  uint64
	seq     uint64 // where it lies if all goes well; where it lies once acked
	at      time.Time
	acked   bool
	txs     int
	waiters []chan struct{}
	opened  *outgoing // of a checkpoint's last message: its first
	ordinal uint64    // with opened: of the checkpoint
}

type result struct {
	o   *outgoing
	seq uint64
	err error
}

const (
	writerTick = 50 * time.Millisecond
	// maxBatchItems keeps messages small enough to decode in well under a
	// millisecond.
	maxBatchItems = 8192
	spareBuffers  = 8
	// storedBeside is at least what JetStream counts against max_bytes for a message
	// beside its payload and its subject: 34 bytes of the record's frame, 12 around
	// the headers, 59 and 51 for the two at their longest.
	storedBeside = 156
)

// loop is the writer's one goroutine: everything that is sent is made here.
func (w *Writer) loop(ctx context.Context) error {
	tick := time.NewTicker(writerTick)
	defer tick.Stop()
	for {
		if err := w.pump(); err != nil {
			w.torn = true
			return err
		}
		if err := w.await(ctx, tick.C); err != nil {
			return err
		}
	}
}

// await takes in the next thing that happens: an item to send, an ack, a change
// of the connection. An error ends the writer.
func (w *Writer) await(ctx context.Context, tick <-chan time.Time) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.leaseLost:
		return w.leaseErr
	case <-w.wake:
		if err := w.failed(); err != nil {
			return err
		}
	case r := <-w.results:
		w.result(r)
	case <-w.changed:
		// Acks may be lost now, and the stream may not be what it was (rules
		// §5.4): compare on every reconnect.
		_, w.changed = w.conn.Connected()
		w.pub.expire(errDisconnected)
		w.suspect(errDisconnected)
	case <-tick:
		w.expireOld()
	}
	return w.settle(ctx)
}

// settle takes all results that are there and, if something failed and nothing
// is unanswered any more, asks the stream what is in it.
func (w *Writer) settle(ctx context.Context) error {
	for {
		select {
		case r := <-w.results:
			w.result(r)
			continue
		default:
		}
		break
	}
	if w.doubt == nil || w.unanswered > 0 {
		return nil
	}
	return w.resync(ctx)
}

func (w *Writer) suspect(cause error) {
	if w.doubt == nil {
		w.doubt = cause
	}
}

func (w *Writer) expireOld() {
	for _, o := range w.inflight {
		if !o.acked && time.Since(o.at) > w.o.AckTimeout {
			w.pub.expire(errAckTimeout)
			return
		}
	}
}

// pump sends while there is something to send and room in flight. What arrives
// while messages are in flight goes into the next one: group commit.
func (w *Writer) pump() error {
	for w.doubt == nil && len(w.inflight) < w.o.InFlight {
		d, err := w.compose()
		if err != nil || d == nil {
			return err
		}
		w.dispatch(w.encode(d))
	}
	return nil
}

// draft is what goes into one message. Its items are in the ledger already.
type draft struct {
	items   []event.Item
	first   uint64 // ordinal of the first item
	opens   bool   // begins a checkpoint
	closes  bool   // ends it
	txs     int
	waiters []chan struct{}
}

// compose returns the next draft, nil when there is nothing to say.
func (w *Writer) compose() (*draft, error) {
	if len(w.special) > 0 {
		d := w.special[0]
		w.special = w.special[1:]
		d.first = w.led.next
		for _, it := range d.items {
			w.admit(it)
		}
		return d, nil
	}
	if len(w.items) == 0 {
		w.take()
	}
	if due, waiters := w.checkpointDue(); due {
		d := w.whole(w.led.checkpoint())
		// They wait for the last part.
		last := d
		if n := len(w.special); n > 0 {
			last = w.special[n-1]
		}
		last.waiters = waiters
		return d, nil
	}
	return w.batch()
}

func (w *Writer) checkpointDue() (bool, []chan struct{}) {
	if len(w.items) > 0 {
		if want, ok := w.items[0].item.(*wantCheckpoint); ok {
			w.pop()
			return true, []chan struct{}{want.done}
		}
	}
	return w.since.due(&w.o, &w.conn.o), nil
}

// batch puts as many whole items together as fit (group commit).
func (w *Writer) batch() (*draft, error) {
	d := &draft{first: w.led.next}
	size := event.HeaderBound
	for len(w.items) > 0 {
		q := w.items[0]
		if _, ok := q.item.(*wantCheckpoint); ok {
			break
		}
		large := q.bytes > w.limit-event.HeaderBound
		if len(d.items) > 0 && (large || size+q.bytes > min(w.o.BatchBytes, w.limit) || len(d.items) >= maxBatchItems) {
			break
		}
		w.pop()
		it, err := w.fresh(q.item)
		if err != nil {
			return nil, err
		}
		if it == nil {
			w.counters.skipped.Add(1)
			continue
		}
		if large {
			return w.whole(it), nil
		}
		w.admit(it)
		d.items = append(d.items, it)
		size += q.bytes
		if _, ok := it.(*event.Transaction); ok {
			d.txs++
		}
	}
	if len(d.items) == 0 {
		return nil, nil
	}
	return d, nil
}

// admit takes an item into the ledger under the next ordinal.
func (w *Writer) admit(it event.Item) {
	w.led.item(it, event.MakeVersion(w.header.Timeline, w.led.next))
	n := ordinals(it)
	w.led.next += n
	w.since.items += n
}

// whole returns the draft of one item. One that is too large becomes several,
// which come one after another with nothing between.
func (w *Writer) whole(it event.Item) *draft {
	_, checkpoint := it.(*event.Checkpoint)
	if checkpoint {
		w.since = checkpointClock{at: time.Now()}
		w.counters.checkpoints.Add(1)
	}
	t, isTransaction := it.(*event.Transaction)
	if event.SizeBound(it) <= w.limit-event.HeaderBound {
		d := &draft{items: []event.Item{it}, first: w.led.next, opens: checkpoint, closes: checkpoint}
		w.admit(it)
		if isTransaction {
			d.txs = 1
		}
		return d
	}
	var messages [][]event.Item
	if isTransaction {
		messages = chunks(t, w.limit)
	} else {
		// The parts mean nothing to the ledger; the item does, under the
		// ordinal that all of them have.
		w.led.item(it, event.MakeVersion(w.header.Timeline, w.led.next))
		messages = split(it, w.limit)
	}
	for i, items := range messages {
		d := &draft{items: items, opens: checkpoint && i == 0, closes: checkpoint && i == len(messages)-1}
		if isTransaction && i == len(messages)-1 {
			d.txs = 1
		}
		w.special = append(w.special, d)
	}
	d := w.special[0]
	w.special = w.special[1:]
	d.first = w.led.next
	for _, it := range d.items {
		w.admit(it)
	}
	return d
}

// pop takes the first item off.
func (w *Writer) pop() {
	w.counters.queueBytes.Add(-int64(w.items[0].bytes))
	w.items = w.items[1:]
}

// take moves the queue here and makes room.
func (w *Writer) take() {
	w.mu.Lock()
	w.items, w.queue = w.queue, w.items[:0:0]
	w.bytes = 0
	if len(w.items) > 0 && w.err == nil {
		close(w.room)
		w.room = make(chan struct{})
	}
	w.mu.Unlock()
}

// fresh returns what of an item is not in the stream yet, nil when all of it
// is: by identity, not by GTID (rules §11.4).
func (w *Writer) fresh(it event.Item) (event.Item, error) {
	switch v := it.(type) {
	case *event.Transaction:
		if !w.led.delivered.Contains(v.GTID) || w.led.holes.Contains(v.GTID) {
			return v, nil
		}
		id, ok := w.led.identities.find(v.GTID)
		if ok && id == v.Identity() {
			return nil, nil
		}
		return nil, &ReusedError{Came: v.Identity(), Stream: id, Known: ok}
	case *event.Hole:
		h := *v
		h.GTIDs = v.GTIDs.Subtract(w.led.delivered.Set())
		if h.GTIDs.IsEmpty() && !h.Anonymous {
			return nil, nil
		}
		return &h, nil
	}
	return it, nil
}

// encode makes the message that follows the newest one.
func (w *Writer) encode(d *draft) *outgoing {
	m := event.Message{Header: w.header, First: d.first, Items: d.items}
	m.Count, m.Prev = w.led.at.header.Count+1, w.led.at.digest
	o := &outgoing{header: m.Header, id: w.id(m.Count), txs: d.txs, waiters: d.waiters}
	var buf []byte
	if n := len(w.spare); n > 0 {
		buf, w.spare = w.spare[n-1], w.spare[:n-1]
	}
	o.data = m.AppendBinary(buf[:0])
	o.digest = event.DigestOf(o.data)
	o.expect, o.seq = w.led.at.seq, w.led.at.seq+1
	if w.subjectEmpty {
		o.expect, w.subjectEmpty = 0, false
	}
	w.led.at = position{seq: o.seq, header: m.Header, digest: o.digest}
	w.since.bytes += int64(len(o.data)+len(w.conn.names.writesSubject)) + storedBeside
	if d.opens {
		w.opened = o
	}
	if d.closes {
		o.opened, o.ordinal = w.opened, d.first
	}
	return o
}

// id is the message's id for de-duplication, the second belt: incarnation,
// generation and count name one message and no other.
func (w *Writer) id(count uint64) string {
	b := make([]byte, 0, 48)
	for _, c := range w.header.Incarnation[:4] {
		b = append(b, hexDigits[c>>4], hexDigits[c&15])
	}
	b = strconv.AppendUint(append(b, '.'), uint64(w.header.Generation), 36)
	return string(strconv.AppendUint(append(b, '.'), count, 36))
}

func (w *Writer) dispatch(o *outgoing) {
	w.inflight = append(w.inflight, o)
	w.send(o)
}

func (w *Writer) send(o *outgoing) {
	o.at, o.acked = time.Now(), false
	w.unanswered++
	w.pub.send(w.conn.names.writesSubject, o.data, o.expect, o.id, func(seq uint64, err error) {
		w.results <- result{o, seq, err} // room for each message in flight
	})
}

// result notes one ack. Only a message all of whose predecessors are stored is
// done; any failure makes the writer look before it goes on.
func (w *Writer) result(r result) {
	w.unanswered--
	switch {
	case r.err != nil:
		w.suspect(r.err)
		return
	case r.seq != r.o.seq && len(w.inflight) > 0 && w.inflight[0] == r.o && r.seq > w.base.seq:
		// The fence let it in right behind our last one, so this is its place;
		// what was sent behind it expects another and will be refused.
		r.o.seq = r.seq
		if len(w.inflight) > 1 {
			w.suspect(errWrongLast)
		} else {
			w.led.at.seq = r.seq
		}
	case r.seq != r.o.seq:
		w.suspect(errWrongLast)
		return
	}
	r.o.acked = true
	for len(w.inflight) > 0 && w.inflight[0].acked {
		w.stored(w.inflight[0])
		w.inflight = w.inflight[1:]
	}
}

// stored notes that a message is in the stream, and all before it.
func (w *Writer) stored(o *outgoing) {
	w.base = position{seq: o.seq, header: o.header, digest: o.digest}
	w.pause = backoff{}
	w.counters.ackedSeq.Store(o.seq)
	w.counters.messages.Add(1)
	w.counters.transactions.Add(uint64(o.txs))
	w.counters.bytes.Add(uint64(len(o.data)))
	if o.opened != nil {
		ref := checkpointRef{Seq: o.opened.seq, Ordinal: o.ordinal, Incarnation: fmt.Sprintf("%x", o.header.Incarnation[:])}
		w.mu.Lock()
		w.refs = append(w.refs, storedCheckpoint{ref, o.waiters})
		w.mu.Unlock()
		select {
		case w.refWake <- struct{}{}:
		default:
		}
	}
	if len(w.spare) < spareBuffers && cap(o.data) <= 2*w.o.BatchBytes {
		w.spare = append(w.spare, o.data)
	}
	o.data = nil
}

// checkpointClock measures the distance to the newest checkpoint.
type checkpointClock struct {
	at    time.Time
	items uint64
	bytes int64
}

// due says whether a checkpoint has to come: by count, by time, and in any case
// before the stream forgets the one before (rules §5.3).
func (c *checkpointClock) due(o *WriterOptions, limits *Options) bool {
	age := time.Since(c.at)
	return c.items >= o.CheckpointEvery || c.bytes >= limits.WritesMaxBytes/3 ||
		age >= limits.WritesMaxAge/3 || c.items > 0 && age >= o.CheckpointAge
}
