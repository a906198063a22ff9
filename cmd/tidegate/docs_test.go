package main_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the module's folder.
const root = "../.."

var (
	fence    = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	codeSpan = regexp.MustCompile("`[^`\n]*`")
	mdLink   = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	notSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the places in a page that a link can name, as GitHub makes them.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		slug := strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		for n, s := 0, slug; ; n++ {
			if n > 0 {
				s = fmt.Sprintf("%s-%d", slug, n)
			}
			if !out[s] {
				out[s] = true
				break
			}
		}
	}
	return out
}

// brokenLinks says what is wrong with the relative links of a page.
func brokenLinks(page, text string) (links int, wrong []string) {
	text = codeSpan.ReplaceAllString(fence.ReplaceAllString(text, ""), "")
	for _, m := range mdLink.FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		links++
		file, anchor, _ := strings.Cut(m[1], "#")
		target := page
		if file != "" {
			target = filepath.Join(filepath.Dir(page), filepath.FromSlash(file))
		}
		if _, err := os.Stat(target); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: link %s: %v", page, m[1], err))
			continue
		}
		if anchor == "" {
			continue
		}
		body, err := os.ReadFile(target)
		if err != nil || !anchors(string(body))[anchor] {
			wrong = append(wrong, fmt.Sprintf("%s: link %s: no such heading (%v)", page, m[1], err))
		}
	}
	return links, wrong
}

// Every relative link of every page leads somewhere.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, links := 0, 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n, wrong := brokenLinks(path, string(text))
		pages, links = pages+1, links+n
		for _, w := range wrong {
			t.Error(w)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if pages < 20 || links < 20 {
		t.Errorf("%d pages with %d links were looked at: too few to prove anything", pages, links)
	}
}

// The look at links sees what is broken.
func TestLinksAreLookedAt(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.md")
	text := "# One: `two` & three\n[a](nosuch.md) [b](#one-two--three) [c](#nosuch) [d](https://x/y) `[e](nosuch2.md)`\n```\n[f](nosuch3.md)\n# four\n```\n[g](page.md#four)\n"
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	links, wrong := brokenLinks(page, text)
	if links != 4 || len(wrong) != 3 {
		t.Errorf("%d links, wrong: %q", links, wrong)
	}
}

// The commands that the README tells a newcomer to type exist, with their flags.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	calls := regexp.MustCompile(`(?:\./|cmd/|\x60)tidegate ([a-z]+)([^\n#|\x60>]*)`).FindAllStringSubmatch(string(text), -1)
	if len(calls) < 5 {
		t.Fatalf("only %d commands are named", len(calls))
	}
	for _, c := range calls {
		flags, ok := commands[c[1]]
		if !ok {
			t.Errorf("README names the command %q", c[1])
		}
		for _, f := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(c[2], -1) {
			if !strings.Contains(" "+strings.Join(flags, " ")+" ", " "+f[1]+" ") {
				t.Errorf("README names --%s of %s", f[1], c[1])
			}
		}
	}
}

var (
	testSpan = regexp.MustCompile("`([^`\n]+)`(:?)|\\|")
	testName = regexp.MustCompile(`^((?:Test|Fuzz|Benchmark)[A-Z]\w*)(\*?)(?:/(\w+))?$`)
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
)

// testFiles are the texts of all files with tests, by their path in the module.
func testFiles(t *testing.T) map[string]string {
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		files[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// defines tells whether a file's code has the test: the one of that name, or with
// prefix one whose name begins so, and with a part that is named (empty: any).
func defines(code, name string, prefix bool, part string) bool {
	if part != "" && !strings.Contains(code, `"`+part+`"`) && !strings.Contains(code, `"`+part+" ") {
		return false
	}
	for _, f := range testFunc.FindAllStringSubmatch(code, -1) {
		if f[1] == name || prefix && strings.HasPrefix(f[1], name) {
			return true
		}
	}
	return false
}

// namedTests says which tests of a page are not where it says. A file or a folder
// and a colon stand before the names of its tests, up to the next bar; where none
// does, the test may be anywhere (but not if every name must have its file).
// Test* stands for all that begin so, Test/Sub for a part of one.
func namedTests(files map[string]string, page, text string, filesOnly bool) (names int, wrong []string) {
	isFolder := func(name string) bool {
		for file := range files {
			if strings.HasPrefix(file, name+"/") {
				return true
			}
		}
		return false
	}
	text = fence.ReplaceAllString(text, "")
	for line := range strings.Lines(text) {
		place := ""
		for _, span := range testSpan.FindAllStringSubmatch(line, -1) {
			m := testName.FindStringSubmatch(span[1])
			switch {
			case span[0] == "|":
				place = ""
			case m == nil && span[2] != "" && (strings.Contains(span[1], "/") || isFolder(span[1])):
				place = span[1]
			case m != nil:
				names++
				found := false
				for file, code := range files {
					if place != "" && file != place && !strings.HasPrefix(file, place+"/") || filesOnly && file != place {
						continue
					}
					found = found || defines(code, m[1], m[2] != "", m[3])
				}
				if !found {
					wrong = append(wrong, fmt.Sprintf("%s: no test %s in %q", page, span[1], place))
				}
			}
		}
	}
	return names, wrong
}

// Every test that a page names exists, where the page says.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	files := testFiles(t)
	least := map[string]int{"router/RULETESTS.md": 150, "cmd/internal/daemon/BADDAYS.md": 60}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		page, _ := filepath.Rel(root, path)
		page = filepath.ToSlash(page)
		names, wrong := namedTests(files, page, string(text), page == "router/RULETESTS.md")
		for _, w := range wrong {
			t.Error(w)
		}
		if names < least[page] {
			t.Errorf("%s: %d names of tests, at least %d are expected", page, names, least[page])
		}
		delete(least, page)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for page := range least {
		t.Errorf("%s is missing", page)
	}
}

// The look at the names sees what does not exist.
func TestNamedTestsAreLookedAt(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"a/x_test.go": "func TestOne(t *testing.T) {\n\t{\"Part\", nil}\n}\n",
		"b/y_test.go": "func TestTwo(t *testing.T) {}\n",
	}
	for text, want := range map[string]int{
		"`TestOne`, `TestO*`, `TestOne/Part`, `TestTwo`": 0,
		"| `a/x_test.go`: `TestOne` | `TestTwo` |":       0,
		"`a`: `TestOne`; `b`: `TestTwo`":                 0,
		"`word`: `TestOne`":                              0,
		"`TestThree`, `TestTh*`":                         2,
		"`a/z_test.go`: `TestOne`":                       1,
		"`a/x_test.go`: `TestTwo`":                       1,
		"`b`: `TestOne`":                                 1,
		"`TestOne/Whole`":                                1,
	} {
		if _, wrong := namedTests(files, "page", text, false); len(wrong) != want {
			t.Errorf("%s: wrong are %q, want %d", text, wrong, want)
		}
	}
	if _, wrong := namedTests(files, "page", "`TestOne`, `a`: `TestOne`, `a/x_test.go`: `TestOne`", true); len(wrong) != 2 {
		t.Errorf("without a file: wrong are %q, want two", wrong)
	}
}
