package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"tidegate/cmd/internal/observe"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// stepTimeout bounds one step of a test.
const stepTimeout = testenvtest.HangTimeout

// onServers is a place with a configuration for the shared servers.
type onServers struct {
	place
	file string
}

func newOnServers(t *testing.T, more string) onServers {
	t.Helper()
	p := onServers{place: newPlace(t)}
	var text strings.Builder
	fmt.Fprintf(&text, "cluster: cli\ndata_dir: %q\nlisten: {http: \"127.0.0.1:0\", resp: \"off\"}\n%sservers:\n", filepath.Join(p.dir, "data"), more)
	for _, s := range servers.Servers() {
		fmt.Fprintf(&text, "  - {name: %s, addr: %q, user: %s, password: %s}\n", s.Name(), s.Addr(), testenv.TidegateUser, testenv.TidegatePassword)
	}
	p.file = p.place.file(t, "tidegate.yaml", text.String())
	return p
}

var httpAddr = regexp.MustCompile(`(?:addr=|url=http://)(127\.0\.0\.1:\d+)`)

// serving starts a command that answers over HTTP, and returns where.
func (p onServers) serving(t *testing.T, args ...string) (r *running, addr string) {
	t.Helper()
	r = p.start(t, append(args, "-c", p.file)...)
	r.until("it listens", func() bool {
		m := httpAddr.FindStringSubmatch(r.err.String())
		if m != nil {
			addr = m[1]
		}
		return m != nil
	})
	r.until("it is ready", func() bool {
		res, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return r, addr
}

// state is what status --json says of the servers.
type state struct {
	Ready   bool
	Primary string
	Servers []struct {
		Name, Role string
		Eligible   bool
		Tainted    []string
	}
}

func (p place) status(t *testing.T, addr string) (s state) {
	t.Helper()
	oneDocument(t, p.call(t, "status", "--json", "--addr", addr).want(t, exitOK).out, &s)
	return s
}

func execSQL(t *testing.T, s *testenv.Server, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if err := s.Exec(testenvtest.Context(t, stepTimeout), sql); err != nil {
			t.Fatalf("%s: %s: %v", s.Name(), sql, err)
		}
	}
}

// servers are a primary and two replicas for the commands that ask servers, as
// long as TestOnServers runs.
var servers *testenv.Cluster

// The commands that ask servers, one after the other on the same three.
func TestOnServers(t *testing.T) {
	servers = testenvtest.Cluster(t, testenv.Options{})
	a, b, c := servers.Servers()[0], servers.Servers()[1], servers.Servers()[2]
	execSQL(t, a, "CREATE TABLE app.posts (id INT PRIMARY KEY, v INT)", "INSERT INTO app.posts VALUES (1, 1)")
	if err := servers.WaitInSync(testenvtest.Context(t, stepTimeout)); err != nil {
		t.Fatal(err)
	}
	t.Run("check", func(t *testing.T) { checkMends(t, a, b, c) })
	t.Run("run", testRun)
	t.Run("tail and serve", testTailAndServe)
	t.Run("observe", func(t *testing.T) { testObserve(t, a, b) })
	t.Run("observe old write", func(t *testing.T) { testObserveOldWrite(t, a, b) })
	t.Run("accept", func(t *testing.T) { testAccept(t, a, c) })
}

// What check prints as SQL does mend what it found.
func checkMends(t *testing.T, a, b, c *testenv.Server) {
	p := newOnServers(t, "")
	clean := p.call(t, "check", "-c", p.file).want(t, exitOK)
	if clean.out != "3 server(s), 0 finding(s), 0 of them broken\n" || clean.err != "" {
		t.Fatalf("servers as the sandbox makes them: %s%s", clean.out, clean.err)
	}
	mistyped := newOnServers(t, "keys: {app.posts: [nocol], app.pots: [v]}\n")
	if r := mistyped.call(t, "check", "-c", mistyped.file).want(t, exitFound); !strings.Contains(r.out, "a: broken: keys: table app.posts has no column \"nocol\"") ||
		!strings.Contains(r.out, "a: warning: keys: there is no table app.pots\n") || !strings.HasSuffix(r.out, "2 finding(s), 1 of them broken\n") {
		t.Errorf("mistyped keys: %s%s", r.out, r.err)
	}
	execSQL(t, a, "SET PERSIST sync_binlog = 100", "SET PERSIST binlog_row_metadata = MINIMAL", "SET PERSIST binlog_expire_logs_seconds = 3600",
		"SET PERSIST binlog_error_action = IGNORE_ERROR")
	execSQL(t, b, "SET PERSIST innodb_flush_log_at_trx_commit = 2", "SET PERSIST binlog_row_image = MINIMAL", "SET PERSIST binlog_row_value_options = PARTIAL_JSON",
		"SET PERSIST binlog_order_commits = OFF", "SET PERSIST super_read_only = OFF", "SET PERSIST gtid_mode = ON_PERMISSIVE")
	execSQL(t, c, "SET PERSIST super_read_only = OFF", "SET PERSIST read_only = OFF", "STOP REPLICA SQL_THREAD",
		"SET PERSIST replica_preserve_commit_order = OFF", "CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 60", "START REPLICA SQL_THREAD")
	type finding struct{ Server, Severity, What, Why, Mend string }
	var findings []finding
	oneDocument(t, p.call(t, "check", "--json", "-c", p.file).want(t, exitFound).out, &findings)
	byServer := map[string]int{}
	for _, f := range findings {
		byServer[f.Server]++
		if f.What == "" || f.Why == "" || f.Mend == "" {
			t.Errorf("finding %+v says too little", f)
		}
	}
	if byServer["a"] != 4 || byServer["b"] != 6 || byServer["c"] != 3 {
		t.Errorf("findings: %d on a, %d on b, %d on c; want 4, 6, 3: %+v", byServer["a"], byServer["b"], byServer["c"], findings)
	}
	text := p.call(t, "check", "-c", p.file).want(t, exitFound)
	if !strings.Contains(text.out, "\n    mend: SET PERSIST sync_binlog = 1\n") || !strings.Contains(text.out, "why:") || text.err != "" {
		t.Errorf("as text:\n%s\nstandard error: %s", text.out, text.err)
	}
	byName := map[string]*testenv.Server{"a": a, "b": b, "c": c}
	for _, f := range findings {
		for sql := range strings.SplitSeq(f.Mend, ";") {
			execSQL(t, byName[f.Server], strings.TrimSpace(sql))
		}
	}
	if after := p.call(t, "check", "-c", p.file).want(t, exitOK); after.out != clean.out {
		t.Errorf("after the SQL that mends:\n%s", after.out)
	}

	// An account without its privileges, on every server, since it replicates.
	user := "'" + testenv.TidegateUser + "'@'%'"
	execSQL(t, a, "REVOKE REPLICATION SLAVE, SELECT ON *.* FROM "+user)
	if err := servers.WaitInSync(testenvtest.Context(t, stepTimeout)); err != nil {
		t.Fatal(err)
	}
	oneDocument(t, p.call(t, "check", "--json", "-c", p.file).want(t, exitFound).out, &findings)
	for _, f := range findings {
		if f.Server == "a" && strings.Contains(f.What, "lacks") {
			execSQL(t, a, f.Mend)
		}
	}
	if err := servers.WaitInSync(testenvtest.Context(t, stepTimeout)); err != nil {
		t.Fatal(err)
	}
	if after := p.call(t, "check", "-c", p.file).want(t, exitOK); after.out != clean.out {
		t.Errorf("after the GRANT that check printed:\n%s", after.out)
	}
}

// run ends in order at Ctrl-C and SIGTERM, and goes on after a SIGKILL.
func testRun(t *testing.T) {
	p := newOnServers(t, "")
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
		r, addr := p.serving(t, "run")
		if procs := r.descendants(); len(procs) > 0 {
			t.Errorf("it runs other processes: %v", procs)
		}
		table := p.call(t, "status", "--addr", addr).want(t, exitOK)
		lines := strings.Split(strings.TrimSpace(table.out), "\n")
		if len(lines) != 5 || !strings.HasPrefix(lines[0], "router: ready; primary: a; watermark age: ") || !strings.Contains(lines[0], "; oldest in the stream: ") ||
			!strings.HasPrefix(lines[1], "SERVER ") || !strings.HasPrefix(lines[2], "a ") || !strings.Contains(lines[2], "primary (announced)") || table.err != "" {
			t.Errorf("status prints\n%s%s", table.out, table.err)
		}
		s := p.status(t, addr)
		if !s.Ready || s.Primary != "a" || len(s.Servers) != 3 || s.Servers[1].Role != "replica" {
			t.Errorf("status --json: %+v", s)
		}
		got := r.end(signal)
		if got.out != "" {
			t.Errorf("%v: standard output:\n%s", signal, got.out)
		}
		if signal != syscall.SIGKILL && (got.code != exitOK || strings.Contains(got.err, "cut off from the stream")) {
			t.Errorf("%v: exit code %d\n%s", signal, got.code, got.err)
		}
		if left := listing(t, p.tmp); left != "" {
			t.Errorf("%v: temporary files are left: %s", signal, left)
		}
	}
	if got := listing(t, p.dir); got != "data tidegate.yaml" {
		t.Errorf("it made %s", got)
	}
}

// tail and serve as processes of their own, with NATS between them.
func testTailAndServe(t *testing.T) {
	nats := testenvtest.NATS(t, testenv.NATSOptions{MaxFileStore: 8 << 30})
	p := newOnServers(t, fmt.Sprintf("nats: {url: %q}\n", nats.URL()))
	secured, askSecured := servesOverTLS(t, p)
	secured.until("it says what it waits for", func() bool {
		return strings.Contains(secured.err.String(), "waiting for a tailer to make the streams: start tidegate tail, or run, ")
	})
	tail := p.start(t, "tail", "-c", p.file)
	tail.until("it writes", func() bool { return strings.Contains(tail.err.String(), "announced primary") })
	serve, addr := p.serving(t, "serve")
	if s := p.status(t, addr); s.Primary != "a" {
		t.Errorf("status: %+v", s)
	}
	askSecured()
	for name, r := range map[string]*running{"tail": tail, "serve": serve, "serve over TLS": secured} {
		if got := r.end(syscall.SIGTERM); got.code != exitOK || got.out != "" || strings.Contains(got.err, "cut off from the stream") {
			t.Errorf("%s: exit code %d, standard output %q\n%s", name, got.code, got.out, got.err)
		}
	}
}

// servesOverTLS starts a further serve, which knows its callers by certificates and
// by tokens; ask asks it as each of them.
func servesOverTLS(t *testing.T, p onServers) (r *running, ask func()) {
	t.Helper()
	certs, err := testenv.NewCertificates(p.tmp)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	tls := fmt.Sprintf("resp: \"off\", tls: {cert_file: %q, key_file: %q, client_ca_file: %q}}\n", certs.CertFile, certs.KeyFile, certs.CAFile)
	const token = "0123456789abcdef"
	more := "auth: {clients: [{name: tidegate sandbox client, roles: [read]}], tokens: [{name: reader, token: \"" + token + "\", roles: [read]}]}\n"
	file := p.place.file(t, "tls.yaml", strings.NewReplacer("resp: \"off\"}\n", tls, "/data\"", "/data-tls\"").Replace(string(text))+more)
	r = p.start(t, "serve", "-c", file)
	return r, func() {
		t.Helper()
		var addr string
		r.until("it listens", func() bool {
			if m := httpAddr.FindStringSubmatch(r.err.String()); m != nil {
				addr = m[1]
			}
			return addr != ""
		})
		status := []string{"status", "--addr", addr, "--ca", certs.CAFile}
		for _, as := range [][]string{{"--cert", certs.ClientCertFile, "--key", certs.ClientKey}, {"--token", token}} {
			r.until("it is ready", func() bool {
				return strings.HasPrefix(p.call(t, append(status, as...)...).want(t, exitOK).out, "router: ready; primary: a; ")
			})
		}
		if r := p.call(t, status...).want(t, exitFound); !strings.Contains(r.err, "unauthorized: a bearer token or a client certificate is needed") {
			t.Errorf("without either: %q", r.err)
		}
	}
}

// observe counts reads that were stale, and reads of the primary without need.
func testObserve(t *testing.T, a, b *testenv.Server) {
	p := newOnServers(t, "")
	untilJudged(t, func() bool {
		var tally observe.Tally
		oneDocument(t, observeReads(t, p, a, b, "observe", "--json"), &tally)
		if tally.Reads != 3*readsEach || tally.Stale > readsEach || tally.NeedlessPrimary > readsEach ||
			tally.Undecided > 3*readsEach-tally.Stale-tally.NeedlessPrimary {
			t.Errorf("tally %+v", tally)
		}
		return tally.Stale > 0 && tally.NeedlessPrimary > 0
	})
	untilJudged(t, func() bool { return checkTallies(t, observeReads(t, p, a, b, "observe")) })
}

// observeReads reports reads of all servers while b lacks the write, and returns
// what the program prints of them.
func observeReads(t *testing.T, p onServers, a, b *testenv.Server, args ...string) string {
	t.Helper()
	r, addr := p.serving(t, args...)
	if err := b.StopSQLThread(testenvtest.Context(t, stepTimeout)); err != nil {
		t.Fatal(err)
	}
	execSQL(t, a, "UPDATE app.posts SET v = v + 1 WHERE id = 1")
	reportReads(t, addr, "a", "b", "c")
	got := r.end(syscall.SIGINT).want(t, exitOK)
	if err := b.StartSQLThread(testenvtest.Context(t, stepTimeout)); err != nil {
		t.Fatal(err)
	}
	return got.out
}

// checkTallies holds observe's table against what each server did. It tells
// whether some reads of each were judged.
func checkTallies(t *testing.T, table string) (judged bool) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if len(lines) < 5 || strings.Join(strings.Fields(lines[0]), " ") != "SERVER READS STALE NEEDLESS PRIMARY UNDECIDED" {
		t.Fatalf("table:\n%s", table)
	}
	judged = true
	for i, name := range []string{"a", "b", "c", "all"} {
		var got string
		var reads, stale, needless, undecided int
		if _, err := fmt.Sscan(lines[i+1], &got, &reads, &stale, &needless, &undecided); err != nil || got != name {
			t.Fatalf("line %q: %v", lines[i+1], err)
		}
		ok := map[string]bool{
			"a":   reads == readsEach && stale == 0 && needless+undecided <= reads,
			"b":   reads == readsEach && needless == 0 && stale+undecided == reads,
			"c":   reads == readsEach && stale == 0 && needless == 0,
			"all": reads == 3*readsEach,
		}
		if !ok[name] {
			t.Errorf("%s is wrong in\n%s", name, table)
		}
		some := map[string]bool{"a": needless > 0, "b": stale > 0, "c": undecided < reads, "all": stale > 0 && needless > 0}
		judged = judged && some[name]
	}
	for _, line := range lines[5:] {
		if !strings.HasPrefix(line, "undecided: ") {
			t.Errorf("line %q", line)
		}
	}
	return judged
}

// serves asks the router whether a server shows the post.
func serves(t *testing.T, addr, server string) bool {
	t.Helper()
	res, err := http.Get("http://" + addr + "/v1/serve?replica=" + server + "&key=app.posts/1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var ans struct{ Serve bool }
	if err := json.NewDecoder(res.Body).Decode(&ans); err != nil {
		t.Fatal(err)
	}
	return ans.Serve
}

// A table that a replica wrote by itself is excluded there until it is accepted.
func testAccept(t *testing.T, a, c *testenv.Server) {
	p := newOnServers(t, "")
	r, addr := p.serving(t, "run")
	tainted := func() string {
		for _, s := range p.status(t, addr).Servers {
			if s.Name == "c" {
				return strings.Join(s.Tainted, " ")
			}
		}
		return "no server c"
	}
	accept := func(more ...string) result {
		return p.call(t, append([]string{"accept", "--addr", addr, "--server", "c", "--reason", "a test"}, more...)...)
	}
	if got := accept("--table", "app.posts").want(t, exitFound); !strings.Contains(got.err, "nothing to accept") || got.out != "" {
		t.Errorf("a table without fault: %q, %q", got.out, got.err)
	}
	executed, err := a.QueryString(testenvtest.Context(t, stepTimeout), "SELECT @@GLOBAL.gtid_executed")
	if err != nil {
		t.Fatal(err)
	}
	execSQL(t, a, "UPDATE app.posts SET v = v + 1 WHERE id = 1") // the stream knows the table by name
	testenvtest.WaitUntil(t, stepTimeout, func() (bool, string) { return serves(t, addr, "c"), "c does not show the row" })
	if got := accept("--gtids", strings.ReplaceAll(executed, "\n", "")).want(t, exitFound); !strings.Contains(got.err, "nothing to accept: nothing speaks against ") || got.out != "" {
		t.Errorf("transactions without fault: %q, %q", got.out, got.err)
	}
	execSQL(t, c, "SET GLOBAL super_read_only = OFF", "INSERT INTO app.posts VALUES (1000, 1)", "SET GLOBAL super_read_only = ON")
	testenvtest.WaitUntil(t, stepTimeout, func() (bool, string) {
		got := tainted()
		return got == "app.posts", "tainted: " + got
	})
	if table := p.call(t, "status", "--addr", addr).want(t, exitOK); !strings.Contains(table.out, "tainted: app.posts") {
		t.Errorf("status does not show it:\n%s", table.out)
	}
	if got := accept("--table", "app.posts").want(t, exitOK); got.out != "accepted; c is now: eligible\n" || got.err != "" {
		t.Errorf("got %q, %q", got.out, got.err)
	}
	testenvtest.WaitUntil(t, stepTimeout, func() (bool, string) {
		got := tainted()
		return got == "", "tainted: " + got
	})
	// The servers do not tell what was accepted.
	if check := p.call(t, "check", "-c", p.file).want(t, exitOK); !strings.Contains(check.out, "c: warning: has executed ") ||
		!strings.Contains(check.out, "What tidegate accept was given is not known here") {
		t.Errorf("check after it was accepted:\n%s", check.out)
	}
	r.end(syscall.SIGTERM).want(t, exitOK)
}
