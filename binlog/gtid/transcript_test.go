package gtid_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tidegate/binlog/gtid"
)

var rewrite = flag.Bool("rewrite", false, "write what the transcripts' commands print into the transcripts")

// TestTranscripts plays testdata/*.txt. A transcript is a list of cases, each a
// command, a line "----", and what it prints, ended by an empty line:
//
//	let NAME SET         name a set, print it
//	union|subtract|intersect NAME NAME
//	contains|overlaps|equal|missing NAME NAME
//	has NAME GTID
//	add NAME GTID        print the set with it
//	max NAME SOURCE, intervals NAME SOURCE
//	limit NAME N
//	count NAME           GTIDs, intervals, sources
//	build NAME GTID...   add to a builder that begins with the set, with a
//	                     snapshot after each
//	encode NAME          Tidegate's binary form
//
// In a command, A to D stand for UUIDs; in the output their printed forms are
// turned back. "#" begins a comment.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { play(t, file) })
	}
}

func play(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sets := map[string]gtid.Set{}
	var out []string
	lines := strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
	for i := 0; i < len(lines); {
		command := lines[i]
		out = append(out, command)
		i++
		if command == "" || strings.HasPrefix(command, "#") {
			continue
		}
		if i == len(lines) || lines[i] != "----" {
			t.Fatalf("%s:%d: no ---- behind %q", file, i+1, command)
		}
		first := i + 1
		for i = first; i < len(lines) && lines[i] != ""; i++ {
		}
		want := strings.Join(lines[first:i], "\n")
		got := short(run(sets, strings.Fields(long(command))))
		if got != want && !*rewrite {
			t.Errorf("%s:%d: %s\ngot:\n%s\nwant:\n%s", file, first-1, command, got, want)
		}
		out = append(out, "----", got)
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.Join(out, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var uuids = map[string]string{
	"A": "0a000000-0000-0000-0000-00000000000a",
	"B": "0b000000-0000-0000-0000-00000000000b",
	"C": "0c000000-0000-0000-0000-00000000000c",
	"D": "0d000000-0000-0000-0000-00000000000d",
}

func long(s string) string {
	for name, u := range uuids {
		s = strings.ReplaceAll(s, name, u)
	}
	return s
}

func short(s string) string {
	for name, u := range uuids {
		s = strings.ReplaceAll(s, u, name)
	}
	return s
}

// run executes one command and returns what it prints.
func run(sets map[string]gtid.Set, f []string) string {
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	s, other := sets[arg(1)], sets[arg(2)]
	switch f[0] {
	case "let":
		set, err := gtid.Parse(strings.Join(f[2:], " "))
		if err != nil {
			return err.Error()
		}
		sets[f[1]] = set
		return set.OneLine()
	case "union":
		return s.Union(other).OneLine()
	case "subtract":
		return s.Subtract(other).OneLine()
	case "intersect":
		return s.Intersect(other).OneLine()
	case "contains":
		return fmt.Sprint(s.ContainsSet(other))
	case "overlaps":
		return fmt.Sprint(s.Overlaps(other))
	case "equal":
		return fmt.Sprint(s.Equal(other))
	case "missing":
		g, ok := s.FirstMissing(other)
		return strings.TrimSpace(fmt.Sprint(ok, " ", g))
	case "count":
		return fmt.Sprintf("%d GTIDs, %d intervals, %d sources", s.Count(), s.NumIntervals(), s.Sources())
	case "limit":
		n, err := strconv.Atoi(arg(2))
		if err != nil {
			return err.Error()
		}
		return s.Limit(n).OneLine()
	case "encode":
		return fmt.Sprintf("%x", s.AppendBinary(nil))
	case "max", "intervals":
		u, tag, _ := strings.Cut(arg(2), ":")
		id, err := gtid.ParseUUID(u)
		if err != nil {
			return err.Error()
		}
		src := gtid.Source{UUID: id, Tag: tag}
		if f[0] == "max" {
			return fmt.Sprint(s.Max(src))
		}
		return fmt.Sprint(s.Intervals(src))
	case "has", "add", "build":
		return runSingles(s, f)
	}
	return "unknown command"
}

// runSingles executes the commands whose arguments are GTIDs.
func runSingles(s gtid.Set, f []string) string {
	b := gtid.NewBuilder(s)
	var out []string
	for _, text := range f[2:] {
		g, err := gtid.ParseGTID(text)
		if err != nil {
			return err.Error()
		}
		switch f[0] {
		case "has":
			return fmt.Sprint(s.Contains(g))
		case "add":
			return s.Add(g).OneLine()
		}
		added := b.Add(g)
		out = append(out, fmt.Sprint(added, " ", b.Set().OneLine()))
	}
	return strings.Join(out, "\n")
}
