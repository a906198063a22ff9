//go:build mutants

package index_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"tidegate/index"
)

// mutantEnv names the rule that a child process of TestMutants leaves out.
const mutantEnv = "TIDEGATE_INDEX_MUTANT"

func prepare() {
	if name := os.Getenv(mutantEnv); !index.SwitchOff(name) {
		panic("no rule is named " + name)
	}
}

// TestMutants runs this package's tests once for each rule, with that rule left
// out. A rule whose absence no test notices is not tested.
//
//	go test -tags mutants -run TestMutants ./index
func TestMutants(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The tables first: they take milliseconds, the random ones seconds.
	const tables, random = "Rule|Primary|Duplicate", "Model|Readers"
	run := func(rule, tests string) (string, error) {
		cmd := exec.Command(self, "-test.run", tests, "-test.failfast",
			"-test.timeout", "2m", "-rapid.checks", "300", "-rapid.nofailfile", "-rapid.shrinktime", "0s")
		cmd.Env = append(os.Environ(), mutantEnv+"="+rule)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("", tables+"|"+random); err != nil {
		t.Fatalf("the tests fail with every rule in place: %v\n%s", err, out)
	}
	for _, rule := range index.RuleNames() {
		t.Run(rule, func(t *testing.T) {
			var last error // of a child that ended otherwise, for example by its time-out
			var said string
			for _, tests := range []string{tables, random} {
				out, err := run(rule, tests)
				if err == nil {
					continue
				}
				if strings.Contains(out, "--- FAIL") {
					return
				}
				last, said = err, out
			}
			if last != nil {
				t.Fatalf("the tests without the rule ended otherwise than by a failure: %v\n%s", last, said)
			}
			t.Error("no test fails without the rule")
		})
	}
}
