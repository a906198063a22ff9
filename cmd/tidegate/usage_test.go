package main_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tidegate/router/serve"
	"tidegate/testenv"
)

const good = `cluster: shop
data_dir: DIR
listen: {http: "127.0.0.1:0", resp: "off"}
servers:
  - {name: a, addr: "127.0.0.1:1"}
`

// broken has mistakes on the lines 1, 3, 4, 5 and 6.
const broken = `cluster: "a shop"
servers:
  - {name: a, addr: nowhere}
  - {name: a, adr: "127.0.0.1:1"}
listen: {http: "0.0.0.0:7400"}
nosuch: 1
`

// wrongCall is a call that ends with 2, and what it says, all of it.
type wrongCall struct {
	args string
	says []string
}

// made makes the call.
func (c wrongCall) made(t *testing.T, p place) {
	t.Helper()
	r := p.call(t, strings.Fields(c.args)...).want(t, exitUsage)
	if r.out != "" {
		t.Errorf("standard output:\n%s", r.out)
	}
	for _, s := range c.says {
		if !strings.Contains(r.err, s) {
			t.Errorf("got %q, want %q in it", r.err, s)
		}
	}
	if strings.Count(r.err, "tidegate: ") != 1 || !strings.HasPrefix(r.err, "tidegate: ") || strings.Contains(r.err, "goroutine") ||
		strings.Contains(r.err, "strconv") || strings.Contains(r.err, "time: ") {
		t.Errorf("not one message:\n%s", r.err)
	}
}

// wrongOfEach are the calls that are wrong for every command.
func wrongOfEach(p place) (calls []wrongCall) {
	for name, flags := range commands {
		calls = append(calls, wrongCall{name + " --nosuch", []string{"unknown flag: --nosuch", "tidegate " + name + " --help"}})
		if !strings.HasPrefix(name, "torture") {
			calls = append(calls, wrongCall{name + " extra", []string{`"extra"`, "no argument"}})
		}
		if len(flags) == 0 || !strings.Contains(strings.Join(flags, " "), "config") {
			continue
		}
		file := name
		if name == "accept" {
			file += " --server a --restart"
		}
		if name == "tail" {
			file += " --server a"
		}
		calls = append(calls,
			wrongCall{file + " -c nosuch.yaml", []string{"nosuch.yaml", "no such file"}},
			wrongCall{file + " -c " + p.dir, []string{"is a directory"}},
			wrongCall{file + " -c", []string{"needs an argument"}},
			wrongCall{file + " --config=", []string{"names no file"}})
		if name != "config" {
			calls = append(calls, wrongCall{file, []string{"tidegate.yaml", "config --example"}}) // the default, which is not there
		}
	}
	return calls
}

// wrongFiles are the calls with a configuration whose own words are right, and
// which names files that are not. What run refuses config does not call ok.
func wrongFiles(t *testing.T, p place) (calls []wrongCall) {
	t.Helper()
	const auth = "auth: {clients: [{name: x, roles: [read]}]}\n"
	for name, c := range map[string]struct {
		text     string
		says     []string
		commands string
	}{
		"listen": {
			"listen: {http: \"127.0.0.1:0\", tls: {cert_file: nosuch.pem, key_file: nosuch.key, client_ca_file: nosuch-ca.pem}}\n" + auth,
			[]string{"listen.tls: ", "nosuch.pem: no such file", "nosuch-ca.pem: no such file"},
			"run config observe",
		},
		"nats": {
			"nats: {url: \"nats://127.0.0.1:1\", creds_file: nosuch.creds, tls: {enabled: true, ca_file: nosuch.pem}}\n",
			[]string{"nats.tls: ca_file: ", "nosuch.pem: no such file", "\n  nats.creds_file: ", "nosuch.creds: no such file"},
			"run config observe tail serve",
		},
		"server": {
			"", []string{"servers[0].tls: server a: ca_file nocert.pem holds no certificate"}, "run config observe check",
		},
	} {
		base := strings.ReplaceAll(good, "DIR", filepath.Join(p.dir, "made"))
		if strings.HasPrefix(c.text, "listen:") {
			base = strings.Replace(base, "listen: {http: \"127.0.0.1:0\", resp: \"off\"}\n", "", 1)
		}
		if name == "server" {
			base = strings.Replace(base, "\"127.0.0.1:1\"}", "\"127.0.0.1:1\", tls: {enabled: true, ca_file: nocert.pem}}", 1)
			p.file(t, "nocert.pem", "none\n")
		}
		file := p.file(t, "wrong-"+name+".yaml", base+c.text)
		for command := range strings.FieldsSeq(c.commands) {
			calls = append(calls, wrongCall{command + " -c " + file, append([]string{file + ": "}, c.says...)})
		}
	}
	return calls
}

// A call that can't work says why on standard error, in one message, prints
// nothing on standard output, ends with 2, and has begun nothing: no server, no
// file.
func TestWrongCalls(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	ok := p.file(t, "good.yaml", strings.ReplaceAll(good, "DIR", filepath.Join(p.dir, "data")))
	off := p.file(t, "off.yaml", strings.Replace(good, "127.0.0.1:0", "off", 1))
	noHistory := p.file(t, "history.jsonl", "router\n")
	calls := []wrongCall{
		{"nosuch", []string{`unknown command "nosuch"`}},
		{"statsu", []string{`unknown command "statsu", is it status?`}},
		{"--nosuch", []string{"unknown flag: --nosuch"}},
		{"help nosuch", []string{`no command "nosuch"`}},
		{"torture nosuch", []string{`unknown command "nosuch"`}},
		{"config", []string{"exactly one of --example, --reference, --config"}},
		{"config --example --reference", []string{"exactly one", "2 are given"}},
		{"demo --seconds -1", []string{"--seconds is -1", "0 to 86400"}},
		{"demo --seconds NaN", []string{"--seconds is NaN"}},
		{"demo --seconds 1e9", []string{"0 to 86400"}},
		{"demo --seconds soon", []string{`--seconds is "soon", it must be a number`}},
		{"demo --seed -1", []string{`--seed is "-1", it must be a whole number that is not negative`}},
		{"torture --after soon", []string{`--after is "soon", it must be a duration such as 100ms`}},
		{"torture --seconds 1.5", []string{`--seconds is "1.5", it must be a whole number`}},
		{"sandbox --replicas -1", []string{"--replicas is -1", "0 to 25"}},
		{"sandbox --replicas 26", []string{"--replicas is 26"}},
		{"sandbox --replicas 99999999999999999999", []string{"--replicas", "out of range; it must be a whole number"}},
		{"sandbox --replicas=-99999999999999999999", []string{"--replicas", "out of range; it must be a whole number"}},
		{"sandbox --dir " + p.dir, []string{"--dir", "is not empty", "good.yaml"}},
		{"sandbox --dir " + ok, []string{"--dir", "not a directory"}},
		{"torture --faults nosuch", []string{`no fault "nosuch"`, "replica-kill"}},
		{"torture --faults cut,,stall", []string{`no fault ""`}},
		{"torture --router window --faults router", []string{`no fault "router"`}},
		{"torture --router nosuch", []string{`"nosuch"`, "real, hints, window"}},
		{"torture --replicas 0 --seconds -1 --sessions 0 --after 0s", []string{"--replicas is 0, it must be 2 to 8", "--seconds is -1", "--sessions is 0", "--after is 0s"}},
		{"torture --history /nosuch/folder/file", []string{"--history", "/nosuch/folder"}},
		{"torture replay", []string{"one FILE"}},
		{"torture replay nosuch.jsonl", []string{"nosuch.jsonl"}},
		{"torture replay " + noHistory, []string{"entry 1"}},
		{"observe --seconds -1 -c " + ok, []string{"--seconds is -1"}},
		{"observe -c " + off, []string{"listen.http is off"}},
		{"status --watch soon -c " + ok, []string{`--watch is "soon"`, "a duration"}},
		{"accept --server a --table posts -c " + ok, []string{"--table", `"posts"`, "schema.table"}},
		{"accept --server a --gtids zzz -c " + ok, []string{"--gtids", `"zzz"`}},
		{"status --watch -1s -c " + ok, []string{"--watch is -1s"}},
		{"status -c " + off, []string{"listen.http off", "--addr"}},
		{"status --addr 127.0.0.1:1 -c " + ok, []string{"--config and --addr", "one of them"}},
		{"accept --server a --restart --addr 127.0.0.1:1 -c " + ok, []string{"--config and --addr"}},
		{"status --addr :::", []string{`:::" is no host:port`}},
		{"status --addr ftp://x", []string{`"ftp://x"`}},
		{"status --cert x --addr 127.0.0.1:1", []string{"--cert and --key go together"}},
		{"status --ca nosuch.pem --addr 127.0.0.1:1", []string{"nosuch.pem", "no such file"}},
		{"status --ca " + ok + " --addr 127.0.0.1:1", []string{"good.yaml holds no certificate"}},
		{"accept --server a --restart --cert nosuch.pem --key nosuch.pem --addr 127.0.0.1:1", []string{"nosuch.pem"}},
		{"accept", []string{"--server is required"}},
		{"accept --server a", []string{"exactly one of --table, --gtids, --copy, --restart; 0 are given"}},
		{"accept --server a --table app.t --restart", []string{"2 are given"}},
		{"accept --server a --table=", []string{"empty"}},
		{"tail -c " + ok, []string{"nats.url is empty"}},
		{"serve -c " + ok, []string{"nats.url is empty"}},
		{"bench --only decide,deicde", []string{`no row "deicde"`, "decide, resp"}},
	}
	withNATS := p.file(t, "nats.yaml", good+"nats: {url: \"nats://127.0.0.1:1\"}\n")
	calls = append(calls, wrongCall{"tail --server nosuch -c " + withNATS, []string{`no server "nosuch"`, "[a]"}})
	calls = append(calls, wrongOfEach(p)...)
	calls = append(calls, wrongFiles(t, p)...)
	before := listing(t, p.dir)
	for _, c := range calls {
		t.Run(c.args, func(t *testing.T) { c.made(t, p) })
	}
	if left := listing(t, p.tmp); left != "" {
		t.Errorf("temporary files were made: %s", left)
	}
	if after := listing(t, p.dir); after != before {
		t.Errorf("files were made: %s, and before %s", after, before)
	}
}

// Everything wrong with a configuration is said at once, by line, whatever
// command reads it.
func TestWrongConfiguration(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	file := p.file(t, "broken.yaml", broken)
	says := []string{
		"line 1: cluster:", "line 3: servers[0].addr:", "line 4: servers[1].adr: unknown key", "line 4: servers[1].addr: is required",
		`line 4: servers[1].name: "a" is the name of servers[0] too`, "line 5: listen.http:", "line 6: nosuch: unknown key",
	}
	for _, command := range []string{"run", "tail", "serve", "check", "status", "accept --server a --restart", "observe", "config"} {
		r := p.call(t, append(strings.Fields(command), "-c", file)...).want(t, exitUsage)
		for _, s := range says {
			if !strings.Contains(r.err, s) {
				t.Errorf("%s: %q is missing in\n%s", command, s, r.err)
			}
		}
		if first, _, _ := strings.Cut(r.err, "\n"); first != fmt.Sprintf("tidegate: %s: %d problem(s)", file, len(says)) || r.out != "" {
			t.Errorf("%s: first line %q, standard output %q", command, first, r.out)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	example := p.call(t, "config", "--example").want(t, exitOK)
	file := p.file(t, "example.yaml", example.out)
	if r := p.call(t, "config", "-c", file).want(t, exitOK); !strings.HasPrefix(r.out, file+": ok: cluster ") || r.err != "" {
		t.Errorf("got %q, %q", r.out, r.err)
	}
	reference := p.call(t, "config", "--reference").want(t, exitOK)
	if !strings.Contains(reference.out, "`data_dir`") || example.err+reference.err != "" {
		t.Errorf("reference:\n%s\nstandard error: %q %q", reference.out, example.err, reference.err)
	}
}

// What goes wrong when the call itself is right ends with 1.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, args := range []string{"status --addr 127.0.0.1:1", "accept --addr 127.0.0.1:1 --server a --restart", "status --json --addr http://127.0.0.1:1/"} {
		r := p.call(t, strings.Fields(args)...).want(t, exitFound)
		if !strings.Contains(r.err, "does tidegate run or serve run there?") || r.out != "" {
			t.Errorf("%s: got %q, %q", args, r.out, r.err)
		}
	}
	file := p.file(t, "tidegate.yaml", strings.ReplaceAll(good, "DIR", filepath.Join(p.dir, "data")))
	r := p.call(t, "check").want(t, exitFound) // the default file
	if !strings.Contains(r.out, "a: broken: can not be reached") || r.err != "" {
		t.Errorf("check of %s: got %q, %q", file, r.out, r.err)
	}
	var findings []map[string]string
	oneDocument(t, p.call(t, "check", "--json").want(t, exitFound).out, &findings)
	if len(findings) != 2 || findings[0]["severity"] != "broken" || findings[0]["server"] != "a" {
		t.Errorf("findings %v", findings)
	}
}

// Why a router is not ready stands behind its reason, told apart by a colon.
func TestStatusOfARouterThatIsNotReady(t *testing.T) {
	t.Parallel()
	router := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"ready":false,"reason":"blind","detail":"cut off from the stream","servers":[]}`)
	}))
	defer router.Close()
	r := newPlace(t).call(t, "status", "--addr", router.URL).want(t, exitOK)
	if want := "router: not ready: blind: cut off from the stream; "; !strings.HasPrefix(r.out, want) {
		t.Errorf("got %q, want %q first", r.out, want)
	}
}

// The commands that ask a router do so over TLS as its configuration and their
// flags say, with a client certificate where one is given, and tell what is amiss.
func TestStatusOverTLS(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	certs, err := testenv.NewCertificates(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	router := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := "nobody"
		if len(r.TLS.VerifiedChains) > 0 {
			who = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		_, _ = fmt.Fprintf(w, `{"ready":false,"reason":"blind","detail":%q,"servers":[]}`, who+" "+r.Header.Get("Authorization"))
	}))
	router.Config.ErrorLog = log.New(io.Discard, "", 0)
	if router.TLS, err = serve.LoadTLS(certs.CertFile, certs.KeyFile, certs.CAFile); err != nil {
		t.Fatal(err)
	}
	router.StartTLS()
	defer router.Close()
	addr := router.Listener.Addr().String()
	text := fmt.Sprintf("listen: {http: %q, resp: \"off\", tls: {cert_file: %q, key_file: %q}}\n", addr, certs.CertFile, certs.KeyFile)
	file := p.file(t, "tls.yaml", strings.Replace(good, "listen: {http: \"127.0.0.1:0\", resp: \"off\"}\n", text, 1))
	shown := " --cert " + certs.ClientCertFile + " --key " + certs.ClientKey
	for args, want := range map[string]string{
		"-c " + file + " --ca " + certs.CAFile + " --token t": "blind: nobody Bearer t; ",
		"-c " + file + " --ca " + certs.CAFile + shown:        "blind: tidegate sandbox client ; ",
		"--addr " + addr + " --ca " + certs.CAFile + shown:    "blind: tidegate sandbox client ; ",
		"--addr https://" + addr + " --ca " + certs.CAFile:    "blind: nobody ; ",
		"-c " + file:     "by --ca",
		"--addr " + addr: "has TLS: name it as https://",
		"--addr http://" + addr + " --ca " + certs.CAFile:                            "without TLS",
		"--addr https://0.0.0.0" + addr[len("127.0.0.1"):] + " --ca " + certs.CAFile: "name it by --addr as its certificate does",
	} {
		r := p.call(t, append([]string{"status"}, strings.Fields(args)...)...)
		if !strings.Contains(r.out+r.err, want) {
			t.Errorf("%s: exit code %d, got %q, %q; want %q", args, r.code, r.out, r.err, want)
		}
	}
}

// A data_dir that another process uses is named as that, whichever of its stores
// is met first.
func TestDataDirInUse(t *testing.T) {
	t.Parallel()
	for store, lock := range map[string]func(f *os.File) error{
		"nats/nats/LOCK": func(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) },
		"index/LOCK": func(f *os.File) error {
			return syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
		},
	} {
		p := newPlace(t)
		file := p.file(t, "tidegate.yaml", strings.ReplaceAll(good, "DIR", "data"))
		held := filepath.Join(p.dir, "data", store)
		if err := os.MkdirAll(filepath.Dir(held), 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(held)
		if err != nil {
			t.Fatal(err)
		}
		if err := lock(f); err != nil {
			t.Fatal(err)
		}
		r := p.call(t, "run", "-c", file).want(t, exitFound)
		for _, want := range []string{"another process", "data/" + filepath.Dir(store), "name another data_dir"} {
			if !strings.Contains(r.err, want) {
				t.Errorf("%s is held: %q is missing in %q", store, want, r.err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// listing names what is in a folder.
func listing(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
