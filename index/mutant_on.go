//go:build mutants

package index

import "sync/atomic"

var switchedOff atomic.Uint64

// rule tells whether the step is taken.
func rule(r ruleID) bool { return switchedOff.Load()>>r&1 == 0 }

// SwitchOff leaves out the named step in every index of the process; an empty
// name switches all of them on again. It returns false for a name that is not
// one of RuleNames. It exists only under the build tag mutants.
func SwitchOff(name string) bool {
	if name == "" {
		switchedOff.Store(0)
		return true
	}
	for i, n := range ruleNames {
		if n == name {
			switchedOff.Store(1 << i)
			return true
		}
	}
	return false
}
