package testenv

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// NATSOptions say how NATS servers are run. JetStream is always on. The zero
// value is one open server in a temporary folder.
type NATSOptions struct {
	Provisioning

	// Dir is where the servers' folders go; kept at the end. Empty: temporary.
	Dir string
	// User and Password are what clients must give; both or none.
	User, Password string
	// TLS makes servers ask for TLS, with certificates of the sandbox's own;
	// VerifyClients asks clients for theirs too.
	TLS, VerifyClients bool
	// SyncAlways has JetStream fsync every message before it acknowledges it;
	// the default is NATS's own, every two minutes.
	SyncAlways bool
	// MaxFileStore bounds what JetStream stores, in bytes; 0: 1 GiB.
	MaxFileStore int64
	// Config is added to each server's configuration file.
	Config string
}

const defaultFileStore = 1 << 30

// NATSProcess is one nats-server as a process of its own, with its own folder
// and ports, which it keeps through stops, kills and starts.
type NATSProcess struct {
	*Process

	name                   string
	client, monitor, route *Port
	user, password         string
	certs                  *Certificates
}

// NATSCluster is a group of them.
type NATSCluster struct{ nodes []*NATSProcess }

// StartNATS starts one server and returns when its JetStream answers. The
// caller closes it.
func StartNATS(ctx context.Context, opts NATSOptions) (*NATSProcess, error) {
	c, err := startNATS(ctx, opts, 1)
	if err != nil {
		return nil, err
	}
	return c.nodes[0], nil
}

// StartNATSCluster starts a cluster of size servers (3 when 0) and returns when
// JetStream has a leader and every server is healthy. The caller closes it.
func StartNATSCluster(ctx context.Context, size int, opts NATSOptions) (*NATSCluster, error) {
	if size == 0 {
		size = 3
	}
	if size < 2 {
		return nil, fmt.Errorf("start nats: a cluster of %d", size)
	}
	return startNATS(ctx, opts, size)
}

func startNATS(ctx context.Context, opts NATSOptions, size int) (*NATSCluster, error) {
	if (opts.User == "") != (opts.Password == "") {
		return nil, errors.New("start nats: a user needs a password, and a password a user")
	}
	program, err := findNATS(ctx, opts.Provisioning)
	if err != nil {
		return nil, fmt.Errorf("start nats: %w", err)
	}
	c := &NATSCluster{}
	if err := c.start(ctx, program, opts, size); err != nil {
		return nil, errors.Join(fmt.Errorf("start nats: %w", err), c.Close())
	}
	return c, nil
}

func (c *NATSCluster) start(ctx context.Context, program string, opts NATSOptions, size int) error {
	for i := range size {
		n, err := newNATS(program, "n"+strconv.Itoa(i+1), opts, size > 1)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	var routes []string
	for _, n := range c.nodes {
		if n.route != nil {
			routes = append(routes, "nats://"+n.route.Addr())
		}
	}
	if opts.TLS {
		certs, err := NewCertificates(c.nodes[0].Dir())
		if err != nil {
			return err
		}
		for _, n := range c.nodes {
			n.certs = certs
		}
	}
	group, gctx := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		if err := os.WriteFile(n.configFile(), []byte(n.config(opts, routes)), 0o600); err != nil {
			return err
		}
		group.Go(func() error { return n.Start(gctx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := n.WaitHealthy(ctx); err != nil {
			return err
		}
	}
	return nil
}

func newNATS(program, name string, opts NATSOptions, clustered bool) (*NATSProcess, error) {
	cacheDir, err := opts.cacheDir()
	if err != nil {
		return nil, err
	}
	n := &NATSProcess{name: name, user: opts.User, password: opts.Password}
	ports := []**Port{&n.client, &n.monitor}
	if clustered {
		ports = append(ports, &n.route)
	}
	for _, p := range ports {
		if *p, err = reservePort(cacheDir); err != nil {
			n.releasePorts()
			return nil, err
		}
	}
	dir := opts.Dir
	if dir != "" {
		dir = filepath.Join(dir, name)
	}
	if err = makeFolder(dir); err == nil {
		n.Process, err = NewProcess(Program{Name: "nats " + name, Argv: []string{program}, Dir: dir, Ready: n.ready})
	}
	if err != nil {
		n.releasePorts()
		return nil, err
	}
	n.SetArgv(program, "-c", n.configFile())
	return n, nil
}

func (n *NATSProcess) configFile() string { return filepath.Join(n.Dir(), "nats.conf") }

// config is the server's configuration file. Quotes are those of NATS's own
// syntax, which takes Go's escapes.
func (n *NATSProcess) config(opts NATSOptions, routes []string) string {
	var b strings.Builder
	store := opts.MaxFileStore
	if store == 0 {
		store = defaultFileStore
	}
	fmt.Fprintf(&b, "server_name: %q\nlisten: %q\nhttp: %q\nlame_duck_duration: 30s\n", n.name, n.client.Addr(), n.monitor.Addr())
	fmt.Fprintf(&b, "jetstream {\n store_dir: %q\n max_file_store: %d\n max_memory_store: 268435456\n", n.StoreDir(), store)
	if opts.SyncAlways {
		b.WriteString(" sync_interval: always\n")
	}
	b.WriteString("}\n")
	if opts.User != "" {
		fmt.Fprintf(&b, "authorization { user: %q, password: %q }\n", opts.User, opts.Password)
	}
	if n.certs != nil {
		fmt.Fprintf(&b, "tls { cert_file: %q, key_file: %q, ca_file: %q, verify: %t }\n", n.certs.CertFile, n.certs.KeyFile, n.certs.CAFile, opts.VerifyClients)
	}
	if len(routes) > 0 {
		fmt.Fprintf(&b, "cluster {\n name: sandbox\n listen: %q\n routes: [%s]\n}\n", n.route.Addr(), strings.Join(routes, ", "))
	}
	b.WriteString(opts.Config)
	return b.String()
}

// Name is "n1", "n2" and so on.
func (n *NATSProcess) Name() string { return n.name }

// Addr is host:port for clients, on loopback; it stays the same.
func (n *NATSProcess) Addr() string { return n.client.Addr() }

// URL is Addr as a client wants it, with user and password when there are.
func (n *NATSProcess) URL() string { return n.urlOf(n.Addr()) }

// URLVia is URL with another address: that of a Proxy in front of it.
func (n *NATSProcess) URLVia(addr string) string { return n.urlOf(addr) }

func (n *NATSProcess) urlOf(addr string) string {
	u := url.URL{Scheme: "nats", Host: addr}
	if n.certs != nil {
		u.Scheme = "tls"
	}
	if n.user != "" {
		u.User = url.UserPassword(n.user, n.password)
	}
	return u.String()
}

// MonitorURL is the base of the server's monitoring pages (/healthz, /jsz).
func (n *NATSProcess) MonitorURL() string { return "http://" + n.monitor.Addr() }

// StoreDir is the folder of JetStream's files.
func (n *NATSProcess) StoreDir() string { return filepath.Join(n.Dir(), "jetstream") }

// Certificates are those of TLS; nil without.
func (n *NATSProcess) Certificates() *Certificates { return n.certs }

// ClientTLS is what a client needs to connect; nil without TLS.
func (n *NATSProcess) ClientTLS() (*tls.Config, error) {
	if n.certs == nil {
		return nil, nil
	}
	return n.certs.ClientConfig()
}

// ready says whether the server serves clients and has JetStream; a node whose
// cluster has no quorum is ready too.
func (n *NATSProcess) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := n.health(ctx, "?js-enabled-only=true"); err != nil {
		return err
	}
	line, err := ask(ctx, n.Addr(), "")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "INFO ") {
		return fmt.Errorf("nats says %q", strings.TrimSpace(line))
	}
	return nil
}

// WaitHealthy blocks until JetStream on this server is whole: it knows its
// leader, and its streams and consumers are caught up.
func (n *NATSProcess) WaitHealthy(ctx context.Context) error {
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		last := n.health(ctx, "")
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nats %s is not healthy: %w (last: %w)", n.name, ctx.Err(), last)
		case <-ticker.C:
		}
	}
}

// health asks /healthz. Connections are not kept: a test that ends has none.
func (n *NATSProcess) health(ctx context.Context, query string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.MonitorURL()+"/healthz"+query, http.NoBody)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, tailBytes))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

func (n *NATSProcess) releasePorts() {
	for _, p := range []*Port{n.client, n.monitor, n.route} {
		if p != nil {
			p.Release()
		}
	}
}

// Close kills it and removes its temporary folder. It may be called twice.
func (n *NATSProcess) Close() error {
	err := n.Process.Close()
	n.releasePorts()
	return err
}

// Nodes are the cluster's servers, in the order of their names.
func (c *NATSCluster) Nodes() []*NATSProcess { return append([]*NATSProcess(nil), c.nodes...) }

// URL is all servers' URLs, separated by commas.
func (c *NATSCluster) URL() string {
	urls := make([]string, 0, len(c.nodes))
	for _, n := range c.nodes {
		urls = append(urls, n.URL())
	}
	return strings.Join(urls, ",")
}

// Close ends all servers. It may be called twice.
func (c *NATSCluster) Close() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}
