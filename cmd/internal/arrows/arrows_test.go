package arrows_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// rule says what the packages at or below from must not import, directly or
// through packages of this module.
type rule struct {
	from   string
	except []string // packages at or below from for which the rule does not hold
	not    []string // import paths, each with everything below it
	but    []string // allowed all the same
	why    string
}

var vocabulary = []string{"tidegate/binlog/gtid", "tidegate/cdc/event", "tidegate/cdc/key"}

const (
	goMySQL = "github.com/go-mysql-org/go-mysql"
	driver  = "github.com/go-sql-driver/mysql"
	nats    = "github.com/nats-io"
	pebble  = "github.com/cockroachdb/pebble"
)

var rules = []rule{
	{from: "tidegate/binlog/gtid", not: []string{"tidegate", "github.com", "golang.org", "go.uber.org", "vitess.io"}, but: []string{"tidegate/binlog/gtid"}, why: "sets are used everywhere and need the standard library only"},
	{from: "tidegate/cdc/key", not: []string{"tidegate", nats, goMySQL, driver, pebble}, but: []string{"tidegate/cdc/key"}, why: "keys are folded alike by everybody and reach nobody"},
	{from: "tidegate/cdc/event", not: []string{"tidegate", nats, goMySQL, driver, pebble}, but: append([]string{"tidegate/cdc/event"}, vocabulary...), why: "the vocabulary depends on sets and keys only"},
	{from: "tidegate/binlog", not: []string{nats, pebble, "tidegate/cdc", "tidegate/index", "tidegate/router", "tidegate/cmd"}, but: vocabulary, why: "binlog knows MySQL; cmd hands it the rest as interfaces"},
	{from: "tidegate/cdc", except: []string{"tidegate/cdc/key", "tidegate/cdc/event", "tidegate/cdc/sink/mysql"}, not: []string{goMySQL, driver, pebble, "tidegate/binlog", "tidegate/index", "tidegate/router", "tidegate/cmd"}, but: vocabulary, why: "cdc knows the stream, not where it comes from or who reads it"},
	{from: "tidegate/index", not: []string{goMySQL, driver, nats, "tidegate/binlog", "tidegate/cdc", "tidegate/router", "tidegate/cmd"}, but: vocabulary, why: "the index is fed with values and asked by values"},
	{from: "tidegate/router", except: []string{"tidegate/router/serve", "tidegate/router/local", "tidegate/router/client", "tidegate/router/rulestest"}, not: []string{goMySQL, driver, nats, pebble, "net/http", "tidegate/binlog", "tidegate/cdc", "tidegate/index", "tidegate/cmd"}, but: vocabulary, why: "decisions are made over a snapshot, by whoever holds one"},
	{from: "tidegate/router/serve", not: []string{goMySQL, driver, nats, pebble, "tidegate/binlog", "tidegate/cdc", "tidegate/index", "tidegate/cmd"}, but: vocabulary, why: "protocols reach the router only"},
	{from: "tidegate/router/client", not: []string{"tidegate", "github.com", "golang.org", "go.uber.org"}, but: []string{"tidegate/router/client", "tidegate/router/budget"}, why: "a client in somebody else's process must stay thin"},
	{from: "tidegate/router/local", not: []string{goMySQL, driver, "tidegate/cmd"}, why: "the router in the caller's process speaks to the stream, never to MySQL"},
	{from: "tidegate/router/rulestest", not: []string{goMySQL, driver, nats, "tidegate/cmd"}, why: "its MySQL and its stream are modelled"},
	{from: "tidegate/testenv", not: []string{"tidegate/binlog", "tidegate/cdc", "tidegate/index", "tidegate/router", "tidegate/cmd"}, why: "the sandbox and the checker know only what servers and answers tell them"},
}

type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func list(t *testing.T) map[string]pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "tidegate/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]pkg{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all[p.ImportPath] = p
	}
}

func below(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return path == r || strings.HasPrefix(path, r+"/") })
}

// reach returns a chain of imports from p to a package that r forbids.
func (r rule) reach(all map[string]pkg, p string, seen map[string]bool) []string {
	for _, i := range all[p].Imports {
		if below(i, r.not) && !slices.Contains(r.but, i) && !below(i, []string{r.from}) {
			return []string{p, i}
		}
		if _, ours := all[i]; ours && !seen[i] {
			seen[i] = true
			if chain := r.reach(all, i, seen); chain != nil {
				return append([]string{p}, chain...)
			}
		}
	}
	return nil
}

func TestImportsPointOneWay(t *testing.T) {
	all := list(t)
	for _, r := range rules {
		for path := range all {
			if !below(path, []string{r.from}) || below(path, r.except) {
				continue
			}
			if chain := r.reach(all, path, map[string]bool{}); chain != nil {
				t.Errorf("%s: %s", strings.Join(chain, " -> "), r.why)
			}
		}
	}
}

// A rule that forbids nothing would pass for ever: each must catch a package
// that breaks it.
func TestRulesCatch(t *testing.T) {
	for _, r := range rules {
		all := map[string]pkg{
			r.from:             {ImportPath: r.from, Imports: []string{"tidegate/between"}},
			"tidegate/between": {Imports: []string{r.not[0] + "/x"}},
		}
		if r.reach(all, r.from, map[string]bool{}) == nil {
			t.Errorf("the rule for %s does not see an import of %s", r.from, r.not[0])
		}
	}
}

func TestPackagesAreDocumented(t *testing.T) {
	cmd := exec.Command("go", "list", "-f", "{{.ImportPath}}\t{{.Doc}}", "tidegate/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		path, doc, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if doc == "" && path != "tidegate" {
			t.Errorf("%s has no package comment", path)
		}
	}
}
