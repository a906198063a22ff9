package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds the size of a configuration file in bytes.
const maxFile = 1 << 20

// Problem is one thing wrong with the file.
type Problem struct {
	Line    int    // from 1; 0: the file as a whole
	Path    string // e.g. servers[1].addr; may be empty
	Message string
}

// Errors is everything wrong with one file, by line.
type Errors struct {
	File     string
	Problems []Problem
}

// Error prints a line for each problem.
func (e *Errors) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d problem(s)", e.File, len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  ")
		if p.Line > 0 {
			fmt.Fprintf(&b, "line %d: ", p.Line)
		}
		if p.Path != "" {
			b.WriteString(p.Path + ": ")
		}
		b.WriteString(p.Message)
	}
	return b.String()
}

// Load reads and checks a file. getenv is os.LookupEnv, or a test's. A problem
// with the contents is an *Errors.
func Load(file string, getenv func(string) (string, bool)) (*Config, error) {
	text, err := readBounded(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read configuration: %w (tidegate config --example prints one to start from)", err)
	case err != nil:
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(file, text, getenv)
}

// readBounded reads a file of at most maxFile bytes, also one that does not tell
// its size (a pipe, a device).
func readBounded(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is longer than the %d bytes that are read", file, maxFile)
	}
	return text, nil
}

// Parse is Load for text at hand; file is for messages.
func Parse(file string, text []byte, getenv func(string) (string, bool)) (*Config, error) {
	l := &loader{lines: map[string]int{}, getenv: getenv, bad: map[string]bool{}, shapeless: map[string]bool{}}
	c := &Config{}
	var root yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&root); errors.Is(err, io.EOF) {
		return nil, &Errors{file, []Problem{{Message: "the file is empty, or not written yet (tidegate config --example prints one to start from)"}}}
	} else if err != nil {
		return nil, &Errors{file, []Problem{syntax(string(text), err)}}
	}
	if more := (&yaml.Node{}); dec.Decode(more) == nil {
		l.add(more.Line, "", "a second document; one file is one configuration")
	}
	l.value(root.Content[0], reflect.ValueOf(c).Elem(), "", tags{})
	if !l.shapeless[""] { // what else is missing follows from it
		l.finish(c)
	}
	if len(l.problems) > 0 {
		slices.SortStableFunc(l.problems, func(a, b Problem) int { return a.Line - b.Line })
		return nil, &Errors{file, l.problems}
	}
	return c, nil
}

// loader fills a Config from a YAML tree and remembers the line of each path.
type loader struct {
	problems []Problem
	lines    map[string]int
	bad      map[string]bool // paths that have a problem already
	// shapeless are the paths that should hold keys or a list and hold something
	// else: nothing can be said of what belongs below them.
	shapeless map[string]bool
	getenv    func(string) (string, bool)
}

// addShape is add for a value that is not of the shape of its path.
func (l *loader) addShape(line int, path, format string, args ...any) {
	l.shapeless[path] = true
	l.add(line, path, format, args...)
}

// knownBad tells whether a problem of the path, or of what holds it, was found.
func (l *loader) knownBad(path string) bool {
	if l.bad[path] {
		return true
	}
	for i, r := range path {
		if (r == '.' || r == '[') && l.shapeless[path[:i]] {
			return true
		}
	}
	return false
}

func (l *loader) add(line int, path, format string, args ...any) {
	l.bad[path] = true
	l.problems = append(l.problems, Problem{line, path, fmt.Sprintf(format, args...)})
}

// lineOf is the line of a path, or of the nearest part around it.
func (l *loader) lineOf(path string) int {
	for path != "" {
		if n, ok := l.lines[path]; ok {
			return n
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 0
}

// finish checks what holds between keys and reads the secret files.
func (l *loader) finish(c *Config) {
	add := func(path, message string) {
		if !l.knownBad(path) {
			l.add(l.lineOf(path), path, "%s", message)
		}
	}
	c.crossChecks(add)
	secret := func(path, file string, into *Secret) {
		if file == "" {
			return
		}
		text, err := readBounded(file)
		if err != nil {
			add(path, "read secret: "+err.Error())
			return
		}
		*into = Secret(strings.TrimRight(string(text), "\r\n"))
	}
	for i := range c.Servers {
		secret(fmt.Sprintf("servers[%d].password_file", i), c.Servers[i].PasswordFile, &c.Servers[i].Password)
	}
	for i := range c.Auth.Tokens {
		secret(fmt.Sprintf("auth.tokens[%d].token_file", i), c.Auth.Tokens[i].TokenFile, &c.Auth.Tokens[i].Token)
	}
	c.checkTokens(add)
}

// value fills v from n; t are the tags of the field that v belongs to.
func (l *loader) value(n *yaml.Node, v reflect.Value, path string, t tags) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	l.lines[path] = n.Line
	switch v.Kind() {
	case reflect.Struct:
		l.structure(n, v, path)
	case reflect.Slice:
		l.list(n, v, path, t)
	case reflect.Map:
		l.mapping(n, v, path, t)
	default:
		if n.Kind != yaml.ScalarNode {
			l.add(n.Line, path, "one value is expected here, %s", t.expects(v.Type()))
			return
		}
		l.scalar(n, v, path, t)
	}
}

func (l *loader) structure(n *yaml.Node, v reflect.Value, path string) {
	set := map[string]bool{}
	fields := fieldsOf(v.Type())
	if n.Kind != yaml.MappingNode && n.Tag != "!!null" {
		l.addShape(n.Line, path, "keys are expected here: %s", strings.Join(names(fields), ", "))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, val := n.Content[i], n.Content[i+1]
		at := join(path, k.Value)
		f, ok := find(fields, k.Value)
		switch {
		case !ok:
			l.add(k.Line, at, "unknown key; known here: %s", strings.Join(names(fields), ", "))
			continue
		case set[k.Value]:
			l.add(k.Line, at, "named twice")
			continue
		}
		set[k.Value] = true
		if val.Tag == "!!null" {
			l.lines[at] = k.Line
			set[k.Value] = false
			continue
		}
		l.value(val, v.Field(f.index), at, f.tags)
	}
	for _, f := range fields {
		if set[f.name] {
			continue
		}
		at := join(path, f.name)
		if f.required {
			l.add(n.Line, at, "is required: %s", f.doc)
			continue
		}
		l.defaults(v.Field(f.index), f, at)
	}
}

// defaults fills a field that the file does not name.
func (l *loader) defaults(v reflect.Value, f field, path string) {
	switch v.Kind() {
	case reflect.Struct:
		for _, g := range fieldsOf(v.Type()) {
			l.defaults(v.Field(g.index), g, join(path, g.name))
		}
	case reflect.Slice, reflect.Map:
	default:
		if f.def != "" {
			l.scalar(&yaml.Node{Kind: yaml.ScalarNode, Value: f.def}, v, path, f.tags)
		}
	}
}

func (l *loader) list(n *yaml.Node, v reflect.Value, path string, t tags) {
	if n.Kind != yaml.SequenceNode {
		l.addShape(n.Line, path, "a list is expected here")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, e := range n.Content {
		l.value(e, v.Index(i), fmt.Sprintf("%s[%d]", path, i), t)
	}
}

func (l *loader) mapping(n *yaml.Node, v reflect.Value, path string, t tags) {
	if n.Kind != yaml.MappingNode {
		l.addShape(n.Line, path, "names with values are expected here")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for i := 0; i+1 < len(n.Content); i += 2 {
		at := join(path, n.Content[i].Value)
		k := reflect.ValueOf(n.Content[i].Value)
		if v.MapIndex(k).IsValid() {
			l.add(n.Content[i].Line, at, "named twice")
			continue
		}
		e := reflect.New(v.Type().Elem()).Elem()
		l.value(n.Content[i+1], e, at, t)
		v.SetMapIndex(k, e)
	}
}

// scalar converts one value and holds it against its bounds.
func (l *loader) scalar(n *yaml.Node, v reflect.Value, path string, t tags) {
	text, err := expand(n.Value, l.getenv)
	if err != nil {
		l.add(n.Line, path, "%v", err)
		return
	}
	wrong := func() { l.add(n.Line, path, "%q is wrong, %s", text, t.expects(v.Type())) }
	switch v.Interface().(type) {
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil || !t.duration(d) {
			wrong()
			return
		}
		v.SetInt(int64(d))
		return
	case Bytes:
		b, err := parseBytes(text)
		if err != nil || !t.number(float64(b)) {
			wrong()
			return
		}
		v.SetInt(int64(b))
		return
	}
	switch v.Kind() {
	case reflect.String:
		if len(t.oneof) > 0 && !slices.Contains(t.oneof, text) || t.required && text == "" {
			wrong()
			return
		}
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			wrong()
			return
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil || !t.number(float64(i)) {
			wrong()
			return
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f != f || !t.number(f) {
			wrong()
			return
		}
		v.SetFloat(f)
	default:
		l.add(n.Line, path, "the program has no way to read a %s", v.Type())
	}
}

// parseBytes reads 4096, 64KiB, 64MiB, 2GiB.
func parseBytes(s string) (Bytes, error) {
	unit := int64(1)
	for i, u := range []string{"KiB", "MiB", "GiB"} {
		if n, ok := strings.CutSuffix(s, u); ok {
			s, unit = strings.TrimSpace(n), int64(1)<<(10*(i+1))
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return 0, errors.New("no size")
	}
	return Bytes(n * unit), nil
}

// expand replaces ${NAME} by the environment's value; $${ is a literal ${.
func expand(s string, getenv func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			return b.String(), nil
		}
		if i > 0 && s[i-1] == '$' {
			b.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		b.WriteString(s[:i])
		name, rest, ok := strings.Cut(s[i+2:], "}")
		if !ok || name == "" {
			return "", errors.New("${ without a name and }; write $${ for the characters themselves")
		}
		value, ok := getenv(name)
		if !ok {
			return "", fmt.Errorf("the environment has no variable %s", name)
		}
		b.WriteString(value)
		s = rest
	}
}
