package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestTrackedConn: each connection is told its own GTIDs, whatever others read at
// the same moment; an error of the server leaves the connection usable.
func TestTrackedConn(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{Servers: 1})
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	p := c.Primary()
	for _, query := range []string{"CREATE DATABASE tracked", "CREATE TABLE tracked.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, w INT, text VARCHAR(300))"} {
		if err := p.Exec(ctx, query); err != nil {
			t.Fatal(err)
		}
	}
	const writers, each = 8, 200
	var mu sync.Mutex
	told := map[string]bool{}
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			conn := tracked(ctx, t, p)
			defer func() { _ = conn.Close() }()
			for i := range each {
				a, err := conn.Exec(fmt.Sprintf("INSERT INTO tracked.t (w, text) VALUES (%d, REPEAT('x', %d))", n, i))
				if err != nil || a.AffectedRows != 1 || a.LastInsertID == 0 {
					t.Errorf("insert: %+v, %v", a, err)
					return
				}
				mu.Lock()
				if told[a.GTID] {
					t.Errorf("%q was told twice", a.GTID)
				}
				told[a.GTID] = true
				mu.Unlock()
			}
			if a, err := conn.Exec("UPDATE tracked.t SET w = w WHERE id = 0"); err != nil || a.AffectedRows != 0 || a.GTID != "" {
				t.Errorf("an update of nothing: %+v, %v", a, err)
			}
			var refused *mysql.MyError
			if _, err := conn.Exec("INSERT INTO tracked.nothing VALUES (1)"); !errors.As(err, &refused) || refused.Code != mysql.ER_NO_SUCH_TABLE {
				t.Errorf("no table: %v", err)
			}
			if a, err := conn.Exec("INSERT INTO tracked.t (w) VALUES (-1)"); err != nil || a.AffectedRows != 1 || a.GTID == "" {
				t.Errorf("after an error: %+v, %v", a, err)
			}
		})
	}
	wg.Wait()
	executed, err := p.GTIDExecuted(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for g := range told {
		var in bool
		if err := p.DB().QueryRowContext(ctx, "SELECT GTID_SUBSET(?, ?)", g, executed).Scan(&in); err != nil || !in {
			t.Fatalf("%q is none of the server's: %v", g, err)
		}
	}
	if len(told) != writers*each {
		t.Errorf("%d GTIDs were told of %d", len(told), writers*each)
	}
}

func tracked(ctx context.Context, t *testing.T, s *testenv.Server) testenv.TrackedConn {
	t.Helper()
	conn, err := testenv.ConnectTracked(ctx, s.Addr(), testenv.AppUser, testenv.AppPassword, "", testenvtest.HangTimeout)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
