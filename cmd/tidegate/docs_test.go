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
