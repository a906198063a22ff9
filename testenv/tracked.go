package testenv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
)

// TrackedConn is a connection that learns the GTIDs of its transactions, as MySQL
// returns them with the acknowledgement (session_track_gtids). It belongs to one
// goroutine.
//
// It reads the OK packets itself: what go-mysql returns of one lies in a buffer that
// went back to a pool, and may be another connection's packet by now.
type TrackedConn struct{ *client.Conn }

// Acknowledged is what an OK packet says.
type Acknowledged struct {
	AffectedRows uint64
	LastInsertID uint64
	GTID         string // empty where the statement committed nothing
}

// ConnectTracked connects as client.ConnectWithContext does.
func ConnectTracked(ctx context.Context, addr, user, password, database string, timeout time.Duration, options ...client.Option) (TrackedConn, error) {
	options = append(options, func(c *client.Conn) error {
		c.UnsetCapability(mysql.CLIENT_QUERY_ATTRIBUTES) // Exec sends none
		return c.SetCapability(mysql.CLIENT_SESSION_TRACK)
	})
	c, err := client.ConnectWithContext(ctx, addr, user, password, database, timeout, options...)
	if err != nil {
		return TrackedConn{}, fmt.Errorf("connect to %s: %w", addr, err)
	}
	t := TrackedConn{c}
	if _, err := t.Exec("SET SESSION session_track_gtids = OWN_GTID"); err != nil {
		return TrackedConn{}, errors.Join(fmt.Errorf("prepare a session at %s: %w", addr, err), c.Close())
	}
	return t, nil
}

// errNoOK: the server answered with something else than OK or an error.
var errNoOK = errors.New("the server's answer is no OK packet")

// Exec runs a statement without a result set. An error of the server is a
// *mysql.MyError; after any other one the connection can not be used any more.
// https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_ok_packet.html
func (t TrackedConn) Exec(query string) (Acknowledged, error) {
	t.ResetSequence()
	packet := make([]byte, 4, 4+1+len(query)) // 4: packet header
	packet = append(append(packet, mysql.COM_QUERY), query...)
	if err := t.WritePacket(packet); err != nil {
		return Acknowledged{}, err
	}
	data, err := t.ReadPacket()
	switch {
	case err != nil:
		return Acknowledged{}, err
	case len(data) > 0 && data[0] == mysql.ERR_HEADER:
		return Acknowledged{}, serverError(data)
	case len(data) == 0 || data[0] != mysql.OK_HEADER:
		return Acknowledged{}, fmt.Errorf("%w: %.64q", errNoOK, data)
	}
	return decodeOK(data[1:])
}

func serverError(data []byte) error {
	if len(data) < 9 || data[3] != '#' {
		return fmt.Errorf("%w: error packet %.64q", errNoOK, data)
	}
	return &mysql.MyError{Code: binary.LittleEndian.Uint16(data[1:]), State: string(data[4:9]), Message: string(data[9:])}
}

func decodeOK(data []byte) (a Acknowledged, err error) {
	r := okReader{b: data}
	a.AffectedRows, a.LastInsertID = r.number(), r.number()
	flags := r.take(4) // status, warnings
	if len(r.b) > 0 {  // the server leaves it out where it is empty and nothing follows
		r.text() // info
	}
	if r.bad {
		return a, fmt.Errorf("%w: %.64q", errNoOK, data)
	}
	if binary.LittleEndian.Uint16(flags)&mysql.SERVER_SESSION_STATE_CHANGED == 0 {
		return a, nil
	}
	changes := okReader{b: r.text()}
	for !r.bad && !changes.bad && len(changes.b) > 0 {
		kind := changes.take(1)[0]
		change := okReader{b: changes.text()}
		if kind == mysql.SESSION_TRACK_GTIDS {
			change.take(1) // encoding
			a.GTID = string(change.text())
		}
		changes.bad = changes.bad || change.bad
	}
	if r.bad || changes.bad {
		return a, fmt.Errorf("%w: %.64q", errNoOK, data)
	}
	return a, nil
}

// okReader takes fields off the front of b.
type okReader struct {
	b   []byte
	bad bool
}

func (r *okReader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return make([]byte, min(n, 8))
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *okReader) number() uint64 {
	size := 1
	if len(r.b) > 0 && r.b[0] >= 0xfc { // go-mysql does not look whether all of it is there
		size = [4]int{3, 4, 9, math.MaxInt}[r.b[0]-0xfc]
	}
	if r.bad || size > len(r.b) {
		r.bad = true
		return 0
	}
	n, _, _ := mysql.LengthEncodedInt(r.b)
	r.b = r.b[size:]
	return n
}

func (r *okReader) text() []byte {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	return r.take(int(n))
}
