package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"tidegate/cmd/internal/config"
)

const small = "cluster: shop\nservers:\n  - {name: a, addr: \"127.0.0.1:3306\"}\n"

// mTLS are listeners that look at client certificates.
const mTLS = "listen: {tls: {cert_file: x, key_file: x, client_ca_file: x}}\n"

func env(vars map[string]string) func(string) (string, bool) {
	return func(k string) (string, bool) { v, ok := vars[k]; return v, ok }
}

func TestDefaults(t *testing.T) {
	c, err := config.Parse("f", []byte(small), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Confirm.MinInterval, time.Millisecond; got != want {
		t.Errorf("confirm.min_interval: got %v, want %v", got, want)
	}
	if got, want := c.Servers[0].User, "tidegate"; got != want {
		t.Errorf("servers[0].user: got %q, want %q", got, want)
	}
	if got, want := c.NATS.MaxBytes, config.Bytes(2<<30); got != want {
		t.Errorf("nats.max_bytes: got %d, want %d", got, want)
	}
	if got, want := c.Listen.HTTP, "127.0.0.1:7400"; got != want {
		t.Errorf("listen.http: got %q, want %q", got, want)
	}
}

func TestProblemsComeAllAtOnceWithLines(t *testing.T) {
	text := `cluster: sh op
servers:
  - {name: a, addr: "127.0.0.1:3306"}
  - name: a
    addr: nowhere
    weight: -1
    passwrd: x
  - {name: c, addr: "127.0.0.1:3306", password: "${NO_SUCH}"}
listen:
  http: "0.0.0.0:7400"
  pprof: "10.1.2.3:6060"
  metrics: nowhere
router:
  tick: 3 s
  lease: 60ms
index: 7
keys:
  posts: []
`
	_, err := config.Parse("tidegate.yaml", []byte(text), env(nil))
	var all *config.Errors
	if !errors.As(err, &all) {
		t.Fatalf("got %v, want *Errors", err)
	}
	want := []struct {
		line int
		path string
		part string
	}{
		{1, "cluster", "letters"},
		{4, "servers[1].name", "servers[0]"},
		{5, "servers[1].addr", "host:port"},
		{6, "servers[1].weight", "0 to 1000"},
		{7, "servers[1].passwrd", "unknown key; known here: name, addr"},
		{8, "servers[2].password", "NO_SUCH"},
		{8, "servers[2].addr", "servers[0]"},
		{10, "listen.http", "auth is needed"},
		{11, "listen.pprof", "loopback"},
		{12, "listen.metrics", "host:port"},
		{14, "router.tick", "a duration"},
		{16, "index", "keys are expected"},
		{18, "keys.posts", "schema.table"},
	}
	for _, w := range want {
		found := false
		for _, p := range all.Problems {
			found = found || p.Line == w.line && p.Path == w.path && strings.Contains(p.Message, w.part)
		}
		if !found {
			t.Errorf("no problem at line %d, %s, with %q in:\n%v", w.line, w.path, w.part, err)
		}
	}
}

func TestOneProblemEach(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"empty file":            {"", "the file is empty, or not written yet"},
		"comments alone":        {"# x\n", "the file is empty"},
		"no mapping":            {"- 1\n", "keys are expected"},
		"broken yaml":           {"a: [", "line 1: no YAML mapping: did not find expected node content"},
		"broken below":          {"# x\ncluster: x\n  y: [1\n", "line 3: no YAML mapping: mapping values are not allowed"},
		"bracket not closed":    {"cluster: x\nservers:\n  - {name: a, addr: \"h:1\"\nkeys: {}\n", "line 3: no YAML mapping: did not find expected ',' or '}'"},
		"variable bare":         {"cluster: ${C}\n# {\"${X}\": ${Y}\nservers:\n  - {name: a, addr: \"h:1\", password: \"${A}'\\\"\"}\n  - {name: b, addr: \"h:2\",\n     password: x${PW}}\n", `line 6: within { } or [ ] a variable needs quotes: "${PW}"`},
		"variable in a list":    {"a: [${A}]\n", `line 1: within { } or [ ] a variable needs quotes: "${A}"`},
		"two documents":         {small + "---\n" + small, "second document"},
		"named twice":           {small + "cluster: x\n", "named twice"},
		"no servers":            {"cluster: x\nservers: []\n", "at least one server"},
		"cluster missing":       {"servers: [{name: a, addr: \"h:1\"}]\n", "cluster: is required"},
		"unfinished variable":   {"cluster: \"${X\"\nservers: [{name: a, addr: \"h:1\"}]\n", "${ without a name"},
		"role unknown":          {small + "auth: {tokens: [{name: x, token: y, roles: [admin]}]}\n", "\"admin\" is no role"},
		"token missing":         {small + "auth: {tokens: [{name: x, roles: [read]}]}\n", "token or token_file"},
		"no role":               {small + "auth: {tokens: [{name: x, token: 0123456789abcdef, roles: []}]}\n", "line 4: auth.tokens[0].roles: is empty"},
		"token too short":       {small + "auth: {tokens: [{name: x, token: 0123456789abcde, roles: [read]}]}\n", "line 4: auth.tokens[0].token: the token is shorter than 16 bytes"},
		"token of two":          {small + "auth:\n  tokens:\n    - {name: x, token: 0123456789abcdef, roles: [read]}\n    - {name: y, token: 0123456789abcdef, roles: [read]}\n", "line 7: auth.tokens[1].token: the token is that of auth.tokens[0] too"},
		"client's role":         {small + mTLS + "auth: {clients: [{name: x, roles: []}]}\n", "auth.clients[0].roles: is empty"},
		"client named twice":    {small + mTLS + "auth: {clients: [{name: x, roles: [read]}, {name: x, roles: [read]}]}\n", "auth.clients[1].name: \"x\" is the name of auth.clients[0] too"},
		"CA without clients":    {small + mTLS + "auth: {tokens: [{name: x, token: 0123456789abcdef, roles: [read]}]}\n", "listen.tls.client_ca_file: is of no use without auth.clients"},
		"clients without CA":    {small + "auth: {clients: [{name: x, roles: [read]}]}\n", "needs listen.tls.client_ca_file"},
		"no data_dir":           {small + "data_dir: \"\"\n", "line 4: data_dir: is empty"},
		"secret file missing":   {small + "auth: {tokens: [{name: x, token_file: /nonexistent/t, roles: [read]}]}\n", "read secret"},
		"two replicas":          {small + "nats: {url: \"nats://n:1\", replicas: 2}\n", "must be 1 or 3"},
		"five replicas":         {small + "nats: {url: \"nats://n:1\", replicas: 5}\n", "nats.replicas: "},
		"user without url":      {small + "nats: {user: x}\n", "nats.user: is for an external NATS"},
		"nats tls without url":  {small + "nats: {tls: {enabled: true}}\n", "nats.tls: is for an external NATS"},
		"metrics for others":    {small + "listen: {metrics: \"10.1.2.3:7402\"}\n", "is not on loopback"},
		"one port for three":    {small + "listen: {metrics: \"127.0.0.1:7400\"}\n", "is listen.http too"},
		"one port for the last": {small + "listen: {pprof: \"127.0.0.1:6060\", metrics: \"127.0.0.1:6060\"}\n", "is listen.pprof too"},
		"one port for two":      {small + "listen: {http: \"127.0.0.1:7400\", resp: \"127.0.0.1:7400\"}\n", "is listen.http too"},
		"replicas need cluster": {small + "nats: {replicas: 3}\n", "needs an external NATS"},
		"socket, relative":      {"cluster: x\nservers: [{name: a, addr: mysqld.sock}]\n", "servers[0].addr: \"mysqld.sock\" is no host:port, and no absolute path of a Unix socket"},
		"socket, too long":      {"cluster: x\nservers: [{name: a, addr: /" + strings.Repeat("x", 107) + ", app_addr: \"h:1\"}]\n", "107 bytes at most, this has 108"},
		"socket alone":          {"cluster: x\nservers: [{name: a, addr: /run/mysqld/mysqld.sock}]\n", "servers[0].app_addr: addr is a Unix socket"},
		"socket with TLS":       {"cluster: x\nservers: [{name: a, addr: /run/mysqld/mysqld.sock, app_addr: \"h:1\", tls: {enabled: true}}]\n", "servers[0].tls.enabled: addr is a Unix socket"},
		"socket of two":         {"cluster: x\nservers: [{name: a, addr: /s, app_addr: \"h:1\"}, {name: b, addr: /s, app_addr: \"h:2\"}]\n", "\"/s\" is the address of servers[0] too"},
		"follow unknown":        {"cluster: x\nservers: [{name: a, addr: \"h:1\", follow: maybe}]\n", "one of binlog, executed"},
		"group column twice":    {small + "keys: {app.posts: [a, A]}\n", "named twice"},
		"half a weight":         {"cluster: x\nservers: [{name: a, addr: \"h:1\", weight: 0.5}]\n", "a whole number"},
		"half a read":           {small + "primary_budget: {reads_per_s: 0.5}\n", "a whole number"},
		"lease too short":       {small + "router: {tick: 1s, lease: 1s}\n", "more than two ticks"},
		"half of TLS":           {small + "listen: {tls: {cert_file: x}}\n", "go together"},
		"half of a client's":    {"cluster: x\nservers: [{name: a, addr: \"h:1\", tls: {enabled: true, key_file: x}}]\n", "go together"},
		"verify without a CA":   {"cluster: x\nservers: [{name: a, addr: \"h:1\", tls: {enabled: true, verify: ca}}]\n", "ca needs ca_file"},
		"verify and a name":     {"cluster: x\nservers: [{name: a, addr: \"h:1\", tls: {enabled: true, verify: ca, ca_file: x, server_name: y}}]\n", "leave one of them out"},
		"TLS not enabled":       {"cluster: x\nservers: [{name: a, addr: \"h:1\", tls: {ca_file: x}}]\n", "in the clear"},
		"NATS without host":     {small + "nats: {url: \"nats://\"}\n", "no nats://HOST:PORT"},
		"NATS by words":         {small + "nats: {url: \"not a url\"}\n", "no nats://HOST:PORT"},
		"NATS, one of two":      {small + "nats: {url: \"nats://a:4222,\"}\n", "no nats://HOST:PORT"},
		"NATS's port":           {small + "nats: {url: \"nats://a:65536\"}\n", "a number from 1 to 65535"},
		"NATS, no port":         {small + "nats: {url: \"nats://a:port\"}\n", "no nats://HOST:PORT"},
		"NATS and WebSocket":    {small + "nats: {url: \"nats://a:4222,ws://a:80\"}\n", "do not go together"},
		"NATS over HTTP":        {small + "nats: {url: \"http://a:4222\"}\n", "nats, tls, ws or wss"},
		"TLS to NATS":           {small + "nats: {url: \"nats://h:1\", tls: {ca_file: x}}\n", "in the clear"},
		"size wrong":            {small + "nats: {max_bytes: 3 elephants}\n", "a size such as"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse("f", []byte(c.text), env(nil))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// Listeners that are off, or take any port, take none from each other.
func TestListenersTakeNoPort(t *testing.T) {
	for _, listen := range []string{
		`{http: "off", resp: "off"}`,
		`{http: "127.0.0.1:0", resp: "127.0.0.1:0", pprof: "127.0.0.1:0", metrics: "127.0.0.1:0"}`,
	} {
		if _, err := config.Parse("f", []byte(small+"listen: "+listen+"\n"), env(nil)); err != nil {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

// A file that does not tell its size is read as far as a configuration goes.
func TestLoadIsBounded(t *testing.T) {
	for _, file := range []string{"/dev/zero", "/dev/null", filepath.Join(t.TempDir(), "none")} {
		if _, err := config.Load(file, env(nil)); err == nil || !strings.Contains(err.Error(), file) && file != "/dev/null" {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, url := range []string{"nats://a:4222", "a", "tls://a:1, b:2", "nats://[::1]:4222", "ws://a/path"} {
		if _, err := config.Parse("f", []byte("cluster: x\nservers: [{name: a, addr: \"h:1\"}]\nnats: {url: \""+url+"\"}\n"), env(nil)); err != nil {
			t.Errorf("nats.url %q: %v", url, err)
		}
	}
}

func TestEnvironmentAndSecrets(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "pw")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "cluster: ${C}x$${C}\nservers:\n  - {name: a, addr: \"h:1\", password_file: " + file + "}\n"
	_, err := config.Parse("f", []byte(text), env(map[string]string{"C": "${C}"}))
	if err == nil || !strings.Contains(err.Error(), `"${C}x${C}"`) {
		t.Errorf("an expanded value must not be expanded again: %v", err)
	}
	c, err := config.Parse("f", []byte(strings.Replace(text, "${C}x$${C}", "${C}", 1)), env(map[string]string{"C": "shop"}))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Servers[0].Password.Reveal(); got != "s3cret" || c.Cluster != "shop" {
		t.Errorf("got password %q and cluster %q", got, c.Cluster)
	}
	if s := c.Servers[0].Password.String(); strings.Contains(s, "s3cret") {
		t.Errorf("the secret shows: %s", s)
	}
}

func TestExampleLoads(t *testing.T) {
	c, err := config.Parse("example", []byte(config.Example()), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Servers) != 2 {
		t.Errorf("got %d servers", len(c.Servers))
	}
}

// Without the # of its lines the example says what it said before: the defaults.
func TestExampleShowsDefaults(t *testing.T) {
	want, err := config.Parse("example", []byte(config.Example()), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	begin := regexp.MustCompile(`(?m)^  # `)
	if n := len(begin.FindAllString(config.Example(), -1)); n < 20 {
		t.Fatalf("%d keys are comments", n)
	}
	got, err := config.Parse("example", []byte(begin.ReplaceAllString(config.Example(), "  ")), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := fmt.Sprintf("%+v", *got), fmt.Sprintf("%+v", *want); a != b {
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}
}

// Every key of the struct has a name and says what it is, so that the
// reference is complete.
func TestReferenceIsComplete(t *testing.T) {
	ref := config.Reference()
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.Tag.Get("yaml") == "" || f.Tag.Get("doc") == "" {
				t.Errorf("%s.%s has no yaml or doc tag", typ.Name(), f.Name)
			}
			if !strings.Contains(ref, f.Tag.Get("yaml")+"` |") {
				t.Errorf("%s.%s is not in the reference", typ.Name(), f.Name)
			}
			ft := f.Type
			if ft.Kind() == reflect.Slice {
				ft = ft.Elem()
			}
			if ft.Kind() == reflect.Struct {
				walk(ft)
			}
		}
	}
	walk(reflect.TypeFor[config.Config]())
}

func TestConfigMarkdownIsCurrent(t *testing.T) {
	text, err := os.ReadFile("../../CONFIG.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), config.Reference()) {
		t.Error("cmd/CONFIG.md does not hold the reference: go run ./cmd/tidegate config --reference prints it")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(config.Example()))
	f.Add([]byte("a: &x [*x]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := config.Parse("f", text, env(nil))
		if (c == nil) == (err == nil) {
			t.Fatalf("config %v with error %v", c, err)
		}
	})
}

// What is no mapping at all, or in a part, is one problem: what it can not hold is
// none besides.
func TestOneProblemForAWrongShape(t *testing.T) {
	const servers = "servers: [{name: a, addr: 'h:1'}]\n"
	for text, want := range map[string]string{
		"x\n":                               "line 1: keys are expected here",
		"- a\n- b\n":                        "line 1: keys are expected here",
		"cluster: c\nlisten: x\n" + servers: "line 2: listen: keys are expected here",
		"cluster: c\nservers: x\n":          "line 2: servers: a list is expected here",
		"cluster: c\nservers: [x]\n":        "line 2: servers[0]: keys are expected here",
	} {
		_, err := config.Parse("f.yaml", []byte(text), func(string) (string, bool) { return "", false })
		var all *config.Errors
		if !errors.As(err, &all) {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if len(all.Problems) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want one problem, %s", text, err, want)
		}
	}
}
