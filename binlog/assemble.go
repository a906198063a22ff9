package binlog

import (
	"bytes"
	"errors"
	"fmt"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// Mode says what a tailer makes of a binlog.
type Mode uint8

const (
	// Keys: identity, tables, and the scopes of everything written; for the
	// primary.
	Keys Mode = iota
	// Hints: identity and tables only; for a replica, whose binlog tells that
	// something came and not what it shows (rules §2).
	Hints
)

// outcome is what one event completed.
type outcome struct {
	txn      *event.Transaction
	hole     *event.Hole
	progress bool // the position moved and no transaction is open
	// ddl is what a transaction's statements may have changed; for the look-up
	// of definitions.
	ddl []effect
}

// errChecksum is an event whose bytes were changed on their way or on disk.
var errChecksum = errors.New("checksum does not match")

// assembler makes transactions of events. It belongs to one goroutine, does no
// I/O, and keeps no more of a transaction than the key cap allows.
type assembler struct {
	mode   Mode
	keyCap int
	reg    *registry
	// executed tells whether a transaction was delivered before.
	executed func(gtid.GTID) bool

	format format
	at     Position
	txn    txn
	plans  map[uint64]*plan
	query  queryEvent
	arena  arena
	ddl    []effect
	counts *Counters
	unzip  unzipper

	form, other   []byte // compare forms
	cells, cells2 []cell
	// largeThreshold is the size beyond which an event inside a payload is not
	// kept whole.
	largeThreshold int
}

func newAssembler(mode Mode, keyCap, maxEvent int, reg *registry, counts *Counters, executed func(gtid.GTID) bool) *assembler {
	return &assembler{
		mode: mode, keyCap: keyCap, largeThreshold: maxEvent, reg: reg,
		executed: executed, counts: counts, plans: map[uint64]*plan{},
	}
}

// restart forgets what a connection left half done.
func (a *assembler) restart() {
	a.format = format{}
	a.txn.open = false
	a.ddl = nil
}

// close frees what the assembler holds open.
func (a *assembler) close() { a.unzip.close() }

// event takes one event. An error that wraps errChecksum concerns the event
// alone: the source may be read on after poison. Other errors do not come from
// events inside a transaction, which become wide writes instead.
func (a *assembler) event(raw Raw) (outcome, error) {
	a.counts.Events++
	h, err := parseHeader(raw.Data)
	if err != nil {
		return outcome{}, err
	}
	a.counts.Bytes += uint64(h.size)
	if raw.Rest == nil && int(h.size) != len(raw.Data) {
		return outcome{}, malformed("event of %d bytes that says it has %d", len(raw.Data), h.size)
	}
	if h.flags&flagArtificial == 0 && h.logPos != 0 {
		a.advance(h.logPos)
	}
	if a.txn.open {
		a.txn.seen += uint64(h.size)
	}
	if raw.Rest != nil {
		return a.largeEvent(h, raw)
	}
	body, err := a.body(h, raw.Data)
	if err != nil {
		return outcome{}, err
	}
	return a.apply(h, body)
}

// advance moves the position; events tell the low 32 bits of it.
func (a *assembler) advance(low uint32) {
	pos := a.at.Pos&^0xffffffff | uint64(low)
	if pos < a.at.Pos && a.at.Pos-pos > 1<<31 {
		pos += 1 << 32
	}
	a.at.Pos = pos
}

// body verifies the checksum and cuts it off, together with the header.
func (a *assembler) body(h header, data []byte) ([]byte, error) {
	n := len(data)
	switch {
	case h.kind == evFormat:
		f, err := parseFormat(data[headerBytes:])
		if err != nil {
			return nil, err
		}
		if f.checksum == checksumCRC32 && !checksumOK(data) {
			a.counts.Corrupt++
			return nil, fmt.Errorf("format description at %s:%d: %w", a.at.File, a.at.Pos, errChecksum)
		}
		a.format = f
		return nil, nil
	case !a.format.known || h.flags&flagArtificial != 0 || h.kind == evHeartbeat || h.kind == evHeartbeatV2:
		// What the dump thread makes up has a checksum or not, whatever the file
		// says.
		if checksumOK(data) {
			n -= checksumBytes
		}
	case a.format.checksum == checksumCRC32:
		if !checksumOK(data) {
			a.counts.Corrupt++
			return nil, fmt.Errorf("event at %s:%d: %w", a.at.File, a.at.Pos, errChecksum)
		}
		n -= checksumBytes
	}
	return data[headerBytes:n], nil
}

// apply takes an event without its checksum, from the stream or from inside a
// payload.
func (a *assembler) apply(h header, body []byte) (outcome, error) {
	switch h.kind {
	case evFormat:
		return outcome{}, nil
	case evRotate:
		at, err := parseRotate(body)
		if err != nil {
			return outcome{}, err
		}
		a.at = at
		return a.idle()
	case evHeartbeat, evHeartbeatV2:
		at, err := parseHeartbeat(h, body, a.at)
		if err != nil {
			return outcome{}, err
		}
		a.at = at
		return a.idle()
	case evStop:
		return a.idle()
	case evPreviousGTIDs:
		return outcome{}, nil
	case evGTID, evTaggedGTID, evAnonymousGTID:
		return a.begin(h, body)
	}
	if !a.txn.open {
		return a.stray(h)
	}
	out, err := a.inside(h, body)
	if err != nil {
		a.misunderstood()
		err = nil
	}
	return out, err
}

// idle tells that the position moved, unless a transaction is open.
func (a *assembler) idle() (outcome, error) { return outcome{progress: !a.txn.open}, nil }

// begin opens a transaction; one that has not ended ends now, and nobody knows
// how.
func (a *assembler) begin(h header, body []byte) (outcome, error) {
	parse := parseGTID
	if h.kind == evTaggedGTID {
		parse = parseTaggedGTID
	}
	head, err := parse(body)
	if err == nil && h.kind != evAnonymousGTID {
		if verr := head.id.Validate(); verr != nil {
			err = malformed("GTID event: %v", verr)
		}
	}
	if err != nil {
		return outcome{}, err
	}
	var out outcome
	if a.txn.open {
		a.misunderstood()
		out = a.finish()
	}
	a.txn.reset(head)
	a.txn.seen = uint64(h.size)
	a.ddl = nil
	if h.kind == evAnonymousGTID {
		a.txn.head.id = gtid.GTID{}
	} else if a.executed(head.id) {
		a.txn.skip = true
	}
	return out, nil
}

// stray is an event that belongs to no transaction.
func (a *assembler) stray(h header) (outcome, error) {
	if h.flags&flagIgnorable != 0 || h.kind == evIgnorable || h.kind == evDeleteFile {
		return outcome{}, nil
	}
	if h.kind == evIncident {
		return a.holeWithout("incident"), nil
	}
	a.counts.NotUnderstood++
	a.counts.Wide[CauseNotUnderstood]++
	return a.holeWithout(fmt.Sprintf("event of type %d outside of any transaction", h.kind)), nil
}

func (a *assembler) holeWithout(reason string) outcome {
	a.counts.Holes++
	return outcome{hole: &event.Hole{Reason: reason}}
}

// inside takes an event of the open transaction. An error means that it was not
// understood.
func (a *assembler) inside(h header, body []byte) (outcome, error) {
	switch h.kind {
	case evTableMap:
		return outcome{}, a.tableMap(body)
	case evWriteRows, evUpdateRows, evDeleteRows, evPartialUpdate, evWriteRowsV1, evUpdateRowsV1, evDeleteRowsV1:
		return outcome{}, a.rows(h.kind, body)
	case evQuery:
		return a.queryEvent(body)
	case evExecuteLoad:
		if err := parseQuery(evExecuteLoad, body, &a.query); err != nil {
			return outcome{}, err
		}
		return outcome{}, a.statement()
	case evXID:
		return a.finish(), nil
	case evXAPrepare:
		xid, onePhase, err := parseXAPrepare(body)
		if err != nil {
			a.misunderstood()
			return a.finish(), nil
		}
		if !onePhase {
			a.txn.flags |= event.XAPrepare
			a.txn.xid = xid
		}
		return a.finish(), nil
	case evPayload:
		return a.payload(bytes.NewReader(body))
	case evIncident:
		return a.incident(parseIncident(body)), nil
	case evIntvar, evRand, evUserVar, evRowsQuery, evBeginLoad, evAppendBlock, evDeleteFile, evTxnContext, evViewChange, evIgnorable:
		return outcome{}, nil // the statement or rows that they belong to follow
	}
	if h.flags&flagIgnorable != 0 {
		return outcome{}, nil
	}
	return outcome{}, malformed("event of type %d", h.kind)
}

// poison makes the open transaction a write of everything: an event of it can't
// be read. It reports false when none is open.
func (a *assembler) poison() bool {
	if a.txn.open {
		a.misunderstood()
	}
	return a.txn.open
}

func (a *assembler) misunderstood() {
	a.counts.NotUnderstood++
	a.txn.bad = true
	a.txn.change = true
	a.writeEverything(CauseNotUnderstood)
}

func (a *assembler) writeEverything(c Cause) {
	a.txn.change = true
	if !a.txn.everything && a.mode == Keys {
		a.counts.Wide[c]++
	}
	a.txn.everything = true
}

// writeWide adds a wide scope.
func (a *assembler) writeWide(d key.Digest, c Cause) {
	if a.txn.wide.add(d) {
		a.counts.Wide[c]++
		if len(a.txn.wide.list) > a.keyCap {
			a.txn.flags |= event.Capped
			a.writeEverything(CauseCapped)
		}
	}
}

// writeAllRows adds a table's all-rows scope.
func (a *assembler) writeAllRows(t *tableState, c Cause) {
	if t.allRows != a.txn.number {
		t.allRows = a.txn.number
		a.writeWide(t.scopes.AllRows, c)
	}
}

// incident ends the transaction as a hole: what it changed is nowhere.
func (a *assembler) incident(reason string) outcome {
	t := &a.txn
	t.open = false
	if t.skip {
		return outcome{progress: true}
	}
	a.counts.Holes++
	h := &event.Hole{Reason: reason, Anonymous: t.head.id.IsZero()}
	if !h.Anonymous {
		h.GTIDs = gtid.Of(t.head.id)
		h.Headers = []event.HoleHeader{{Identity: t.head.identity()}}
	}
	return outcome{hole: h}
}

// finish ends the transaction.
func (a *assembler) finish() outcome {
	t := &a.txn
	t.open = false
	if t.skip {
		return outcome{progress: true}
	}
	if t.head.id.IsZero() {
		a.counts.Holes++
		return outcome{hole: &event.Hole{Anonymous: true, Reason: "transaction without a GTID"}, ddl: a.ddl}
	}
	if t.bad {
		t.flags |= event.NotUnderstood
	}
	if len(t.touched) > 0 && !t.unlogged && !t.bad {
		t.flags |= event.CascadesLogged
	}
	if !t.change && t.flags&(event.XACommit|event.XARollback) == 0 {
		t.flags |= event.Empty
	}
	out := a.arena.transaction()
	*out = event.Transaction{
		GTID: t.head.id, OriginalCommit: t.head.original, ImmediateCommit: t.head.immediate,
		SizeBytes: max(t.head.size, t.seen), Flags: t.flags, XID: t.xid,
		Tables: a.arena.copyDigests(len(t.tables.list), t.tables.list),
	}
	if t.head.size != 0 {
		out.SizeBytes = t.head.size
	}
	keys := 0
	if a.mode == Keys {
		keys = a.finishScopes(out)
	}
	a.counts.countTransaction(out, keys)
	return outcome{txn: out, ddl: a.ddl}
}

// finishScopes adds scopes and definitions to the transaction.
func (a *assembler) finishScopes(out *event.Transaction) (keys int) {
	t := &a.txn
	out.Defs = t.defs()
	if t.capped {
		out.Flags |= event.Capped
		for _, s := range t.touched {
			a.writeAllRows(s, CauseCapped)
		}
	}
	if t.everything {
		out.Flags |= t.flags & event.Capped
		out.Scopes = a.arena.copyDigests(1, []key.Digest{a.reg.everything})
		return 0
	}
	keys = len(t.narrow.list)
	out.Scopes = a.arena.copyDigests(keys+len(t.wide.list), t.wide.list, t.narrow.list)
	return keys
}
