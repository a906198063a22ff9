package cdc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// errUnusable: what the stream holds can't be continued; a new history begins.
var errUnusable = errors.New("the stream can not be continued")

// readTail reads the stream from a checkpoint to its end, or from where the
// writer before stood in this process: the stream is its own checkpoint, and what
// was kept in memory counts only as far as the stream still has its last message.
// A writer that still publishes meanwhile is found out by the first publish.
func (w *Writer) readTail(ctx context.Context) error {
	var end tip
	err := w.conn.retry(ctx, "read the tail of WRITES", func(ctx context.Context) (err error) {
		end, err = w.pub.last(ctx)
		return err
	})
	if err != nil {
		return err
	}
	led, err := w.goOn(ctx, end)
	if errors.Is(err, errNotKept) {
		led, err = w.replay(ctx, end)
	}
	switch {
	case errors.Is(err, errUnusable):
		w.log.Info("beginning WRITES anew", "why", err)
		led = newLedger(w.o.IdentityWindow)
		led.at.seq = end.seq
	case err != nil:
		return fmt.Errorf("read the tail of WRITES: %w", err)
	}
	w.led = led
	w.base, w.subjectEmpty = led.at, end.data == nil
	if end.data != nil {
		w.base.digest = event.DigestOf(end.data)
	}
	w.tail = led.tail(w.conn.secret.Print())
	if a := w.tail.Announced; a.Epoch != 0 {
		// Without it the GTIDs that the old primary was committing are not
		// reported as lost; they are no part of D either way.
		st, err := w.conn.LastState(ctx, a.Server)
		if err != nil {
			return fmt.Errorf("read the state of the announced primary: %w", err)
		}
		if st != nil && st.Epoch == a.Epoch && st.UUID == a.ServerUUID {
			w.tail.PrevE = st.Owned.Union(st.Executed)
		}
	}
	if w.tail.Anywhere, err = w.conn.executedAnywhere(ctx); err != nil {
		return fmt.Errorf("read the states of all servers: %w", err)
	}
	return nil
}

// replay builds the ledger. errUnusable says that there is nothing to build it
// from.
func (w *Writer) replay(ctx context.Context, end tip) (*ledger, error) {
	if end.data == nil {
		return nil, fmt.Errorf("%w: it is empty", errUnusable)
	}
	start, err := w.startOfTail(ctx, end)
	if err != nil {
		return nil, err
	}
	r := replayer{led: newLedger(w.o.IdentityWindow), read: &w.counters.tailMessages}
	if err := w.conn.scan(ctx, start, end.seq, r.take); err != nil {
		return nil, err
	}
	if r.led.history == 0 {
		return nil, fmt.Errorf("%w: no checkpoint is left in it", errUnusable)
	}
	return r.led, nil
}

// replayer takes messages of the stream into a ledger, one after another.
type replayer struct {
	led     *ledger
	join    assembler
	started bool
	read    *atomic.Uint64
}

func (p *replayer) take(r raw) error {
	p.read.Add(1)
	m, err := event.DecodeMessage(r.data)
	if errors.Is(err, event.ErrNewerFormat) {
		return corrupt(r.seq, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnusable, corrupt(r.seq, err))
	}
	if p.started && !p.led.at.follows(m) {
		return fmt.Errorf("%w: message %d does not follow the one before", errUnusable, r.seq)
	}
	stale := p.started && m.Generation < p.led.at.header.Generation
	place := position{seq: r.seq, header: m.Header, digest: m.Digest}
	if stale {
		// Ignored by all readers (rules §11.3), but a link of the chain.
		place.header.Generation = p.led.at.header.Generation
		p.led.at, p.led.next = place, max(p.led.next, m.First)
		return nil
	}
	m, err = p.join.add(m)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnusable, corrupt(r.seq, err))
	}
	p.started = true
	if m == nil { // a part
		p.led.at = place
		return nil
	}
	p.led.message(m, r.seq)
	return nil
}

// startOfTail picks the checkpoint to read from: the newest one that leaves
// half a window of identities to compare, else the oldest that is still there.
func (w *Writer) startOfTail(ctx context.Context, end tip) (uint64, error) {
	var refs []checkpointRef
	err := w.conn.retry(ctx, "read checkpoints", func(ctx context.Context) error {
		inc, err := loadIncarnation(ctx, w.conn.kv)
		if err != nil {
			return err
		}
		refs, err = loadCheckpoints(ctx, w.conn.kv, inc)
		return err
	})
	if err != nil {
		return 0, err
	}
	start := uint64(0)
	for i := len(refs) - 1; i >= 0; i-- {
		if refs[i].Seq < end.first || refs[i].Seq > end.seq {
			continue
		}
		start = refs[i].Seq
		if refs[i].Ordinal+uint64(w.o.IdentityWindow)/2 <= refs[len(refs)-1].Ordinal {
			break
		}
	}
	if start != 0 {
		return start, nil
	}
	// KV knows none that is retained: look for one in the stream itself.
	err = w.conn.scan(ctx, end.first, end.seq, func(r raw) error {
		m, err := event.DecodeMessage(r.data)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnusable, corrupt(r.seq, err))
		}
		if startsCheckpoint(m) {
			start = r.seq
			return errFound
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
		return start, nil
	case err != nil:
		return 0, err
	}
	return 0, fmt.Errorf("%w: no checkpoint is left in it", errUnusable)
}

// errFound ends a scan.
var errFound = errors.New("found")

// startsCheckpoint tells whether a message is a checkpoint, or the first part of
// something that may be one.
func startsCheckpoint(m *event.Message) bool {
	if len(m.Items) != 1 {
		return false
	}
	switch v := m.Items[0].(type) {
	case *event.Checkpoint:
		return true
	case *event.Part:
		return v.Number == 0
	}
	return false
}

// tail is the ledger as the plan sees it.
func (l *ledger) tail(print [8]byte) *Tail {
	h := l.at.header
	return &Tail{
		Empty: l.history == 0, Delivered: l.delivered.Set(), Holes: l.holes.Set(), Lost: l.lost, LostIDs: l.lostIDs,
		History: l.history, Announced: l.announced, Groups: l.groups, FoldNames: l.announced.FoldNames, KnownEmpty: l.empty.Set(),
		OtherFold: l.history != 0 && (h.Fold != key.FoldVersion || h.SecretPrint != print),
		Commits:   l.identities.all(), Since: l.identities.since(),
	}
}

// executedAnywhere is what all servers executed, were committing or had still to
// apply by their newest states.
func (c *Conn) executedAnywhere(ctx context.Context) (gtid.Set, error) {
	var subjects map[string]uint64
	err := c.retry(ctx, "list the states of servers", func(ctx context.Context) error {
		s, err := c.js.Stream(ctx, c.names.state)
		if err != nil {
			return fmt.Errorf("look up stream %s: %w", c.names.state, err)
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(c.names.posPrefix+"*"))
		if err != nil {
			return fmt.Errorf("list subjects of %s: %w", c.names.state, err)
		}
		subjects = info.State.Subjects
		return nil
	})
	if err != nil {
		return gtid.Set{}, err
	}
	var all gtid.Set
	for subject := range subjects {
		st, err := c.lastState(ctx, subject)
		switch {
		case errors.Is(err, event.ErrNewerFormat), errors.Is(err, event.ErrCorrupt):
			// Another version's tailer; what its server has is not known here.
		case err != nil:
			return gtid.Set{}, err
		case st != nil:
			all = all.Union(st.Executed).Union(st.Owned).Union(st.Received)
		}
	}
	return all, nil
}

// LastState returns the newest state of a server in STATE, nil when there is
// none: what a monitor resumes from.
func (c *Conn) LastState(ctx context.Context, server string) (*event.ServerState, error) {
	return c.lastState(ctx, c.names.posSubject(server))
}

func (c *Conn) lastState(ctx context.Context, subject string) (*event.ServerState, error) {
	var data []byte
	err := c.retry(ctx, "read the state in "+subject, func(ctx context.Context) error {
		s, err := c.js.Stream(ctx, c.names.state)
		if err != nil {
			return fmt.Errorf("look up stream %s: %w", c.names.state, err)
		}
		m, err := s.GetLastMsgForSubject(ctx, subject)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			data = nil
			return nil
		case err != nil:
			return fmt.Errorf("read last message of %s: %w", subject, err)
		}
		data = m.Data
		return nil
	})
	if err != nil || data == nil {
		return nil, err
	}
	return event.DecodeServerState(data)
}
