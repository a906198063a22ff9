package binlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// PrimaryFacts is what the writer of the stream must know of a primary before
// it announces it (rules §5.3, §6.2, §10, §11.2). All of it comes from one
// probe that began after it was asked for.
type PrimaryFacts struct {
	Server     string
	ServerUUID gtid.UUID
	Epoch      event.Epoch
	DataSet    uint64
	Role       event.Role
	// Drained: no transaction of an old channel is left to apply. A primary is
	// announced only when it is (rules §10).
	Drained  bool
	GTIDMode string // only "ON" counts
	Executed gtid.Set
	Owned    gtid.Set
	Purged   gtid.Set
	// Unproven is the part of Executed that was not compared with the stream, Base
	// the part that was there at first sight and never is.
	Unproven, Base gtid.Set
	// Relaxed: a crash of its host may lose what it had committed, or might have
	// when it was last seen before (rules §11.2).
	Relaxed bool
	// LowerCaseTableNames folds names when it is not 0 (rules §4.3).
	LowerCaseTableNames int
	// Restart is what to compare identities with before the announcement.
	Restart ReuseScope
}

// ReuseScope is the part of a primary's binlog that may carry GTIDs a second
// time after a restart: the file that was last before it, and all behind it
// (rules §11.2).
type ReuseScope struct {
	// Files are that file and the later ones.
	Files []string
	// Before is what had been executed when that file began: a dump from this
	// set on gives exactly these files.
	Before gtid.Set
	// Purged: that file is gone, so that nothing can be compared; a new history
	// must begin.
	Purged bool
	// Newest is the file that the server writes now. Made under gtid_mode=ON, it
	// holds no transaction without a GTID: changing the mode begins a new one.
	Newest string
}

// PrimaryFacts probes the server and reads the rest beside it. lastFile names
// the binlog file in which the stream's newest transaction was read, or which
// was last before the restart; empty: the newest file now. It blocks for at
// most the probe's and the query's timeout.
func (m *Monitor) PrimaryFacts(ctx context.Context, lastFile string) (PrimaryFacts, error) {
	a, err := m.ask(ctx)
	if err != nil {
		return PrimaryFacts{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.o.Server.queryTimeout())
	defer cancel()
	purged, err := m.backend.purged(ctx)
	if err != nil {
		return PrimaryFacts{}, err
	}
	scope, err := m.backend.reuse(ctx, lastFile)
	if err != nil {
		return PrimaryFacts{}, err
	}
	st := a.state
	m.mu.Lock()
	relaxed := st.RelaxedDurable || m.was.state != nil && m.was.state.RelaxedDurable
	m.mu.Unlock()
	return PrimaryFacts{
		Server: st.Server, ServerUUID: st.UUID, Epoch: st.Epoch, DataSet: st.DataSet,
		Role: st.Role, Drained: st.Drained, GTIDMode: st.GTIDMode,
		Executed: st.Executed, Owned: st.Owned, Purged: purged.all, Unproven: st.Unproven, Base: st.Base, Relaxed: relaxed,
		LowerCaseTableNames: a.facts.lowerCase, Restart: scope,
	}, nil
}

// maxRunEnds bounds the list; a run that is not in it proves nothing.
const maxRunEnds = 64

// addRunEnd adds the end of a run. One that ended in the same file as the run
// before says nothing new: a tailer that is killed again and again while mysqld
// goes on fills no list. The first end in a data set does: behind it the binlog is
// known to go on from where it stood.
func addRunEnd(ends []event.RunEnd, e event.RunEnd) []event.RunEnd {
	if n := len(ends); n > 0 && ends[n-1].Epoch != 0 && ends[n-1].File == e.File {
		return ends
	}
	// States that were published share the old slice.
	return append(slices.Clone(ends[max(0, len(ends)-maxRunEnds+1):]), e)
}

// RestartFile is the binlog file in which the comparison with the stream has to
// begin when the run of epoch announced is the newest that the stream has
// announced (rules §11.2): the one that was last when that run was last seen,
// not when the one before the present was, since runs in between may never
// have been announced. Another process's numbers of the same runs are as good:
// epochs grow with time, and an older file only means more to compare. Epoch 0
// says that the announced run was of another data set, or never seen: then no file
// of this one is known to go on from it. ok is false when no such file is known:
// then nothing can be proven.
func (m *Monitor) RestartFile(announced event.Epoch) (end event.RunEnd, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.ends {
		if e.Epoch > announced {
			break
		}
		end = e
	}
	return end, end.File != ""
}

// RanOn tells whether mysqld plausibly has run on since the run of epoch announced,
// of this server: only who watched it was another then. Its binlog goes on, whatever
// was purged of it.
func (m *Monitor) RanOn(announced event.Epoch) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ranSince != 0 && announced >= m.ranSince
}

// errReadEnough ends a tail that has shown all that was asked for.
var errReadEnough = errors.New("enough")

// toFileTimeout bounds how long ReadIdentities goes on to a file behind what it was
// asked for.
const toFileTimeout = 10 * time.Second

// ReadIdentities reads the binlog from a set on until everything of until has
// been seen, and yields each transaction, as Hints has it; then on to the file,
// where one is named, yielding nothing more, for as long as toFileTimeout: a
// transaction without a GTID on the way is an [AnonymousError]. It runs a tail of
// its own (MonitorOptions.Tail). An error of yield ends it and is returned.
func (m *Monitor) ReadIdentities(ctx context.Context, from, until gtid.Set, file string, yield func(*event.Transaction) error) error {
	if m.o.Tail == nil {
		return fmt.Errorf("read identities of %s: no Tail", &m.o.Server)
	}
	r := &identityReader{rest: until.Subtract(from), file: file, yield: yield}
	if r.rest.IsEmpty() {
		return nil
	}
	tail, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.NewTimer(toFileTimeout)
	timer.Stop()
	defer timer.Stop()
	r.seen = func() { timer.Reset(toFileTimeout) }
	go func() {
		select {
		case <-timer.C:
			cancel()
		case <-tail.Done():
		}
	}()
	err := m.o.Tail(tail, from, r)
	switch {
	case r.done && r.err == nil:
		return nil
	case r.rest.IsEmpty() && tail.Err() != nil && !errors.Is(ctx.Err(), context.Canceled):
		m.log.Warn("what is behind the transactions that were compared could not be looked through in time for one without a GTID", "server", m.o.Server.Name, "until", file)
		return nil
	case r.err != nil:
		return r.err
	case err == nil:
		return fmt.Errorf("read identities of %s: the binlog ended before %s", &m.o.Server, r.rest.Brief(4))
	}
	return fmt.Errorf("read identities of %s: %w", &m.o.Server, err)
}

// identityReader is the Handler of ReadIdentities; one goroutine calls it.
type identityReader struct {
	rest  gtid.Set
	file  string // to go on to; empty: none
	at    Position
	yield func(*event.Transaction) error
	seen  func() // called when rest is empty
	done  bool
	err   error
}

func (r *identityReader) Transaction(_ context.Context, t *event.Transaction, at Position) error {
	r.at = at
	if r.rest.IsEmpty() {
		return nil
	}
	if r.err = r.yield(t); r.err != nil {
		return r.err
	}
	return r.less(gtid.Of(t.GTID))
}

func (r *identityReader) Hole(_ context.Context, h *event.Hole) error { return r.less(h.GTIDs) }

func (r *identityReader) Definitions(context.Context, []event.TableDefinition) error { return nil }

func (r *identityReader) Progress(_ context.Context, at Position) error {
	r.at = at
	return r.enough()
}

func (r *identityReader) less(seen gtid.Set) error {
	if r.rest.IsEmpty() {
		return nil
	}
	if r.rest = r.rest.Subtract(seen); r.rest.IsEmpty() {
		r.seen()
	}
	return r.enough()
}

func (r *identityReader) enough() error {
	there := r.file == "" || r.at.File == r.file || r.at.after(Position{File: r.file})
	if !r.rest.IsEmpty() || !there {
		return nil
	}
	r.done = true
	return errReadEnough
}

// reuse finds the scope of the comparison of rules §11.2.
func (b *sqlBackend) reuse(ctx context.Context, lastFile string) (ReuseScope, error) {
	files, err := binaryLogs(ctx, b.db)
	if err != nil {
		return ReuseScope{}, refuseRights(b.cfg, "list the binary logs of", err)
	}
	if len(files) == 0 {
		return ReuseScope{Purged: lastFile != ""}, nil
	}
	i := len(files) - 1
	newest := files[i].Name
	if lastFile != "" {
		if i = fileIndex(files, lastFile); i < 0 {
			return ReuseScope{Purged: true, Newest: newest}, nil
		}
	}
	scope := ReuseScope{Newest: newest}
	for _, f := range files[i:] {
		scope.Files = append(scope.Files, f.Name)
	}
	scope.Before, err = b.previousGTIDs(ctx, files[i].Name)
	return scope, err
}

// previousGTIDs reads what had been executed when a binlog file began: its
// second event.
func (b *sqlBackend) previousGTIDs(ctx context.Context, file string) (gtid.Set, error) {
	rows, err := queryRows(ctx, b.db, fmt.Sprintf("SHOW BINLOG EVENTS IN '%s' LIMIT 2", escape(file)))
	if err != nil {
		return gtid.Set{}, refuseRights(b.cfg, "read the binary logs of", err)
	}
	for i := range rows {
		if rows[i].get("Event_type") == "Previous_gtids" {
			set, err := gtid.Parse(rows[i].get("Info"))
			if err != nil {
				return gtid.Set{}, fmt.Errorf("previous GTIDs of binlog %s of %s: %w", file, b.cfg, err)
			}
			return set, nil
		}
	}
	return gtid.Set{}, fmt.Errorf("binlog %s of %s does not begin with its previous GTIDs", file, b.cfg)
}
