package event

import (
	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
)

// Known is what the stream says of one GTID to a replica's tailer.
type Known struct {
	State Knowledge
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

// Identities is the arrow back from the stream to a replica's tailer (rules
// §2.2). The implementation follows WRITES for one replica, keeps a bounded
// window and pauses when it is full; Forget makes room.
//
// Methods may be called at once by many.
type Identities interface {
	// Lookup never blocks.
	Lookup(g gtid.GTID) Known
	// Position is the history and the newest announcement with losses that
	// Lookup's answers reflect; read it before the Lookups it is published with.
	Position() (History, Version)
	// LostIdentity tells whether this very transaction is lost.
	LostIdentity(id Identity) bool
	// Changed is closed at the next news; take it before Lookup.
	Changed() <-chan struct{}
	// Forget tells that g was compared and will not be looked up again.
	Forget(g gtid.GTID)
}
