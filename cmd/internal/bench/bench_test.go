package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tidegate/cmd/internal/bench"
)

// howToProvide is printed when a row could not be measured: most often a server
// is missing.
const howToProvide = "rows need a Redis and MySQL servers: run 'go run ./cmd/tidegate bench --quick' once with a network to fill the package cache, or set TIDEGATE_REDIS_SERVER and TIDEGATE_MYSQLD"

// measure runs rows quickly.
func measure(t *testing.T, rows ...string) map[string]bench.Figure {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var progress strings.Builder
	figures, err := bench.Run(ctx, bench.Options{Self: []string{self, bench.ChildCommand}, Only: rows, Quick: true, Progress: &progress})
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, progress.String(), howToProvide)
	}
	byName := map[string]bench.Figure{}
	for _, f := range figures {
		if _, twice := byName[f.Name]; twice {
			t.Errorf("figure %s comes twice", f.Name)
		}
		byName[f.Name] = f
		row, _, ok := strings.Cut(f.Name, ".")
		if !ok || !slices.Contains(rows, row) {
			t.Errorf("figure %s belongs to no row of %v", f.Name, rows)
		}
		checkShape(t, &f)
	}
	return byName
}

// checkShape holds one figure against what readers of the JSON rely on.
func checkShape(t *testing.T, f *bench.Figure) {
	t.Helper()
	if math.IsNaN(f.Value) || math.IsInf(f.Value, 0) || f.Value < 0 {
		t.Errorf("%s is %v", f.Name, f.Value)
	}
	if f.Unit == "" || f.Better != "lower" && f.Better != "higher" {
		t.Errorf("%s has unit %q and better %q", f.Name, f.Unit, f.Better)
	}
	if (f.Baseline == nil) != (f.Ratio == nil) {
		t.Errorf("%s has a baseline without a ratio, or the other way round", f.Name)
	}
	if f.Baseline != nil && (*f.Baseline <= 0 || *f.Ratio <= 0) {
		t.Errorf("%s has baseline %v and ratio %v", f.Name, *f.Baseline, *f.Ratio)
	}
	if (f.Must == nil) != (f.MeetsMust == nil) || (f.Aim == nil) != (f.MeetsAim == nil) || f.Must == nil && f.Aim != nil {
		t.Errorf("%s is judged without a bound, or bound and not judged", f.Name)
	}
	if f.MeetsAim != nil && *f.MeetsAim && !*f.MeetsMust {
		t.Errorf("%s meets its aim and misses what it must", f.Name)
	}
}

// want fails when a figure is missing or out of what is possible at all; how
// fast the machine is decides nothing here.
func want(t *testing.T, figures map[string]bench.Figure, name string, lo, hi float64) {
	t.Helper()
	f, ok := figures[name]
	if !ok {
		t.Errorf("no figure %s", name)
		return
	}
	if f.Value < lo || f.Value > hi {
		t.Errorf("%s is %v %s, which can not be (%v to %v)", name, f.Value, f.Unit, lo, hi)
	}
}

func TestDecide(t *testing.T) {
	f := measure(t, "decide")
	want(t, f, "decide.p50", 1, 1e9)
	want(t, f, "decide.p99", f["decide.p50"].Value, 1e10)
	want(t, f, "decide.allocs", 0, 0)
	want(t, f, "decide.clock", 1, 1e5)
	want(t, f, "decide.yes_share", 0.01, 1)
}

func TestWireAgainstRedis(t *testing.T) {
	f := measure(t, "resp", "http")
	for _, row := range []string{"resp", "http"} {
		want(t, f, row+".p50", 1, 1e7)
		want(t, f, row+".p99", f[row+".p50"].Value, 1e8)
		want(t, f, row+".yes_share", 0.5, 1)
		if f[row+".p50"].Baseline == nil || f[row+".p50"].Must == nil {
			t.Errorf("%s.p50 has no baseline or no bound", row)
		}
	}
}

func TestMemory(t *testing.T) {
	f := measure(t, "memory")
	// A record is a digest of 16 bytes and a version of 8 at the least.
	want(t, f, "memory.resident", 24, 1000)
	want(t, f, "memory.peak", f["memory.resident"].Value/2, 10_000)
}

func TestUnknownRow(t *testing.T) {
	_, err := bench.Run(t.Context(), bench.Options{Self: []string{"x"}, Only: []string{"deicde"}})
	if err == nil || !strings.Contains(err.Error(), `no row "deicde"`) || !strings.Contains(err.Error(), "decide, resp") {
		t.Errorf("got %v, want an error that names the row and lists those there are", err)
	}
	if _, err := bench.Run(t.Context(), bench.Options{}); err == nil {
		t.Error("a bench that can not start its children began")
	}
}

func TestChildRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, args := range [][]string{nil, {"router"}, {"nothing", "r", "-"}, {"memory", "r", "-"}, {"memory", "r", "-", "many"}} {
		if err := bench.Child(t.Context(), args); err == nil {
			t.Errorf("Child(%q) returned nil", args)
		}
	}
}

func TestJSON(t *testing.T) {
	one, half, yes := 1.0, 0.5, true
	figures := []bench.Figure{
		{Name: "a.p50", Value: 3, Unit: "us", Better: "lower", Baseline: &one, Ratio: &half, Must: &one, Aim: &half, MeetsMust: &yes, MeetsAim: &yes},
		{Name: "b", Value: 2, Unit: "ms", Better: "higher"},
	}
	for n := range len(figures) + 1 {
		var out bytes.Buffer
		if err := bench.WriteJSON(&out, figures[:n]); err != nil {
			t.Fatal(err)
		}
		var back []map[string]any
		if err := json.Unmarshal(out.Bytes(), &back); err != nil {
			t.Fatalf("%v in %s", err, out.String())
		}
		if len(back) != n {
			t.Fatalf("%d figures became %d", n, len(back))
		}
		for _, m := range back {
			for _, field := range []string{"name", "value", "unit", "better", "baseline", "ratio", "must", "aim", "meets_must", "meets_aim"} {
				if _, ok := m[field]; !ok || len(m) != 10 {
					t.Errorf("%v: field %s is missing, or there are others", m, field)
				}
			}
		}
		if n == 2 && (back[0]["meets_must"] != true || back[1]["baseline"] != nil) {
			t.Errorf("got %s", out.String())
		}
	}
	var table bytes.Buffer
	if err := bench.WriteTable(&table, figures); err != nil {
		t.Fatal(err)
	}
	if s := table.String(); !strings.Contains(s, "meets aim") || strings.Count(s, "\n") != 3 {
		t.Errorf("table:\n%s", s)
	}
}

func TestRecover(t *testing.T) {
	f := measure(t, "recover")
	for _, name := range []string{"recover.cold", "recover.hour_behind", "recover.killed"} {
		want(t, f, name, 1e-3, 300)
		if f[name].Unit != "s" || f[name].Must != nil {
			t.Errorf("%s is %+v", name, f[name])
		}
	}
	want(t, f, "recover.hour_txns", 1000, 1e8)
}
