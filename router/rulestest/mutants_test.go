//go:build mutants

package rulestest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tidegate/index"
	"tidegate/router"
)

var (
	mutantFlag = flag.String("rules.mutant", "", "only this one, such as index/prefix")
	recordFlag = flag.Bool("rules.record", false, "write the shrunk run of each mutant that its trace does not kill into testdata/traces")
	surveyFlag = flag.Bool("rules.survey", false, "look for every mutant, also where its trace kills it")
	budgetFlag = flag.Int("rules.budget", 20_000, "runs within which each mutant has to die")
)

// mutant is one rule left out.
type mutant struct {
	name string
	off  func(string) bool
	rule string
}

func mutants() []mutant {
	var out []mutant
	for _, r := range router.RuleNames() {
		out = append(out, mutant{"router/" + r, router.SwitchOff, r})
	}
	for _, r := range index.RuleNames() {
		out = append(out, mutant{"index/" + r, index.SwitchOff, r})
	}
	return out
}

// TestMutants leaves out one rule after the other and demands that some run then
// violates a property: a rule whose absence nothing notices is either not needed
// or not tested.
func TestMutants(t *testing.T) {
	hunts, recorded := mutantHunts(), traces(t)
	for _, m := range mutants() {
		if *mutantFlag != "" && *mutantFlag != m.name {
			continue
		}
		h := hunts[m.name]
		if h.elsewhere != "" {
			t.Logf("%-28s %s", m.name, h.elsewhere)
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			if !m.off(m.rule) {
				t.Fatalf("no rule %q", m.rule)
			}
			defer m.off("")
			if r, ok := recorded[m.file()]; ok && !*surveyFlag {
				if Play(r, h.options()).Violation != nil {
					return
				}
				t.Logf("its trace kills it no more; record it again with -rules.record")
			}
			m.hunt(t, h)
		})
	}
	for name := range hunts {
		found := false
		for _, m := range mutants() {
			found = found || m.name == name
		}
		if !found {
			t.Errorf("no rule is called %s", name)
		}
	}
}

// hunt looks for a run that kills the mutant, within the budget.
func (m mutant) hunt(t *testing.T, h hunt) {
	steps := h.steps
	if steps == 0 {
		steps = defaultSteps
	}
	began := time.Now()
	o := h.options()
	failed, stats := search(*seedFlag, *budgetFlag, steps, h.bias, o, false)
	if len(failed) == 0 {
		t.Fatalf("survived %d runs in %.1f s: %d answers, %d yes", stats.Runs, time.Since(began).Seconds(), stats.Answers, stats.Yes)
	}
	for p, f := range failed {
		t.Logf("died in %d runs, %.1f s: %s", stats.Runs, time.Since(began).Seconds(), p)
		if !*recordFlag {
			continue
		}
		small := Shrink(f.shortest, o)
		report := Report(small, o)
		t.Logf("%d steps; options %08b", len(small.Steps), small.Header[4])
		if *mutantFlag != "" {
			t.Logf("\n%s", report)
		}
		first, _, _ := strings.Cut(report, "\n")
		text := fmt.Sprintf("# Without rule %s: %s\n%s", m.name, first, small.Text())
		if err := os.WriteFile(filepath.Join(traceFolder, m.file()+".txt"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// file is the name of the mutant's trace.
func (m mutant) file() string { return strings.ReplaceAll(m.name, "/", "_") }

// hunt is how one mutant is looked for.
type hunt struct {
	bias  Bias
	steps int
	heal  bool
	// elsewhere names the test that kills a mutant which no run of this world
	// can; empty: it has to die here.
	elsewhere string
}

func (h hunt) options() Options { return Options{Heal: h.heal} }

// elsewhere is why a rule can be left out without a wrong answer here: another
// one keeps the promise as well. The tables of its package notice it.
const twofold = "another rule keeps the promise as well; "

// mutantHunts tells how to look for those that die seldom where nothing is made
// more likely, and which can't die here at all.
func mutantHunts() map[string]hunt {
	likely := func(features []Feature, kinds map[Kind]int) Bias { return Bias{Features: features, Kinds: kinds} }
	failover := likely([]Feature{FeatureCrash, FeaturePromote}, map[Kind]int{KindFailover: 12, KindSettle: 3, KindCommit: 2})
	tail := likely([]Feature{FeatureCrash, FeatureTailLost, FeaturePromote}, map[Kind]int{KindCrash: 10, KindSettle: 3, KindCommit: 2})
	relaxed := likely([]Feature{FeatureCrash, FeatureRelaxed}, map[Kind]int{KindCrash: 10, KindStart: 6})
	rebuilt := likely([]Feature{FeatureCrash, FeaturePromote, FeatureRebuild}, map[Kind]int{KindCrash: 5, KindBackup: 6, KindRebuild: 8})
	silent := likely([]Feature{FeatureCrash}, map[Kind]int{KindCrash: 6, KindCommit: 2})
	silent.Only = true
	overtaking := likely(nil, map[Kind]int{KindApply: 3, KindReceive: 2, KindAdvance: 2})
	evicting := likely([]Feature{FeatureEvict}, map[Kind]int{KindEvict: 4, KindSettle: 2})
	cold := likely([]Feature{FeatureRestart, FeatureCheckpoints}, map[Kind]int{KindRestart: 10, KindCheckpoint: 6, KindSettle: 2})
	errant := likely([]Feature{FeatureCrash, FeaturePromote, FeatureKeepRelay}, map[Kind]int{KindFailover: 12, KindSettle: 3, KindCommit: 2})
	xa := likely([]Feature{FeatureXA, FeatureHoles}, map[Kind]int{KindWrite: 4, KindCommit: 3, KindSettle: 2})
	xa.Only = true
	definitions := likely([]Feature{FeatureDefinitions}, map[Kind]int{KindWrite: 2, KindCommit: 2})
	filters := likely([]Feature{FeatureFilter, FeatureHoles}, map[Kind]int{KindFilter: 6})
	injections := likely([]Feature{FeatureInject, FeatureFilter, FeatureWide, FeatureXA}, map[Kind]int{KindInject: 6, KindFilter: 6})
	groups := likely([]Feature{FeatureGroups}, map[Kind]int{KindGroups: 2})
	return map[string]hunt{
		"router/ready":             {bias: cold},
		"router/lease":             {bias: rebuilt},
		"router/alive":             {elsewhere: twofold + "router"},
		"router/role":              {elsewhere: "no wrong answer follows; router"},
		"router/ineligible":        {bias: relaxed},
		"router/primary_lease":     {bias: silent},
		"router/schema_changed":    {bias: definitions},
		"router/unknown_table":     {bias: cold},
		"router/shortcut_one_row":  {bias: overtaking},
		"router/shortcut_failover": {elsewhere: twofold + "router"},
		"router/retry_moved":       {bias: evicting},

		"index/epoch_order":       {elsewhere: twofold + "index"},
		"index/connection":        {elsewhere: twofold + "index"},
		"index/unproven":          {bias: injections},
		"index/table_taint":       {bias: filters},
		"index/whole_taint":       {bias: injections},
		"index/excluded":          {bias: relaxed},
		"index/history":           {elsewhere: twofold + "index"},
		"index/loss_seen":         {bias: tail},
		"index/holds_lost":        {bias: failover},
		"index/errant":            {bias: errant},
		"index/alone":             {elsewhere: "the world has no two primaries; index"},
		"index/primary_alive":     {bias: failover},
		"index/primary_role":      {bias: failover},
		"index/primary_announced": {bias: tail},
		"index/counted_run":       {bias: tail},
		"index/counted_role":      {bias: failover},
		"index/counted_drained":   {elsewhere: twofold + "index"},
		"index/counted_alone":     {elsewhere: "the world has no two primaries; index"},
		"index/counted_grows":     {elsewhere: twofold + "index"},
		"index/shown_again":       {bias: tail},
		"index/failover":          {elsewhere: twofold + "index"},
		"index/lost_leaves":       {bias: failover, heal: true},
		"index/move_records":      {elsewhere: twofold + "index"},
		"index/evict_horizon":     {bias: evicting},
		"index/group_before":      {bias: groups},
		"index/start_horizon":     {bias: cold},
		"index/unknown_xid":       {bias: xa},
		"index/xa_commit":         {bias: xa},
		"index/hole_wide":         {elsewhere: twofold + "index"},
		"index/hole_horizon":      {elsewhere: twofold + "index"},
		"index/caught_up":         {bias: cold},
	}
}
