package tailing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cdc/event"
)

// lead runs the writer's session while one of this process's servers is the
// primary, alone and drained (rules §6.2, §10).
type lead struct {
	t    *Tailing
	log  *slog.Logger
	wake chan struct{} // capacity 1

	sessions sessions
	leader   *cdc.LeaderObserver
	kept     cdc.KeptTail // of the session before
	// seen are transactions that came under a GTID which the stream has as
	// another one: the next announcement has to know of them (rules §11.2).
	seen []event.Identity
}

// Pauses between sessions.
const (
	leadPauseMin = 50 * time.Millisecond
	leadPauseMax = 2 * time.Second
	// leadPoll is how often the servers are looked at without news.
	leadPoll = 100 * time.Millisecond
)

// look tells that a state changed. It does not block.
func (l *lead) look() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// idle waits for news, or a little; false when ctx has ended.
func (l *lead) idle(ctx context.Context) bool {
	timer := time.NewTimer(leadPoll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-l.wake:
	case <-timer.C:
	}
	return true
}

// candidate is the server whose binlog is the stream's, if there is one.
func (l *lead) candidate() (*server, event.Epoch) {
	for _, s := range l.t.servers {
		st := s.latest.Load()
		if isPrimary(st) && st.Drained && st.GTIDMode == "ON" && !l.t.view.otherPrimary(s.cfg.Name) {
			return s, st.Epoch
		}
	}
	return nil, 0
}

// still tells whether the session's primary is what it was when relaxed was read
// of it. After a gtid_mode other than ON, however short, nothing counts until the
// next announcement (rules §6.2): once the mode is ON again the next session makes
// it, and this one writes until then.
func (l *lead) still(s *server, epoch event.Epoch, relaxed uint64) bool {
	st := s.latest.Load()
	return isPrimary(st) && st.Epoch == epoch && (st.GTIDMode != "ON" || s.relaxed.Load() == relaxed)
}

func (l *lead) run(ctx context.Context) error {
	pause := leadPauseMin
	for {
		s, epoch := l.candidate()
		if s == nil {
			if !l.idle(ctx) {
				return nil
			}
			continue
		}
		began := time.Now()
		err := l.session(ctx, s, epoch)
		var reused *cdc.ReusedError
		if errors.As(err, &reused) {
			l.seen = append(l.seen, reused.Came)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errOver):
			l.log.Info("writer's session ends", "server", s.cfg.Name, "why", err)
			pause = leadPauseMin // the next one waits for a candidate
		default:
			if fatal := fatalOf(err); fatal != nil {
				return fmt.Errorf("write the stream of %s: %w", s.cfg.Name, fatal)
			}
			l.log.Warn("writer's session failed, trying again", "server", s.cfg.Name, "error", err)
		}
		if time.Since(began) > leadPauseMax {
			pause = leadPauseMin
		}
		if !wait(ctx, pause/2+rand.N(pause)) {
			return nil
		}
		pause = min(2*pause, leadPauseMax)
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// errAnonymous ends a session that read a transaction without a GTID. The next
// one begins once gtid_mode is ON.
var errAnonymous = errors.New("the binlog has a transaction without a GTID: a new history begins once gtid_mode is ON")

// errOver ends a session whose primary is not what it was.
var errOver = errors.New("the primary has changed")

// fatalOf returns what no later session can mend: a server that is set up in a
// way that can't be followed, or a configured group column that does not exist.
func fatalOf(err error) error {
	var refused *binlog.RefusedError
	var column *binlog.GroupColumnError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &column):
		return column
	}
	return nil
}

// session announces the primary and writes its transactions until something
// ends it. A crash at any point leaves a stream from whose tail the next
// session goes on.
func (l *lead) session(ctx context.Context, s *server, epoch event.Epoch) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	relaxed := s.relaxed.Load()
	watch := make(chan struct{})
	go func() {
		defer close(watch)
		for l.still(s, epoch, relaxed) && l.idle(ctx) {
		}
		cancel(errOver)
	}()
	defer func() { cancel(nil); <-watch }()
	err := l.write(ctx, s, epoch)
	if cause := context.Cause(ctx); cause != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return cause
	}
	return err
}

func (l *lead) write(ctx context.Context, s *server, epoch event.Epoch) (err error) {
	w, tail, err := cdc.OpenWriter(ctx, l.t.o.Conn, cdc.WriterOptions{
		Name: l.t.o.Name + "/" + s.cfg.Name, Groups: l.t.groups, CheckpointAge: l.t.o.CheckpointAge,
		Leader: l.leader, Kept: &l.kept,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	monitor := s.monitor.Load()
	if monitor == nil {
		return errOver
	}
	facts, err := l.facts(ctx, monitor, tail)
	if err != nil {
		return err
	}
	// Winning the leader key may have taken long.
	if now, at := l.candidate(); facts.Epoch != epoch || now != s || at != epoch {
		return errOver
	}
	from, err := w.Begin(ctx, facts)
	if err != nil {
		return err
	}
	l.seen = nil
	o := l.t.tailerOptions(s.cfg, binlog.Keys, from)
	// What another run has in its binlog is compared before it is announced, never
	// written as if it went on (rules §11.2).
	o.SameRun = func(ctx context.Context) (bool, error) {
		st, err := monitor.Fresh(ctx)
		return err == nil && st.Epoch == facts.Epoch, err
	}
	tailer, err := binlog.NewTailer(o)
	if err != nil {
		return err
	}
	l.sessions.begin(s.cfg.Name, tailer, w)
	defer l.sessions.end()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.Run(ctx) })
	g.Go(func() error { return tailer.Run(ctx, writing{w: w, monitor: monitor}) })
	return g.Wait()
}

// factsTimeout bounds the probe and the reading before an announcement.
const factsTimeout = time.Minute

// facts asks the primary what has to be known before it is announced, and compares
// its binlog with the stream where there is reason to.
func (l *lead) facts(ctx context.Context, m *binlog.Monitor, tail *cdc.Tail) (cdc.PrimaryFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()
	last, known := m.RestartFile(tail.Announced.Epoch)
	f, err := m.PrimaryFacts(ctx, last.File)
	if err != nil {
		return cdc.PrimaryFacts{}, err
	}
	facts, err := l.compare(ctx, m, &f, tail, last, known)
	var anonymous *binlog.AnonymousError
	if errors.As(err, &anonymous) {
		// By GTID nobody reads past it, so that what is behind it can't be compared.
		l.log.Warn("the primary's binlog has a transaction without a GTID in what has to be compared with the stream", "server", f.Server, "error", err)
		facts.Restart, facts.Whole, facts.Anonymous = nil, nil, true
		err = nil
	}
	return facts, err
}

// compare holds the primary's binlog against the stream, from last on if that is
// known. The facts are whole with an error, too, but for what was to be compared.
func (l *lead) compare(ctx context.Context, m *binlog.Monitor, f *binlog.PrimaryFacts, tail *cdc.Tail, last event.RunEnd, known bool) (facts cdc.PrimaryFacts, err error) {
	facts = cdc.PrimaryFacts{
		Seen:   slices.Clone(l.seen),
		Server: f.Server, UUID: f.ServerUUID, Epoch: f.Epoch, Owned: f.Owned, Executed: f.Executed, Purged: f.Purged,
		GTIDMode: f.GTIDMode, Drained: f.Drained, FoldNames: f.LowerCaseTableNames != 0, Relaxed: f.Relaxed,
		RanOn: m.RanOn(tail.Announced.Epoch),
	}
	restarted := tail.Announced.Epoch != 0 && tail.Announced.ServerUUID == f.ServerUUID && tail.Announced.Epoch != f.Epoch
	reused := len(l.seen) > 0 && !tail.Empty
	if restarted && !reused {
		if proven, err := l.newest(ctx, m, f, tail, &facts); proven || err != nil {
			return facts, err
		}
	}
	// Nothing says from where on the binlog may part from the stream: it is of
	// another data set, or the file that would tell is gone.
	anywhere := !known || last.Epoch == 0 || f.Restart.Purged && !facts.RanOn
	switch {
	case reused || restarted && anywhere:
		err = l.whole(ctx, m, f, &facts)
		return facts, err
	case !restarted:
		if err = l.differing(ctx, m, f, tail, &facts); err == nil {
			err = l.passable(ctx, m, f, tail)
		}
		return facts, err
	}
	// Another run of the announced primary: what its binlog says now is compared
	// with what the stream has (rules §11.2).
	// What came by a clone or by SET gtid_purged is in no file; it was there
	// before all of them.
	before := f.Restart.Before.Union(f.Purged)
	facts.Restart = &cdc.RestartEvidence{Purged: f.Restart.Purged, Before: before}
	if f.Restart.Purged {
		return facts, nil
	}
	err = m.ReadIdentities(ctx, before, f.Executed, f.Restart.Newest, func(t *event.Transaction) error {
		facts.Restart.Commits = append(facts.Restart.Commits, commitOf(t))
		return nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		// Too much to compare in time: the rest is doubted.
		l.log.Warn("the binlog since the announced run can not be compared in time", "server", f.Server, "bound", factsTimeout,
			"compared", len(facts.Restart.Commits))
		facts.Whole, facts.Restart = &cdc.WholeBinlog{Before: before, Commits: facts.Restart.Commits}, nil
		return facts, nil
	}
	if err != nil {
		return facts, fmt.Errorf("compare the binlog after a restart: %w", err)
	}
	l.log.Info("the binlog since the announced run was held against the stream", "server", f.Server, "from", last.File, "compared", len(facts.Restart.Commits))
	return facts, nil
}

// newest looks for the stream's newest transactions in the binlog of another run
// of the announced primary: one that was made behind the announcement proves all
// that is older (cdc/decisions/reuse.md). Without one, proven is false, and the files
// since the announced run have to be read. So they have where the binlog is not
// synced: what a crash of the host leaves of it may have gaps.
func (l *lead) newest(ctx context.Context, m *binlog.Monitor, f *binlog.PrimaryFacts, tail *cdc.Tail, facts *cdc.PrimaryFacts) (proven bool, err error) {
	named, made := tail.Newest(f.Purged)
	if f.Relaxed || len(made) == 0 {
		return false, nil
	}
	there := named.Intersect(f.Executed).Subtract(f.Purged)
	whole := &cdc.WholeBinlog{Before: f.Executed.Subtract(there), Newest: true}
	err = m.ReadIdentities(ctx, whole.Before, f.Executed, f.Restart.Newest, func(t *event.Transaction) error {
		c := commitOf(t)
		proven = proven || made[c]
		whole.Commits = append(whole.Commits, c)
		return nil
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return false, nil // there is no time for more either, which is told there
	case err != nil:
		return false, fmt.Errorf("look for the stream's newest transactions in the binlog: %w", err)
	case proven:
		facts.Whole = whole
		l.log.Info("the binlog goes on from the stream's newest transactions", "server", f.Server, "compared", len(whole.Commits))
	}
	return proven, nil
}

// commitOf keeps of a transaction what it is recognized by.
func commitOf(t *event.Transaction) cdc.Commit {
	return cdc.Commit{Identity: t.Identity(), At: t.ImmediateCommit}
}

// whole reads all that is left of the primary's binlog, as far as there is time:
// of another data set of the announced primary, whose GTIDs may have been given
// again anywhere; and after one came as another transaction, since seldom just one
// is given again. What was purged has to be told of with it (rules §11.2).
func (l *lead) whole(ctx context.Context, m *binlog.Monitor, f *binlog.PrimaryFacts, facts *cdc.PrimaryFacts) error {
	facts.Whole = &cdc.WholeBinlog{Before: f.Purged}
	err := m.ReadIdentities(ctx, f.Purged, f.Executed, f.Restart.Newest, func(t *event.Transaction) error {
		facts.Whole.Commits = append(facts.Whole.Commits, commitOf(t))
		return nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		l.log.Warn("the primary's binlog can not be compared with the stream in time", "server", f.Server, "bound", factsTimeout,
			"compared", len(facts.Whole.Commits))
		err = nil
	}
	if err != nil {
		return fmt.Errorf("compare the whole binlog of the primary: %w", err)
	}
	return nil
}

// differing compares of another server than the announced what its own tailer has
// not compared, as a replica whose source was given GTIDs again while nobody
// watched (rules §11.2).
func (l *lead) differing(ctx context.Context, m *binlog.Monitor, f *binlog.PrimaryFacts, tail *cdc.Tail, facts *cdc.PrimaryFacts) error {
	compare := toCompare(f, tail)
	var read gtid.Builder
	err := m.ReadIdentities(ctx, f.Executed.Subtract(compare), f.Executed, f.Restart.Newest, func(t *event.Transaction) error {
		facts.Seen = append(facts.Seen, t.Identity())
		read.Add(t.GTID)
		return nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		facts.Doubted, err = compare.Subtract(read.Set()), nil
		l.log.Warn("the primary's binlog can not be compared with the stream in time", "server", f.Server, "bound", factsTimeout,
			"rest", facts.Doubted.Brief(16))
	}
	if err != nil {
		return fmt.Errorf("compare the binlog of the primary: %w", err)
	}
	return nil
}

// passableTimeout bounds how long the newest transaction of the stream is looked for.
const passableTimeout = 10 * time.Second

// passable looks for a transaction without a GTID behind the newest one that the
// stream has of the primary's binlog. One that was written while no tailer was
// there has to be known before anything is announced: no set shows it.
func (l *lead) passable(ctx context.Context, m *binlog.Monitor, f *binlog.PrimaryFacts, tail *cdc.Tail) error {
	ctx, cancel := context.WithTimeout(ctx, passableTimeout)
	defer cancel()
	last := tail.Last(f.Executed.Subtract(f.Purged))
	err := m.ReadIdentities(ctx, f.Executed.Subtract(last), f.Executed, f.Restart.Newest, func(*event.Transaction) error { return nil })
	if errors.Is(err, context.DeadlineExceeded) {
		l.log.Warn("the newest transaction of the stream was not found in the primary's binlog in time", "server", f.Server, "gtid", last)
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for a transaction without a GTID in the primary's binlog: %w", err)
	}
	return nil
}

// toCompare is what of the primary's binlog is compared besides that of a
// restarted one.
func toCompare(f *binlog.PrimaryFacts, tail *cdc.Tail) gtid.Set {
	if tail.Announced.Epoch == 0 || tail.Announced.ServerUUID == f.ServerUUID {
		return gtid.Set{} // the announced run itself, or none to follow
	}
	var named gtid.Builder // of what the stream names no more, nothing can be said
	for _, c := range tail.Commits {
		named.Add(c.GTID)
	}
	compare := tail.Delivered.Subtract(tail.Holes).Intersect(f.Executed).Subtract(f.Purged)
	return compare.Intersect(f.Unproven.Union(f.Base)).Intersect(named.Set())
}

// writing is the handler of the primary's tailer: every transaction goes to the
// stream, and is a hint for the primary's own monitor.
type writing struct {
	w       writer
	monitor *binlog.Monitor
}

// writer is what writing needs of a [cdc.Writer].
type writer interface {
	Append(ctx context.Context, t *event.Transaction) error
	Hole(ctx context.Context, h *event.Hole) error
	Definitions(ctx context.Context, defs []event.TableDefinition) error
	Checkpoint(ctx context.Context) error
}

func (h writing) Transaction(ctx context.Context, t *event.Transaction, at binlog.Position) error {
	if err := h.w.Append(ctx, t); err != nil {
		return err
	}
	return h.monitor.Transaction(ctx, t, at)
}

func (h writing) Hole(ctx context.Context, hole *event.Hole) error {
	if err := h.w.Hole(ctx, hole); err != nil {
		return err
	}
	if hole.Anonymous {
		// Only a new announcement lets anything count again (rules §6.2), and the
		// next session makes it from what is stored: a hole that got lost with
		// this session would be a write that nobody knows of (P2).
		if err := h.w.Checkpoint(ctx); err != nil {
			return err
		}
		return errAnonymous
	}
	return h.monitor.Hole(ctx, hole)
}

func (h writing) Definitions(ctx context.Context, defs []event.TableDefinition) error {
	return h.w.Definitions(ctx, defs)
}

func (h writing) Progress(ctx context.Context, at binlog.Position) error {
	return h.monitor.Progress(ctx, at)
}

var _ binlog.Handler = writing{}
