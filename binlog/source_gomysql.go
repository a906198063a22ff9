package binlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"tidegate/binlog/gtid"
)

// This is the one file that knows go-mysql. Its client does the handshake, the
// authentication and the few statements before a dump; the dump itself is ours
// (decisions/own-dump.md).

// dumpOptions says how a dump begins.
type dumpOptions struct {
	server      *ServerConfig
	uuid        gtid.UUID // as whom we register; the server ends an older dump of the same one
	serverID    uint32
	heartbeat   time.Duration
	readTimeout time.Duration
	maxEvent    int
	busyPause   time.Duration
}

// dumpFrom starts a dump of everything that is not in from, and waits for more
// at its end.
func dumpFrom(ctx context.Context, o dumpOptions, from gtid.Set) (*Session, error) {
	c, facts, err := connectDump(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := checkStart(o.server.Name, facts, from); err != nil {
		c.close()
		return nil, err
	}
	set := from.EncodeSIDBlock(nil)
	p := make([]byte, 4, 4+1+2+4+4+8+4+len(set)) // 4: packet header
	p = append(p, mysql.COM_BINLOG_DUMP_GTID)
	p = binary.LittleEndian.AppendUint16(p, replication.USE_HEARTBEAT_EVENT_V2)
	p = binary.LittleEndian.AppendUint32(p, o.serverID)
	p = binary.LittleEndian.AppendUint32(p, 0) // no file name
	p = binary.LittleEndian.AppendUint64(p, 4)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(set)))
	p = append(p, set...)
	return c.dump(o, p, facts)
}

// dumpConn is a connection on which no dump has begun.
type dumpConn struct {
	c   *client.Conn
	net *pacedConn // what go-mysql dialed; under TLS the client wraps it
}

func (d *dumpConn) close() { _ = d.net.Close() }

// dump sends the command and hands the connection over to a packetSource.
func (d *dumpConn) dump(o dumpOptions, command []byte, facts Facts) (*Session, error) {
	d.c.ResetSequence()
	if err := d.c.WritePacket(command); err != nil {
		d.close()
		return nil, fmt.Errorf("start dump of %s: %w", o.server, err)
	}
	// The server speaks only when spoken to, so nothing of the dump can be in
	// go-mysql's read buffer: from here on the bare connection is read.
	conn := d.c.Conn.Conn
	if err := conn.SetDeadline(time.Time{}); err != nil {
		d.close()
		return nil, fmt.Errorf("start dump of %s: %w", o.server, err)
	}
	d.net.begin(o.busyPause)
	src := newPacketSource(conn, o.readTimeout, o.maxEvent, serverError)
	return &Session{Source: src, Facts: facts}, nil
}

// connectDump connects and sets the session up for a dump.
func connectDump(ctx context.Context, o dumpOptions) (*dumpConn, Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, o.server.connectTimeout())
	defer cancel()
	d := &dumpConn{}
	dialer := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := o.server.dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		deadline, _ := ctx.Deadline()
		d.net = paceReads(c)
		return d.net, c.SetDeadline(deadline) // go-mysql's handshake has no context
	}
	var err error
	d.c, err = client.ConnectWithDialer(ctx, o.server.network(), o.server.Addr, o.server.User, o.server.Password, "", dialer,
		func(c *client.Conn) error {
			c.SetTLSConfig(o.server.tlsFor())
			c.SetAttributes(map[string]string{"program_name": "tidegate", "_client_role": "binary_log_listener"})
			return nil
		})
	if err != nil {
		return nil, Facts{}, connectError(o.server, err)
	}
	stop := context.AfterFunc(ctx, d.close) // statements have no context either
	defer stop()
	if err := d.net.SetDeadline(time.Now().Add(o.server.queryTimeout())); err != nil {
		d.close()
		return nil, Facts{}, fmt.Errorf("connect to %s: %w", o.server, err)
	}
	facts, err := d.prepare(o)
	if err != nil {
		d.close()
		return nil, Facts{}, err
	}
	return d, facts, nil
}

func connectError(s *ServerConfig, err error) error {
	if refused := refuseTLS(s, err); refused != nil {
		return refused
	}
	var my *mysql.MyError
	if errors.As(err, &my) && my.Code == mysql.ER_ACCESS_DENIED_ERROR {
		return &RefusedError{
			Server: s.Name, Reason: my.Message,
			Mend: fmt.Sprintf("CREATE USER %s IDENTIFIED BY '...' (or correct its password)", quoteAccount(s.User)),
		}
	}
	return fmt.Errorf("connect to %s: %w", s, err)
}

func quoteAccount(user string) string { return "'" + strings.ReplaceAll(user, "'", "''") + "'@'%'" }

// prepare reads the facts and sets what a dump depends on.
func (d *dumpConn) prepare(o dumpOptions) (Facts, error) {
	facts, err := d.facts(o)
	if err != nil {
		return Facts{}, err
	}
	beat := strconv.FormatInt(o.heartbeat.Nanoseconds(), 10)
	for _, sql := range []string{
		// Checksums are asked for as the server has them, and verified.
		"SET @source_binlog_checksum = @@GLOBAL.binlog_checksum, @master_binlog_checksum = @@GLOBAL.binlog_checksum",
		"SET @source_heartbeat_period = " + beat + ", @master_heartbeat_period = " + beat,
		"SET @replica_uuid = '" + o.uuid.String() + "', @slave_uuid = '" + o.uuid.String() + "'",
		// A handler that blocks must slow the dump, not end it.
		"SET SESSION net_write_timeout = 3600",
	} {
		if _, err := d.c.Execute(sql); err != nil {
			return Facts{}, fmt.Errorf("prepare dump of %s: %s: %w", o.server, sql, err)
		}
	}
	return facts, nil
}

// factsSQL reads owned before executed: a transaction that commits in between
// is then in one of the two at least.
const factsSQL = `SELECT @@GLOBAL.server_uuid, @@GLOBAL.version, @@GLOBAL.lower_case_table_names,
 @@GLOBAL.gtid_mode, @@GLOBAL.log_bin, @@GLOBAL.binlog_format, @@GLOBAL.gtid_owned, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged`

func (d *dumpConn) facts(o dumpOptions) (Facts, error) {
	r, err := d.c.Execute(factsSQL)
	if err != nil {
		var my *mysql.MyError
		if errors.As(err, &my) && my.Code == mysql.ER_UNKNOWN_SYSTEM_VARIABLE {
			return Facts{}, &RefusedError{Server: o.server.Name, Reason: "it is not MySQL 8.0 or newer (" + d.c.GetServerVersion() + ")"}
		}
		return Facts{}, fmt.Errorf("read variables of %s: %w", o.server, err)
	}
	defer r.Close()
	col := make([]string, 9)
	for i := range col {
		if col[i], err = textOf(r, 0, i); err != nil {
			return Facts{}, fmt.Errorf("read variables of %s: %w", o.server, err)
		}
	}
	f := Facts{Version: col[1], FoldNames: col[2] != "0", gtidMode: col[3], logBin: col[4] == "1", format: col[5]}
	if f.ServerUUID, err = gtid.ParseUUID(col[0]); err != nil {
		return Facts{}, fmt.Errorf("read server_uuid of %s: %w", o.server, err)
	}
	if f.owned, err = parseOwned(col[6]); err != nil {
		return Facts{}, fmt.Errorf("read gtid_owned of %s: %w", o.server, err)
	}
	if f.Executed, err = gtid.Parse(col[7]); err != nil {
		return Facts{}, fmt.Errorf("read gtid_executed of %s: %w", o.server, err)
	}
	if f.Purged, err = gtid.Parse(col[8]); err != nil {
		return Facts{}, fmt.Errorf("read gtid_purged of %s: %w", o.server, err)
	}
	f.Collations, err = d.collations()
	if err != nil {
		return Facts{}, fmt.Errorf("read collations of %s: %w", o.server, err)
	}
	return f, nil
}

// process is [runFacts.Process], asked on this connection.
func (d *dumpConn) process() (int64, error) {
	r, err := d.c.Execute("SELECT " + processSQL)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	text, err := textOf(r, 0, 0)
	if err != nil {
		return 0, err
	}
	n, _ := strconv.ParseInt(text, 10, 64) // 0 without the performance schema
	return n, nil
}

func (d *dumpConn) collations() (map[uint16]string, error) {
	r, err := d.c.Execute("SELECT id, collation_name FROM information_schema.collations")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	m := make(map[uint16]string, len(r.Values))
	for i := range r.Values {
		id, err := r.GetUint(i, 0)
		if err != nil {
			return nil, err
		}
		name, err := textOf(r, i, 1)
		if err != nil {
			return nil, err
		}
		m[uint16(id)] = name
	}
	return m, nil
}

// textOf copies a value. go-mysql's strings lie in a buffer that goes back to a pool
// with the result, and the next result on any connection is read into it.
func textOf(r *mysql.Result, row, column int) (string, error) {
	s, err := r.GetString(row, column)
	return strings.Clone(s), err
}

// serverError decodes an error packet.
func serverError(payload []byte) error {
	if len(payload) < 3 {
		return malformed("error packet of %d bytes", len(payload))
	}
	e := &mysql.MyError{Code: binary.LittleEndian.Uint16(payload[1:])}
	msg := payload[3:]
	if len(msg) >= 6 && msg[0] == '#' {
		e.State = string(msg[1:6])
		msg = msg[6:]
	}
	e.Message = string(msg)
	return e
}

// dumpRefused tells whether err is the server's refusal to send (more of) the
// binlog, and its words.
func dumpRefused(err error) (string, bool) {
	var my *mysql.MyError
	if !errors.As(err, &my) {
		return "", false
	}
	return my.Message, my.Code == mysql.ER_MASTER_FATAL_ERROR_READING_BINLOG
}

// lacksPrivilege tells whether err is a missing privilege, and the server's
// words.
func lacksPrivilege(err error) (string, bool) {
	var my *mysql.MyError
	if !errors.As(err, &my) {
		return "", false
	}
	return my.Message, my.Code == mysql.ER_ACCESS_DENIED_ERROR || my.Code == mysql.ER_SPECIFIC_ACCESS_DENIED_ERROR
}

// dumpAnswered tells whether err is what the server answered to a dump.
func dumpAnswered(err error) bool {
	var my *mysql.MyError
	return errors.As(err, &my)
}
