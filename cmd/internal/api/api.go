// Package api is how the command line speaks to a router that runs: its main
// path is [New], [Client.Get], [Client.Post]. Applications use router/client.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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

// New returns a client for a router at host:port (or a whole URL). The token
// may be empty. The error is about addr alone; nobody is asked.
func New(addr, token string) (*Client, error) {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is no host:port and no http or https URL of a router", addr)
	}
	return &Client{base: strings.TrimRight(addr, "/"), token: token, http: &http.Client{Timeout: timeout}}, nil
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
		return fmt.Errorf("ask the router at %s (does tidegate run or serve run there?): %w", c.base, err)
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
