package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"tidegate/binlog"
	"tidegate/cmd/internal/daemon"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestTLSToMySQL: servers that take nothing but TLS. All that the program does
// with them goes over it, and what the configuration has wrong about it is
// refused in words that mend it.
func TestTLSToMySQL(t *testing.T) {
	w := newWorldOn(t, testenv.Options{Servers: 2, RequireTLS: true})
	a, b := w.c.Primary(), w.c.Replicas()[0]
	// mysqld's own certificates name nothing, and its authority is in its data
	// folder; each server here has the same one.
	own := fmt.Sprintf("enabled: true, verify: ca, ca_file: %q", a.CAFile())

	t.Run("refused", func(t *testing.T) {
		certs, err := testenv.NewCertificates(t.TempDir())
		w.must(err)
		for name, c := range map[string]struct{ tls, what, mend string }{
			"no TLS":          {"enabled: false", "over TLS only (require_secure_transport is ON)", "tls: {enabled: true"},
			"other authority": {fmt.Sprintf("enabled: true, verify: ca, ca_file: %q", certs.CAFile), "certificate is not trusted", "tls.ca_file"},
			"no name":         {fmt.Sprintf("enabled: true, ca_file: %q", a.CAFile()), "certificate does not name it", "tls.verify: ca"},
		} {
			t.Run(name, func(t *testing.T) { w.refusedTLS(t, c.tls, c.what, c.mend) })
		}
	})
	t.Run("own certificates", func(t *testing.T) { w.overTLS(t, own) })

	// Certificates that name 127.0.0.1, and an account that must show its own.
	certs, err := testenv.NewCertificates(t.TempDir())
	w.must(err)
	for _, s := range []*testenv.Server{a, b} {
		w.must(s.Exec(w.ctx, fmt.Sprintf("SET GLOBAL ssl_ca='%s', GLOBAL ssl_cert='%s', GLOBAL ssl_key='%s'; ALTER INSTANCE RELOAD TLS", certs.CAFile, certs.CertFile, certs.KeyFile)))
	}
	w.must(a.Exec(w.ctx, fmt.Sprintf("ALTER USER '%s'@'%%' REQUIRE X509", testenv.TidegateUser)))
	w.must(w.c.WaitInSync(w.ctx))
	t.Run("unknown authority", func(t *testing.T) { w.refusedTLS(t, "enabled: true", "certificate is not trusted", "tls.ca_file") })
	named := fmt.Sprintf("enabled: true, ca_file: %q", certs.CAFile)
	t.Run("no client certificate", func(t *testing.T) { w.refusedTLS(t, named, "Access denied", "password") })
	named += fmt.Sprintf(", cert_file: %q, key_file: %q", certs.ClientCertFile, certs.ClientKey)
	t.Run("other name", func(t *testing.T) {
		w.refusedTLS(t, named+", server_name: db.example", "certificate does not name it", "tls.server_name")
	})
	t.Run("client certificate", func(t *testing.T) { w.overTLS(t, named) })
	t.Run("server name", func(t *testing.T) { w.overTLS(t, named+", server_name: localhost") })
}

// refusedTLS runs the program and wants it to end with a refusal.
func (w *world) refusedTLS(t *testing.T, tls, what, mend string) {
	t.Helper()
	p, err := w.open(everything, settings{dir: t.TempDir(), tls: tls})
	w.must(err)
	ctx, cancel := context.WithTimeout(w.ctx, settle)
	defer cancel()
	err = p.Run(ctx)
	w.must(p.Close())
	var refused *binlog.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Reason, what) || !strings.Contains(refused.Mend, mend) {
		t.Errorf("run: %v; want a refusal: %s ... %s", err, what, mend)
	}
	// The same words from the look that check takes.
	cfg, err := w.config(settings{tls: tls})
	w.must(err)
	list, err := daemon.ServerConfigs(cfg, nil)
	w.must(err)
	db, err := list[0].OpenDB()
	w.must(err)
	defer func() { w.must(db.Close()) }()
	in, err := binlog.Gather(ctx, db, &list[0])
	if what == "Access denied" {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("check: %v; want %s", err, what)
		}
		return
	}
	w.must(err)
	found := in.Findings()
	if len(found) != 1 || found[0].Severity != binlog.Broken || !strings.Contains(found[0].What, what) || !strings.Contains(found[0].Mend, mend) {
		t.Errorf("check: %v; want %s ... %s", found, what, mend)
	}
}

// overTLS runs the program under load, and looks at each of its connections.
func (w *world) overTLS(t *testing.T, tls string) {
	t.Helper()
	p := w.start(everything, settings{dir: t.TempDir(), tls: tls, more: "tail: {heartbeat: 100ms}\n"})
	defer p.end()
	p.ready()
	l := p.load()
	defer w.finish(l)
	w.everybody(l)
	for _, s := range w.c.Servers() {
		// Dumps and statements alike.
		rows := w.rows(s, "SELECT CONCAT(t.PROCESSLIST_COMMAND, '/', COALESCE(t.CONNECTION_TYPE,'')) FROM performance_schema.threads t WHERE t.PROCESSLIST_USER = ?", testenv.TidegateUser)
		var dumps, others int
		for _, r := range rows {
			command, kind, _ := strings.Cut(r, "/")
			if kind != "SSL/TLS" {
				t.Errorf("%s: a connection (%s) is %q, want SSL/TLS", s.Name(), command, kind)
			}
			if strings.HasPrefix(command, "Binlog Dump") {
				dumps++
			} else {
				others++
			}
		}
		if dumps == 0 || others == 0 {
			t.Errorf("%s: %d dumps and %d other connections: %q", s.Name(), dumps, others, rows)
		}
	}
	// A look-up of a definition, and a canary's kind of read, are further ones.
	w.must(w.c.Primary().Exec(w.ctx, "CREATE TABLE IF NOT EXISTS app.looked (id INT PRIMARY KEY, v INT); INSERT INTO app.looked VALUES (1,1) ON DUPLICATE KEY UPDATE v=v+1"))
	w.yes(p, w.c.Replicas()[0].Name(), "app.looked/1")
}

// rows are the first column of a query's rows.
func (w *world) rows(s *testenv.Server, query string, args ...any) (out []string) {
	w.t.Helper()
	rows, err := s.DB().QueryContext(w.ctx, query, args...)
	w.must(err)
	defer func() { w.must(rows.Close()) }()
	for rows.Next() {
		var v string
		w.must(rows.Scan(&v))
		out = append(out, v)
	}
	w.must(rows.Err())
	return out
}

// yes waits until the server may be read for the key.
func (w *world) yes(p *program, server, k string) {
	w.t.Helper()
	testenvtest.WaitUntil(w.t, settle, func() (bool, string) {
		a, err := askRouter(p.Router)(w.ctx, question{server: server, key: k})
		if err != nil {
			return false, err.Error()
		}
		return a.yes, fmt.Sprintf("%s for %s: %s", server, k, a)
	})
}

// TestColdPasswordCache: caching_sha2_password without TLS sends the password
// under the server's public key when the server does not remember it: after a
// restart, and after FLUSH PRIVILEGES, of all of which only the connections of
// the program are lost here.
func TestColdPasswordCache(t *testing.T) {
	w, p, l := newRunning(t)
	for _, s := range w.c.Servers() {
		plugin, err := s.QueryString(w.ctx, "SELECT plugin FROM mysql.user WHERE user=?", testenv.TidegateUser)
		w.must(err)
		if plugin != "caching_sha2_password" {
			t.Fatalf("%s: plugin %q", s.Name(), plugin)
		}
		w.must(s.Exec(w.ctx, "FLUSH LOCAL PRIVILEGES"))
		ids := w.rows(s, "SELECT ID FROM information_schema.PROCESSLIST WHERE USER=?", testenv.TidegateUser)
		if len(ids) < 2 {
			t.Fatalf("%s: connections %v", s.Name(), ids)
		}
		for _, id := range ids {
			if err := s.Exec(w.ctx, "KILL "+id); err != nil && !strings.Contains(err.Error(), "1094") { // gone already
				t.Fatal(err)
			}
		}
		testenvtest.WaitUntil(t, settle, func() (bool, string) {
			st := p.state(s)
			for _, id := range w.rows(s, "SELECT ID FROM information_schema.PROCESSLIST WHERE USER=?", testenv.TidegateUser) {
				for _, old := range ids {
					if id == old {
						return false, "connection " + id + " is still there"
					}
				}
			}
			return st.Alive, "down: " + st.Down
		})
	}
	w.everybody(l)
}
