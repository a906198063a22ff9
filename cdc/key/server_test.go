package key

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// server is one connection to a real server.
type server struct {
	*testing.T
	ctx  context.Context
	conn *sql.Conn
	home *testenv.Server
}

// startServer starts one server for the test. The tables of collations and types
// hold for its version, which is printed.
func startServer(t *testing.T, timeout time.Duration, args ...string) *server {
	t.Helper()
	c := testenvtest.Cluster(t, testenv.Options{Servers: 1, Args: args})
	if !c.MySQL.AtLeast(9, 7, 0) {
		t.Fatalf("MySQL %s has other collations than 9.7, which this test describes: set %s to a 9.7 mysqld or unset it", c.MySQL.Version, testenv.EnvMySQLD)
	}
	s := &server{T: t, ctx: testenvtest.Context(t, timeout), home: c.Server("a")}
	var err error
	if s.conn, err = s.home.DB().Conn(s.ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.conn.Close(); err != nil {
			t.Error(err)
		}
	})
	s.exec("CREATE DATABASE IF NOT EXISTS keytest CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
	s.exec("USE keytest")
	s.exec("SET NAMES utf8mb4")
	s.exec("SET sql_mode='', time_zone='+00:00'")
	return s
}

func (s *server) exec(query string) {
	s.Helper()
	if _, err := s.conn.ExecContext(s.ctx, query); err != nil {
		s.Fatalf("%.200s: %v", query, err)
	}
}

// each runs a query and calls f after scanning each row into dst.
func (s *server) each(query string, f func(), dst ...any) {
	s.Helper()
	rows, err := s.conn.QueryContext(s.ctx, query)
	if err != nil {
		s.Fatalf("%.200s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(dst...); err != nil {
			s.Fatalf("%.200s: %v", query, err)
		}
		f()
	}
	if err := rows.Err(); err != nil {
		s.Fatalf("%.200s: %v", query, err)
	}
}

// insertBytes fills a table of an id from 0 and as many binary columns as each
// row has.
func (s *server) insertBytes(table string, rows [][]string) {
	s.Helper()
	const most = 4 << 20
	var q []byte
	for id, row := range rows {
		if len(q) == 0 {
			q = fmt.Appendf(q, "INSERT INTO %s VALUES ", table)
		} else {
			q = append(q, ',')
		}
		q = fmt.Appendf(q, "(%d", id)
		for _, b := range row {
			q = append(q, ",x'"...)
			q = hex.AppendEncode(q, []byte(b))
			q = append(q, '\'')
		}
		q = append(q, ')')
		if len(q) > most || id == len(rows)-1 {
			s.exec(string(q))
			q = q[:0]
		}
	}
}
