package testenv

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// releaseTimeout bounds what a release function waits for a server.
const releaseTimeout = 5 * time.Second

// HoldTable keeps everybody from writing to a table ("app.posts", quoted where
// that is needed) until release is called: a replica's applier blocks in front
// of it, while readers go on and see the table as it is. The table must exist.
// HoldTable waits for open transactions that wrote to it. release may be called
// twice, and after the server died.
func (s *Server) HoldTable(ctx context.Context, table string) (release func(), err error) {
	// READ, not WRITE: a super_read_only server refuses WRITE, and READ stops
	// writers all the same.
	release, err = s.hold(ctx, "UNLOCK TABLES", func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, "LOCK TABLES "+table+" READ")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("server %s: hold table %s: %w", s.name, table, err)
	}
	return release, nil
}

// HoldRow keeps everybody from changing the rows of table that meet where
// ("id = ?"), and from adding such, until release is called; others read on.
// Where no index answers the condition, InnoDB holds every row. An applier that
// waits for longer than innodb_lock_wait_timeout (50 s) tries again. release
// may be called twice, and after the server died.
func (s *Server) HoldRow(ctx context.Context, table, where string, args ...any) (release func(), err error) {
	release, err = s.hold(ctx, "ROLLBACK", func(conn *sql.Conn) error {
		// SHARE, not UPDATE, for the reason of HoldTable; repeatable read, so
		// that the gaps are held too.
		if _, err := conn.ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION"); err != nil {
			return err
		}
		var n int
		return conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table+" WHERE "+where+" FOR SHARE", args...).Scan(&n)
	})
	if err != nil {
		return nil, fmt.Errorf("server %s: hold rows of %s: %w", s.name, table, err)
	}
	return release, nil
}

// hold has take lock something on a connection of its own, which undo unlocks.
func (s *Server) hold(ctx context.Context, undo string, take func(*sql.Conn) error) (func(), error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var once sync.Once
	release := func() {
		once.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
			defer cancel()
			// A server that died holds nothing any more.
			_, _ = conn.ExecContext(ctx, undo)
			_ = conn.Close()
		})
	}
	if err := take(conn); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// SetReadOnly makes the server super_read_only, or writable; it stays so over
// restarts. Turning it on waits for commits that are under way.
func (s *Server) SetReadOnly(ctx context.Context, on bool) error {
	query := "SET GLOBAL super_read_only=ON"
	if !on {
		query = "SET GLOBAL super_read_only=OFF; SET GLOBAL read_only=OFF"
	}
	if err := s.Exec(ctx, query); err != nil {
		return err
	}
	s.rememberReadOnly(on)
	return nil
}

func (s *Server) rememberReadOnly(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readOnly = on
}

// InjectEmpty commits an empty transaction under gtid ("uuid:7", or
// "uuid:tag:7"): the server has executed it from then on, without its data. A
// GTID that the server has already is left alone, as MySQL does it.
func (s *Server) InjectEmpty(ctx context.Context, gtid string) (err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("server %s: inject %s: %w", s.name, gtid, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.ExecContext(ctx, "SET SESSION gtid_next=?", gtid); err != nil {
		return fmt.Errorf("server %s: inject %s: %w", s.name, gtid, err)
	}
	_, err = conn.ExecContext(ctx, "BEGIN; COMMIT")
	if _, back := conn.ExecContext(ctx, "ROLLBACK; SET SESSION gtid_next='AUTOMATIC'"); back != nil {
		err = errors.Join(err, back)
	}
	if err != nil {
		return fmt.Errorf("server %s: inject %s: %w", s.name, gtid, err)
	}
	return nil
}

// RotateBinlog closes the server's current binlog file and begins a new one.
func (s *Server) RotateBinlog(ctx context.Context) error {
	// LOCAL: under super_read_only a logged FLUSH would be an errant transaction.
	return s.Exec(ctx, "FLUSH LOCAL BINARY LOGS")
}

// Binlogs are the names of the server's binlog files, oldest first.
func (s *Server) Binlogs(ctx context.Context) (names []string, err error) {
	rows, err := s.db.QueryContext(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return nil, fmt.Errorf("server %s: show binary logs: %w", s.name, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	into := make([]any, len(columns))
	for i := range into {
		into[i] = new(sql.RawBytes)
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		names = append(names, string(*into[0].(*sql.RawBytes)))
	}
	return names, rows.Err()
}

// PurgeBinlogs begins a new binlog file and removes all older ones, so that who
// was away finds its position purged. A file that a dump thread reads stays for
// as long as it does: PurgeBinlogs waits for threads that are about to move on,
// and returns an error naming what is left when ctx ends before they did.
func (s *Server) PurgeBinlogs(ctx context.Context) error {
	if err := s.RotateBinlog(ctx); err != nil {
		return err
	}
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		names, err := s.Binlogs(ctx)
		if err != nil {
			return err
		}
		if len(names) <= 1 {
			return nil
		}
		if err := s.Exec(ctx, "PURGE BINARY LOGS TO ?", names[len(names)-1]); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("server %s: purge binlogs: %w; still there: %s", s.name, ctx.Err(), strings.Join(names[:len(names)-1], ", "))
		case <-ticker.C:
		}
	}
}

// EnableSemiSync makes the primary wait for a replica's acknowledgement of each
// transaction, at most timeout long (whole milliseconds, above 0), and returns
// when every running replica acknowledges. Promote carries it over.
func (c *Cluster) EnableSemiSync(ctx context.Context, timeout time.Duration) error {
	if timeout < time.Millisecond {
		return fmt.Errorf("semi-sync timeout %s: want at least 1 ms", timeout)
	}
	c.mu.Lock()
	c.semiSync = timeout
	c.mu.Unlock()
	return c.applySemiSync(ctx, c.Primary())
}

// applySemiSync gives each running server its part when semi-sync is on.
func (c *Cluster) applySemiSync(ctx context.Context, primary *Server) error {
	c.mu.Lock()
	timeout := c.semiSync
	c.mu.Unlock()
	if timeout == 0 {
		return nil
	}
	var clients int
	for _, s := range c.servers {
		if s == primary || !s.Running() {
			continue
		}
		status, err := s.ReplicaStatus(ctx)
		if err != nil {
			return err
		}
		query := "SET GLOBAL rpl_semi_sync_source_enabled=OFF; SET GLOBAL rpl_semi_sync_replica_enabled=ON"
		if status["Replica_IO_Running"] != "No" && status != nil {
			query += "; STOP REPLICA IO_THREAD; START REPLICA IO_THREAD" // the receiver registers as it connects
		}
		if err := s.Exec(ctx, query); err != nil {
			return err
		}
		if status["Source_Port"] == strconv.Itoa(primary.Port()) {
			clients++
		}
	}
	if err := primary.Exec(ctx, "SET GLOBAL rpl_semi_sync_replica_enabled=OFF; SET GLOBAL rpl_semi_sync_source_timeout=?; SET GLOBAL rpl_semi_sync_source_enabled=ON",
		timeout.Milliseconds()); err != nil {
		return err
	}
	return primary.awaitStatus(ctx, "Rpl_semi_sync_source_clients", strconv.Itoa(clients))
}

// awaitStatus waits until a status variable of the server has the value.
func (s *Server) awaitStatus(ctx context.Context, name, want string) error {
	ctx, cancel := context.WithTimeout(ctx, receiverTimeout)
	defer cancel()
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		got, err := s.QueryString(ctx, "SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME=?", name)
		if err != nil {
			return err
		}
		if got == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("server %s: %s is %s, want %s: %w", s.name, name, got, want, ctx.Err())
		case <-ticker.C:
		}
	}
}
