package event

import (
	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
)

// Known is what the stream says of one GTID to a replica's tailer.
type Known struct {
	State Knowledge
	// At is where the reader stood that says so.
	At Reading
	// OriginalCommit with Tables and Flags for Identified; OriginalCommit and
	// Empty (in Flags) alone for HeaderOnly.
	OriginalCommit int64
	Flags          Flags
	Tables         []key.Digest
}

// Knowledge says how much is known.
type Knowledge uint8

const (
	// NotYet: the stream has not come to it; stays unconfirmed.
	NotYet Knowledge = iota
	// Identified: delivered, with identity and tables.
	Identified
	// HeaderOnly: in a hole, but its header gave the identity.
	HeaderOnly
	// NoIdentity: neither the stream nor a header gives one any more.
	NoIdentity
	// EmptyOnPrimary: no identity, but known to be empty on the primary.
	EmptyOnPrimary
	// IsLost: a lost GTID that nobody gave again.
	IsLost
)

// Reading is where a reader of the stream stands, as far as what it said before
// may not hold any more: how often it began at a checkpoint, and the newest
// announcement that it has come to. What was compared at one Reading is taken
// back by the [Turn] to the next.
type Reading struct {
	Starts    uint64
	Announced Version
}

// Identities is the arrow back from the stream to a replica's tailer (rules
// §2.2). The implementation follows WRITES for one replica, keeps a bounded
// window and pauses when it is full; Forget makes room.
//
// Methods may be called at once by many.
type Identities interface {
	// Lookup never blocks.
	Lookup(g gtid.GTID) Known
	// Since tells what became of the stream since an announcement was taken in,
	// and where Lookup's answers stand; read it before the Lookups it is
	// published with.
	Since(announced Version) Turn
	// LostIdentity tells whether this very transaction is lost, and where the
	// reader stood.
	LostIdentity(id Identity) (lost bool, at Reading)
	// Changed is closed at the next news; take it before Lookup.
	Changed() <-chan struct{}
	// Forget tells that g was compared with what Lookup said at a Reading, and will
	// not be looked up again. Once the reader stands elsewhere it does nothing: the
	// turn may have g compared again.
	Forget(g gtid.GTID, at Reading)
}

// Turn is what a comparison with the stream rests on, and what takes it away:
// a loss, a history, a stream that was read anew (rules §1, §5.4, §10).
type Turn struct {
	History History
	// Announced is the version of the newest announcement read; 0: none.
	Announced Version
	// Starts counts the checkpoints at which reading began, 0: not yet. Vouched
	// is what the newest of them calls delivered: of what was compared with the
	// stream before, only that is known to be of the stream that is read now.
	Starts  uint64
	Vouched gtid.Set
	// Lost are the GTIDs under which a transaction was lost since the
	// announcement asked about; all that ever were where that lies further back
	// than what was read.
	Lost gtid.Set
	// EverLost is every GTID under which a transaction was ever lost, given again
	// or not.
	EverLost gtid.Set
}
