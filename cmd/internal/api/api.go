// Package api is how the command line speaks to a router that runs: its main
// path is [New], [Client.Get], [Client.Post]. Applications use router/client.
package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Client asks one router. The zero value is of no use. It may be used by many
// at once.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// timeout bounds one question; maxAnswer what is read of one.
const (
	timeout   = 5 * time.Second
	maxAnswer = 64 << 20
)

// Options of [New]. Addr is required.
type Options struct {
	Addr  string // host:port (https with one of the files) or a whole URL
	Token string // bearer token; empty: none

	// PEM files for https.
	CAFile            string // authorities trusted; empty: the system's
	CertFile, KeyFile string // of a client certificate; empty: none
}

// New returns a client for a router. The error is about the options and the
// files that they name; nobody is asked.
func New(o Options) (*Client, error) {
	conf, err := o.tls()
	if err != nil {
		return nil, err
	}
	if !strings.Contains(o.Addr, "://") {
		scheme := "http://"
		if conf != nil {
			scheme = "https://"
		}
		o.Addr = scheme + o.Addr
	}
	u, err := url.Parse(o.Addr)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is no host:port and no http or https URL of a router", o.Addr)
	}
	if conf != nil && u.Scheme == "http" {
		return nil, fmt.Errorf("%s is asked without TLS, and certificates are for https", o.Addr)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = conf
	return &Client{base: strings.TrimRight(o.Addr, "/"), token: o.Token, http: &http.Client{Timeout: timeout, Transport: transport}}, nil
}

// tls reads the files; nil when none is named.
func (o *Options) tls() (*tls.Config, error) {
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, errors.New("a certificate and its key go together")
	}
	if o.CAFile == "" && o.CertFile == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("load authorities: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("load authorities: %s holds no certificate", o.CAFile)
		}
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("load client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Get asks path and decodes the answer into out.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	return c.do(ctx, http.MethodGet, path, nil, out)
}

// Post sends in as JSON and decodes the answer into out, which may be nil.
func (c *Client) Post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	return c.do(ctx, http.MethodPost, path, body, out)
}

// hint says what to look at when a router could not be asked.
func hint(err error) string {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return "name the authority that signed its certificate by --ca"
	case errors.As(err, &name):
		return "name it by --addr as its certificate does"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "it has no TLS"
	}
	return "does tidegate run or serve run there?"
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, out any) (err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the router: %w", err)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask the router at %s (%s): %w", c.base, hint(err), err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the router's answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		var e struct {
			Error struct{ Code, Message, Field string }
		}
		if json.Unmarshal(text, &e) == nil && e.Error.Code != "" {
			return fmt.Errorf("the router refuses: %s: %s", e.Error.Code, e.Error.Message)
		}
		if bytes.Contains(text, []byte("HTTP request to an HTTPS server")) { // of net/http
			return fmt.Errorf("the router at %s has TLS: name it as https://HOST:PORT", c.base)
		}
		return fmt.Errorf("the router at %s answered %s", c.base, res.Status)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("the router's answer is not understood: %w", err)
	}
	return nil
}
