package router

// A rule is one named check of a decision. Each stands in the code as
// `rule(ruleX) && ...`, so that the mutation guard of the rules test can switch
// it off by name (build tag mutants) and prove that some test notices. Without
// the tag, rule is a constant and costs nothing.
type ruleID uint8

const (
	ruleReady            ruleID = iota // §7, P3: the index is caught up
	ruleAlive                          // §6.3: losing the pinned connection ends the lease
	ruleLease                          // §6.3: the lease is young
	ruleRole                           // §7: the role is known
	ruleIneligible                     // §2.2-2.5, §10: nothing excludes the server
	ruleTableExcluded                  // §2.4: tainted and filtered tables
	ruleNoKeysTaint                    // §2.4: without keys, any taint excludes
	ruleStaleness                      // §7 bounded
	rulePrimary                        // §7: a primary that is known, announced, live and alone
	rulePrimaryLease                   // §6.3: the primary's lease too
	ruleStrong                         // §7 strong
	ruleSessionFloor                   // §7 session: F within C(X), or lost
	ruleFloorCut                       // §7 session: where a part of F is lost or never happened, all that the failover left too
	ruleStrongFloor                    // §7: the primary is checked like any server for F
	ruleWatermark                      // §7 key: W is young
	ruleHorizon                        // §7 key: H within C(X) or lost
	ruleGroupHorizon                   // §5.1: before a group column was announced
	ruleUnseen                         // §7 key: F within D, H or C(X)
	ruleUnknownTable                   // §4: a definition is known
	ruleSchemaChanged                  // §4.3: same definition version
	ruleOwnRecord                      // §7 key: own record within the prefix
	ruleWideRecord                     // §7 key: wide records within the prefix
	ruleShortcutOneRow                 // §7 key: own record's GTID suffices for one row only
	ruleShortcutFailover               // §7 key: and only with no failover newer than the prefix
	ruleDropAfter                      // §7: a GTID that never happened leaves F only by an E begun after the request
	ruleLostAfter                      // §10: a lost GTID leaves F only by an E begun after the request
	ruleRetryMoved                     // P2: records that moved on are looked up again
	numRules
)

var ruleNames = [numRules]string{
	"ready", "alive", "lease", "role", "ineligible", "table_excluded", "no_keys_taint", "staleness",
	"primary", "primary_lease", "strong", "session_floor", "floor_cut", "strong_floor", "watermark", "horizon",
	"group_horizon", "unseen", "unknown_table", "schema_changed", "own_record", "wide_record",
	"shortcut_one_row", "shortcut_failover", "drop_after", "lost_after", "retry_moved",
}

// RuleNames lists the named checks of a decision, in the order in which the
// package declares them.
func RuleNames() []string { return append([]string(nil), ruleNames[:]...) }
