// Package observe judges reads that an application did by its own choice: which
// of them showed too little, and which went to the primary although a replica
// would have done. Nothing is switched for it.
//
// The main path is [New], [Observer.Observe] (what /v1/observe calls) and
// [Observer.Tally]. A read is judged against what the servers had proven at the
// moment that the report names, by that host's clock: clocks that differ blur
// the verdicts, and a proof comes a millisecond or so after the row shows. So
// the tallies are estimates, unlike the router's answers.
package observe

import (
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
	"time"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/index"
	"tidegate/router/serve"
)

// How far back a report may reach, and how finely moments are told apart.
const (
	keep  = 10 * time.Second
	every = 20 * time.Millisecond
	// settle is how long a read waits before it is judged, so that writes that
	// were acknowledged before it have come through the stream.
	settle = 500 * time.Millisecond
	queued = 100_000
)

// errFull is what a reporter hears who is faster than the judge.
var errFull = errors.New("too many reads wait to be judged; report fewer, or a sample")

// Tally counts verdicts.
type Tally struct {
	Reads           uint64 `json:"reads"`
	Stale           uint64 `json:"stale"`            // a replica had not proven the newest write of a key
	NeedlessPrimary uint64 `json:"needless_primary"` // read at the primary, a replica would have shown the same
	Undecided       uint64 `json:"undecided"`        // too old, in the future, unknown table or server, or written since
}

func (t *Tally) add(v verdict) {
	t.Reads++
	switch v {
	case stale:
		t.Stale++
	case needless:
		t.NeedlessPrimary++
	case undecided:
		t.Undecided++
	}
}

type verdict uint8

const (
	fine verdict = iota
	stale
	needless
	undecided
)

// Observer judges reads. It implements serve.Observer. Methods may be called by
// many at once; Run once.
type Observer struct {
	view func() *index.Snapshot

	mu       sync.Mutex
	moments  []moment // oldest first
	waiting  []serve.ObservedRead
	total    Tally
	byServer map[string]*Tally
}

// moment is what was known at one time.
type moment struct {
	at   time.Time
	snap *index.Snapshot
}

// New returns an observer over an index's snapshots.
func New(view func() *index.Snapshot) *Observer {
	return &Observer{view: view, byServer: map[string]*Tally{}}
}

// Observe takes reads to be judged a little later.
func (o *Observer) Observe(_ context.Context, reads []serve.ObservedRead) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting)+len(reads) > queued {
		return errFull
	}
	o.waiting = append(o.waiting, reads...)
	return nil
}

// Tally returns the totals, and those by server of the servers that are known.
func (o *Observer) Tally() (Tally, map[string]Tally) {
	o.mu.Lock()
	defer o.mu.Unlock()
	by := map[string]Tally{}
	for name, t := range o.byServer {
		by[name] = *t
	}
	return o.total, by
}

// Run takes moments and judges until ctx ends; then it judges what waits.
func (o *Observer) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			o.judge(time.Now().Add(settle))
			return nil
		case now := <-tick.C:
			o.remember(now)
			o.judge(now)
		}
	}
}

func (o *Observer) remember(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.moments = append(o.moments, moment{now, o.view()})
	old := sort.Search(len(o.moments), func(i int) bool { return now.Sub(o.moments[i].at) <= keep })
	o.moments = slices.Delete(o.moments, 0, old)
}

// judge decides about every read that has waited long enough.
func (o *Observer) judge(now time.Time) {
	current := o.view()
	o.mu.Lock()
	defer o.mu.Unlock()
	later := o.waiting[:0]
	for _, r := range o.waiting {
		if ago := now.Sub(r.At); ago < settle && ago > -keep {
			later = append(later, r)
			continue
		}
		v := o.verdictLocked(current, &r)
		o.total.add(v)
		if _, known := current.ServerIndex(r.Server); !known {
			continue // whatever reporters call it: tallies are bounded
		}
		t := o.byServer[r.Server]
		if t == nil {
			t = &Tally{}
			o.byServer[r.Server] = t
		}
		t.add(v)
	}
	clear(o.waiting[len(later):])
	o.waiting = later
}

// verdictLocked judges one read against the newest moment not after it.
func (o *Observer) verdictLocked(current *index.Snapshot, r *serve.ObservedRead) verdict {
	i := sort.Search(len(o.moments), func(i int) bool { return o.moments[i].at.After(r.At) }) - 1
	if i < 0 || r.At.Sub(o.moments[i].at) > 2*every {
		return undecided
	}
	then := o.moments[i].snap
	server, known := then.ServerIndex(r.Server)
	primary, ok, _, _ := then.Primary()
	if !known || !ok {
		return undecided
	}
	needs, ok := newest(current, r.Keys, then.Prefix(primary))
	if !ok {
		return undecided
	}
	if server != primary {
		if !shows(then, server, needs) {
			return stale
		}
		return fine
	}
	for x := range then.NumServers() {
		if reason, _ := then.Ineligible(x); x != primary && reason == "" && then.Server(x) != nil && then.Server(x).Alive && shows(then, x, needs) {
			return needless
		}
	}
	return fine
}

// newest finds the newest record of each key; false when it can't be said what
// it was at a moment whose stream ended at end.
func newest(s *index.Snapshot, keys []key.Key, end event.Version) ([]event.Version, bool) {
	var out []event.Version
	for i := range keys {
		schema, table := keys[i].FoldedNames(s.FoldNames())
		def, ok := s.Definition(schema, table)
		if !ok || def.Dropped {
			return nil, false
		}
		var c key.Cover
		if err := def.Cover(s.Hasher(), &keys[i], &c); err != nil {
			return nil, false
		}
		scopes := append([]key.Digest{c.Own}, c.Wide[:c.NWide]...)
		versions := make([]event.Version, len(scopes))
		if !s.Newest(scopes, versions) {
			return nil, false
		}
		top := slices.Max(versions)
		if top > end {
			return nil, false // written after the read: what was newest then is not known any more
		}
		out = append(out, top)
	}
	return out, len(out) > 0
}

func shows(s *index.Snapshot, server int, needs []event.Version) bool {
	for _, v := range needs {
		if v <= s.Prefix(server) {
			continue
		}
		if g, ok := s.GTIDAt(v); !ok || !s.Confirmed(server).Contains(g) {
			return false
		}
	}
	return true
}
