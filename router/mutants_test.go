//go:build mutants

package router_test

import (
	"testing"

	"tidegate/router"
)

// TestEveryRuleIsNoticed switches each named check off and demands that some
// line of the tables then comes out differently: a check that no line notices
// is either not needed or not tested.
func TestEveryRuleIsNoticed(t *testing.T) {
	defer router.SwitchOff("")
	for _, d := range decisions() {
		if got := d.decide(t); got != d.want {
			t.Fatalf("%s: got %q, want %q with every rule in place", d.name, got, d.want)
		}
	}
	for _, name := range router.RuleNames() {
		t.Run(name, func(t *testing.T) {
			if !router.SwitchOff(name) {
				t.Fatalf("no rule %q", name)
			}
			defer router.SwitchOff("")
			for _, d := range decisions() {
				if got := d.decide(t); got != d.want {
					t.Logf("%s: got %q, want %q", d.name, got, d.want)
					return
				}
			}
			t.Errorf("no line of the table notices that rule %q is off", name)
		})
	}
}
