package checker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// formatVersion is that of the history file. A reader takes this one only.
const formatVersion = 1

// Moment is a reading of the run's monotonic clock: nanoseconds since it began.
type Moment int64

// Line is one line of a history file: exactly one field is set.
type Line struct {
	Head     *Head     `json:"head,omitempty"`
	Write    *Write    `json:"w,omitempty"`
	Read     *Read     `json:"r,omitempty"`
	Fork     *Fork     `json:"fork,omitempty"`
	Strike   *Strike   `json:"fault,omitempty"`
	Down     *Down     `json:"down,omitempty"`
	Identity *Identity `json:"id,omitempty"`
	Note     *Note     `json:"note,omitempty"`
	End      *End      `json:"end,omitempty"`
}

// Head opens a history.
type Head struct {
	Format int      `json:"format"`
	Began  string   `json:"began"` // wall clock, RFC 3339
	Seed   uint64   `json:"seed"`
	Router string   `json:"router"`
	MySQL  string   `json:"mysql"`
	Keys   int      `json:"keys"`
	Faults []string `json:"faults"` // that the run shall have
	// MaxAge is the oldest watermark with which the router may answer at
	// LevelKey; the oracle's guarantee where an answer carries no watermark.
	MaxAge time.Duration `json:"max_age"`
	// After is how long after a fault reads count as "after it".
	After time.Duration `json:"after"`
}

// Write is one transaction of a session on the primary.
type Write struct {
	Session int    `json:"s"`
	ID      int64  `json:"w"` // unique, from 1
	Line    int    `json:"l"` // how many failovers there were before it
	Begin   Moment `json:"b"`
	End     Moment `json:"e"` // acknowledged, or given up
	// Rows are the keys written. V is 0 when the outcome is not known.
	Rows []WrittenRow `json:"rows"`
	GTID string       `json:"gtid,omitempty"`
	Err  string       `json:"err,omitempty"` // not acknowledged: it may have happened or not
}

// WrittenRow is what a write made of one key.
type WrittenRow struct {
	Key   Key   `json:"k"`
	V     int64 `json:"v"`
	Group int   `json:"g"`
}

// ShownRow is a row as a server showed it.
type ShownRow struct {
	Key Key   `json:"k"`
	V   int64 `json:"v"`
	W   int64 `json:"w"`
}

// Shown is what one replica showed, asked directly at the time of a decision.
// Err is set where it could not be read.
type Shown struct {
	Server string     `json:"srv"`
	At     Moment     `json:"at,omitempty"` // when the reading began; 0: when the question was put
	Rows   []ShownRow `json:"rows,omitempty"`
	Err    string     `json:"err,omitempty"`
}

// Read is a question, its answer, and what was then read.
type Read struct {
	Session int           `json:"s"`
	Level   string        `json:"lv"`
	Keys    []Key         `json:"k,omitempty"`
	Group   int           `json:"g"` // the group read; -1: Keys are
	Bound   time.Duration `json:"bound,omitempty"`
	// Chase marks a question that was asked again and again until a replica
	// might serve: it tells of truth, not of shares.
	Chase bool `json:"chase,omitempty"`
	// Others are writes of other sessions whose GTIDs were in the floor.
	Others []int64 `json:"others,omitempty"`

	Asked        Moment        `json:"a0"`
	Answered     Moment        `json:"a1"`
	AskErr       string        `json:"aerr,omitempty"`
	Yes          bool          `json:"yes,omitempty"`
	Server       string        `json:"srv,omitempty"`
	Replica      bool          `json:"rep,omitempty"`
	UUID         string        `json:"uuid,omitempty"`
	Reason       string        `json:"why,omitempty"`
	Stale        bool          `json:"stale,omitempty"`
	WatermarkAge time.Duration `json:"wa"`
	Staleness    time.Duration `json:"st"`

	Begin    Moment     `json:"r0,omitempty"`
	End      Moment     `json:"r1,omitempty"`
	ReadUUID string     `json:"ruuid,omitempty"`
	Rows     []ShownRow `json:"rows,omitempty"`
	Err      string     `json:"err,omitempty"`

	Oracle []Shown `json:"o,omitempty"`
}

// Fork is a change of primary: from it on, versions above Base of writes of
// earlier lines are lost.
type Fork struct {
	Line  int     `json:"line"` // that begins here
	Begin Moment  `json:"b"`    // the old primary takes no more writes
	End   Moment  `json:"e"`    // the new one does
	Base  []int64 `json:"base"` // version of each key on the new one, before any write
}

// Strike is one fault from its beginning to its end.
type Strike struct {
	Name   string `json:"name"`
	Target string `json:"on,omitempty"`
	Begin  Moment `json:"b"`
	End    Moment `json:"e"`
	Err    string `json:"err,omitempty"`
}

// Down is a time in which a server's process was not there.
type Down struct {
	Server string `json:"srv"`
	Begin  Moment `json:"b"`
	End    Moment `json:"e"`
}

// Identity says that a server had this server_uuid at some time.
type Identity struct {
	Server string `json:"srv"`
	UUID   string `json:"uuid"`
}

// Note is something that a person who reads the history should know.
type Note struct {
	At   Moment `json:"at"`
	Text string `json:"text"`
}

// End closes a history that is whole.
type End struct {
	At Moment `json:"at"`
}

// recorder writes a history. Its methods may be called by many at once; the
// first error stays and is returned by close.
type recorder struct {
	began time.Time

	mu  sync.Mutex
	f   *os.File
	buf *bufio.Writer
	err error
}

func newRecorder(path string, head Head) (*recorder, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create history: %w", err)
	}
	r := &recorder{began: time.Now(), f: f, buf: bufio.NewWriterSize(f, 1<<18)}
	head.Format, head.Began, head.Keys = formatVersion, r.began.UTC().Format(time.RFC3339), numKeys
	r.add(Line{Head: &head})
	return r, nil
}

// now reads the run's clock.
func (r *recorder) now() Moment { return Moment(time.Since(r.began)) }

func (r *recorder) add(l Line) {
	b, err := json.Marshal(l)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	if r.err == nil {
		_, r.err = r.buf.Write(append(b, '\n'))
	}
}

// close ends the history; whole tells that the run went to its end.
func (r *recorder) close(whole bool) error {
	if whole {
		r.add(Line{End: &End{At: r.now()}})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := errors.Join(r.err, r.buf.Flush(), r.f.Close())
	if err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return nil
}

// ErrFormat is returned for a file that is no history of this version.
var ErrFormat = errors.New("not a history of this version")

// readHistory calls each for every line. A last line that was cut off ends the
// history: a process that died left it.
func readHistory(in io.Reader, each func(*Line) error) error {
	dec := json.NewDecoder(bufio.NewReaderSize(in, 1<<18))
	dec.DisallowUnknownFields()
	for n := 1; ; n++ {
		var l Line
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			if n == 1 {
				return fmt.Errorf("the history is empty: %w", ErrFormat)
			}
			return nil
		} else if n > 1 && errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("history, entry %d: %w", n, err)
		}
		if (n == 1) != (l.Head != nil) || n == 1 && (l.Head.Format != formatVersion || l.Head.Keys != numKeys) {
			return fmt.Errorf("history, entry %d: %w", n, ErrFormat)
		}
		if err := each(&l); err != nil {
			return fmt.Errorf("history, entry %d: %w", n, err)
		}
	}
}
