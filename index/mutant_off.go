//go:build !mutants

package index

// rule is always true: the step is taken.
func rule(ruleID) bool { return true }
