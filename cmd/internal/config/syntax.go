package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// syntax tells what the YAML library says of a text that it can't read, with its
// line where it gives one.
func syntax(text string, err error) Problem {
	message, line := strings.TrimPrefix(err.Error(), "yaml: "), 0
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}
	if strings.HasPrefix(message, "did not find expected") {
		// Of these alone the library counts lines from 0, and keeps the first to itself.
		line = min(line+1, strings.Count(strings.TrimSuffix(text, "\n"), "\n")+1)
		if at, variable := bareVariable(text); at > 0 {
			return Problem{Line: at, Message: fmt.Sprintf("within { } or [ ] a variable needs quotes: %q (no YAML mapping: %s)", variable, message)}
		}
	}
	return Problem{Line: line, Message: "no YAML mapping: " + message}
}

// bareVariable finds the first ${NAME} that stands within the brackets of YAML and
// not in quotes: its own brackets are YAML's there. line 0: there is none.
func bareVariable(text string) (line int, variable string) {
	line = 1
	depth, quote, before := 0, byte(0), byte('\n') // before: the newest byte that is no blank
	for i := 0; i < len(text); i++ {
		c := text[i]
		begins := strings.IndexByte(":-,[{\n", before) >= 0 // a value can begin here
		switch {
		case c == '\n':
			line++
		case quote != 0:
			if c == '\\' && quote == '"' {
				i++
			}
			if c == quote {
				quote = 0
			}
		case c == '#' && (i == 0 || strings.IndexByte(" \t\n", text[i-1]) >= 0):
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
			continue
		case begins && (c == '"' || c == '\''):
			quote = c
		case strings.HasPrefix(text[i:], "${"):
			if depth > 0 {
				variable, _, _ = strings.Cut(text[i:], "\n")
				if end := strings.IndexByte(variable, '}'); end > 0 {
					return line, variable[:end+1]
				}
				return line, "${NAME}"
			}
			i++
		case (c == '{' || c == '[') && (depth > 0 || begins):
			depth++
		case (c == '}' || c == ']') && depth > 0:
			depth--
		}
		if c != ' ' && c != '\t' {
			before = c
		}
	}
	return 0, ""
}
