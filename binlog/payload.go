package binlog

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	// payloadHeadBytes is more than the head of a payload event ever takes.
	payloadHeadBytes = 64
	// zstdWindowBytes bounds what a decoder keeps of what it has given out:
	// MySQL's highest level needs 128 MiB.
	zstdWindowBytes = 128 << 20
)

// unzipper decompresses payloads one after the other; its decoder and buffers
// are made at the first.
type unzipper struct {
	dec *zstd.Decoder
	br  *bufio.Reader
	buf []byte
}

func (u *unzipper) close() {
	if u.dec != nil {
		u.dec.Close()
	}
	*u = unzipper{}
}

// reader returns the events inside of a compressed payload.
func (u *unzipper) reader(r io.Reader) (io.Reader, error) {
	if u.dec == nil {
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindowBytes))
		if err != nil {
			return nil, fmt.Errorf("make decompressor: %w", err)
		}
		u.dec = dec
	}
	if err := u.dec.Reset(r); err != nil {
		return nil, err
	}
	return u.dec, nil
}

// payload takes a TRANSACTION_PAYLOAD event: the events of a whole transaction
// in one, usually compressed. They are read as a stream, so that memory does not
// grow with the transaction.
func (a *assembler) payload(r io.Reader) (outcome, error) {
	out, err := a.payloadEvents(r)
	if cap(a.unzip.buf) > keepBytes {
		a.unzip.buf = nil
	}
	if err != nil {
		a.misunderstood()
	}
	if a.txn.open {
		// Its end was inside and has not come: what came is all there is.
		if err == nil {
			a.misunderstood()
		}
		return a.finish(), nil
	}
	return out, nil
}

func (a *assembler) payloadEvents(r io.Reader) (outcome, error) {
	u := &a.unzip
	if u.br == nil {
		u.br = bufio.NewReaderSize(nil, 32<<10)
	}
	u.br.Reset(r)
	head, err := u.br.Peek(payloadHeadBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return outcome{}, err
	}
	at, compression, size, _, err := payloadHead(head)
	if err != nil {
		return outcome{}, err
	}
	if _, err := u.br.Discard(at); err != nil {
		return outcome{}, err
	}
	var events io.Reader = u.br
	if size > 0 {
		events = io.LimitReader(events, int64(min(size, 1<<40)))
	}
	switch compression {
	case payloadPlain:
	case payloadZstd:
		if events, err = u.reader(events); err != nil {
			return outcome{}, err
		}
	default:
		return outcome{}, malformed("payload of compression type %d", compression)
	}
	return a.innerEvents(events)
}

// innerEvents applies the events of a payload until the transaction ends. They
// carry no checksums.
func (a *assembler) innerEvents(r io.Reader) (outcome, error) {
	u := &a.unzip
	if cap(u.buf) < headerBytes {
		u.buf = make([]byte, headerBytes, 16<<10)
	}
	for a.txn.open {
		head := u.buf[:headerBytes]
		if _, err := io.ReadFull(r, head); err != nil {
			return outcome{}, fmt.Errorf("payload ends inside its transaction: %w", err)
		}
		h, err := parseHeader(head)
		if err != nil {
			return outcome{}, err
		}
		if h.kind == evPayload || h.kind == evGTID || h.kind == evTaggedGTID || h.kind == evAnonymousGTID || h.kind == evRotate {
			return outcome{}, malformed("payload that holds an event of type %d", h.kind)
		}
		n := int(h.size) - headerBytes
		if n > a.largeThreshold {
			if err := a.largeInner(h, r, n); err != nil {
				return outcome{}, err
			}
			continue
		}
		if cap(u.buf) < n {
			u.buf = make([]byte, headerBytes, growTo(n))
		}
		body := u.buf[:n]
		if _, err := io.ReadFull(r, body); err != nil {
			return outcome{}, fmt.Errorf("payload ends inside an event: %w", err)
		}
		out, err := a.apply(h, body)
		if err != nil || out.txn != nil || out.hole != nil || !a.txn.open {
			return out, err
		}
	}
	return outcome{}, nil
}

// growTo rounds a buffer's size up.
func growTo(n int) int {
	size := 16 << 10
	for size < n {
		size *= 2
	}
	return size
}

// largeInner takes an event inside a payload that is larger than is kept.
func (a *assembler) largeInner(h header, r io.Reader, n int) error {
	var head [largeHeadBytes]byte
	k, err := io.ReadFull(r, head[:min(n, largeHeadBytes)])
	if err != nil {
		return fmt.Errorf("payload ends inside an event: %w", err)
	}
	if err := a.large(h, head[:k]); err != nil {
		a.misunderstood()
	}
	if _, err := io.CopyN(io.Discard, r, int64(n-k)); err != nil {
		return fmt.Errorf("payload ends inside an event: %w", err)
	}
	return nil
}

// largeHeadBytes is what is looked at of an event that is not kept whole.
const largeHeadBytes = 64

// largeEvent takes an event of which only the first part is in memory. Its
// checksum is not verified.
func (a *assembler) largeEvent(h header, raw Raw) (outcome, error) {
	body := raw.Data[headerBytes:]
	if h.kind == evPayload && a.txn.open {
		return a.payload(io.MultiReader(bytes.NewReader(body), raw.Rest))
	}
	if !a.txn.open {
		return a.stray(h)
	}
	if err := a.large(h, body); err != nil {
		a.misunderstood()
	}
	return outcome{}, nil
}

// large notes an event from its first bytes: rows write all-rows of their table.
func (a *assembler) large(h header, body []byte) error {
	kind, _ := rowsKindOf(h.kind)
	switch {
	case kind != 0:
		n := a.format.tableIDBytes(h.kind)
		if len(body) < n+2 {
			return malformed("rows event")
		}
		var id [8]byte
		copy(id[:], body[:n])
		p, err := a.planOf(binary.LittleEndian.Uint64(id[:]))
		if err != nil {
			return err
		}
		a.txn.touch(p.state)
		logged := binary.LittleEndian.Uint16(body[n:])&rowsSQLForeignKeys != 0
		a.txn.unlogged = a.txn.unlogged || !logged
		if a.mode == Hints {
			return nil
		}
		if kind != rowsInsert && !logged {
			a.writeCascade(p)
		}
		a.writeAllRows(p.state, CauseLarge)
		return nil
	case h.kind == evRowsQuery, h.kind == evBeginLoad, h.kind == evAppendBlock, h.kind == evUserVar, h.kind == evIgnorable,
		h.flags&flagIgnorable != 0:
		return nil
	}
	return malformed("event of type %d and %d bytes", h.kind, h.size)
}
