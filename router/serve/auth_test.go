package serve_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tidegate/router"
	"tidegate/router/routertest"
	"tidegate/router/serve"
)

const (
	readToken  = "read-token-0123456789"
	writeToken = "write-token-0123456789"
)

func testAuth(t testing.TB) *serve.Auth {
	t.Helper()
	a, err := serve.NewAuth([]serve.Credential{
		{Name: "reader", Token: readToken, Roles: serve.RoleRead},
		{Name: "writer", Token: writeToken, Roles: serve.RoleWriteSession},
		{Name: "machine", CertName: "app.example", Roles: serve.RoleRead},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestListenerBeyondLoopbackNeedsAuth(t *testing.T) {
	r, err := router.New(router.Options{View: func() router.Snapshot { return routertest.Healthy(t) }, Clock: func() int64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		for _, o := range []serve.Options{{Router: r, HTTPAddr: addr}, {Router: r, RESPAddr: addr}} {
			s, err := serve.Open(context.Background(), o)
			if err == nil || !strings.Contains(err.Error(), "needs auth") {
				t.Errorf("%+v: got %v, want a refusal", o.HTTPAddr+o.RESPAddr, err)
			}
			if s != nil {
				_ = s.Close()
			}
			o.Auth = testAuth(t)
			if s, err = serve.Open(context.Background(), o); err != nil {
				t.Errorf("with auth: %v", err)
			} else if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestBearerAndRoles(t *testing.T) {
	s := start(t, routertest.Healthy(t), func(o *serve.Options, _ *router.Options) { o.Auth = testAuth(t) })
	for _, c := range []struct {
		header string
		want   int
		says   string // of the error
	}{
		{"", 401, "is needed"},
		{"Bearer nonsense", 401, "no caller is known by this bearer token"},
		{"Basic " + readToken, 401, "is wanted once, as Bearer and a token"},
		{"Bearer " + writeToken, 403, "lacks the role"},
		{"Bearer " + readToken, 200, ""},
		{"bearer " + readToken, 200, ""},
	} {
		for _, path := range []string{"/v1/serve?replica=b&level=eventual", "/v1/servers", "/v1/keys?key=app.posts/1", "/v1/servers/b/eligible"} {
			status, h, body := s.do("GET", path, "", "Authorization", c.header)
			if status != c.want || !strings.Contains(body, c.says) {
				t.Errorf("%q %s: got %d %s, want %d %s", c.header, path, status, body, c.want, c.says)
			}
			if status == 401 && h.Get("WWW-Authenticate") == "" {
				t.Error("401 without WWW-Authenticate")
			}
		}
		for _, path := range []string{"/v1/route", "/v1/batch"} {
			body := `{"level":"eventual"}`
			if path == "/v1/batch" {
				body = `{"requests":[` + body + `]}`
			}
			if status, _, _ := s.do("POST", path, body, "Authorization", c.header); status != c.want {
				t.Errorf("%q %s: got %d, want %d", c.header, path, status, c.want)
			}
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			if status, _, _ := s.do("GET", path, "", "Authorization", c.header); status != 200 {
				t.Errorf("%q %s: got %d, want 200 for everybody", c.header, path, status)
			}
		}
	}
}

func TestRESPAuth(t *testing.T) {
	s := start(t, routertest.Healthy(t), func(o *serve.Options, _ *router.Options) { o.Auth = testAuth(t) })
	c := dialRESP(t, s)
	serveB := cmd("SERVE", "b", "LEVEL", "eventual")
	for _, step := range []struct{ send, want string }{
		{serveB, "-NOAUTH "},
		{cmd("SERVERS"), "-NOAUTH "},
		{cmd("INFO"), "-NOAUTH "},
		{cmd("HELLO", "3"), "-NOAUTH "},
		{cmd("PING"), "+PONG"},
		{cmd("AUTH", "nonsense"), "-WRONGPASS "},
		{cmd("AUTH", "writer", readToken), "-WRONGPASS "},
		{cmd("AUTH", "a", "b", "c"), "-ERR bad_field "},
		{cmd("HELLO", "2", "AUTH", "default", "nonsense"), "-WRONGPASS "},
		{serveB, "-NOAUTH "},
		{cmd("AUTH", writeToken), "+OK"},
		{serveB, "-NOPERM "},
		{cmd("AUTH", "reader", readToken), "+OK"},
		{serveB, "*7"},
	} {
		c.send(step.send)
		if got := c.line(); !strings.HasPrefix(got, step.want) {
			t.Fatalf("%q: got %q, want %q", step.send, got, step.want)
		}
	}
	open := dialRESP(t, start(t, routertest.Healthy(t)))
	open.send(cmd("AUTH", "x"))
	if got := open.line(); !strings.HasPrefix(got, "-ERR ") {
		t.Errorf("AUTH without auth: got %q", got)
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	c := serve.Credential{Name: "reader", Token: readToken, Roles: serve.RoleRead}
	if s := fmt.Sprintf("%v %+v %#v %s", c, c, c, c); strings.Contains(s, readToken) {
		t.Errorf("the token is printed: %s", s)
	}
	_, err := serve.NewAuth([]serve.Credential{{Name: "x", Token: "short-secret"}, {}})
	if err == nil || strings.Contains(err.Error(), "short-secret") {
		t.Errorf("got %v", err)
	}
	for _, part := range []string{"role", "shorter than", "no name", "neither a token"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not tell of %q", err, part)
		}
	}
}

// authority signs certificates for one test.
type authority struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	dir  string
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: k, cert: cert, dir: t.TempDir()}
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// issue signs a certificate and returns its files.
func (a *authority) issue(name string) (certFile, keyFile string) {
	a.t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	tpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tpl, a.cert, &k.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	kd, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name+".pem", "CERTIFICATE", der), a.write(name+".key", "EC PRIVATE KEY", kd)
}

func TestTLSAndClientCertificates(t *testing.T) {
	ca := newAuthority(t)
	certFile, keyFile := ca.issue("router.example")
	conf, err := serve.LoadTLS(certFile, keyFile, filepath.Join(ca.dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, routertest.Healthy(t), func(o *serve.Options, _ *router.Options) { o.Auth, o.TLS = testAuth(t), conf })
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	clientConf := func(by *authority, name string) *tls.Config {
		c := &tls.Config{RootCAs: pool, ServerName: "router.example"}
		if name != "" {
			cf, kf := by.issue(name)
			pair, err := tls.LoadX509KeyPair(cf, kf)
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		return c
	}
	other := newAuthority(t)
	for _, c := range []struct {
		by          *authority
		name, token string
		want        int // 0: no connection
		says        string
	}{
		{ca, "app.example", "", 200, ""},
		{ca, "app.example", "nonsense", 200, ""}, // the certificate tells who it is
		{ca, "stranger.example", "", 401, "no caller is known by a name in this client certificate"},
		{ca, "stranger.example", readToken, 200, ""},
		{ca, "", "", 401, "a bearer token or a client certificate is needed"},
		{ca, "", "nonsense", 401, "no caller is known by this bearer token"},
		{ca, "", writeToken, 403, ""},
		{ca, "", readToken, 200, ""},
		{other, "app.example", readToken, 0, ""},
	} {
		conf := clientConf(c.by, c.name)
		if len(conf.Certificates) > 0 { // shown also where its authority is not asked for
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &conf.Certificates[0], nil }
		}
		tr := &http.Transport{TLSClientConfig: conf}
		req, err := http.NewRequest("GET", strings.Replace(s.url, "http:", "https:", 1)+"/v1/serve?replica=b&level=eventual", nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		res, err := (&http.Client{Transport: tr}).Do(req)
		got, body := 0, []byte{}
		if err == nil {
			got = res.StatusCode
			body, _ = io.ReadAll(res.Body)
			_ = res.Body.Close()
		}
		if got != c.want || !strings.Contains(string(body), c.says) {
			t.Errorf("certificate %q, token %q: got %d %s, %v; want %d %s", c.name, c.token, got, body, err, c.want, c.says)
		}
		tr.CloseIdleConnections()
	}
	for name, o := range map[string]*redis.Options{
		"certificate": {TLSConfig: clientConf(ca, "app.example")},
		"token":       {TLSConfig: clientConf(ca, ""), Password: readToken},
	} {
		o.Addr = s.resp
		rdb := redis.NewClient(o)
		if got, err := rdb.Do(context.Background(), "SERVE", "b", "LEVEL", "eventual").Slice(); err != nil || got[0] != int64(1) {
			t.Errorf("RESP over TLS with a %s: got %v, %v", name, got, err)
		}
		_ = rdb.Close()
	}
}

// A certificate that is only looked at keeps nobody out by itself.
func TestClientCertificatesNeedAuth(t *testing.T) {
	ca := newAuthority(t)
	certFile, keyFile := ca.issue("router.example")
	conf, err := serve.LoadTLS(certFile, keyFile, filepath.Join(ca.dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := router.New(router.Options{View: func() router.Snapshot { return routertest.Healthy(t) }, Clock: func() int64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve.Open(context.Background(), serve.Options{Router: r, HTTPAddr: "127.0.0.1:0", TLS: conf})
	if err == nil {
		_ = s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "without auth") {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestLoadTLSNamesWhatIsWrong(t *testing.T) {
	ca := newAuthority(t)
	certFile, keyFile := ca.issue("router.example")
	if _, err := serve.LoadTLS("/nowhere", keyFile, ""); err == nil {
		t.Error("accepted a missing certificate")
	}
	if _, err := serve.LoadTLS("/nowhere", keyFile, "/nowhere-else"); err == nil || !strings.Contains(err.Error(), "/nowhere:") || !strings.Contains(err.Error(), "/nowhere-else:") {
		t.Errorf("two missing files: got %v", err)
	}
	if _, err := serve.LoadTLS(certFile, keyFile, keyFile); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("a CA file without a certificate: got %v", err)
	}
}
