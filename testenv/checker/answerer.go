package checker

import (
	"context"
	"errors"
	"time"
)

// ErrAway is what an [Answerer] returns while it is down. Any other error is a
// mistake in the question, and ends the run.
var ErrAway = errors.New("the router is away")

// Levels of a question, as callers of a router write them.
const (
	LevelKey     = "key"
	LevelSession = "session"
	LevelBounded = "bounded"
)

// Unknown marks an age that an answer does not carry.
const Unknown = time.Duration(-1)

// Question is what a session wants to read.
type Question struct {
	Session int
	Keys    []string // printed keys
	Level   string   // one of the levels above
	// Floor is a GTID set that the read must show; empty: none.
	Floor string
	// Bound is the greatest staleness that the reader takes; LevelBounded only.
	Bound time.Duration
	// Server asks about this one server; empty: the router chooses.
	Server string
}

// Answer is what a router said.
type Answer struct {
	// Yes tells that Server may be read for the question.
	Yes     bool
	Server  string
	Replica bool   // Server is a replica, not the primary
	UUID    string // server_uuid that the answer is about; empty: the router does not say
	Reason  string
	// Stale flags a yes that the router gives blind: it promises nothing, and
	// counts for nothing.
	Stale bool
	// WatermarkAge says which commits of others the answer covers at LevelKey:
	// those acknowledged before now - WatermarkAge. Unknown: it claims nothing.
	WatermarkAge time.Duration
	// Staleness bounds the age of what Server shows, at LevelBounded; Unknown.
	Staleness time.Duration
}

// Answerer is a router under test. Its methods are called at once by many.
type Answerer interface {
	// Ask answers a question. An error that is [ErrAway] means that the router is
	// not there; it promises nothing.
	Ask(ctx context.Context, q *Question) (Answer, error)
	// Wrote tells that a session's write was acknowledged just now. A router
	// that needs no such word ignores it.
	Wrote(session int, keys []string, gtid string)
}

// Operator is an [Answerer] that needs its operator after a server was rebuilt.
type Operator interface {
	// Rebuilt tells that the server has the data of another one that has what
	// its primary has, and runs. It does not wait for anything.
	Rebuilt(server string)
}
