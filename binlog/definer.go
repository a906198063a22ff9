package binlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tidegate/binlog/gtid"
)

// definer runs the look-ups of one tailer: one at a time, in a goroutine of its
// own, and brings their results to the tailer's goroutine, where a result waits
// until the tail has passed it (rules §4.4).
type definer struct {
	look  lookupFunc
	close func()

	want    lookupRequest // what the next look-up has to ask for
	ddlSet  gtid.Set      // transactions with DDL that a look-up must see
	running bool
	result  *lookupResult // waits to be passed
	first   bool          // nothing was accepted yet
	uuid    gtid.UUID
	pause   time.Duration

	group   sync.WaitGroup
	results chan lookupReport
	waker   waker
}

// waker gives the tailer a context for its wait that a report ends.
type waker struct {
	mu   sync.Mutex
	wake context.CancelFunc // guarded by mu

	ctx context.Context // of the tailer's goroutine; lives for one wait
}

// arm makes a new context, unless a report is there already.
func (w *waker) arm(ctx context.Context, results chan lookupReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wake != nil {
		w.wake()
	}
	w.ctx, w.wake = context.WithCancel(ctx)
	if len(results) > 0 {
		w.wake()
	}
}

// deliver brings a report and ends the wait. The two are one step, or the wait
// after the report could end without cause.
func (w *waker) deliver(results chan lookupReport, r lookupReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	results <- r // never blocks: there is one look-up at a time
	w.wake()
}

// lookupReport is what a look-up's goroutine brings back.
type lookupReport struct {
	request lookupRequest
	result  *lookupResult
	err     error
	took    time.Duration
}

// open prepares the look-ups; Hints mode has none.
func (d *definer) open(t *Tailer) error {
	d.close = func() {}
	if t.o.Mode == Hints {
		return nil
	}
	if d.look == nil {
		if t.o.Dial != nil && t.o.Server.Addr == "" {
			return nil // scripted: definitions come from the events alone
		}
		db, err := t.o.Server.OpenDB()
		if err != nil {
			return err
		}
		db.SetMaxOpenConns(1)
		d.look = (&sqlLookup{db: db, server: &t.o.Server}).look
		d.close = func() { _ = db.Close() }
	}
	d.results = make(chan lookupReport, 1)
	d.first = true
	// What was delivered before is not read again, and its newest may be DDL that
	// the server is still committing.
	d.want.all, d.ddlSet = true, t.o.From
	return nil
}

// begin follows a new session. Another server behind the address makes
// everything unknown again.
func (d *definer) begin(ctx context.Context, t *Tailer, uuid gtid.UUID) {
	if d.look == nil {
		d.waker.ctx = ctx
		return
	}
	if d.uuid != uuid && !d.uuid.IsZero() {
		e := effect{reach: reachEverything}
		t.reg.touch(&e)
		d.want.merge(nil, true)
		d.result = nil
	}
	d.uuid = uuid
	d.waker.arm(ctx, d.results)
}

// waiting is the context for Next.
func (d *definer) waiting() context.Context { return d.waker.ctx }

// woken tells whether a report ended the wait.
func (d *definer) woken() bool { return d.look != nil && len(d.results) > 0 }

// ddl notes statements that may have changed definitions.
func (d *definer) ddl(t *Tailer, effects []effect) {
	if d.look == nil {
		return
	}
	for i := range effects {
		tables, all := t.reg.names(&effects[i])
		d.want.merge(tables, all)
	}
	d.ddlSet = t.executed.Set()
}

// unread follows changes that nobody could read: any of them may have been DDL.
func (d *definer) unread(t *Tailer) {
	if d.look == nil {
		return
	}
	e := effect{reach: reachEverything, ddl: true}
	t.reg.touch(&e)
	d.ddl(t, []effect{e})
}

// settle does what is due: takes a report, accepts a result that the tail has
// passed, starts the next look-up.
func (d *definer) settle(ctx context.Context, t *Tailer, h Handler) error {
	if d.look == nil {
		return nil
	}
	select {
	case r := <-d.results:
		d.running = false
		d.waker.arm(ctx, d.results)
		if err := d.report(t, r); err != nil {
			return err
		}
	default:
	}
	if d.result != nil && t.executed.Set().ContainsSet(d.result.executed) {
		if err := d.accept(ctx, t, h); err != nil {
			return err
		}
	}
	// What DDL of an open transaction changed can't be seen before it ends.
	if !d.running && d.result == nil && !d.want.empty() && !t.asm.txn.open {
		d.start(ctx, t)
	}
	return nil
}

// report takes what a look-up brought.
func (d *definer) report(t *Tailer, r lookupReport) error {
	t.counts.Lookups++
	if r.err != nil {
		d.ddlSet = d.ddlSet.Union(r.request.after)
		if !errors.Is(r.err, context.Canceled) && !errors.Is(r.err, errNotYet) {
			t.counts.LookupErrors++
			t.o.Log.Warn("look-up of table definitions failed, trying again", "server", t.o.Server.Name, "error", r.err)
		}
		d.want.merge(r.request.tables, r.request.all)
		d.pause = min(max(2*d.pause, minPause), maxPause)
		return nil
	}
	// Look-ups take at most half of the time.
	d.pause = min(r.took, maxPause)
	if r.result.uuid != d.uuid && !d.uuid.IsZero() {
		d.want.merge(r.request.tables, r.request.all)
		d.pause = max(d.pause, minPause)
		return nil
	}
	if err := t.reg.checkGroups(r.result); err != nil {
		if d.first {
			return err
		}
		t.o.Log.Warn("a group column is gone", "server", t.o.Server.Name, "error", err)
	}
	if d.first {
		for _, n := range missingTables(t.reg.groups, r.result) {
			t.o.Log.Warn("keys: there is no such table (yet); mistyped?", "server", t.o.Server.Name, "table", n.String())
		}
	}
	d.result = r.result
	return nil
}

// accept uses a result from here on and hands the definitions on.
func (d *definer) accept(ctx context.Context, t *Tailer, h Handler) error {
	r := d.result
	d.result, d.first = nil, false
	defs, again := t.reg.accept(r)
	if len(again) > 0 {
		d.want.merge(again, false)
	}
	if len(defs) == 0 {
		return nil
	}
	if err := h.Definitions(ctx, defs); err != nil {
		return fmt.Errorf("hand over definitions: %w", err)
	}
	return nil
}

// start begins the next look-up, after the pause that is due. It ends with ctx.
func (d *definer) start(ctx context.Context, t *Tailer) {
	r := d.want
	r.ddl, r.after = t.reg.ddl, d.ddlSet
	d.want, d.ddlSet = lookupRequest{}, gtid.Set{}
	names, look, pause := t.reg.lookupNames(), d.look, d.pause
	d.running = true
	d.group.Go(func() {
		rep := lookupReport{request: r}
		if rep.err = sleep(ctx, pause); rep.err == nil {
			began := time.Now()
			rep.result, rep.err = look(ctx, names, r)
			rep.took = time.Since(began)
		}
		d.waker.deliver(d.results, rep)
	})
}

// end joins the look-up that runs; its context has ended.
func (d *definer) end() {
	d.group.Wait()
	if d.waker.wake != nil {
		d.waker.wake()
	}
	d.close()
}
