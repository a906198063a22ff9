package rulestest

import (
	"bufio"
	"fmt"
	"strings"
)

// Text is a run for people, one step a line; [ParseText] reads it. Kinds and
// features go by their names, so that it outlives changes of their order.
func (r Run) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "features: %s\noptions: %08b\n", r.features(), r.Header[4])
	kinds := kindTable()
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "%s: %d %d %d\n", kinds[Kind(s[0])%NumKinds].name, s[1], s[2], s[3])
	}
	return b.String()
}

// ParseText reads what [Run.Text] wrote. Lines that begin with # are comments.
func ParseText(text string) (Run, error) {
	var r Run
	kinds := map[string]Kind{}
	for k, info := range kindTable() {
		kinds[info.name] = Kind(k)
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, rest, ok := strings.Cut(line, ": ")
		if !ok {
			return Run{}, fmt.Errorf("line %d: %q is no step", n, line)
		}
		if err := r.parseLine(kinds, name, rest); err != nil {
			return Run{}, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return r, lines.Err()
}

func (r *Run) parseLine(kinds map[string]Kind, name, rest string) error {
	switch name {
	case "features":
		return r.parseFeatures(rest)
	case "options":
		if _, err := fmt.Sscanf(rest, "%b", &r.Header[4]); err != nil {
			return fmt.Errorf("options %q: %w", rest, err)
		}
		return nil
	}
	k, ok := kinds[name]
	if !ok {
		return fmt.Errorf("no step is called %q", name)
	}
	s := Step{byte(k)}
	if _, err := fmt.Sscanf(rest, "%d %d %d", &s[1], &s[2], &s[3]); err != nil {
		return fmt.Errorf("%s %q: %w", name, rest, err)
	}
	r.Steps = append(r.Steps, s)
	return nil
}

func (r *Run) parseFeatures(names string) error {
	var m mask
	for name := range strings.FieldsSeq(names) {
		found := name == "none"
		for f := range numFeatures {
			if f.String() == name {
				m |= 1 << f
				found = true
			}
		}
		if !found {
			return fmt.Errorf("no feature is called %q", name)
		}
	}
	r.setFeatures(m)
	return nil
}
