package testenv

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// GTIDExecuted is the server's gtid_executed, without line breaks.
func (s *Server) GTIDExecuted(ctx context.Context) (string, error) {
	return s.QueryString(ctx, "SELECT REPLACE(@@GLOBAL.gtid_executed, '\\n', '')")
}

// UUID is the server's server_uuid.
func (s *Server) UUID(ctx context.Context) (string, error) {
	return s.QueryString(ctx, "SELECT @@GLOBAL.server_uuid")
}

// waitStep bounds one wait inside the server, so that a context that ends is
// noticed also where the driver cannot interrupt it.
const waitStep = 0.5

// WaitForGTIDs blocks until the server has executed the set.
func (s *Server) WaitForGTIDs(ctx context.Context, set string) error {
	for {
		var timedOut int
		err := s.QueryRow(ctx, "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)", set, waitStep).Scan(&timedOut)
		if err != nil {
			return fmt.Errorf("server %s: wait for %s: %w", s.name, shorten(set), err)
		}
		if timedOut == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("server %s: wait for %s: %w", s.name, shorten(set), ctx.Err())
		}
	}
}

// ReplicaStatus is the row of SHOW REPLICA STATUS for the default channel, by
// column; nil when the server has no channel.
func (s *Server) ReplicaStatus(ctx context.Context) (map[string]string, error) {
	rows, err := s.db.QueryContext(ctx, "SHOW REPLICA STATUS")
	if err != nil {
		return nil, fmt.Errorf("server %s: show replica status: %w", s.name, err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	if !rows.Next() {
		return nil, rows.Err()
	}
	values := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	if err := rows.Scan(into...); err != nil {
		return nil, fmt.Errorf("server %s: show replica status: %w", s.name, err)
	}
	status := make(map[string]string, len(columns))
	for i, column := range columns {
		status[column] = values[i].String
	}
	return status, rows.Err()
}

// RepointTo makes the server a replica of source with auto-positioning, starts
// both threads and returns when the receiver is connected. via, when not
// empty, is an address to connect to instead of the source's own: that of a
// Proxy in front of it.
func (s *Server) RepointTo(ctx context.Context, source *Server, via string) error {
	addr := source.Addr()
	if via != "" {
		addr = via
	}
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("address of source: %w", err)
	}
	number, err := strconv.Atoi(portText)
	if err != nil {
		return fmt.Errorf("address of source %q: %w", addr, err)
	}
	err = s.Exec(ctx, "STOP REPLICA")
	if err == nil {
		err = s.Exec(ctx, `CHANGE REPLICATION SOURCE TO SOURCE_HOST=?, SOURCE_PORT=?, SOURCE_USER=?, SOURCE_PASSWORD=?, SOURCE_SSL=?,
			SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, SOURCE_HEARTBEAT_PERIOD=1, SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=86400`,
			host, number, ReplicationUser, ReplicationPassword, s.tls)
	}
	if err == nil {
		s.mu.Lock()
		s.source, s.via = source, via
		s.mu.Unlock()
		err = s.Exec(ctx, "START REPLICA")
	}
	if err != nil {
		return fmt.Errorf("point %s at %s: %w", s.name, source.name, err)
	}
	return s.awaitReceiver(ctx)
}

// receiverTimeout bounds the wait for a receiver's connection to its source,
// which tries again each second. It is for what never comes, on a loaded machine too.
const receiverTimeout = 2 * time.Minute

func (s *Server) awaitReceiver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, receiverTimeout)
	defer cancel()
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		status, err := s.ReplicaStatus(ctx)
		if err != nil {
			return err
		}
		if status["Replica_IO_Running"] == "Yes" && status["Replica_SQL_Running"] == "Yes" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("server %s: the receiver did not connect: %w (io %s: %s; sql %s: %s)", s.name, ctx.Err(),
				status["Replica_IO_Running"], status["Last_IO_Error"], status["Replica_SQL_Running"], status["Last_SQL_Error"])
		case <-ticker.C:
		}
	}
}

// StopSQLThread stops the applier: the replica receives and shows nothing new.
func (s *Server) StopSQLThread(ctx context.Context) error {
	return s.Exec(ctx, "STOP REPLICA SQL_THREAD")
}

// StartSQLThread starts the applier again.
func (s *Server) StartSQLThread(ctx context.Context) error {
	return s.Exec(ctx, "START REPLICA SQL_THREAD")
}

// StopIOThread stops the receiver: the replica looks idle and healthy, and
// hears of nothing.
func (s *Server) StopIOThread(ctx context.Context) error {
	return s.Exec(ctx, "STOP REPLICA IO_THREAD")
}

// StartIOThread starts the receiver again.
func (s *Server) StartIOThread(ctx context.Context) error {
	return s.Exec(ctx, "START REPLICA IO_THREAD")
}

// SetDelay makes the replica apply each transaction no earlier than delay
// (whole seconds) after it was committed on its source; 0 ends that.
func (s *Server) SetDelay(ctx context.Context, delay time.Duration) error {
	seconds := int(delay / time.Second)
	if delay < 0 || time.Duration(seconds)*time.Second != delay {
		return fmt.Errorf("delay %s: MySQL takes whole seconds, 0 or more", delay)
	}
	err := s.StopSQLThread(ctx)
	if err == nil {
		err = s.Exec(ctx, "CHANGE REPLICATION SOURCE TO SOURCE_DELAY="+strconv.Itoa(seconds))
	}
	// The applier runs again whatever happened: a delay that could not be set
	// must not turn into a stopped replica.
	return errors.Join(err, s.StartSQLThread(ctx))
}

// busyDumpThreads counts the readers of the server's binlog that have not had
// all of it.
func (s *Server) busyDumpThreads(ctx context.Context) (busy int, err error) {
	rows, err := s.db.QueryContext(ctx, "SHOW PROCESSLIST")
	if err != nil {
		return 0, fmt.Errorf("server %s: show processlist: %w", s.name, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id, user, host, db, command, seconds, state, info sql.RawBytes
		if err := rows.Scan(&id, &user, &host, &db, &command, &seconds, &state, &info); err != nil {
			return 0, err
		}
		if strings.HasPrefix(string(command), "Binlog Dump") && !strings.Contains(string(state), "has sent all binlog") {
			busy++
		}
	}
	return busy, rows.Err()
}
