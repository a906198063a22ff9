package rulestest

// Feature is one sort of thing that may happen in a run. Each run has a mask of
// them, so that rare combinations are not drowned by what is frequent.
type Feature uint8

// The features.
const (
	FeatureBig           Feature = iota // transactions in several chunks
	FeatureWide                         // statements: rows unknown to the stream
	FeatureMinimal                      // row images without the group column
	FeatureXA                           // XA transactions
	FeatureHoles                        // binlog events that can't be read
	FeatureTwoRouters                   // a second router, with another clock
	FeatureCrash                        // servers stop
	FeaturePromote                      // switch-overs and failovers
	FeatureRebuild                      // backups, and servers rebuilt from them
	FeatureCheckpoints                  // checkpoints between transactions
	FeatureStepBack                     // streams step back
	FeatureRetention                    // WRITES discards its oldest messages
	FeatureEvict                        // routers forget records
	FeatureRestart                      // routers restart
	FeatureEmpty                        // transactions that are empty on the primary
	FeatureInject                       // empty transactions injected on replicas
	FeatureFilter                       // filtered transactions, skipped errors
	FeatureErrant                       // transactions made on replicas
	FeatureRollback                     // GTIDs owned and given back
	FeatureUndrained                    // failovers before the relay log is applied
	FeatureKeepRelay                    // replicas keep the relay log of an old source
	FeatureTailLost                     // sync_binlog=0: a crash loses the binlog's tail
	FeatureRelaxed                      // replicas with relaxed durability
	FeatureDefinitions                  // DDL that changes the primary key
	FeatureGroups                       // a group column added at run time
	FeaturePurge                        // binlogs purged before they were read
	FeatureTailerRestart                // tailers restart
	FeatureBlind                        // routers cut off from the stream
	numFeatures
)

var featureNames = [numFeatures]string{
	"big", "wide", "minimal", "xa", "holes", "two_routers", "crash", "promote", "rebuild",
	"checkpoints", "step_back", "retention", "evict", "restart", "empty", "inject", "filter",
	"errant", "rollback", "undrained", "keep_relay", "tail_lost", "relaxed", "definitions",
	"groups", "purge", "tailer_restart", "blind",
}

// String returns the feature's name.
func (f Feature) String() string { return featureNames[f] }

// mask is a set of features.
type mask uint32

func (m mask) has(f Feature) bool { return m>>f&1 == 1 }

func (m mask) String() string {
	s := ""
	for f := range numFeatures {
		if m.has(f) {
			s += " " + f.String()
		}
	}
	if s == "" {
		return "none"
	}
	return s[1:]
}
