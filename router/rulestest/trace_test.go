package rulestest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const traceFolder = "testdata/traces"

// traces are runs that were found and shrunk, by name. Each is the shortest way
// that is known to a wrong answer when one rule is left out; its comment says
// which answer.
func traces(t *testing.T) map[string]Run {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(traceFolder, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Run{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ParseText(string(text))
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".txt")] = r
	}
	return out
}

// TestTraces plays every trace with all rules in force: none violates anything.
// TestMutants plays each without its rule: then it must.
func TestTraces(t *testing.T) {
	all := traces(t)
	if len(all) < 40 {
		t.Errorf("only %d traces are in %s", len(all), traceFolder)
	}
	for name, r := range all {
		t.Run(name, func(t *testing.T) {
			for _, o := range []Options{{}, {Heal: true}} {
				if res := Play(r, o); res.Violation != nil {
					t.Errorf("\n%s", Report(r, o))
				}
			}
		})
	}
}

// TestText: a run survives being written for people.
func TestText(t *testing.T) {
	g := NewGenerator(7, 50, Bias{})
	for range 50 {
		r := g.Next()
		r.Header[5], r.Header[6], r.Header[7] = 0, 0, 0
		back, err := ParseText("# a comment\n" + r.Text())
		if err != nil {
			t.Fatal(err)
		}
		if back.Text() != r.Text() || string(back.Bytes()) != string(r.Bytes()) {
			t.Fatalf("got\n%s\nwant\n%s", back.Text(), r.Text())
		}
		if parsed := ParseRun(r.Bytes()); string(parsed.Bytes()) != string(r.Bytes()) {
			t.Fatal("the bytes of a run do not give it again")
		}
	}
	for _, bad := range []string{"write", "write: 1 2", "nonsense: 1 2 3", "features: nonsense", "options: 9"} {
		if _, err := ParseText(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// TestRunsAreRepeatable: bytes are all that a run depends on.
func TestRunsAreRepeatable(t *testing.T) {
	g := NewGenerator(3, 150, Bias{})
	for range 20 {
		r := g.Next()
		a, b := Play(r, Options{Heal: true, Trace: true}), Play(r, Options{Heal: true, Trace: true})
		if strings.Join(a.Trace, "\n") != strings.Join(b.Trace, "\n") || a.Stats != b.Stats {
			t.Fatalf("two plays of one run differ:\n%s", r.Text())
		}
	}
}
