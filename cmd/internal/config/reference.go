package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// tags are the bounds of one key.
type tags struct {
	min, max, def string
	oneof         []string
	required      bool
	doc           string
}

// field is one key of a struct.
type field struct {
	name  string
	index int
	tags
}

func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		g := t.Field(i).Tag
		f := field{name: g.Get("yaml"), index: i, tags: tags{
			min: g.Get("min"), max: g.Get("max"), def: g.Get("default"), doc: g.Get("doc"), required: g.Get("required") == "true",
		}}
		f.oneof = strings.Fields(g.Get("oneof"))
		out = append(out, f)
	}
	return out
}

func find(fields []field, name string) (field, bool) {
	for _, f := range fields {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

func names(fields []field) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.name
	}
	return out
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (t tags) number(x float64) bool {
	return within(x, t.min, t.max, func(s string) float64 { f, _ := strconv.ParseFloat(s, 64); return f })
}

func (t tags) duration(x time.Duration) bool {
	return within(x, t.min, t.max, func(s string) time.Duration { d, _ := time.ParseDuration(s); return d })
}

func within[T float64 | time.Duration](x T, lo, hi string, parse func(string) T) bool {
	return (lo == "" || x >= parse(lo)) && (hi == "" || x <= parse(hi))
}

// bounds prints the bounds as people read them; empty: none.
func (t tags) bounds() string {
	switch {
	case len(t.oneof) > 0:
		return "one of " + strings.Join(t.oneof, ", ")
	case t.min != "" && t.max != "":
		return t.min + " to " + t.max
	case t.min != "":
		return "at least " + t.min
	case t.max != "":
		return "at most " + t.max
	}
	return ""
}

// expects says what a value has to look like.
func (t tags) expects(typ reflect.Type) string {
	s := "expected: " + kindName(typ)
	if b := t.bounds(); b != "" {
		s += ", " + b
	} else if t.required {
		s += ", not empty"
	}
	return s
}

func kindName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "a duration such as 100ms, 5s, 2h"
	case reflect.TypeFor[Bytes]():
		return "a size such as 4096, 64MiB, 2GiB"
	case reflect.TypeFor[Secret]():
		return "text (secret)"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "names with values"
	case reflect.Struct:
		return "keys"
	}
	return "text"
}

// Reference is the configuration reference in Markdown: every key with its
// form, default and bounds.
func Reference() string {
	var b strings.Builder
	b.WriteString("| key | form | default | bounds | what |\n| --- | --- | --- | --- | --- |\n")
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		for _, f := range fieldsOf(t) {
			ft := t.Field(f.index).Type
			at := join(path, f.name)
			def := f.def
			switch {
			case f.required:
				def = "required"
			case def != "":
				def = "`" + def + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", at, kindName(ft), def, f.bounds(), strings.ReplaceAll(f.doc, "|", "\\|"))
			switch ft.Kind() {
			case reflect.Struct:
				walk(ft, at)
			case reflect.Slice:
				if ft.Elem().Kind() == reflect.Struct {
					walk(ft.Elem(), at+"[]")
				}
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	return b.String()
}

// Example is a file that Load accepts: the keys that matter first, every other
// one with its default as a comment.
func Example() string {
	var b strings.Builder
	b.WriteString(`# Tidegate's configuration. Every key that is not named here has its default;
# the lines behind # show them. ${NAME} takes a value from the environment, so
# that a password need not stand here. tidegate config --reference prints every
# key, those of a server too (password_file, app_addr, weight, follow, tls).
cluster: shop
data_dir: ./tidegate-data
# The primary and its replicas in any order: roles are found out.
servers:
  - {name: a, addr: "127.0.0.1:3306", user: tidegate, password: ""}
  - {name: b, addr: "127.0.0.1:3307", user: tidegate, password: ""}
# Reads that look rows up by another column than the primary key name it here:
# keys: {app.posts: [author_id]}
keys: {}
`)
	for _, f := range fieldsOf(reflect.TypeFor[Config]()) {
		ft := reflect.TypeFor[Config]().Field(f.index).Type
		if ft.Kind() != reflect.Struct {
			continue
		}
		fmt.Fprintf(&b, "\n# %s\n%s:\n", f.doc, f.name)
		exampleKeys(&b, ft, "  # ")
	}
	return b.String()
}

// exampleKeys writes the keys of t as comments; begin is what each line begins
// with. Without the # of its lines a block is what the defaults are.
func exampleKeys(b *strings.Builder, t reflect.Type, begin string) {
	for _, f := range fieldsOf(t) {
		ft := t.Field(f.index).Type
		what := f.doc
		if bounds := f.bounds(); bounds != "" {
			what += " (" + bounds + ")"
		}
		switch {
		case ft.Kind() == reflect.Struct:
			fmt.Fprintf(b, "%s%s: # %s\n", begin, f.name, what)
			exampleKeys(b, ft, begin+"  ")
		case ft.Kind() == reflect.Slice:
			fmt.Fprintf(b, "%s%s: [] # %s\n", begin, f.name, what)
		case f.def == "":
			fmt.Fprintf(b, "%s%s: \"\" # %s\n", begin, f.name, what)
		default:
			def := f.def
			if k := ft.Kind(); k == reflect.String && ft != reflect.TypeFor[Bytes]() {
				def = strconv.Quote(def)
			}
			fmt.Fprintf(b, "%s%s: %s # %s\n", begin, f.name, def, what)
		}
	}
}
