package main_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// commands are all commands with their own flags. Users and scripts rely on
// them: whoever adds or drops one says so here.
var commands = map[string][]string{
	"run":            {"config"},
	"tail":           {"config", "server"},
	"serve":          {"config"},
	"sandbox":        {"chain", "dir", "json", "replicas"},
	"demo":           {"json", "seconds", "seed"},
	"torture":        {"after", "faults", "history", "json", "replicas", "router", "seconds", "seed", "sessions", "verbose"},
	"torture replay": {"json"},
	"check":          {"config", "json"},
	"status":         {"addr", "ca", "cert", "config", "json", "key", "token", "watch"},
	"accept":         {"addr", "author", "ca", "cert", "config", "copy", "gtids", "key", "reason", "restart", "server", "table", "token"},
	"observe":        {"config", "json", "seconds"},
	"config":         {"config", "example", "reference"},
	"bench":          {"json", "only", "profile", "quick", "verbose"},
}

var flagLine = regexp.MustCompile(`^ +(?:-\w, |    )--([a-z-]+)( [A-Za-z:.]+)?  +(\S.*)$`)

func TestHelp(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for name, flags := range commands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := p.call(t, append(strings.Fields(name), "--help")...).want(t, exitOK)
			if r.err != "" {
				t.Errorf("help on standard error:\n%s", r.err)
			}
			purpose, rest, ok := strings.Cut(r.out, "\nUsage:\n")
			if !ok || len(strings.Fields(purpose)) < 12 {
				t.Errorf("the purpose is not told:\n%s", r.out)
			}
			if !strings.Contains(rest, "\n  tidegate "+name) && !strings.HasPrefix(rest, "  tidegate "+name) {
				t.Errorf("no usage line:\n%s", rest)
			}
			if _, example, ok := strings.Cut(rest, "\nExamples:\n"); !ok || !strings.HasPrefix(example, "  tidegate "+name) {
				t.Errorf("no example:\n%s", rest)
			}
			_, list, _ := strings.Cut(rest, "\nFlags:\n")
			var got []string
			for line := range strings.SplitSeq(list, "\n") {
				m := flagLine.FindStringSubmatch(line)
				if m == nil || m[1] == "help" {
					continue
				}
				got = append(got, m[1])
				if m[2] == "" {
					continue // a switch is off by default
				}
				if says := regexp.MustCompile(`default|required|0: |for the record|one of|SET|TABLE|instead of|check this`); !says.MatchString(line) {
					t.Errorf("--%s does not say what happens without it: %s", m[1], line)
				}
				if m[2] == " string" || m[2] == " int" || m[2] == " float" || m[2] == " uint" {
					t.Errorf("--%s does not say of what its value is: %s", m[1], line)
				}
			}
			if slices.Sort(got); !slices.Equal(got, flags) {
				t.Errorf("flags %v, want %v", got, flags)
			}
		})
	}
}

func TestHelpOfTheWhole(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	bare := p.call(t).want(t, exitOK)
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}} {
		if r := p.call(t, args...).want(t, exitOK); r != bare {
			t.Errorf("%v prints something else than no argument at all:\n%s", args, r.out)
		}
	}
	_, list, _ := strings.Cut(bare.out, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var got []string
	for line := range strings.SplitSeq(strings.TrimSpace(list), "\n") {
		got = append(got, strings.Fields(line)[0])
	}
	want := []string{"help"}
	for name := range commands {
		if !strings.Contains(name, " ") {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("commands %v, want %v", got, want)
	}
	if !strings.Contains(bare.out, "Exit codes: 0 ") {
		t.Errorf("exit codes are not told:\n%s", bare.out)
	}
	for name := range commands {
		if one, other := p.call(t, append([]string{"help"}, strings.Fields(name)...)...), p.call(t, append(strings.Fields(name), "--help")...); one != other {
			t.Errorf("help %s differs from %s --help:\n%s%s", name, name, one.out, one.err)
		}
	}
	if r := p.call(t, "--version").want(t, exitOK); !strings.HasPrefix(r.out, "tidegate version ") {
		t.Errorf("--version prints %q", r.out)
	}
}

// A secret in the environment is nobody's business who asks for help.
func TestHelpShowsNoSecret(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, name := range []string{"status", "accept"} {
		r := p.callWith(t, []string{"TIDEGATE_TOKEN=hunter2"}, name, "--help").want(t, exitOK)
		if strings.Contains(r.out, "hunter2") {
			t.Errorf("%s --help shows the token:\n%s", name, r.out)
		}
	}
}
