//go:build !mutants

package rulestest

import (
	"os/exec"
	"testing"
)

// TestMutantsDie builds the product once more with switchable rules and runs
// TestMutants in it: the guard has to hold in every plain `go test`.
func TestMutantsDie(t *testing.T) {
	args := []string{"test", "-tags", "mutants", "-count=1", "-run", "^TestMutants$", "."}
	if testing.Short() {
		args = append(args, "-short")
	}
	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	if err != nil {
		t.Errorf("go %v: %v\n%s", args, err, out)
	}
}
