package rulestest

import (
	"fmt"
	"testing"
)

// hunt is how one mutant is looked for.
type hunt struct {
	bias Bias
	heal bool
	// elsewhere says why no run of this world kills the mutant; empty: it has to
	// die here. The tables of its own package kill every mutant (TestMutantsDie).
	elsewhere string
}

// Why a rule can be left out without a wrong answer here.
const (
	twofold       = "another rule keeps the promise as well"
	harmless      = "no wrong answer follows"
	onePrimary    = "the world has no two primaries"
	oneUUID       = "the world has no two servers of one UUID"
	noAnonymous   = "the world has no anonymous transactions"
	oneXID        = "the world prepares nothing under an XID that was used"
	correctWriter = "a correct writer leaves no chunk out"
)

// mutantHunts tells how to look for those that die seldom where nothing is made
// more likely, and which can't die here at all.
func mutantHunts() map[string]hunt {
	likely := func(features []Feature, kinds map[Kind]int) Bias { return Bias{Features: features, Kinds: kinds} }
	failover := likely([]Feature{FeatureCrash, FeaturePromote}, map[Kind]int{KindFailover: 12, KindSettle: 3, KindCommit: 2})
	tail := likely([]Feature{FeatureCrash, FeatureTailLost, FeaturePromote}, map[Kind]int{KindCrash: 10, KindSettle: 3, KindCommit: 2, KindWait: 4})
	relaxed := likely([]Feature{FeatureCrash, FeatureRelaxed}, map[Kind]int{KindCrash: 10, KindStart: 6, KindWait: 4})
	rebuilt := likely([]Feature{FeatureCrash, FeaturePromote, FeatureRebuild}, map[Kind]int{KindCrash: 5, KindBackup: 6, KindRebuild: 8})
	silent := likely([]Feature{FeatureCrash}, map[Kind]int{KindCrash: 6, KindCommit: 2})
	silent.Only = true
	overtaking := likely([]Feature{FeatureEvict}, map[Kind]int{KindWork: 3, KindCommit: 3, KindEvict: 2})
	evicting := likely([]Feature{FeatureEvict}, map[Kind]int{KindEvict: 4, KindSettle: 2})
	cold := likely([]Feature{FeatureRestart, FeatureCheckpoints}, map[Kind]int{KindRestart: 10, KindCheckpoint: 6, KindSettle: 2})
	errant := likely([]Feature{FeatureCrash, FeaturePromote, FeatureKeepRelay}, map[Kind]int{KindFailover: 12, KindSettle: 3, KindCommit: 2})
	xa := likely([]Feature{FeatureXA, FeatureHoles}, map[Kind]int{KindWrite: 3, KindCommit: 3, KindPublish: 3})
	definitions := likely([]Feature{FeatureDefinitions}, map[Kind]int{KindWrite: 2, KindCommit: 2})
	filters := likely([]Feature{FeatureFilter, FeatureHoles}, map[Kind]int{KindFilter: 6})
	injections := likely([]Feature{FeatureInject, FeatureFilter, FeatureWide, FeatureXA}, map[Kind]int{KindInject: 6, KindFilter: 6})
	groups := likely([]Feature{FeatureGroups}, map[Kind]int{KindGroups: 2})
	return map[string]hunt{
		"router/ready":             {bias: cold},
		"router/lease":             {bias: rebuilt},
		"router/alive":             {elsewhere: twofold},
		"router/floor_cut":         {elsewhere: "floors of the world name every write"},
		"router/role":              {elsewhere: harmless},
		"router/ineligible":        {bias: relaxed},
		"router/primary_lease":     {bias: silent},
		"router/schema_changed":    {bias: definitions},
		"router/unknown_table":     {bias: cold},
		"router/shortcut_one_row":  {bias: overtaking},
		"router/shortcut_failover": {elsewhere: twofold},
		"router/group_horizon":     {bias: groups},
		"router/lost_after":        {bias: tail},
		"router/retry_moved":       {bias: evicting},

		"index/epochs":          {elsewhere: twofold},
		"index/connection":      {elsewhere: twofold},
		"index/unproven":        {bias: injections},
		"index/taint_table":     {bias: filters},
		"index/taint_all":       {bias: injections},
		"index/tailer_excluded": {bias: relaxed},
		"index/history":         {elsewhere: twofold},
		"index/loss_seen":       {bias: tail},
		"index/holds_lost":      {elsewhere: twofold},
		"index/errant":          {bias: errant},
		"index/primary_alone":   {elsewhere: onePrimary},
		"index/primary_run":     {elsewhere: twofold},
		"index/e_announced":     {bias: tail},
		"index/e_writable":      {elsewhere: twofold},
		"index/e_drained":       {elsewhere: twofold},
		"index/e_alone":         {elsewhere: onePrimary},
		"index/e_previous":      {elsewhere: twofold},
		"index/shown_again":     {bias: tail},
		"index/lost_leaves":     {bias: failover, heal: true},
		"index/lost_moves":      {elsewhere: twofold},
		"index/evict_horizon":   {bias: evicting},
		"index/start_horizon":   {bias: cold},
		"index/xa_unknown":      {bias: xa},
		"index/xa_at_commit":    {elsewhere: twofold},
		"index/confirmed_known": {elsewhere: twofold},
		"index/primary_shown":   {elsewhere: harmless},
		"index/errant_owned":    {elsewhere: twofold},
		"index/foreign":         {elsewhere: "once in some hundred thousand runs"},
		"index/foreign_kept":    {elsewhere: "once in some hundred thousand runs"},
		"index/failover_left":   {elsewhere: "floors of the world name every write"},
		"index/reign_seen":      {elsewhere: "floors of the world name every write"},
		"index/twin":            {elsewhere: oneUUID},
		"index/e_mode":          {elsewhere: noAnonymous},
		"index/mode_kept":       {elsewhere: noAnonymous},
		"index/anonymous":       {elsewhere: noAnonymous},
		"index/xa_open":         {elsewhere: twofold},
		"index/evict_all":       {bias: overtaking},
		"index/generation":      {bias: evicting},
		"index/chunks_whole":    {elsewhere: correctWriter},
		"index/hole_wide":       {elsewhere: twofold},
		"index/hole_horizon":    {elsewhere: twofold},
		"index/hole_xa":         {elsewhere: oneXID},
	}
}

// worldHunts are cases that the world hardly ever makes by itself, for rules that
// are modelled here and can't be left out as mutants. Without its rule each finds
// a violation.
func worldHunts() map[string]Bias {
	restored := Bias{
		Features: []Feature{FeatureCrash, FeatureRebuild, FeatureTailLost},
		Kinds:    map[Kind]int{KindRestore: 12, KindCommit: 2},
	}
	return map[string]Bias{
		// What was lost is there at first sight, and its GTID is given again.
		"restored": restored,
	}
}

// TestHunts plays runs as they are drawn for each mutant, with all rules in
// force: what is made likely there must not be wrong by itself.
func TestHunts(t *testing.T) {
	runs := 300
	if testing.Short() {
		runs = 60
	}
	done := map[string]bool{}
	for name, h := range mutantHunts() {
		if drawn := fmt.Sprint(h.bias); h.elsewhere != "" || done[drawn] {
			continue
		} else {
			done[drawn] = true
		}
		huntFor(t, name, h.bias, runs, Options{Heal: true})
	}
	for name, bias := range worldHunts() {
		huntFor(t, name, bias, 10*runs, Options{})
	}
}

func huntFor(t *testing.T, name string, bias Bias, runs int, o Options) {
	t.Helper()
	failed, stats := search(*seedFlag, runs**huntFlag, defaultSteps, bias, o, *allFlag)
	for _, f := range failed {
		t.Errorf("drawn for %s: %d runs of %d, one of them:\n%s", name, f.runs, stats.Runs, Report(Shrink(f.shortest, o), o))
	}
}

// TestWorldHunts plays those of the world alone; -rules.hunts makes it longer.
func TestWorldHunts(t *testing.T) {
	for name, bias := range worldHunts() {
		huntFor(t, name, bias, 1000, Options{})
	}
}
