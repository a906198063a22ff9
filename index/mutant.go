package index

// A rule is one named step of what the index concludes. Each stands in the code
// as `rule(ruleX) && ...`, so that the mutation guard of the rules test can
// leave it out by name (build tag mutants) and prove that some test notices.
// Without the tag, rule is a constant and costs nothing.
type ruleID uint8

const (
	ruleEpochs         ruleID = iota // §1: lower epochs are ignored
	ruleUnproven                     // §2.2: executed and not shown is not confirmed
	ruleConfirmedKnown               // §2.2: C(X) is cut to D and H
	rulePrimaryShown                 // §2.2: of the announced primary C is executed
	ruleTaintAll                     // §2.2: a server tainted as a whole
	ruleTaintTable                   // §2.4: tainted and filtered tables
	ruleTailerExcluded               // §2.4, §2.5: reasons of the tailer
	ruleErrant                       // §2.3: executed and nobody accounts for it
	ruleErrantOwned                  // §2.3: owned likewise, when a later probe lacks it
	ruleForeign                      // §2.3: and is not accounted for by what the primary gives later
	ruleForeignKept                  // §2.3: whatever a state says that has not seen the server
	ruleHistory                      // §11.2: compared against this history
	ruleLossSeen                     // §10: compared since the newest loss
	ruleHoldsLost                    // §10: holds a lost identity
	ruleTwin                         // duplicate server_uuid
	ruleXAAtCommit                   // §3.1: keys of XA are written at the commit
	ruleXAUnknown                    // §3.1: an unknown XID writes everything
	ruleXAOpen                       // §5.3: a checkpoint's open XIDs
	ruleChunksWhole                  // §3.3: a transaction with a chunk missing is a hole
	ruleHoleWide                     // §3.3: a hole writes everything
	ruleHoleHorizon                  // §3.3: and its GTIDs join H
	ruleHoleXA                       // §3.3: and it may have ended and prepared any XID
	ruleStartHorizon                 // §5.3: what a checkpoint calls delivered is H
	ruleEvictHorizon                 // §5.2: forgetting is into H
	ruleEvictAll                     // §5.2: also what was superseded
	ruleGeneration                   // P2: readers notice an eviction
	ruleTicks                        // §6.1: only this router's ticks count
	ruleConnection                   // §6.3: losing the connection ends the lease
	ruleEOwned                       // §6.2: E has what the primary owns
	ruleEAnnounced                   // §6.2: of the announced run only
	ruleEWritable                    // §6.2: of a writable primary
	ruleEDrained                     // §6.2: with its old channel drained
	ruleEMode                        // §6.2: with gtid_mode ON
	ruleModeKept                     // §6.2: and always ON since it was announced
	ruleEAlone                       // §6.2: and no other primary
	ruleEPrevious                    // §6.2: containing what was executed before
	ruleAnonymous                    // §6.2: nothing counts after an anonymous transaction
	ruleLostLeaves                   // §10: lost GTIDs leave D and H
	ruleLostMoves                    // §10: records at lost versions move
	ruleShownAgain                   // §10: what a counted E shows is not lost
	ruleFailoverLeft                 // §7: what a reign that was not announced left
	ruleReignSeen                    // §7: also where nothing of it is left
	rulePrimaryRun                   // §7: the primary's run is announced
	rulePrimaryAlone                 // §7: and it is alone
	numRules
)

var ruleNames = [numRules]string{
	"epochs", "unproven", "confirmed_known", "primary_shown", "taint_all", "taint_table", "tailer_excluded",
	"errant", "errant_owned", "foreign", "foreign_kept", "history", "loss_seen", "holds_lost", "twin", "xa_at_commit", "xa_unknown",
	"xa_open", "chunks_whole", "hole_wide", "hole_horizon", "hole_xa", "start_horizon", "evict_horizon", "evict_all",
	"generation", "ticks", "connection", "e_owned", "e_announced", "e_writable", "e_drained", "e_mode",
	"mode_kept", "e_alone", "e_previous", "anonymous", "lost_leaves", "lost_moves", "shown_again", "failover_left",
	"reign_seen", "primary_run", "primary_alone",
}

// RuleNames lists the named steps, in the order in which the package declares
// them.
func RuleNames() []string { return append([]string(nil), ruleNames[:]...) }
