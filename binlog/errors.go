package binlog

import (
	"errors"
	"fmt"

	"tidegate/binlog/gtid"
)

// Class sorts errors by what has to happen next.
type Class uint8

const (
	// Retry: a connection failed; the tailer tries again by itself and returns
	// such an error never.
	Retry Class = iota
	// Stop: something is wrong that a restart or an operator mends.
	Stop
	// Reseed: what the tailer asks for can not be had any more; going on needs an
	// explicit decision.
	Reseed
)

func (c Class) String() string {
	switch c {
	case Retry:
		return "retry"
	case Stop:
		return "stop"
	}
	return "re-seed"
}

// ClassOf sorts an error that [Tailer.Run] returned. Errors of a handler are
// [Stop].
func ClassOf(err error) Class {
	var c interface{ class() Class }
	if errors.As(err, &c) {
		return c.class()
	}
	return Stop
}

// PurgedError: the server has deleted binlogs that the tailer still needs.
type PurgedError struct {
	Server  string
	Missing gtid.Set // what was asked for and is gone
	Purged  gtid.Set // everything that the server has purged
}

func (e *PurgedError) Error() string {
	return fmt.Sprintf("server %s has purged binlogs that are still needed: %s is missing", e.Server, e.Missing)
}

func (*PurgedError) class() Class { return Reseed }

// DivergedError: the server lacks transactions that were read from it, or that
// the start position contains: it was restored, replaced, or lost its tail.
type DivergedError struct {
	Server string
	Extra  gtid.Set // in the position, neither executed nor being committed on the server
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("server %s does not have %s, which its position contains", e.Server, e.Extra)
}

func (*DivergedError) class() Class { return Reseed }

// OtherRunError: the server has been restarted or replaced since it was decided
// from where on it is read ([TailerOptions].SameRun).
type OtherRunError struct{ Server string }

func (e *OtherRunError) Error() string {
	return fmt.Sprintf("server %s is in another run than the one that was read", e.Server)
}

func (*OtherRunError) class() Class { return Reseed }

// AnonymousError: the binlog holds a transaction without a GTID, behind which
// the server does not let a reader by GTID. The handler has got its hole before
// (rules §6.2).
type AnonymousError struct {
	Server string
	Reason string
}

func (e *AnonymousError) Error() string {
	return fmt.Sprintf("server %s has logged a transaction without a GTID (%s): set gtid_mode=ON, then a new history must begin", e.Server, e.Reason)
}

func (*AnonymousError) class() Class { return Reseed }

// RefusedError: the server can not be tailed as it is set up. Mend is the SQL
// (or the setting) that mends it.
type RefusedError struct {
	Server string
	Reason string
	Mend   string
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("server %s can not be followed: %s", e.Server, e.Reason)
	if e.Mend != "" {
		s += "; mend it with: " + e.Mend
	}
	return s
}

func (*RefusedError) class() Class { return Stop }

// CorruptError: the same bytes of the binlog failed their checksum, or made no
// sense, each time they were read.
type CorruptError struct {
	Server string
	At     Position
	Err    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("server %s: binlog %s near position %d can not be read: %v", e.Server, e.At.File, e.At.Pos, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }
func (*CorruptError) class() Class    { return Stop }

// GroupColumnError: a column under `keys:` does not exist.
type GroupColumnError struct {
	Table   string   // schema.table
	Column  string   // as configured
	Columns []string // what the table has
}

func (e *GroupColumnError) Error() string {
	return fmt.Sprintf("keys: table %s has no column %q; it has %s", e.Table, e.Column, joinQuoted(e.Columns))
}

func (*GroupColumnError) class() Class { return Stop }

// joinQuoted prints at most a dozen names.
func joinQuoted(names []string) string {
	const most = 12
	var b []byte
	for i, n := range names {
		if i == most {
			return string(fmt.Appendf(b, " and %d more", len(names)-most))
		}
		if i > 0 {
			b = append(b, ", "...)
		}
		b = fmt.Appendf(b, "%q", n)
	}
	return string(b)
}

// malformed is an event whose bytes make no sense.
type malformedError struct {
	what string
}

func (e *malformedError) Error() string { return "malformed " + e.what }

func malformed(format string, args ...any) error {
	return &malformedError{fmt.Sprintf(format, args...)}
}
