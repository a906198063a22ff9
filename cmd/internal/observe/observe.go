// Package observe judges reads that an application did by its own choice: which
// of them showed too little, and which went to the primary although a replica
// would have done. Nothing is switched for it.
//
// The main path is [New], [Observer.Observe] (what /v1/observe calls) and
// [Observer.Tally]. A read is judged against what the servers had proven at the
// moment that the report names, by that host's clock: clocks that differ blur
// the verdicts, and a proof comes a millisecond or so after the row shows. So
// the tallies are estimates, unlike the router's answers. A read of a key whose
// newest write is not known is undecided, by the same rules by which the router
// says no (rules §7).
package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/index"
	"tidegate/router/serve"
)

// How far back a report may reach, and how finely moments are told apart.
const (
	keep  = 10 * time.Second
	every = 20 * time.Millisecond
	// settle is how long a read waits at the least: states of servers, and writes
	// from just before it, are still on their way.
	settle = 500 * time.Millisecond
	// patience is how long it waits for a watermark that is younger than it: only
	// then has each write that was acknowledged before it come through the stream.
	patience = 5 * time.Second
	// grace is how long the last reads are waited for.
	grace  = 2 * time.Second
	queued = 100_000
)

// errFull is what a reporter hears who is faster than the judge.
var errFull = errors.New("too many reads wait to be judged; report fewer, or a sample")

// Tally counts verdicts.
type Tally struct {
	Reads           uint64 `json:"reads"`
	Stale           uint64 `json:"stale"`            // a replica had not proven the newest write of a key
	NeedlessPrimary uint64 `json:"needless_primary"` // read at the primary, a replica would have shown the same
	Undecided       uint64 `json:"undecided"`
	Because         Causes `json:"undecided_because"` // Undecided, split
}

// Causes counts undecided reads by what kept them from being judged (see Each).
type Causes struct {
	Time         uint64 `json:"time"`
	Key          uint64 `json:"key"`
	Unproven     uint64 `json:"unproven"`
	WrittenSince uint64 `json:"written_since"`
	Server       uint64 `json:"server"`
	Router       uint64 `json:"router"`
}

// Each calls f with each count and what it stands for, for people.
func (c *Causes) Each(f func(n uint64, why string)) {
	f(c.Time, `nothing is known of that time: "at" is older than 10 s, before the start, or in the future`)
	f(c.Key, "no key, an unknown table or group column, or a value that does not fit")
	f(c.Unproven, "the server may have lacked a write of the key: one from before what the router remembers, or out of order")
	f(c.WrittenSince, "the key was written again before the read was judged, so that what was newest then is not known")
	f(c.Server, "the server was down or excluded, or the table was excluded there")
	f(c.Router, "the router was not ready, cut off, knew no primary, or did not hear of it")
}

func (t *Tally) add(v verdict) {
	t.Reads++
	var cause *uint64
	switch v {
	case fine:
		return
	case stale:
		t.Stale++
		return
	case needless:
		t.NeedlessPrimary++
		return
	case badTime:
		cause = &t.Because.Time
	case badKey:
		cause = &t.Because.Key
	case unproven:
		cause = &t.Because.Unproven
	case writtenSince:
		cause = &t.Because.WrittenSince
	case badServer:
		cause = &t.Because.Server
	case badRouter:
		cause = &t.Because.Router
	}
	t.Undecided++
	*cause++
}

type verdict uint8

const (
	fine verdict = iota
	stale
	needless
	// What follows is undecided, see Causes.
	badTime
	badKey
	unproven
	writtenSince
	badServer
	badRouter
)

// Observer judges reads. It implements serve.Observer. Methods may be called by
// many at once; Run once.
type Observer struct {
	view  func() *index.Snapshot
	clock func() int64
	lease time.Duration

	mu       sync.Mutex
	moments  []moment // oldest first
	waiting  []serve.ObservedRead
	total    Tally
	byServer map[string]*Tally
}

// moment is what was known at one time.
type moment struct {
	at    time.Time
	clock int64 // the same time, by the clock of the index
	snap  *index.Snapshot
}

// New returns an observer over an index's snapshots; clock is the clock of that
// index, in nanoseconds, lease the router's.
func New(view func() *index.Snapshot, clock func() int64, lease time.Duration) *Observer {
	return &Observer{view: view, clock: clock, lease: lease, byServer: map[string]*Tally{}}
}

// Observe takes reads to be judged a little later. A report that names a server
// that nobody knows is refused as a whole, with a *serve.ReadError: every read of
// it would be undecided.
func (o *Observer) Observe(_ context.Context, reads []serve.ObservedRead) error {
	current := o.view()
	for i := range reads {
		if _, known := current.ServerIndex(reads[i].Server); !known {
			return &serve.ReadError{Read: i, Field: "server", Message: fmt.Sprintf("there is no server %q; names are those of the configuration", reads[i].Server)}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting)+len(reads) > queued {
		return errFull
	}
	o.waiting = append(o.waiting, reads...)
	return nil
}

// Tally returns the totals, and those by server.
func (o *Observer) Tally() (Tally, map[string]Tally) {
	o.mu.Lock()
	defer o.mu.Unlock()
	by := map[string]Tally{}
	for name, t := range o.byServer {
		by[name] = *t
	}
	return o.total, by
}

// Run takes moments and judges until ctx ends, and then for a little longer, so
// that the last reads are judged as the others are. The index has to go on
// meanwhile.
func (o *Observer) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	done := ctx.Done()
	var end <-chan time.Time
	for {
		select {
		case <-done:
			done = nil
			timer := time.NewTimer(grace)
			defer timer.Stop()
			end = timer.C
		case <-end:
			o.judge(time.Now(), true)
			return nil
		case <-tick.C:
			now := time.Now()
			o.remember(now)
			if left := o.judge(now, false); left == 0 && done == nil {
				return nil
			}
		}
	}
}

func (o *Observer) remember(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.moments = append(o.moments, moment{now, o.clock(), o.view()})
	old := sort.Search(len(o.moments), func(i int) bool { return now.Sub(o.moments[i].at) <= keep })
	o.moments = slices.Delete(o.moments, 0, old)
}

// momentLocked is the newest moment not after a read; nil: none is known.
func (o *Observer) momentLocked(at time.Time) *moment {
	i := sort.Search(len(o.moments), func(i int) bool { return o.moments[i].at.After(at) }) - 1
	if i < 0 || at.Sub(o.moments[i].at) > 2*every {
		return nil
	}
	return &o.moments[i]
}

// delivered tells whether each write that was acknowledged before a read has
// come through the stream.
func (m *moment) delivered(current *index.Snapshot, at time.Time) bool {
	return current.WatermarkAt() >= m.clock+int64(at.Sub(m.at))
}

// eligible tells whether a router would have named the server for anything.
func (m *moment) eligible(x int, lease time.Duration) bool {
	st := m.snap.Server(x)
	if st == nil || !st.Alive || m.clock-m.snap.LeaseAt(x) > int64(lease) {
		return false
	}
	reason, _ := m.snap.Ineligible(x)
	return reason == ""
}

// judge decides about every read that has waited long enough; with all, about
// the others too. It returns how many wait still.
func (o *Observer) judge(now time.Time, all bool) int {
	current := o.view()
	o.mu.Lock()
	defer o.mu.Unlock()
	later := o.waiting[:0]
	for _, r := range o.waiting {
		ago := now.Sub(r.At)
		m := o.momentLocked(r.At)
		young := ago < settle && ago > -keep || ago < patience && m != nil && !m.delivered(current, r.At)
		if young && !all {
			later = append(later, r)
			continue
		}
		v := badTime
		if m != nil {
			v = verdictOf(current, m, &r, o.lease)
		}
		o.total.add(v)
		t := o.byServer[r.Server]
		if t == nil {
			t = &Tally{}
			o.byServer[r.Server] = t // bounded: Observe takes known servers alone
		}
		t.add(v)
	}
	clear(o.waiting[len(later):])
	o.waiting = later
	return len(later)
}

// verdictOf judges one read against a moment. Records are those of now: what was
// forgotten since is in the horizon of now.
func verdictOf(current *index.Snapshot, m *moment, r *serve.ObservedRead, lease time.Duration) verdict {
	then := m.snap
	server, known := then.ServerIndex(r.Server)
	if !known {
		return badServer
	}
	primary, ok, _, _ := then.Primary()
	for _, s := range []*index.Snapshot{then, current} {
		if ready, _ := s.Ready(); !ready || s.BlindSince() != 0 {
			return badRouter
		}
	}
	if !ok || !m.delivered(current, r.At) {
		return badRouter
	}
	if !m.eligible(server, lease) {
		return badServer
	}
	needs, v := gather(current, r.Keys, then.Prefix(primary))
	if v != fine {
		return v
	}
	if server != primary {
		return shows(current, then, server, needs)
	}
	for x := range then.NumServers() {
		if x != primary && m.eligible(x, lease) && then.Server(x).Role == event.RoleReplica && shows(current, then, x, needs) == fine {
			return needless
		}
	}
	return fine
}

// need is what a server has to show of one key.
type need struct {
	table     key.Digest
	before    gtid.Set // group keys: what had passed before the column was announced
	oneRow    bool
	own, wide event.Version // newest of the key, and of the scopes that cover it
}

// gather finds the newest records of each key; a verdict other than fine when it
// can't be said what they were at a moment whose stream ended at end.
func gather(s *index.Snapshot, keys []key.Key, end event.Version) ([]need, verdict) {
	if len(keys) == 0 {
		return nil, badKey
	}
	var out []need
	for i := range keys {
		schema, table := keys[i].FoldedNames(s.FoldNames())
		def, ok := s.Definition(schema, table)
		if !ok || def.Dropped || def.FoldNames != s.FoldNames() {
			return nil, badKey
		}
		var c key.Cover
		if err := def.Cover(s.Hasher(), &keys[i], &c); err != nil {
			return nil, badKey
		}
		if v, ok := s.StreamDef(c.Table); ok && v != 0 && v != def.Version {
			return nil, badKey // the stream folds rows otherwise: the record may be under another digest
		}
		n := need{table: c.Table, oneRow: c.OneRow}
		if keys[i].Kind == key.KindGroup {
			if n.before, ok = s.GroupHorizon(c.GroupColumn); !ok {
				return nil, badKey
			}
		}
		scopes := append([]key.Digest{c.Own}, c.Wide[:c.NWide]...)
		versions := make([]event.Version, len(scopes))
		if !s.Newest(scopes, versions) {
			return nil, unproven // an eviction has gone over the records just now
		}
		n.own = versions[0]
		for _, v := range versions[1:] {
			n.wide = max(n.wide, v)
		}
		if max(n.own, n.wide) > end {
			return nil, writtenSince
		}
		out = append(out, n)
	}
	return out, fine
}

// shows tells whether a server showed the keys: fine, stale, or why that is not
// known. A write that it is known to lack makes a read stale whatever else is
// unknown.
func shows(current, then *index.Snapshot, server int, needs []need) verdict {
	confirmed, prefix := then.Confirmed(server), then.Prefix(server)
	v := fine
	for _, n := range needs {
		if then.TableExcluded(server, n.table) {
			return badServer
		}
		top := max(n.own, n.wide)
		if top <= prefix {
			continue
		}
		g, known := then.GTIDAt(top)
		switch {
		case known && !confirmed.Contains(g):
			return stale
		case !known, n.wide > prefix, !n.oneRow, then.LastFailover() > prefix:
			// The newest is there; an older one may be missing (rules §7).
			v = unproven
		}
	}
	if v != fine {
		return v
	}
	within := func(set gtid.Set) bool {
		return confirmed.ContainsSet(set) || confirmed.ContainsSet(set.Subtract(then.Lost()))
	}
	if !within(current.Horizon()) {
		return unproven
	}
	for _, n := range needs {
		if !within(n.before) {
			return unproven
		}
	}
	return fine
}
