package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"tidegate/binlog/gtid"
	"tidegate/testenv"
)

// servers are the sandbox's servers as the application sees them; the primary
// has place 0.
type servers struct {
	cluster *testenv.Cluster
	all     []*testenv.Server
	pools   []*sql.DB
}

// maxConns bounds an application's connections to one server.
const maxConns = 2 * sessions

func openServers(c *testenv.Cluster) (*servers, error) {
	s := &servers{cluster: c, all: append([]*testenv.Server{c.Primary()}, c.Replicas()...)}
	for _, server := range s.all {
		cfg, err := driver.ParseDSN(server.DSN(testenv.AppUser, testenv.AppDatabase))
		if err != nil {
			s.close()
			return nil, err
		}
		cfg.Logger = &driver.NopLogger{} // a read that the end interrupts is no news
		connector, err := driver.NewConnector(cfg)
		if err != nil {
			s.close()
			return nil, err
		}
		db := sql.OpenDB(connector)
		db.SetMaxOpenConns(maxConns)
		db.SetMaxIdleConns(maxConns)
		s.pools = append(s.pools, db)
	}
	return s, nil
}

// close gives all connections up. Of one whose server is gone a pool says that it
// could not take its leave, which matters to nobody.
func (s *servers) close() {
	for _, db := range s.pools {
		_ = db.Close()
	}
}

func (s *servers) name(i int) string { return s.all[i].Name() }

// place of a server by its name; nobody when there is none.
func (s *servers) place(name string) int {
	for i, server := range s.all {
		if server.Name() == name {
			return i
		}
	}
	return nobody
}

// ballastRows is the size of the big transaction: an UPDATE of so many rows,
// which each replica applies in one go while everything later waits. It is more
// than the tailer's key cap, so that the stream carries "all rows" for it.
const ballastRows = 120_000

// prepare makes the tables and the first posts, and waits until all replicas
// have them.
func (s *servers) prepare(ctx context.Context, firstPosts int64) error {
	statements := []string{
		`CREATE TABLE app.posts (id BIGINT PRIMARY KEY, author_id INT NOT NULL, version BIGINT NOT NULL, body VARCHAR(200) NOT NULL, KEY (author_id))`,
		`CREATE TABLE app.ballast (id INT PRIMARY KEY, n INT NOT NULL, filler CHAR(60) NOT NULL)`,
		fmt.Sprintf(`INSERT INTO app.posts WITH RECURSIVE seq AS (SELECT 1 AS n UNION ALL SELECT n+1 FROM seq WHERE n < %d) `+
			`SELECT n, (n-1) %% %d, 1, CONCAT('post ', n, ', as it was before the demo') FROM seq`, firstPosts, sessions),
		fmt.Sprintf(`INSERT INTO app.ballast WITH RECURSIVE seq AS (SELECT /*+ SET_VAR(cte_max_recursion_depth=%d) */ 1 AS n UNION ALL SELECT n+1 FROM seq WHERE n < %d) `+
			`SELECT n, 0, 'weight' FROM seq`, ballastRows+1, ballastRows),
	}
	for _, q := range statements {
		if err := s.all[0].Exec(ctx, q); err != nil {
			return err
		}
	}
	return s.cluster.WaitInSync(ctx)
}

// shown reads a post on the servers of these places at once. The result has the
// version that each shows by its place: 0 where the post is not there, unread
// where it was not asked.
func (s *servers) shown(ctx context.Context, id int64, places []bool) ([]int64, error) {
	out := make([]int64, len(s.all))
	g, ctx := errgroup.WithContext(ctx)
	for i := range s.all {
		out[i] = unread
		if !places[i] {
			continue
		}
		g.Go(func() error {
			err := s.pools[i].QueryRowContext(ctx, "SELECT version FROM posts WHERE id = ?", id).Scan(&out[i])
			if errors.Is(err, sql.ErrNoRows) {
				out[i] = 0
				return nil
			}
			if err != nil {
				return fmt.Errorf("read post %d on %s: %w", id, s.name(i), err)
			}
			return nil
		})
	}
	return out, g.Wait()
}

// unread stands for the version that a server was not asked for.
const unread = -1

// writer is one session's connection to the primary. It tells the GTID of each
// commit, as MySQL returns it with the acknowledgement (session_track_gtids).
type writer struct{ conn testenv.TrackedConn }

// connectTimeout bounds one connection to a server of the sandbox.
const connectTimeout = 10 * time.Second

func (s *servers) newWriter(ctx context.Context) (*writer, error) {
	conn, err := testenv.ConnectTracked(ctx, s.all[0].Addr(), testenv.AppUser, testenv.AppPassword, testenv.AppDatabase, connectTimeout)
	if err != nil {
		return nil, err
	}
	return &writer{conn}, nil
}

// exec runs one statement; the end of ctx interrupts it and the connection can
// not be used any more.
func (w *writer) exec(ctx context.Context, query string) (testenv.Acknowledged, error) {
	stop := context.AfterFunc(ctx, func() { _ = w.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	r, err := w.conn.Exec(query)
	if err != nil {
		return testenv.Acknowledged{}, fmt.Errorf("write on the primary: %w", err)
	}
	return r, nil
}

// commit runs one statement that is a transaction by itself and returns its
// GTID once the primary has acknowledged it.
func (w *writer) commit(ctx context.Context, query string) (gtid.GTID, error) {
	r, err := w.exec(ctx, query)
	if err != nil {
		return gtid.GTID{}, err
	}
	if r.GTID == "" {
		return gtid.GTID{}, fmt.Errorf("the primary acknowledged a write without its GTID: %s", strings.TrimSpace(query))
	}
	g, err := gtid.ParseGTID(r.GTID)
	if err != nil {
		return gtid.GTID{}, fmt.Errorf("the primary's own GTID: %w", err)
	}
	return g, nil
}

func (w *writer) close() error { return w.conn.Close() }
