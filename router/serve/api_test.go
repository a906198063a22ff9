package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tidegate/binlog/gtid"
	"tidegate/router"
	"tidegate/router/routertest"
	"tidegate/router/serve"
)

// readReference returns router/API.md.
func readReference(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../API.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var fence = regexp.MustCompile("(?ms)^```(\\w+)([^\\n]*)\\n(.*?)^```")

// TestReferenceExamples runs each example of the reference and compares the
// answer with what the page says. "*" stands for any value, and at the end of a
// line for any rest; request ids are any.
func TestReferenceExamples(t *testing.T) {
	w := lagging(t)
	// The probe that a floor waits for has come; it shows one commit on its way.
	w.E, w.EAt = w.E.Add(gtid.GTID{UUID: w.States[0].UUID, Seq: 101}), routertest.Now
	s := start(t, w, func(o *serve.Options, _ *router.Options) {
		o.Observer = &recorder{}
		o.Acceptor = func(context.Context, serve.Acceptance) error { return nil }
		o.Metrics = http.NotFoundHandler()
		o.Oldest = func() (gtid.GTID, time.Time) {
			g, err := gtid.ParseGTID("aaaaaaaa-0000-0000-0000-000000000001:1")
			if err != nil {
				t.Error(err)
			}
			return g, time.Date(2026, time.November, 29, 7, 0, 0, 500e6, time.UTC)
		}
	})
	blocks := fence.FindAllStringSubmatch(readReference(t), -1)
	ran := 0
	for i, b := range blocks {
		switch b[1] {
		case "http":
			if i+1 == len(blocks) || blocks[i+1][1] != "json" {
				t.Errorf("the example %q has no answer", b[3])
				continue
			}
			s.example(t, b[3], strings.TrimSpace(blocks[i+1][2]), blocks[i+1][3])
			ran++
		case "redis":
			ran += s.redisExample(t, b[3])
		}
	}
	if ran < 20 {
		t.Errorf("%d examples ran; were they found?", ran)
	}
}

func (s *service) example(t *testing.T, request, status, want string) {
	head, body, _ := strings.Cut(request, "\n\n")
	method, path, _ := strings.Cut(strings.TrimSpace(head), " ")
	got, _, answer := s.do(method, path, body)
	if strconv.Itoa(got) != status {
		t.Errorf("%s: got status %d, the page says %s: %s", head, got, status, answer)
		return
	}
	var g, w any
	if err := json.Unmarshal([]byte(answer), &g); err != nil {
		t.Errorf("%s: %v", head, err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Errorf("%s: the page's answer is not JSON: %v", head, err)
	}
	if d := differ("", g, w); d != "" {
		t.Errorf("%s: %s\ngot  %s\npage %s", head, d, answer, want)
	}
}

// differ tells where got differs from the page, "" where it does not.
func differ(at string, got, page any) string {
	if page == "*" && got != nil || strings.HasSuffix(at, ".request_id") && (got == nil) == (page == nil) {
		return ""
	}
	switch p := page.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(p) {
			return fmt.Sprintf("%s: got %v, the page says %v", at, got, page)
		}
		for k := range p {
			if d := differ(at+"."+k, g[k], p[k]); d != "" {
				return d
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(p) {
			return fmt.Sprintf("%s: got %v, the page says %v", at, got, page)
		}
		for i := range p {
			if d := differ(fmt.Sprintf("%s[%d]", at, i), g[i], p[i]); d != "" {
				return d
			}
		}
		return ""
	}
	if !reflect.DeepEqual(got, page) {
		return fmt.Sprintf("%s: got %v, the page says %v", at, got, page)
	}
	return ""
}

// redisExample runs the lines of a redis-cli session.
func (s *service) redisExample(t *testing.T, session string) int {
	rdb := redis.NewClient(&redis.Options{Addr: s.resp})
	defer rdb.Close()
	steps := strings.Split(session, "> ")[1:]
	for _, step := range steps {
		line, want, _ := strings.Cut(step, "\n")
		var args []any
		for _, w := range strings.Fields(line) {
			args = append(args, w)
		}
		v, err := rdb.Do(context.Background(), args...).Result()
		var got string
		switch list, _ := v.([]any); {
		case err != nil && !errors.Is(err, redis.Nil):
			got = "(error) " + err.Error() + "\n"
		default:
			for i, e := range list {
				got += fmt.Sprintf("%d) ", i+1)
				switch x := e.(type) {
				case nil:
					got += "(nil)"
				case int64:
					got += fmt.Sprintf("(integer) %d", x)
				default:
					got += fmt.Sprintf("%q", x)
				}
				got += "\n"
			}
		}
		if rest, any := strings.CutSuffix(want, "*\n"); got != want && !(any && strings.HasPrefix(got, rest)) {
			t.Errorf("%s:\ngot\n%spage\n%s", line, got, want)
		}
	}
	return len(steps)
}

// TestReferenceListsAreClosed: the page names each reason, code, level and
// command, and no other.
func TestReferenceListsAreClosed(t *testing.T) {
	page := readReference(t)
	section := func(heading string) string {
		_, rest, ok := strings.Cut(page, "\n"+heading+"\n")
		if !ok {
			t.Fatalf("the reference has no section %q", heading)
		}
		rest, _, _ = strings.Cut(rest, "\n#")
		return rest
	}
	for _, c := range []struct {
		heading string
		want    []string
	}{
		{"## Reasons", router.Reasons()},
		{"### Error codes", serve.Codes()},
		{"## Levels", router.Levels()},
	} {
		listed := map[string]bool{}
		for _, line := range strings.Split(section(c.heading), "\n") {
			if cell, ok := strings.CutPrefix(line, "| `"); ok {
				cell, _, _ = strings.Cut(cell, " |")
				for _, name := range strings.Split(cell, ", ") {
					listed[strings.Trim(name, "`")] = true
				}
			}
		}
		for _, name := range c.want {
			if !listed[name] {
				t.Errorf("%s: %q is missing on the page", c.heading, name)
			}
			delete(listed, name)
		}
		for name := range listed {
			t.Errorf("%s: the page lists %q, which does not exist", c.heading, name)
		}
	}
}
