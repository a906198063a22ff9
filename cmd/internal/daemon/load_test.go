package daemon_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
	"tidegate/router"
	"tidegate/router/local"
	"tidegate/testenv"
)

// question is one question at level key.
type question struct {
	server string
	key    string
	floor  gtid.Set // empty: none
}

// answer is what the checks need of one.
type answer struct {
	yes            bool
	reason, detail string
	uuid           string
	markAge        time.Duration // age of the watermark; 0: not told
}

func (a answer) String() string {
	return strings.TrimSpace(fmt.Sprintf("%v %s %s", a.yes, a.reason, a.detail))
}

// ask puts a question to a router, wherever it is.
type ask func(ctx context.Context, q question) (answer, error)

// askRouter asks a router of this process.
func askRouter(r *local.Local) ask {
	return func(_ context.Context, q question) (answer, error) {
		k, err := key.Parse(q.key)
		if err != nil {
			return answer{}, err
		}
		var ans router.Answer
		req := router.Request{Server: q.server, Keys: []key.Key{k}, Level: router.LevelKey, Floor: q.floor, HasFloor: !q.floor.IsEmpty()}
		if err := r.Serve(&req, &ans); err != nil {
			return answer{}, err
		}
		a := answer{yes: ans.Yes, reason: ans.Reason.String(), detail: ans.Detail, uuid: ans.UUID.String()}
		if ans.WatermarkAge > 0 {
			a.markAge = ans.WatermarkAge
		}
		return a, nil
	}
}

const (
	loadRows    = 6
	loadAuthors = 2 // row n belongs to author n % loadAuthors
)

// write is one acknowledged write of the load.
type write struct {
	version int64
	row     int
	ackedAt int64    // by the routers' clock, read after the acknowledgement
	floor   gtid.Set // what the primary had executed then
	lost    atomic.Bool
}

// load writes ever larger versions into rows of app.posts on the primary, and
// asks, for each server again and again, whether it may be read for a row or an
// author just written. Each yes is held against the row at once: what the
// server shows must be no older than what was acknowledged before the answer's
// watermark, or than the floor that was given (P2). Anything older is a stale
// yes.
type load struct {
	c   *testenv.Cluster
	ask atomic.Pointer[ask]

	mu     sync.Mutex
	writes []*write // in order of versions
	failed int      // writes whose fate is unknown
	seen   map[string]*seen
	stale  []string

	writing sync.Mutex                     // held while the writer writes
	target  atomic.Pointer[testenv.Server] // nil: no writes
	version int64                          // guarded by writing
	stop    context.CancelFunc
	done    sync.WaitGroup
	ended   bool // of the test's goroutine alone
}

// seen is what one server's answers were.
type seen struct {
	yes, checked, inconclusive int
	reasons                    map[string]int
	last                       answer
	lastErr                    error
}

// writeEvery and askEvery pace the load: enough to meet every fault many times,
// little enough for two cores.
const (
	writeEvery = 5 * time.Millisecond
	askEvery   = 3 * time.Millisecond
)

func startLoad(c *testenv.Cluster, a ask) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{c: c, seen: map[string]*seen{}, stop: stop}
	l.ask.Store(&a)
	l.target.Store(c.Primary())
	l.done.Go(func() { l.write(ctx) })
	for _, s := range c.Servers() {
		l.seen[s.Name()] = &seen{reasons: map[string]int{}}
	}
	for _, s := range c.Servers() {
		l.done.Go(func() { l.check(ctx, s) })
	}
	return l
}

func (l *load) close() {
	l.stop()
	l.done.Wait()
}

// use asks another router from now on; nil: nobody answers.
func (l *load) use(a ask) {
	if a == nil {
		a = func(context.Context, question) (answer, error) { return answer{}, errNobody }
	}
	l.ask.Store(&a)
}

var errNobody = errors.New("no router runs")

// writeTo makes s the server that is written to; nil: no writes. It returns
// when no write to another one is under way.
func (l *load) writeTo(s *testenv.Server) {
	l.target.Store(s)
	l.writing.Lock()
	//lint:ignore SA2001 the writer holds it while it writes
	l.writing.Unlock()
}

// pace waits; false when ctx has ended.
func pace(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// writeTimeout bounds one write: a primary may hang.
const writeTimeout = 2 * time.Second

func (l *load) write(ctx context.Context) {
	for pace(ctx, writeEvery) {
		l.writeNext(ctx)
	}
}

func (l *load) writeNext(ctx context.Context) {
	l.writing.Lock()
	defer l.writing.Unlock()
	s := l.target.Load()
	if s == nil {
		return
	}
	l.version++
	w := &write{version: l.version, row: 1 + rand.IntN(loadRows)}
	err := l.writeOne(ctx, s, w)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed++ // perhaps committed: a reader may see it, none must
		return
	}
	l.writes = append(l.writes, w)
}

// writeOne raises the row's version, and never lowers it: a write that timed out may
// be executed after later ones.
func (l *load) writeOne(ctx context.Context, s *testenv.Server, w *write) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := s.Exec(ctx, "UPDATE app.posts SET v=? WHERE id=? AND v < ?", w.version, w.row, w.version); err != nil {
		return err
	}
	w.ackedAt = local.Clock()
	text, err := s.GTIDExecuted(ctx)
	if err != nil {
		return err
	}
	w.floor, err = gtid.Parse(text)
	return err
}

// newest is the newest write of a row, or of an author, acknowledged at or
// before at; nil: none.
func (l *load) newest(row, author int, at int64) *write {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range slices.Backward(l.writes) {
		if w.ackedAt <= at && !w.lost.Load() && (w.row == row || author >= 0 && w.row%loadAuthors == author) {
			return w
		}
	}
	return nil
}

// forget marks what the set does not hold as lost: a failover drops it, and
// nobody has to show it any more. It returns how many writes that are.
func (l *load) forget(kept gtid.Set) (lost int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.writes {
		if !kept.ContainsSet(w.floor) && !w.lost.Swap(true) {
			lost++
		}
	}
	return lost
}

func (l *load) check(ctx context.Context, s *testenv.Server) {
	var conn *sql.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	for pace(ctx, askEvery) {
		// The connection is older than the answer: a read on it is a read on
		// the process that the answer was about, or fails.
		if conn == nil {
			var err error
			if conn, err = s.DB().Conn(ctx); err != nil {
				conn = nil
			}
		}
		if err := l.checkOne(ctx, s, conn); err != nil && conn != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // not back into the pool
			_ = conn.Close()
			conn = nil
		}
	}
}

// checkOne asks once; the error is that of the connection.
func (l *load) checkOne(ctx context.Context, s *testenv.Server, conn *sql.Conn) error {
	row, author := 1+rand.IntN(loadRows), -1
	q := question{server: s.Name(), key: fmt.Sprintf("app.posts/%d", row)}
	where := fmt.Sprintf("id=%d", row)
	if rand.IntN(4) == 0 {
		author = row % loadAuthors
		q.key, where = fmt.Sprintf("app.posts@author_id/%d", author), fmt.Sprintf("author_id=%d", author)
	}
	began := local.Clock()
	var need *write
	if rand.IntN(2) == 0 {
		if need = l.newest(row, author, began); need != nil {
			q.floor = need.floor
		}
	}
	a, err := (*l.ask.Load())(ctx, q)
	l.note(s, a, err)
	if err != nil || !a.yes {
		return nil
	}
	if need == nil && a.markAge > 0 {
		need = l.newest(row, author, began-int64(a.markAge))
	}
	if conn == nil {
		l.count(s, false)
		return nil
	}
	read, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var uuid string
	var shown int64
	if err := conn.QueryRowContext(read, "SELECT @@server_uuid, COALESCE(MAX(v),0) FROM app.posts WHERE "+where).Scan(&uuid, &shown); err != nil {
		l.count(s, false)
		return err
	}
	if uuid != a.uuid || need == nil {
		l.count(s, false)
		return nil
	}
	l.count(s, true)
	if shown < need.version && !need.lost.Load() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stale = append(l.stale, fmt.Sprintf("%s said %q for %s (floor %t, watermark %s old), and showed version %d, want %d or newer, written %s before",
			s.Name(), a.reason, q.key, !q.floor.IsEmpty(), a.markAge, shown, need.version, time.Duration(local.Clock()-need.ackedAt)))
	}
	return nil
}

func (l *load) note(s *testenv.Server, a answer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.seen[s.Name()]
	n.last, n.lastErr = a, err
	switch {
	case err != nil:
		n.reasons["no answer"]++
	case a.yes:
		n.yes++
	default:
		n.reasons[a.reason]++
	}
}

func (l *load) count(s *testenv.Server, checked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.seen[s.Name()]; checked {
		n.checked++
	} else {
		n.inconclusive++
	}
}

// checked is how many yes answers for the server were held against its rows.
func (l *load) checked(server string) (n int, last string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.seen[server]
	last = x.last.String()
	if x.lastErr != nil {
		last = x.lastErr.Error()
	}
	return x.checked, last
}

// acked is how many writes were acknowledged.
func (l *load) acked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.writes)
}

// report returns the stale answers, and what happened in one line for each
// server.
func (l *load) report() (stale []string, summary string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d writes acknowledged, %d of unknown fate", len(l.writes), l.failed)
	for _, name := range slices.Sorted(maps.Keys(l.seen)) {
		n := l.seen[name]
		fmt.Fprintf(&b, "\n%s: %d yes, %d checked, %d inconclusive; no: %v; last: %s", name, n.yes, n.checked, n.inconclusive, n.reasons, n.last)
	}
	return slices.Clone(l.stale), b.String()
}
