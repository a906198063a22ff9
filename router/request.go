package router

import (
	"fmt"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// MaxKeys is the largest number of keys of one request.
const MaxKeys = 1024

// MaxBlocked is the largest number of keys that an answer names as blocking.
const MaxBlocked = 16

// MaxNeedIntervals is the largest number of intervals of Answer.Need.
const MaxNeedIntervals = 16

// Request is one question. It is the caller's and is only read; it and the
// memory of its strings must not change while the call runs, and nothing of it
// is kept afterwards. Many requests may be asked at once.
type Request struct {
	Server string    // Serve only: the configured name
	Keys   []key.Key // what will be read, at most MaxKeys
	Level  Level     // LevelUnset: key when Keys is not empty
	// Floor is what the reader must see, or have seen: GTIDs that it wrote.
	// It counts at levels session, key and strong.
	Floor gtid.Set
	// HasFloor tells a floor that was given and is empty from none.
	HasFloor bool
	// MaxStaleness bounds the staleness at any level; 0: no bound. HasBound
	// makes 0 a bound (which nothing but luck satisfies).
	MaxStaleness time.Duration
	HasBound     bool

	// Route only.
	Exclude       []string // servers that the caller does not want
	InTransaction bool     // the read belongs to a transaction on the primary

	// Explain fills Need and BehindTxns of a no, which costs allocations.
	Explain bool
	// Verbose lifts the bound of Need and fills BehindTxns of a yes too.
	Verbose bool
	// Advisory marks a question whose answer moves no read: it takes nothing
	// from the budget and counts neither as load nor as a decision.
	Advisory bool
	// ArrivedAt is when the request arrived, by the router's clock; 0: now. A
	// reading that is too late is safe, one that is too early is not.
	ArrivedAt int64
}

// Otherwise tells what to do after a no.
type Otherwise uint8

// What to do after a no.
const (
	OtherwiseNone    Otherwise = iota // it was a yes
	OtherwisePrimary                  // read where the caller writes; the budget allows it
	OtherwiseWait                     // ask again shortly; do not go to the primary
	OtherwiseRefuse                   // give the read up, or degrade
)

// String returns the text that callers see; empty for OtherwiseNone.
func (o Otherwise) String() string {
	switch o {
	case OtherwisePrimary:
		return "primary"
	case OtherwiseWait:
		return "wait"
	case OtherwiseRefuse:
		return "refuse"
	}
	return ""
}

// Unknown marks a number of an answer that is not known.
const Unknown = -1

// Answer is what a decision found. The caller owns it; a call overwrites all of
// it. Strings belong to the snapshot or are constant.
type Answer struct {
	// Yes: Serve may be read from Server; Route names Server as the target.
	Yes    bool
	Reason Reason
	Detail string // for people; may be empty
	Level  Level  // the level that was applied

	Server string // configured name
	Role   event.Role
	Addr   string // what applications connect to
	UUID   gtid.UUID
	Epoch  event.Epoch

	// Stale flags the one exception to P3: the router is blind and the level
	// promises nothing about writes.
	Stale     bool
	Otherwise Otherwise // after a no; OtherwisePrimary from Route: where the caller writes
	// RetryAfter is a hint when Route names no target.
	RetryAfter time.Duration

	Blocked    [MaxBlocked]uint16 // places in Request.Keys of keys that are behind
	NumBlocked int
	Need       gtid.Set // with Explain: what the server lacks, at most MaxNeedIntervals intervals without Verbose
	NeedCut    bool     // Need is not all
	// BehindTxns is the number of delivered transactions that the server is not
	// proven to show; Unknown unless Explain was set and the answer is a no, or
	// Verbose was set.
	BehindTxns int64
	// FloorLost tells that a part of the floor was lost in a failover and was
	// therefore not waited for (rules §10).
	FloorLost bool
	// FloorDropped tells that nobody has a part of the floor, by a probe begun after
	// the request: it never happened, or was lost before the stream had it.
	FloorDropped bool

	Staleness    time.Duration // now - freshness; Unknown
	WatermarkAge time.Duration // age of W; Unknown
	Waited       time.Duration // Route: time spent waiting for a probe

	// Spreading tells, on a yes of Route at level key, that the newest write of
	// a named key is not yet on every eligible replica; SpreadingKey is its
	// place in Request.Keys, SpreadingFor the time since the router learnt of that
	// write, at the most; Unknown for one from before its start.
	Spreading    bool
	SpreadingKey int
	SpreadingFor time.Duration
}

// ErrorCode names what is wrong with a request; stable for callers.
type ErrorCode string

// The codes of [RequestError].
const (
	CodeBadKey        ErrorCode = "bad_key"        // a key does not fit its table's definition
	CodeLevelRequired ErrorCode = "level_required" // neither keys nor a level
	CodeKeysRequired  ErrorCode = "keys_required"  // level key without keys
	CodeFloorRequired ErrorCode = "floor_required" // level session without a floor
	CodeBoundRequired ErrorCode = "bound_required" // level bounded without max_staleness
	CodeTooLarge      ErrorCode = "too_large"      // more than MaxKeys keys
)

// RequestError tells that a question can't be answered as it was put: a caller's
// mistake (HTTP 400), never a no.
type RequestError struct {
	Code    ErrorCode
	Field   string // the field's name, as in the wire reference
	Item    int    // place within a repeated field; Unknown when it does not apply
	Offset  int    // byte within the value; Unknown when it does not apply
	Message string
	Err     error // the cause, if another package gave it
}

// Error implements error.
func (e *RequestError) Error() string {
	if e.Item >= 0 {
		return fmt.Sprintf("%s: %s[%d]: %s", e.Code, e.Field, e.Item, e.Message)
	}
	return fmt.Sprintf("%s: %s: %s", e.Code, e.Field, e.Message)
}

// Unwrap returns the cause.
func (e *RequestError) Unwrap() error { return e.Err }

// level applies the default of rules §7 and refuses what has no meaning.
func (req *Request) level() (Level, error) {
	wrong := func(c ErrorCode, field, msg string) error {
		return &RequestError{Code: c, Field: field, Item: Unknown, Offset: Unknown, Message: msg}
	}
	l := req.Level
	if len(req.Keys) > MaxKeys {
		return l, wrong(CodeTooLarge, "key", fmt.Sprintf("%d keys, at most %d are allowed", len(req.Keys), MaxKeys))
	}
	if l == LevelUnset && len(req.Keys) > 0 {
		l = LevelKey
	}
	switch {
	case l == LevelUnset || l >= numLevels:
		return l, wrong(CodeLevelRequired, "level", "name keys or a level")
	case l == LevelKey && len(req.Keys) == 0:
		return l, wrong(CodeKeysRequired, "key", "level key needs at least one key")
	case l == LevelSession && !req.HasFloor && req.Floor.IsEmpty():
		return l, wrong(CodeFloorRequired, "floor", "level session means nothing without a floor")
	case l == LevelBounded && !req.bounded():
		return l, wrong(CodeBoundRequired, "max_staleness_ms", "level bounded needs a bound")
	}
	return l, nil
}

func (req *Request) bounded() bool { return req.HasBound || req.MaxStaleness > 0 }
