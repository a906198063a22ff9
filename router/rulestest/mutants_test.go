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
	began := time.Now()
	o := h.options()
	failed, stats := search(*seedFlag, *budgetFlag, defaultSteps, h.bias, o, false)
	if len(failed) == 0 {
		t.Fatalf("survived %d runs in %.1f s: %d answers, %d yes", stats.Runs, time.Since(began).Seconds(), stats.Answers, stats.Yes)
	}
	for p, f := range failed {
		t.Logf("died in %d runs, %.1f s: %s", stats.Runs, time.Since(began).Seconds(), p)
		if !*recordFlag {
			continue
		}
		small := Shrink(f.shortest, o)
		m.off("")
		if v := Play(small, Options{Heal: true}).Violation; v != nil {
			t.Errorf("the run is wrong with all rules in force as well: %s\n%s", v, Report(Shrink(small, Options{Heal: true}), Options{Heal: true}))
			continue
		}
		m.off(m.rule)
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

func (h hunt) options() Options { return Options{Heal: h.heal} }
