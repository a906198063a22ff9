package binlog

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

const (
	// readBufferBytes holds what one read of the socket may bring. Events that
	// fit are handed out where they lie.
	readBufferBytes = 256 << 10
	// maxPacket is the length that says "the next packet continues this one".
	maxPacket = 1<<24 - 1
	// keepBytes bounds the buffer that is kept for events which do not fit.
	keepBytes = 4 << 20
	// packetHeader is length (3) and sequence (1).
	packetHeader = 4
)

// First bytes of the packets of a dump.
const (
	packetOK  = 0x00
	packetEOF = 0xfe
	packetErr = 0xff
)

// packetSource reads the packets of a dump from a connection. It has no
// goroutine: what nobody asks for stays in the socket and slows the server.
type packetSource struct {
	conn     net.Conn
	br       *bufio.Reader
	timeout  time.Duration
	maxEvent int
	decode   func(payload []byte) error // error packets

	seq     uint8
	pending int           // bytes of the event handed out, still in br
	rest    *packetReader // of the large event handed out, nil: none
	big     []byte
	waiting context.Context // set while Next waits for the first byte of an event
}

func newPacketSource(conn net.Conn, timeout time.Duration, maxEvent int, decode func([]byte) error) *packetSource {
	s := &packetSource{conn: conn, timeout: timeout, maxEvent: maxEvent, decode: decode, seq: 1}
	s.br = bufio.NewReaderSize(readerFunc(s.read), readBufferBytes)
	return s
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// read is one read of the socket, bounded by the read timeout and, while Next
// waits, by its context.
func (s *packetSource) read(p []byte) (int, error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(s.timeout)); err != nil {
		return 0, err
	}
	ctx := s.waiting
	if ctx == nil || ctx.Done() == nil {
		return s.conn.Read(p)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = s.conn.SetReadDeadline(time.Unix(1, 0))
		close(woken)
	})
	n, err := s.conn.Read(p)
	if !stop() {
		<-woken // or it would hit a later read
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, ctx.Err()
		}
	}
	return n, err
}

// Next implements [Source].
func (s *packetSource) Next(ctx context.Context) (Raw, error) {
	if err := s.skip(); err != nil {
		return Raw{}, err
	}
	s.waiting = ctx
	head, err := s.br.Peek(packetHeader)
	s.waiting = nil
	if err != nil {
		if cause := ctx.Err(); cause != nil && errors.Is(err, cause) {
			return Raw{}, cause
		}
		return Raw{}, readError(err)
	}
	n := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
	if head[3] != s.seq {
		return Raw{}, malformed("packet: number %d where %d was due", head[3], s.seq)
	}
	if n == 0 {
		return Raw{}, malformed("packet without content")
	}
	if n >= readBufferBytes-packetHeader {
		return s.large(n)
	}
	s.seq++
	packet, err := s.br.Peek(packetHeader + n)
	if err != nil {
		return Raw{}, readError(err)
	}
	s.pending = packetHeader + n
	payload := packet[packetHeader:]
	switch payload[0] {
	case packetOK:
		return Raw{Data: payload[1:]}, nil
	case packetErr:
		return Raw{}, s.decode(payload)
	case packetEOF:
		return Raw{}, io.EOF
	}
	return Raw{}, malformed("packet that begins with %#x", payload[0])
}

// readError makes the end of a connection an error of its own: io.EOF means the
// end of the binlog.
func readError(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read binlog: %w", err)
}

// skip takes what was handed out last off the connection.
func (s *packetSource) skip() error {
	if s.pending > 0 {
		_, err := s.br.Discard(s.pending)
		s.pending = 0
		return err
	}
	if s.rest == nil {
		return nil
	}
	_, err := io.Copy(io.Discard, s.rest)
	s.rest = nil
	if cap(s.big) > keepBytes {
		s.big = nil
	}
	if err != nil {
		return readError(err)
	}
	return nil
}

// large reads an event that does not fit into the read buffer, up to maxEvent.
func (s *packetSource) large(n int) (Raw, error) {
	s.rest = &packetReader{s: s}
	if err := s.rest.header(n); err != nil {
		return Raw{}, err
	}
	var head [1 + headerBytes]byte
	if _, err := io.ReadFull(s.rest, head[:]); err != nil {
		return Raw{}, readError(err)
	}
	if head[0] != packetOK {
		return Raw{}, malformed("packet of %d bytes that begins with %#x", n, head[0])
	}
	size := int64(binary.LittleEndian.Uint32(head[1+9:]))
	keep := min(size, int64(s.maxEvent))
	if keep < headerBytes {
		return Raw{}, malformed("event of %d bytes", size)
	}
	if int64(cap(s.big)) < keep {
		s.big = make([]byte, 0, keep)
	}
	s.big = append(s.big[:0], head[1:]...)
	body := s.big[headerBytes:keep]
	if _, err := io.ReadFull(s.rest, body); err != nil {
		return Raw{}, readError(err)
	}
	raw := Raw{Data: s.big[:keep]}
	if keep < size {
		raw.Rest = s.rest
	}
	return raw, nil
}

// Close implements [Source].
func (s *packetSource) Close() error { return s.conn.Close() }

// packetReader reads the content of one event that may span packets.
type packetReader struct {
	s    *packetSource
	left int
	more bool // another packet continues this one
}

// header takes the header of a packet of n bytes, which was peeked, off the
// connection.
func (r *packetReader) header(n int) error {
	if _, err := r.s.br.Discard(packetHeader); err != nil {
		return readError(err)
	}
	r.s.seq++
	r.left, r.more = n, n == maxPacket
	return nil
}

// Read returns io.EOF behind the last byte of the event.
func (r *packetReader) Read(p []byte) (int, error) {
	for r.left == 0 {
		if !r.more {
			return 0, io.EOF
		}
		head, err := r.s.br.Peek(packetHeader)
		if err != nil {
			return 0, readError(err)
		}
		if head[3] != r.s.seq {
			return 0, malformed("packet: number %d where %d was due", head[3], r.s.seq)
		}
		if err := r.header(int(head[0]) | int(head[1])<<8 | int(head[2])<<16); err != nil {
			return 0, err
		}
	}
	n, err := r.s.br.Read(p[:min(len(p), r.left)])
	r.left -= n
	if err != nil {
		return n, readError(err)
	}
	return n, nil
}
