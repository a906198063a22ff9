package cdc

import (
	"errors"
	"fmt"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

const (
	digestBytes = len(key.Digest{})
	defRefBytes = digestBytes + 8
)

// maxAssembled bounds what the parts of one item may add up to.
const maxAssembled = 1 << 30

// errBadParts: parts do not make up the item that they say they do.
var errBadParts = errors.New("parts do not fit together")

// assembler puts the parts of large items together. The zero value waits for
// the first part.
type assembler struct {
	bytes []byte
	next  uint32
}

// add returns the message to handle: m itself, the assembled one when m is the
// last part, or nil when parts are missing.
func (a *assembler) add(m *event.Message) (*event.Message, error) {
	var p *event.Part
	if len(m.Items) == 1 {
		p, _ = m.Items[0].(*event.Part)
	}
	if p == nil {
		// A writer that ended between parts left a beginning; its successor
		// says everything again.
		*a = assembler{}
		return m, nil
	}
	if p.Number == 0 {
		*a = assembler{}
	}
	if p.Number != a.next || p.Number >= p.Total || len(a.bytes)+len(p.Bytes) > maxAssembled {
		return nil, fmt.Errorf("part %d of %d where %d was expected: %w", p.Number, p.Total, a.next, errBadParts)
	}
	a.bytes = append(a.bytes, p.Bytes...)
	if a.next++; a.next < p.Total {
		return nil, nil
	}
	whole := a.bytes
	*a = assembler{}
	if event.DigestOf(whole) != p.Digest {
		return nil, fmt.Errorf("%d parts with another digest: %w", p.Total, errBadParts)
	}
	items, err := event.DecodeItems(whole, m.Format)
	if err != nil {
		return nil, err
	}
	out := *m
	out.Items = items
	return &out, nil
}

// split cuts an item into messages of parts.
func split(it event.Item, limit int) [][]event.Item {
	whole := event.EncodeItems([]event.Item{it})
	size := max(limit-event.HeaderBound-partOverhead, 1)
	total := (len(whole) + size - 1) / size
	digest := event.DigestOf(whole)
	out := make([][]event.Item, total)
	for i := range out {
		out[i] = []event.Item{&event.Part{
			Number: uint32(i), Total: uint32(total), Digest: digest, Bytes: whole[i*size : min((i+1)*size, len(whole))],
		}}
	}
	return out
}

// partOverhead bounds the fields of a part but its bytes.
const partOverhead = 64

// chunks cuts a transaction that is too large for one message. A transaction
// that names more tables than fit keeps their scopes as records and gives up
// the comparison by table (as after a statement: identity alone is compared).
func chunks(t *event.Transaction, limit int) [][]event.Item {
	var out [][]event.Item
	room := limit - event.HeaderBound - event.SizeBound(&event.Transaction{XID: t.XID}) - partOverhead
	whole := *t
	if fit := room / 4 / defRefBytes; len(whole.Defs) > fit {
		for rest := whole.Defs[fit:]; len(rest) > 0; {
			n := min(len(rest), max(fit, 1))
			out = append(out, []event.Item{&event.Definitions{Defs: rest[:n]}})
			rest = rest[n:]
		}
		whole.Defs = whole.Defs[:fit]
	}
	if len(whole.Tables) > room/4/digestBytes {
		scopes := make([]key.Digest, 0, len(whole.Tables)+len(whole.Scopes))
		whole.Scopes = append(append(scopes, whole.Tables...), whole.Scopes...)
		whole.Tables, whole.Flags = nil, whole.Flags|event.Statement
	}
	size := max((room-event.SizeBound(&event.Transaction{Tables: whole.Tables, Defs: whole.Defs}))/digestBytes, 1)
	scopes, sum, number := whole.Scopes, event.NewScopesDigest(), uint32(0)
	for ; len(scopes) > size; number++ {
		sum.Add(scopes[:size])
		out = append(out, []event.Item{&event.Chunk{GTID: t.GTID, Number: number, Scopes: scopes[:size]}})
		scopes = scopes[size:]
	}
	whole.Scopes = scopes
	sum.Add(scopes)
	return append(out, []event.Item{&event.Chunk{GTID: t.GTID, Number: number, Last: &whole, Total: number + 1, Digest: sum.Sum()}})
}
