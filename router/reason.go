package router

// Reason says why an answer is what it is. The list is closed for callers: it
// only grows, and texts never change.
type Reason uint8

// The reasons. Those marked "later" belong to the list but no answer of this
// version carries them.
const (
	ReasonNone           Reason = iota
	ReasonApplied               // yes: the replica shows what was asked for
	ReasonPrimary               // yes: it is the primary
	ReasonKeyBehind             // a named key has a newer write than the server is proven to show
	ReasonWriteUnseen           // the floor names a write that neither stream nor server has shown yet
	ReasonSessionBehind         // the floor is not confirmed on the server
	ReasonTooStale              // staleness is unknown or above the bound
	ReasonWatermarkOld          // nothing is known of the primary's newest commits
	ReasonCatchingUp            // the index is being built, or the primary's run is not announced yet
	ReasonBelowHorizon          // records may have been forgotten that the server is not proven to show
	ReasonEpochChanged          // the server restarted in a way that may have lost data
	ReasonLeaseExpired          // the server has not been heard of lately
	ReasonExcluded              // taint, filter, errant or lost transactions, duplicate UUID; see the detail
	ReasonUnknownTable          // no definition of the table is known
	ReasonUnknownServer         // no server has this name
	ReasonSchemaChanged         // stream and router know different definitions of the table
	ReasonNoPrimary             // no primary is known, live and alone
	ReasonWriteLost             // later (sessions)
	ReasonSessionUnknown        // later (sessions)
	ReasonStrong                // only the primary serves this level
	ReasonShed                  // later (shaping)
	ReasonOverride              // later (shaping)
	ReasonBudget                // the primary's budget is used up
	ReasonBlind                 // the router itself is cut off from the stream
	numReasons
)

var reasonNames = [numReasons]string{
	"", "applied", "primary", "key_behind", "write_unseen", "session_behind", "too_stale",
	"watermark_old", "catching_up", "below_horizon", "epoch_changed", "lease_expired",
	"excluded", "unknown_table", "unknown_server", "schema_changed", "no_primary",
	"write_lost", "session_unknown", "strong", "shed", "override", "budget", "blind",
}

// String returns the reason's stable text; empty for ReasonNone.
func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return ""
}

// ParseReason reads a reason's text. What is not in the list is
// ReasonExcluded with ok false, so that an unknown reason against a server
// stays one.
func ParseReason(s string) (r Reason, ok bool) {
	for i := ReasonNone + 1; i < numReasons; i++ {
		if reasonNames[i] == s {
			return i, true
		}
	}
	return ReasonExcluded, false
}

// Reasons returns the closed list, for references and metrics.
func Reasons() []string { return append([]string(nil), reasonNames[ReasonApplied:]...) }

// passing tells whether time alone may turn the no into a yes, so that asking
// again shortly is worth more than giving up.
func (r Reason) passing() bool {
	switch r {
	case ReasonKeyBehind, ReasonWriteUnseen, ReasonSessionBehind, ReasonTooStale, ReasonWatermarkOld,
		ReasonCatchingUp, ReasonBelowHorizon, ReasonSchemaChanged, ReasonLeaseExpired, ReasonBudget, ReasonBlind:
		return true
	}
	return false
}
