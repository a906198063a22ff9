package bench

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
	"tidegate/router"
	"tidegate/router/local"
	"tidegate/testenv"
)

const (
	yesTable = "bench_delay"
	// yesPoll is the pause between two questions. It is part of the result: the
	// router's yes is seen that much later at the most, and the machine is not
	// kept busy by asking.
	yesPoll = 20 * time.Microsecond
	// yesPause is the most that passes between two writes; a random part of it
	// keeps them off the rhythm of ticks and probes.
	yesPause     = 4 * time.Millisecond
	trialTimeout = 20 * time.Second
)

// yesDelayRow writes one row after the other on a real primary and takes, on
// each replica in turn, the time from the return of an independent
// WAIT_FOR_EXECUTED_GTID_SET to the router's yes for that row and that GTID. At
// each yes the row is looked up on that replica; one that is not there is a
// failure of P1.
func (b *bench) yesDelayRow(ctx context.Context) (figures []Figure, err error) {
	c, err := b.startServers(ctx, testenv.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.Primary().Exec(ctx, "CREATE TABLE app."+yesTable+" (id BIGINT PRIMARY KEY, v INT)"); err != nil {
		return nil, err
	}
	if err := inSync(ctx, c); err != nil {
		return nil, err
	}
	t, err := b.startTidegate(ctx, c, filepath.Join(c.Dir(), "tidegate"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	y, err := newYesTrials(ctx, c, t)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, y.close()) }()
	for i := range 2 * b.effort.trials {
		if err := y.trial(ctx, i); err != nil {
			return nil, fmt.Errorf("trial %d: %w", i, err)
		}
	}
	return []Figure{
		figure("yes_delay.p50", quantile(y.local, 0.5), "ms", lower).must(2).aim(0.5),
		figure("yes_delay.p99", quantile(y.local, 0.99), "ms", lower).must(15),
		figure("yes_delay.resp_p50", quantile(y.resp, 0.5), "ms", lower).must(2).aim(0.5),
		figure("yes_delay.resp_p99", quantile(y.resp, 0.99), "ms", lower).must(15),
		figure("yes_delay.failures", float64(y.failures), "of "+strconv.Itoa(len(y.local)+len(y.resp)), lower).must(0),
	}, nil
}

// yesTrials is everything that a trial needs, each on a connection of its own.
type yesTrials struct {
	router   *tidegate
	writer   *sql.Conn
	replicas []yesReplica
	source   gtid.Source // of the primary
	next     int64       // number of the next write
	conn     net.Conn    // to the RESP listener
	r        *bufio.Reader

	local, resp []float64 // delays in milliseconds
	failures    int
}

type yesReplica struct {
	name         string
	waiter, look *sql.Conn
}

func newYesTrials(ctx context.Context, c *testenv.Cluster, t *tidegate) (*yesTrials, error) {
	y := &yesTrials{router: t}
	if err := y.open(ctx, c, t); err != nil {
		return nil, errors.Join(err, y.close())
	}
	return y, nil
}

func (y *yesTrials) open(ctx context.Context, c *testenv.Cluster, t *tidegate) (err error) {
	if y.writer, err = c.Primary().DB().Conn(ctx); err != nil {
		return err
	}
	for _, s := range c.Replicas() {
		r := yesReplica{name: s.Name()}
		if r.waiter, err = s.DB().Conn(ctx); err != nil {
			return err
		}
		if r.look, err = s.DB().Conn(ctx); err != nil {
			return errors.Join(err, r.waiter.Close())
		}
		y.replicas = append(y.replicas, r)
	}
	uuid, err := c.Primary().QueryString(ctx, "SELECT @@GLOBAL.server_uuid")
	if err != nil {
		return err
	}
	if y.source.UUID, err = gtid.ParseUUID(uuid); err != nil {
		return err
	}
	have, err := executed(ctx, c.Primary())
	if err != nil {
		return err
	}
	y.next = have.Max(y.source) + 1
	if y.conn, err = dial(ctx, t.Server.RESPAddr().String()); err != nil {
		return err
	}
	y.r = bufio.NewReader(y.conn)
	return nil
}

func (y *yesTrials) close() error {
	var errs []error
	if y.writer != nil {
		errs = append(errs, y.writer.Close())
	}
	for _, r := range y.replicas {
		errs = append(errs, r.waiter.Close(), r.look.Close())
	}
	if y.conn != nil {
		errs = append(errs, y.conn.Close())
	}
	return errors.Join(errs...)
}

// returned is how the independent wait ended.
type returned struct {
	at  time.Time
	err error
}

// trial writes row and GTID number y.next, and asks in process when i is even,
// over RESP when it is odd.
func (y *yesTrials) trial(ctx context.Context, i int) error {
	if err := sleep(ctx, rand.N(yesPause)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	n, replica := y.next, &y.replicas[i/2%len(y.replicas)]
	y.next++
	g := gtid.GTID{UUID: y.source.UUID, Seq: n}
	// The number is the primary's own next one; set beforehand, so that the wait
	// can begin before the write.
	if _, err := y.writer.ExecContext(ctx, "SET gtid_next='"+g.String()+"'"); err != nil {
		return err
	}
	waited := make(chan returned, 1)
	go func() {
		var timedOut int
		err := replica.waiter.QueryRowContext(ctx, "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, 20)", g.String()).Scan(&timedOut)
		at := time.Now()
		if err == nil && timedOut != 0 {
			err = errors.New("the wait timed out")
		}
		waited <- returned{at, err}
	}()
	wrote := make(chan error, 1)
	go func() {
		_, err := y.writer.ExecContext(ctx, "INSERT INTO app."+yesTable+" VALUES (?, ?)", n, i)
		wrote <- err
	}()
	ask, delays := y.askLocal, &y.local
	if i%2 == 1 {
		ask, delays = y.askRESP, &y.resp
	}
	at, err := y.untilYes(ctx, replica, n, g, ask)
	w := <-waited
	if err := errors.Join(err, w.err, <-wrote); err != nil {
		return fmt.Errorf("%s on %s: %w", g, replica.name, err)
	}
	*delays = append(*delays, float64(at.Sub(w.at))/1e6)
	return nil
}

// untilYes asks until the answer is yes, looks the row up, and returns the
// moment of the yes.
func (y *yesTrials) untilYes(ctx context.Context, r *yesReplica, n int64, g gtid.GTID, ask func(string, int64, gtid.GTID) (bool, string, error)) (time.Time, error) {
	for {
		yes, why, err := ask(r.name, n, g)
		at := time.Now()
		if err != nil {
			return at, err
		}
		if yes {
			var v int
			err := r.look.QueryRowContext(ctx, "SELECT v FROM app."+yesTable+" WHERE id=?", n).Scan(&v)
			if errors.Is(err, sql.ErrNoRows) {
				y.failures++
				err = nil
			}
			return at, err
		}
		if err := sleep(ctx, yesPoll); err != nil {
			return at, fmt.Errorf("no yes: %s: %w", why, err)
		}
	}
}

func (y *yesTrials) askLocal(server string, n int64, g gtid.GTID) (yes bool, why string, err error) {
	k, err := key.Parse("app." + yesTable + "/" + strconv.FormatInt(n, 10))
	if err != nil {
		return false, "", err
	}
	var ans router.Answer
	req := router.Request{Server: server, Keys: []key.Key{k}, Floor: gtid.Of(g), HasFloor: true, ArrivedAt: local.Clock()}
	err = y.router.Router.Serve(&req, &ans)
	return ans.Yes, ans.Reason.String() + " " + ans.Detail, err
}

func (y *yesTrials) askRESP(server string, n int64, g gtid.GTID) (yes bool, why string, err error) {
	if err := y.conn.SetDeadline(time.Now().Add(trialTimeout)); err != nil {
		return false, "", err
	}
	q := []byte("*7\r\n$5\r\nSERVE\r\n$" + strconv.Itoa(len(server)) + "\r\n" + server + "\r\n$4\r\nKEYS\r\n$1\r\n1\r\n")
	q = appendBulk(q, "app."+yesTable+"/", int(n))
	floor := g.String()
	q = append(q, "$5\r\nFLOOR\r\n$"+strconv.Itoa(len(floor))+"\r\n"+floor+"\r\n"...)
	if _, err := y.conn.Write(q); err != nil {
		return false, "", err
	}
	yes, err = askRESP{}.readYes(y.r)
	return yes, "over RESP", err
}
