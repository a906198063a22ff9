package checker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"sync"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	driver "github.com/go-sql-driver/mysql"

	"tidegate/testenv"
)

// Bounds of one statement: a server that is down or frozen costs a read, not
// the session.
const (
	connectTimeout = time.Second
	readTimeout    = time.Second
	writeTimeout   = 5 * time.Second
	oracleTimeout  = 300 * time.Millisecond
)

// pools read the servers as an application does: its account, over TCP.
type pools struct{ byName map[string]*sql.DB }

func newPools(servers []*testenv.Server) (*pools, error) {
	p := &pools{byName: map[string]*sql.DB{}}
	for _, s := range servers {
		cfg, err := driver.ParseDSN(s.DSN(testenv.AppUser, schema))
		if err != nil {
			p.close()
			return nil, fmt.Errorf("address of server %s: %w", s.Name(), err)
		}
		cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = connectTimeout, readTimeout, readTimeout
		cfg.Logger = log.New(io.Discard, "", 0) // servers are killed here all the time
		c, err := driver.NewConnector(cfg)
		if err != nil {
			p.close()
			return nil, fmt.Errorf("address of server %s: %w", s.Name(), err)
		}
		db := sql.OpenDB(c)
		db.SetMaxIdleConns(maxSessions)
		p.byName[s.Name()] = db
	}
	return p, nil
}

// close gives all connections up. Of one whose server is gone a pool says that it
// could not take its leave, which matters to nobody.
func (p *pools) close() {
	for _, db := range p.byName {
		_ = db.Close()
	}
}

// read reads keys, or the group when it is not negative, in one statement per
// key, each with a snapshot of its own.
func (p *pools) read(ctx context.Context, server string, keys []Key, group int) (rows []ShownRow, uuid string, err error) {
	db := p.byName[server]
	if db == nil {
		return nil, "", fmt.Errorf("no server %q", server)
	}
	if group >= 0 {
		return readRows(ctx, db, readSQL(&tables[0], "t."+GroupColumn+"=?"), group)
	}
	for _, k := range keys {
		more, id, err := readRows(ctx, db, readSQL(k.table(), k.table().where), k.table().args(k.row())...)
		if err != nil {
			return nil, "", err
		}
		if uuid != "" && uuid != id {
			return nil, "", fmt.Errorf("server %s changed its server_uuid between two reads", server)
		}
		rows, uuid = append(rows, more...), id
	}
	return rows, uuid, nil
}

func readRows(ctx context.Context, db *sql.DB, query string, args ...any) (shown []ShownRow, uuid string, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var k, v, w sql.NullInt64
		if err := rows.Scan(&uuid, &k, &v, &w); err != nil {
			return nil, "", err
		}
		if k.Valid {
			shown = append(shown, ShownRow{Key: Key(k.Int64), V: v.Int64, W: w.Int64})
		}
	}
	return shown, uuid, rows.Err()
}

// askAll asks every replica for the same rows at once, and waits for all; now
// tells when each was asked.
func (p *pools) askAll(ctx context.Context, servers []string, keys []Key, group int, now func() Moment) []Shown {
	out := make([]Shown, len(servers))
	ctx, cancel := context.WithTimeout(ctx, oracleTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for i, name := range servers {
		wg.Go(func() {
			out[i].Server, out[i].At = name, now()
			var err error
			if out[i].Rows, _, err = p.read(ctx, name, keys, group); err != nil {
				out[i].Rows, out[i].Err = nil, err.Error()
			}
		})
	}
	wg.Wait()
	return out
}

// writer is one connection to the primary that learns the GTID of each of its
// transactions (session_track_gtids). It belongs to one goroutine.
type writer struct {
	addr string
	conn testenv.TrackedConn
}

// use connects to addr unless it is connected there.
func (w *writer) use(ctx context.Context, addr string) error {
	if w.conn.Conn != nil && w.addr == addr {
		return nil
	}
	w.drop()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := testenv.ConnectTracked(ctx, addr, testenv.AppUser, testenv.AppPassword, schema, connectTimeout, func(c *client.Conn) error {
		c.ReadTimeout, c.WriteTimeout = writeTimeout, writeTimeout
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := conn.Exec("SET SESSION innodb_lock_wait_timeout=3"); err != nil {
		return errors.Join(fmt.Errorf("prepare a session at %s: %w", addr, err), conn.Close())
	}
	w.addr, w.conn = addr, conn
	return nil
}

// drop closes the connection, whose state is not known after an error.
func (w *writer) drop() {
	if w.conn.Conn != nil {
		_ = w.conn.Close() // it may be dead already
		w.conn.Conn = nil
	}
}

// transaction runs the statements of first, then writes each row, whose version
// it fills in, and returns the GTID.
func (w *writer) transaction(id int64, rows []WrittenRow, first ...string) (gtid string, err error) {
	single := len(rows) == 1 && len(first) == 0
	if !single {
		if _, err := w.conn.Exec("BEGIN"); err != nil {
			return "", err
		}
	}
	for _, query := range first {
		if _, err := w.conn.Exec(query); err != nil {
			return "", err
		}
	}
	var res testenv.Acknowledged
	for i := range rows {
		k := rows[i].Key
		// LAST_INSERT_ID(expr) hands the new version back with the OK.
		query := fmt.Sprintf("UPDATE %s SET v=LAST_INSERT_ID(v+1), w=%d, %s=%d WHERE k=%d AND %s", k.table().name, id, GroupColumn, rows[i].Group, int(k), k.whereText())
		if res, err = w.conn.Exec(query); err != nil {
			return "", err
		}
		if res.AffectedRows != 1 {
			return "", fmt.Errorf("%s: %d rows changed", query, res.AffectedRows)
		}
		rows[i].V = int64(res.LastInsertID)
	}
	if !single {
		if res, err = w.conn.Exec("COMMIT"); err != nil {
			return "", err
		}
	}
	if res.GTID == "" {
		return "", errors.New("the server did not say the GTID of a commit")
	}
	return res.GTID, nil
}
