package checker

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"
)

// Classes of violations.
const (
	// ViolationSession: a read older than the session's own write.
	ViolationSession = "session"
	// ViolationKey: older than the newest commit acknowledged before the
	// watermark of the answer, or before the oldest watermark that a replica's
	// yes may have.
	ViolationKey = "key"
	// ViolationBounded: older than the staleness allows that the answer named, or
	// that was asked for.
	ViolationBounded = "bounded"
	// ViolationContradicted: a yes for a floor whose write the row read there
	// does not show.
	ViolationContradicted = "contradicted"
	// ViolationWrongServer: a yes for a server_uuid that its server never had.
	ViolationWrongServer = "wrong_server"
	// ViolationImpossible: a row that nobody can have written: the servers, or
	// the checker, are broken.
	ViolationImpossible = "impossible"
)

// Violations lists the classes.
func Violations() []string {
	return []string{ViolationSession, ViolationKey, ViolationBounded, ViolationContradicted, ViolationWrongServer, ViolationImpossible}
}

// Violation is one broken promise.
type Violation struct {
	Class string `json:"class"`
	Text  string `json:"text"`
	Read  *Read  `json:"read"`
}

// maxDetails bounds the violations that a report describes.
const maxDetails = 20

// JudgeFile is [Judge] of a file.
func JudgeFile(path string) (*Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	rep, err := Judge(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	rep.History = path
	return rep, nil
}

// Judge reads a history and gives the verdict. It knows nothing but the
// history.
func Judge(history io.Reader) (*Report, error) {
	j := &judge{order: newOrder(), uuids: map[string][]string{}}
	if err := readHistory(history, j.take); err != nil {
		return nil, err
	}
	j.order.seal()
	rep := &Report{
		Seed: j.head.Seed, Router: j.head.Router, MySQL: j.head.MySQL, Whole: j.end != 0,
		Violations: map[string]int{}, Seconds: Moment(max(j.end, j.last)).seconds(), Forks: len(j.order.forks),
	}
	for _, class := range Violations() {
		rep.Violations[class] = 0
	}
	for _, w := range j.order.writes {
		if rep.Writes++; w.Err != "" {
			rep.UnknownWrites++
		}
	}
	rep.Notes = j.notes
	j.judgeReads(rep)
	rep.Faults = j.judgeFaults()
	return rep, nil
}

func (m Moment) seconds() float64 { return float64(m) / 1e9 }

type judge struct {
	head    *Head
	order   *order
	reads   []*Read
	strikes []*Strike
	downs   []*Down
	uuids   map[string][]string
	notes   []string
	end     Moment
	last    Moment

	decisions []decision         // of reads, for the shares
	byKey     map[Key][]keyWrite // made on first use
}

func (j *judge) take(l *Line) error {
	switch {
	case l.Head != nil:
		j.head = l.Head
	case l.Write != nil:
		if l.Write.Line < 0 || l.Write.Line > len(j.order.forks) {
			return fmt.Errorf("a write behind failover %d: %w", l.Write.Line, ErrFormat)
		}
		for _, r := range l.Write.Rows {
			if !r.Key.valid() {
				return fmt.Errorf("key %d: %w", r.Key, ErrFormat)
			}
		}
		j.order.add(l.Write)
		j.last = max(j.last, l.Write.End)
	case l.Read != nil:
		if !l.Read.valid() {
			return fmt.Errorf("a read of keys that do not exist: %w", ErrFormat)
		}
		j.reads = append(j.reads, l.Read)
		j.last = max(j.last, l.Read.End, l.Read.Answered)
	case l.Fork != nil:
		if l.Fork.Line != len(j.order.forks)+1 || len(l.Fork.Base) != numKeys {
			return fmt.Errorf("fork %d out of turn: %w", l.Fork.Line, ErrFormat)
		}
		j.order.forks = append(j.order.forks, *l.Fork)
	case l.Strike != nil:
		j.strikes = append(j.strikes, l.Strike)
	case l.Down != nil:
		j.downs = append(j.downs, l.Down)
	case l.Identity != nil:
		j.uuids[l.Identity.Server] = append(j.uuids[l.Identity.Server], l.Identity.UUID)
	case l.Note != nil:
		j.notes = append(j.notes, fmt.Sprintf("%.3f s: %s", l.Note.At.seconds(), l.Note.Text))
	case l.End != nil:
		j.end = l.End.At
	}
	return nil
}

// valid tells whether all keys of a read exist.
func (r *Read) valid() bool {
	bad := func(s ShownRow) bool { return !s.Key.valid() }
	return !slices.ContainsFunc(r.Keys, func(k Key) bool { return !k.valid() }) && !slices.ContainsFunc(r.Rows, bad) &&
		!slices.ContainsFunc(r.Oracle, func(s Shown) bool { return slices.ContainsFunc(s.Rows, bad) })
}

func (j *judge) judgeReads(rep *Report) {
	for _, r := range j.reads {
		answered := r.Yes && r.Begin != 0
		read := answered && r.Err == ""
		moved := read && j.moved(r)
		j.decisions = append(j.decisions, decision{
			at: r.Asked, chase: r.Chase, replica: read && !moved && r.Replica && !r.Stale, oracle: !r.Chase && j.oracle(r), read: read,
		})
		switch {
		case !answered:
			if !r.Chase {
				rep.Unanswered++
			}
			continue
		case !read:
			rep.Failed++
			continue
		}
		rep.Reads++
		if moved {
			rep.Moved++
			continue
		}
		if class, text := j.check(r); class != "" {
			rep.Violations[class]++
			if len(rep.Details) < maxDetails {
				rep.Details = append(rep.Details, Violation{Class: class, Text: text, Read: r})
			}
		}
	}
	rep.share(j.decisions)
}

// moved tells a read that met another server than the answer spoke of: callers
// that compare server_uuid notice that, and a server that came and went between
// answer and read is a new epoch (rules §6.3).
func (j *judge) moved(r *Read) bool {
	if r.UUID != "" && r.UUID != r.ReadUUID && slices.Contains(j.uuids[r.Server], r.UUID) {
		return true
	}
	return slices.ContainsFunc(j.downs, func(d *Down) bool {
		return d.Server == r.Server && r.Asked < d.End && d.Begin < r.End
	})
}

// check says which promise a read broke; an empty class: none.
func (j *judge) check(r *Read) (class, text string) {
	if r.UUID != "" && r.UUID != r.ReadUUID {
		return ViolationWrongServer, fmt.Sprintf("the answer says %s has server_uuid %s, which it never had; the read met %s", r.Server, r.UUID, r.ReadUUID)
	}
	if text := j.impossible(r.Rows, r.End); text != "" {
		return ViolationImpossible, text
	}
	era := j.order.era(r.End)
	shown := j.shown(r.Rows, era)
	for _, p := range j.promises(r, era) {
		if text := j.broken(r, p, shown, era); text != "" {
			return p.class, text
		}
	}
	return "", ""
}

// impossible looks for a row that no write can have left.
func (j *judge) impossible(rows []ShownRow, end Moment) string {
	for _, s := range rows {
		if s.W == 0 {
			if s.V != 0 {
				return fmt.Sprintf("%s shows version %d that nobody wrote", s.Key, s.V)
			}
			continue
		}
		w := j.order.writes[s.W]
		if w == nil {
			return fmt.Sprintf("%s shows write %d that nobody began", s.Key, s.W)
		}
		i := slices.IndexFunc(w.Rows, func(r WrittenRow) bool { return r.Key == s.Key })
		switch {
		case i < 0:
			return fmt.Sprintf("%s shows write %d, which is of other keys", s.Key, s.W)
		case w.Begin > end:
			return fmt.Sprintf("%s shows write %d before it began", s.Key, s.W)
		case w.Err == "" && w.Rows[i].V != s.V:
			return fmt.Sprintf("%s shows write %d with version %d, acknowledged was %d", s.Key, s.W, s.V, w.Rows[i].V)
		}
	}
	return ""
}

// shown translates rows into an era.
func (j *judge) shown(rows []ShownRow, era int) map[Key]int64 {
	m := make(map[Key]int64, len(rows))
	for _, s := range rows {
		line := 0
		if w := j.order.writes[s.W]; w != nil {
			line = w.Line
		}
		m[s.Key], _ = j.order.in(era, s.Key, line, s.V)
	}
	return m
}

// promise is one thing that a yes said, for each key.
type promise struct {
	class string
	what  string
	need  func(k Key) need
	// rows tells that the promise covers what was written before the run: every
	// row is there.
	rows bool
}

func (j *judge) promises(r *Read, era int) []promise {
	if r.Stale {
		return nil
	}
	own := promise{class: ViolationSession, what: "the session's own write", need: func(k Key) need {
		return j.order.before(j.order.own[ownKey{r.Session, k}], k, r.Asked, era)
	}}
	others := promise{class: ViolationContradicted, what: "a write of the floor", need: func(k Key) need { return j.floor(r.Others, k, era) }}
	switch r.Level {
	case LevelKey:
		if age, ok := r.covers(r.WatermarkAge, j.head.MaxAge); ok {
			return []promise{own, others, j.watermark(ViolationKey, "the newest commit before the watermark", r.Asked-Moment(age), era)}
		}
		return []promise{own, others}
	case LevelSession:
		return []promise{own, others}
	case LevelBounded:
		if age, ok := r.covers(r.Staleness, r.Bound); ok {
			return []promise{j.watermark(ViolationBounded, "what the named staleness allows", r.Asked-Moment(age), era)}
		}
	}
	return nil
}

// covers is how far back the commits lie that a yes must show: as far as it
// names, and for a replica never farther than was asked for (0: any age will
// do). A primary that names nothing promises nothing of others: it is where
// reads go when nothing can be proven.
func (r *Read) covers(named, most time.Duration) (age time.Duration, ok bool) {
	if r.Replica && most > 0 && (named < 0 || named > most) {
		named = most
	}
	return named, named >= 0
}

// watermark is the promise about commits acknowledged before t. The router read
// its clock after the question was put, so t is never too late.
func (j *judge) watermark(class, what string, t Moment, era int) promise {
	return promise{class: class, what: what, rows: true, need: func(k Key) need { return j.order.before(j.order.all[k], k, t, era) }}
}

func (j *judge) floor(writes []int64, k Key, era int) need {
	n := need{group: -1}
	for _, id := range writes {
		w := j.order.writes[id]
		if w == nil || w.Err != "" {
			continue
		}
		for _, row := range w.Rows {
			if row.Key != k {
				continue
			}
			v, lost := j.order.in(era, k, w.Line, row.V)
			group := row.Group
			if lost {
				group = -1
			}
			if v > n.v {
				n = need{v: v, group: group}
			}
		}
	}
	return j.order.placed(n, k, era)
}

// broken says how what was shown falls short of a promise.
func (j *judge) broken(r *Read, p promise, shown map[Key]int64, era int) string {
	if r.Group >= 0 {
		return j.brokenGroup(r, p, shown, era)
	}
	for _, k := range r.Keys {
		n := p.need(k)
		if v, ok := shown[k]; !ok && (p.rows || n.v > 0) || v < n.v {
			return fmt.Sprintf("%s on %s shows version %d, %s is %d", k, r.Server, v, p.what, n.v)
		}
	}
	return ""
}

// brokenGroup looks at every row that may belong to the group: one that is
// shown must be new enough, one that is not must have been moved elsewhere.
func (j *judge) brokenGroup(r *Read, p promise, shown map[Key]int64, era int) string {
	for k := Key(0); k.grouped(); k++ {
		n := p.need(k)
		if n.v == 0 && p.rows {
			n.group = k.firstGroup()
		}
		v, ok := shown[k]
		switch {
		case ok && v < n.v:
			return fmt.Sprintf("%s in group %d on %s shows version %d, %s is %d", k, r.Group, r.Server, v, p.what, n.v)
		case !ok && n.group == r.Group && !j.mayHaveLeft(r, k, n.v, era):
			return fmt.Sprintf("%s is missing in group %d on %s; %s is %d and put it there", k, r.Group, r.Server, p.what, n.v)
		}
	}
	return ""
}

// mayHaveLeft tells whether a write that is newer than version v may have taken
// k out of the read's group before the read ended.
func (j *judge) mayHaveLeft(r *Read, k Key, v int64, era int) bool {
	return slices.ContainsFunc(j.writesOf(k), func(w keyWrite) bool {
		return w.Begin <= r.End && w.row.Group != r.Group && j.mayFollow(w, v, r.End, era)
	})
}

// mayFollow tells whether a read that ended at end, and shows of w's key
// version v of an era at least, may show what w wrote.
func (j *judge) mayFollow(w keyWrite, v int64, end Moment, era int) bool {
	last := w.row.V
	if w.Err != "" {
		if w.Line >= era { // no failover bounds its version
			return j.freeVersion(w, v, end)
		}
		last = math.MaxInt64
	}
	got, lost := j.order.in(era, w.row.Key, w.Line, last)
	// What a failover took back stands behind what it left.
	return got > v || lost && got == v
}

// freeVersion tells whether w, whose outcome is not known, may have become a
// version above v that was there at end: one that no acknowledged write has,
// and below those of the writes that began later.
func (j *judge) freeVersion(w keyWrite, v int64, end Moment) bool {
	if w.Line > 0 {
		v = max(v, j.order.forks[w.Line-1].Base[w.row.Key])
	}
	taken, below := map[int64]bool{}, int64(math.MaxInt64)
	for _, o := range j.writesOf(w.row.Key) {
		if o.Line != w.Line || o.Err != "" {
			continue
		}
		taken[o.row.V] = true
		if o.Begin > end {
			below = min(below, o.row.V)
		}
	}
	free := v + 1
	for taken[free] {
		free++
	}
	return free < below
}

// keyWrite is a write as one of its keys sees it.
type keyWrite struct {
	*Write
	row WrittenRow
}

// writesOf are all writes of k, in no order.
func (j *judge) writesOf(k Key) []keyWrite {
	if j.byKey == nil {
		j.byKey = map[Key][]keyWrite{}
		for _, w := range j.order.writes {
			for _, row := range w.Rows {
				j.byKey[row.Key] = append(j.byKey[row.Key], keyWrite{w, row})
			}
		}
	}
	return j.byKey[k]
}
