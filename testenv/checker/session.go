package checker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// maxSessions bounds Options.Sessions.
const maxSessions = 256

// readersEvery makes one in so many sessions a reader that never writes.
const readersEvery = 3

// Chances of a session's steps, in percent.
const (
	writePercent   = 35 // a step is a write
	chasePercent   = 80 // after a write: ask for it until a replica serves it
	handOnPercent  = 30 // after a write: another session reads it at once
	hotPercent     = 40 // a key is one of the few that everybody uses
	pairPercent    = 15 // two keys at once
	groupPercent   = 15 // a read of a group
	sessionPercent = 25 // level session, where there is a floor
	boundedPercent = 15 // level bounded
	promptPercent  = 60 // a read follows its answer at once
)

// A chase asks again every chaseEvery, chaseTimes at most.
const (
	chaseTimes = 100
	chaseEvery = 100 * time.Microsecond
)

// hotKeys is how many keys take a good part of all reads and writes.
const hotKeys = 6

// hotKey is the n-th of them; the first ones are of different tables.
func hotKey(n int) Key { return Key(n%len(tables)*rowsPerTable + n) }

// handOn is a write that one session tells another about.
type handOn struct {
	write *Write
	at    Moment
}

// session writes and reads. It belongs to its goroutine.
type session struct {
	id       int
	w        *World
	answerer Answerer
	rng      *rand.Rand
	writer   writer
	pace     time.Duration
	mail     chan handOn
	all      []*session
	fail     func(error) // ends the run

	own map[Key]string // GTID of the newest write of each key
}

// run steps until ctx ends.
func (s *session) run(ctx context.Context) {
	defer s.writer.drop()
	for ctx.Err() == nil {
		select {
		case h := <-s.mail:
			s.readHanded(ctx, h)
			continue
		default:
		}
		if s.id%readersEvery != 0 && s.percent(writePercent) {
			s.write(ctx)
		} else {
			s.read(ctx, s.question())
		}
		_ = sleep(ctx, time.Duration(s.rng.Int64N(int64(2*s.pace)))) // ends with ctx, as the loop does
	}
}

func (s *session) percent(n int) bool { return s.rng.IntN(100) < n }

func (s *session) key() Key {
	if s.percent(hotPercent) {
		return hotKey(s.rng.IntN(hotKeys))
	}
	return Key(s.rng.IntN(numKeys))
}

func (s *session) keys() []Key {
	ks := []Key{s.key()}
	if s.percent(pairPercent) {
		if k := s.key(); k != ks[0] {
			ks = append(ks, k)
		}
	}
	slices.Sort(ks) // one order for all, so that sessions don't lock each other out
	return ks
}

func (s *session) write(ctx context.Context) {
	keys := s.keys()
	rows := make([]WrittenRow, len(keys))
	for i, k := range keys {
		rows[i] = WrittenRow{Key: k, Group: k.firstGroup()}
		if k.grouped() && s.percent(30) {
			rows[i].Group = s.rng.IntN(numGroups)
		}
	}
	t, err := s.w.write(ctx, &s.writer, s.id, rows)
	if err != nil {
		_ = sleep(ctx, 50*time.Millisecond) // the primary is away; the loop asks ctx
		return
	}
	for _, k := range keys {
		s.own[k] = t.GTID
	}
	s.answerer.Wrote(s.id, printKeys(keys, -1), t.GTID)
	if s.percent(handOnPercent) {
		select {
		case s.all[s.rng.IntN(len(s.all))].mail <- handOn{write: t, at: t.End}:
		default: // it has enough to read
		}
	}
	if s.percent(chasePercent) {
		s.chase(ctx, keys)
	}
}

// question chooses what to read and how.
func (s *session) question() *Read {
	r := &Read{Session: s.id, Level: LevelKey, Group: -1, WatermarkAge: Unknown, Staleness: Unknown}
	if s.percent(groupPercent) {
		r.Group = s.rng.IntN(numGroups)
	} else {
		r.Keys = s.keys()
	}
	switch n := s.rng.IntN(100); {
	case n < sessionPercent && s.floor(r) != "":
		r.Level = LevelSession
	case n >= 100-boundedPercent:
		r.Level, r.Bound = LevelBounded, time.Duration(100+s.rng.IntN(1900))*time.Millisecond
	}
	return r
}

// floor is the session's own writes of what r reads.
func (s *session) floor(r *Read) string {
	var gtids []string
	for k, g := range s.own {
		if slices.Contains(r.Keys, k) || r.Group >= 0 && k.grouped() {
			gtids = append(gtids, g)
		}
	}
	slices.Sort(gtids)
	return strings.Join(slices.Compact(gtids), ",")
}

// read asks every replica what it shows, as the oracle does before each read,
// then the router where to read, waits a while, and reads there.
func (s *session) read(ctx context.Context, r *Read, others ...*Write) {
	r.Oracle = s.w.pools.askAll(ctx, s.w.replicas(), r.Keys, r.Group, s.w.rec.now)
	s.ask(ctx, r, "", others...)
	s.follow(ctx, r, s.delay())
	s.record(ctx, r)
}

// readHanded reads what another session wrote just now, as a service does that
// got a message about it: half of the time the message carried the GTID.
func (s *session) readHanded(ctx context.Context, h handOn) {
	r := &Read{Session: s.id, Level: LevelKey, Group: -1, WatermarkAge: Unknown, Staleness: Unknown}
	for _, row := range h.write.Rows {
		r.Keys = append(r.Keys, row.Key)
	}
	if s.percent(50) {
		s.read(ctx, r)
		return
	}
	r.Others = []int64{h.write.ID}
	if s.percent(50) {
		r.Level = LevelSession
	}
	s.read(ctx, r, h.write)
}

// chase asks one replica for the session's newest write until it says yes, and
// reads there at once: the moment at which a router that is too quick errs.
func (s *session) chase(ctx context.Context, keys []Key) {
	replicas := s.w.replicas()
	if len(replicas) == 0 {
		return
	}
	server := replicas[s.rng.IntN(len(replicas))]
	level := LevelSession
	if s.percent(50) {
		level = LevelKey
	}
	for range chaseTimes {
		r := &Read{Session: s.id, Level: level, Keys: keys, Group: -1, Chase: true, WatermarkAge: Unknown, Staleness: Unknown}
		s.ask(ctx, r, server)
		if r.Yes {
			s.follow(ctx, r, 0)
			s.record(ctx, r)
			return
		}
		if sleep(ctx, chaseEvery) != nil {
			return
		}
	}
}

func (s *session) delay() time.Duration {
	switch n := s.rng.IntN(100); {
	case n < promptPercent:
		return 0
	case n < 95:
		return time.Duration(s.rng.IntN(5000)) * time.Microsecond
	default:
		return time.Duration(s.rng.IntN(100)) * time.Millisecond
	}
}

func (s *session) ask(ctx context.Context, r *Read, server string, others ...*Write) {
	q := &Question{Session: s.id, Keys: printKeys(r.Keys, r.Group), Level: r.Level, Bound: r.Bound, Server: server}
	if r.Level != LevelBounded {
		q.Floor = s.floor(r)
		for _, w := range others {
			q.Floor = strings.TrimPrefix(q.Floor+","+w.GTID, ",")
		}
	}
	r.Asked = s.w.rec.now()
	ans, err := s.answerer.Ask(ctx, q)
	r.Answered = s.w.rec.now()
	if err != nil {
		r.AskErr = err.Error()
		if !errors.Is(err, ErrAway) && ctx.Err() == nil {
			s.fail(fmt.Errorf("ask about %v at level %s, floor %q: %w", q.Keys, q.Level, q.Floor, err))
		}
		return
	}
	r.Yes, r.Server, r.Replica, r.UUID, r.Reason = ans.Yes, ans.Server, ans.Replica, ans.UUID, ans.Reason
	r.Stale = ans.Stale
	r.WatermarkAge, r.Staleness = ans.WatermarkAge, ans.Staleness
}

// follow reads where the answer said, after a delay.
func (s *session) follow(ctx context.Context, r *Read, delay time.Duration) {
	if !r.Yes {
		return
	}
	if delay > 0 && sleep(ctx, delay) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r.Begin = s.w.rec.now()
	var err error
	r.Rows, r.ReadUUID, err = s.w.pools.read(ctx, r.Server, r.Keys, r.Group)
	r.End = s.w.rec.now()
	if err != nil {
		r.Rows, r.Err = nil, err.Error()
	}
}

// record keeps what was read, but for what the end of the run cut off.
func (s *session) record(ctx context.Context, r *Read) {
	if ctx.Err() == nil {
		s.w.rec.add(Line{Read: r})
	}
}
