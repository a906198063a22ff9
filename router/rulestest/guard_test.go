//go:build !mutants

package rulestest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"tidegate/index"
	"tidegate/router"
)

// killers are the tests that leave out one rule after the other, in the packages
// under the build tag mutants. Each runs one subtest for each rule it kills.
var killers = map[string]string{
	"tidegate/router":           "TestEveryRuleIsNoticed",
	"tidegate/index":            "TestMutants",
	"tidegate/router/rulestest": "TestMutants",
}

// TestMutantsDie builds the product once more with switchable rules and runs the
// three killers in it: the guard has to hold in every plain `go test`. Each rule
// has to be noticed by the tables of its own package, and those that
// [mutantHunts] does not excuse by a run of this world as well.
func TestMutantsDie(t *testing.T) {
	args := []string{"test", "-tags", "mutants", "-count=1", "-json", "-run", "^(TestMutants|TestEveryRuleIsNoticed)$"}
	if testing.Short() {
		args = append(args, "-short")
	}
	args = append(args, slices.Sorted(maps.Keys(killers))...)
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	failure := cmd.Run()
	killed, said := verdicts(t, &stdout)
	if failure != nil {
		t.Errorf("go %v: %v\n%s%s", args, failure, stderr.String(), said)
	}
	var names []string
	for _, r := range router.RuleNames() {
		names = append(names, "router/"+r)
	}
	for _, r := range index.RuleNames() {
		names = append(names, "index/"+r)
	}
	hunts := mutantHunts()
	byTables, byRuns, excused, all := 0, 0, 0, 0
	for _, name := range names {
		pkg, rule, _ := strings.Cut(name, "/")
		table := "tidegate/" + pkg
		dies := killed[table+" "+killers[table]+"/"+rule]
		if dies {
			byTables++
		} else {
			t.Errorf("%s survives the tables of %s", name, table)
		}
		switch run := killed["tidegate/router/rulestest TestMutants/"+name]; {
		case run:
			byRuns++
		case hunts[name].elsewhere != "":
			excused++
		default:
			dies = false
			t.Errorf("%s survives the runs of this world", name)
		}
		if dies {
			all++
		}
	}
	t.Logf("%d mutants, %d killed: %d by the tables of their package, %d by a run of this world, which can't kill the other %d",
		len(names), all, byTables, byRuns, excused)
}

// verdicts reads the stream of `go test -json`: the tests that passed, as
// "package test", and what was printed by those that did not.
func verdicts(t *testing.T, out *bytes.Buffer) (passed map[string]bool, said string) {
	t.Helper()
	passed = map[string]bool{}
	printed := map[string]string{}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct{ Action, Package, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v in %q", err, lines.Text())
		}
		id := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			printed[id] += e.Output
		case "pass":
			passed[id] = true
		case "fail":
			said += printed[id]
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return passed, said
}
