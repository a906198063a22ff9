package cdc_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/testenv"
)

func TestOptionsAreRefusedTogether(t *testing.T) {
	_, err := cdc.Open(t.Context(), cdc.Options{Replicas: 2, WritesMaxAge: 1, WritesMaxBytes: 1, Token: "t"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"no name", "data_dir", "1 or 3", "one replica", "one minute", "16 MiB", "no logger", "credentials"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %q: %v", want, err)
		}
	}
}

func TestStoreOfAnotherCluster(t *testing.T) {
	dir := t.TempDir()
	c, err := cdc.Open(t.Context(), options(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cdc.Open(t.Context(), options(t, dir)); !errors.Is(err, cdc.ErrStoreInUse) {
		t.Errorf("a second process opened the store: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	o := options(t, dir)
	o.Cluster = "bank"
	if _, err := cdc.Open(t.Context(), o); !errors.Is(err, cdc.ErrOtherCluster) || !strings.Contains(err.Error(), "shop") {
		t.Errorf("store of shop opened for bank: %v", err)
	}
}

// TestStoreSurvivesTheProcess: what was stored is there after a restart, with
// the same secret and growing numbers.
func TestStoreSurvivesTheProcess(t *testing.T) {
	dir := t.TempDir()
	c, err := cdc.Open(t.Context(), options(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	secret := c.Secret()
	epoch, err := c.NextEpoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := write(t, c, cdc.WriterOptions{}, facts(upTo(0)))
	w.numbered(t, 1, 10)
	w.stored(t, 10)
	w.end(t)
	generation := w.Generation()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = open(t, options(t, dir))
	if c.Secret() != secret {
		t.Error("another secret")
	}
	if again, err := c.NextEpoch(t.Context()); err != nil || again <= epoch {
		t.Errorf("epoch %d after %d, %v", again, epoch, err)
	}
	w = write(t, c, cdc.WriterOptions{}, facts(upTo(10)))
	if !w.from.Equal(upTo(10).Subtract(gtid.Of(ga(10)))) || w.Generation() <= generation {
		t.Errorf("dump from %v as generation %d after %d", w.from, w.Generation(), generation)
	}
	w.end(t)
}

// natsServer starts a server on a free port of this machine.
func natsServer(t *testing.T, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(hang) {
		t.Fatal("NATS server is not ready")
	}
	return s
}

func external(t *testing.T, url string) cdc.Options {
	return cdc.Options{Cluster: "shop", URL: url, Log: logger(t)}
}

// TestNoRoomForTheStream: the error says what to change.
func TestNoRoomForTheStream(t *testing.T) {
	s := natsServer(t, func(o *server.Options) { o.JetStreamMaxStore = 1 << 30 })
	if c, err := cdc.Open(t.Context(), external(t, s.ClientURL())); err == nil {
		t.Error("8 GiB fit into 1 GiB")
		c.Close()
	} else if !strings.Contains(err.Error(), "max_file_store") {
		t.Errorf("the error does not say what to change: %v", err)
	}
}

// TestTwoProcessesOpenAtOnce: creation is race-safe, and both have one secret.
func TestTwoProcessesOpenAtOnce(t *testing.T) {
	s := natsServer(t, nil)
	const n = 4
	conns := make(chan *cdc.Conn, n)
	errs := make(chan error, n)
	for range n {
		go func() {
			c, err := cdc.Open(t.Context(), external(t, s.ClientURL()))
			conns <- c
			errs <- err
		}()
	}
	secrets := map[any]bool{}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
		if c := <-conns; c != nil {
			secrets[c.Secret()] = true
			defer c.Close()
		}
	}
	if len(secrets) != 1 {
		t.Errorf("%d secrets", len(secrets))
	}
}

// TestReaderWaitsForTheWriter: a reader that comes first changes nothing and
// waits; so does who comes before NATS.
func TestReaderWaitsForTheWriter(t *testing.T) {
	s := natsServer(t, nil)
	o := external(t, s.ClientURL())
	o.Follow = true
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := cdc.Open(short, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("opened without streams: %v", err)
	}
	opened := make(chan error, 1)
	var reader *cdc.Conn
	go func() {
		var err error
		reader, err = cdc.Open(t.Context(), o)
		opened <- err
	}()
	writer := open(t, external(t, s.ClientURL()))
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	r := newRecorder()
	follow(t, reader, r)
	w := write(t, writer, cdc.WriterOptions{}, facts(upTo(0)))
	w.numbered(t, 1, 10)
	r.wantNumbered(t, 1, 10)
	w.end(t)
}

func TestNATSIsAwayAtTheStart(t *testing.T) {
	port := reserve(t)
	opened := start(t, func(ctx context.Context) error {
		c, err := cdc.Open(ctx, external(t, "nats://"+port.Addr()))
		if err != nil {
			return err
		}
		return c.Close()
	})
	select {
	case <-opened.done:
		t.Errorf("Open came back without a server: %v", opened.err)
	case <-time.After(200 * time.Millisecond):
	}
	natsServer(t, func(o *server.Options) { o.Port = port.Number })
	if err := opened.wait(t); err != nil {
		t.Error(err)
	}
}

func TestCredentialsAndTLS(t *testing.T) {
	cert, pool := certificate(t)
	s := natsServer(t, func(o *server.Options) {
		o.Username, o.Password = "tidegate", "secret"
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	})
	o := external(t, s.ClientURL())
	o.User, o.Password = "tidegate", "secret"
	o.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	c := open(t, o)
	if _, err := c.NextEpoch(t.Context()); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*cdc.Options){
		"another password": func(o *cdc.Options) { o.Password = "guess" },
		"unknown authority": func(o *cdc.Options) {
			o.TLS = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		},
	} {
		bad := o
		spoil(&bad)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if c, err := cdc.Open(ctx, bad); err == nil {
			t.Errorf("%s: connected", name)
			c.Close()
		} else if strings.Contains(err.Error(), "guess") {
			t.Errorf("%s: the error tells the password: %v", name, err)
		}
		cancel()
	}
}

func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &priv.PublicKey, priv)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: priv}, pool
}

// TestReplicatedStreams: three servers, three replicas; the stream's leader goes
// away under load, and every transaction is there once, in order.
func TestReplicatedStreams(t *testing.T) {
	servers := natsCluster(t)
	o := external(t, servers[0].ClientURL()+","+servers[1].ClientURL()+","+servers[2].ClientURL())
	o.Replicas = 3
	c := open(t, o)
	r := newRecorder()
	follow(t, c, r)
	w := write(t, c, cdc.WriterOptions{BatchBytes: 4000, QueueBytes: 40000}, facts(upTo(0)))
	r.wantStarted(t)
	const last = 5000
	appended := start(t, func(ctx context.Context) error {
		for n := int64(1); n <= last; n++ {
			if err := w.Append(ctx, tx(n)); err != nil {
				return err
			}
		}
		return nil
	})
	eventually(t, func() string {
		if w.Counters().Transactions < 500 {
			return "no progress"
		}
		return ""
	})
	s, err := c.JetStream().Stream(t.Context(), c.WritesStream())
	if err != nil {
		t.Fatal(err)
	}
	leader := s.CachedInfo().Cluster.Leader
	for _, s := range servers {
		if s.Name() == leader {
			s.Shutdown()
			s.WaitForShutdown()
		}
	}
	r.wantNumbered(t, 1, last)
	if err := appended.wait(t); err != nil {
		t.Error(err)
	}
	w.end(t)
}

// reserve holds a port that nobody listens on for the test.
func reserve(t *testing.T) *testenv.Port {
	t.Helper()
	port, err := testenv.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	return port
}

func natsCluster(t *testing.T) []*server.Server {
	t.Helper()
	var ports []int
	var urls []string
	for range 3 {
		port := reserve(t)
		ports = append(ports, port.Number)
		urls = append(urls, "nats://"+port.Addr())
	}
	routes := server.RoutesFromStr(strings.Join(urls, ","))
	var servers []*server.Server
	for i, port := range ports {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port}, Routes: routes,
		})
		if err != nil {
			t.Fatal(err)
		}
		go s.Start()
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		servers = append(servers, s)
	}
	eventually(t, func() string {
		for _, s := range servers {
			if s.JetStreamIsLeader() {
				return ""
			}
		}
		return "the cluster has no leader"
	})
	return servers
}

// TestClusterStillGathering: what JetStream answers while a cluster gathers or
// elects is waited for; what only its operator can change is not.
func TestClusterStillGathering(t *testing.T) {
	for code, want := range map[jetstream.ErrorCode]bool{
		10004: true, 10005: true, 10008: true, 10009: true,
		10002: false, 10023: false, 10047: false, 10074: false,
	} {
		err := fmt.Errorf("create stream: %w", &jetstream.APIError{ErrorCode: code})
		if got := cdc.IsTransport(err); got != want {
			t.Errorf("code %d: waited for %v, want %v", code, got, want)
		}
	}
}

// TestRequestEndsWithTheConnection: NATS tells nobody that a request over a lost
// connection will not be answered. Who waited for the timeout was deaf for as long
// after NATS was back.
func TestRequestEndsWithTheConnection(t *testing.T) {
	o := options(t, t.TempDir())
	o.RequestTimeout = time.Hour
	c := open(t, o)
	asked := make(chan struct{})
	request := start(t, func(ctx context.Context) error {
		return c.Bounded(ctx, func(ctx context.Context) error {
			close(asked)
			<-ctx.Done() // no answer comes
			return ctx.Err()
		})
	})
	<-asked
	c.StopServer()
	if err := request.wait(t); !errors.Is(err, cdc.ErrDisconnected) || errors.Is(err, context.Canceled) {
		t.Errorf("the request ended with %v, want %v and nothing that says who asked gave up", err, cdc.ErrDisconnected)
	}
	if err := c.StartServer(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if err := c.Bounded(t.Context(), func(context.Context) error { return nil }); err != nil {
			return err.Error()
		}
		if up, _ := c.Connected(); !up {
			return "not connected"
		}
		return ""
	})
}

// TestOpenIsNotInterrupted: the first connect ends no request, since none can
// have been lost with a connection before it.
func TestOpenIsNotInterrupted(t *testing.T) {
	var waited atomic.Bool
	o := options(t, t.TempDir())
	o.Log = slog.New(slog.NewTextHandler(&waitedForNATS{first: func() { waited.Store(true) }}, nil))
	open(t, o)
	if waited.Load() {
		t.Error("an embedded NATS was waited for")
	}
}

// waitedForNATS is a log that calls first at the first line that says so.
type waitedForNATS struct {
	text  bytes.Buffer
	first func()
	once  sync.Once
}

func (w *waitedForNATS) Write(line []byte) (int, error) {
	w.text.Write(line)
	if bytes.Contains(line, []byte("waiting for NATS")) {
		w.once.Do(w.first)
	}
	return len(line), nil
}

// Where nobody listens, the address and the reason are said, and no password;
// whenever who asked gave up, between two attempts or within one.
func TestNobodyListens(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	said := waitedForNATS{first: cancel}
	o := external(t, "nats://user:hidden@127.0.0.1:1")
	o.Log = slog.New(slog.NewTextHandler(&said, nil))
	_, err := cdc.Open(ctx, o)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("open: %v", err)
	}
	for _, text := range []string{err.Error(), said.text.String()} {
		if !strings.Contains(text, "no connection to NATS at nats://127.0.0.1:1: ") || !strings.Contains(text, "connection refused") {
			t.Errorf("no address or no reason in %q", text)
		}
		if strings.Contains(text, "hidden") || strings.Contains(text, "outbound buffer") {
			t.Errorf("got %q", text)
		}
	}
}

// The reason is what the newest attempt says that was not cut short, also when the
// end of who asked cuts the next one.
func TestRetryKeepsTheReason(t *testing.T) {
	c := cdc.MemoryConn("one", &cdc.MemoryStore{})
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := c.Retry(ctx, func(ctx context.Context) error {
		if calls++; calls == 1 {
			return cdc.ErrDisconnected
		}
		cancel()
		return fmt.Errorf("look up: %w", ctx.Err())
	})
	if calls != 2 || !errors.Is(err, context.Canceled) || !errors.Is(err, cdc.ErrDisconnected) {
		t.Errorf("after %d attempts: %v, want %v and %v", calls, err, context.Canceled, cdc.ErrDisconnected)
	}
}
