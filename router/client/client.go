package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"tidegate/router/budget"
)

// Options configures a client. URLs is required.
type Options struct {
	// URLs are the routers, such as http://127.0.0.1:7400; they are asked in
	// turn, and one that does not answer at once is replaced by the next while
	// there is time.
	URLs  []string
	Token string      // bearer token; empty: none
	TLS   *tls.Config // for https; nil: the system's roots

	// Timeout bounds one question, all routers together; default 20 ms.
	Timeout time.Duration
	// FloorTimeout is the same for a Route with a floor: a router may wait with
	// its answer for the next probe of the primary, where the floor names what
	// nobody has seen yet. Default Timeout + 300 ms, more than a router's
	// probe_wait.
	FloorTimeout time.Duration
	// PrimaryReadsPerSecond is the budget of reads that this client sends to
	// the primary when no router answers; default 50, negative: none.
	PrimaryReadsPerSecond int

	// A router that failed BreakerFailures times in a row (5) is left alone for
	// BreakerMin (100 ms), doubling up to BreakerMax (5 s).
	BreakerFailures        int
	BreakerMin, BreakerMax time.Duration
}

const defaultTimeout = 20 * time.Millisecond

func (o *Options) validate() ([]*url.URL, error) {
	var errs []error
	var urls []*url.URL
	for _, s := range o.URLs {
		u, err := url.Parse(s)
		switch {
		case err != nil:
			errs = append(errs, err)
		case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			errs = append(errs, fmt.Errorf("%q is not the URL of a router", s))
		default:
			urls = append(urls, u)
		}
	}
	if len(o.URLs) == 0 {
		errs = append(errs, errors.New("no router is named"))
	}
	for _, d := range []struct {
		name string
		v    *time.Duration
		std  time.Duration
	}{
		{"Timeout", &o.Timeout, defaultTimeout},
		{"FloorTimeout", &o.FloorTimeout, max(o.Timeout, defaultTimeout) + 300*time.Millisecond},
		{"BreakerMin", &o.BreakerMin, 100 * time.Millisecond},
		{"BreakerMax", &o.BreakerMax, 5 * time.Second},
	} {
		if *d.v == 0 {
			*d.v = d.std
		}
		if *d.v < 0 {
			errs = append(errs, fmt.Errorf("%s is negative", d.name))
		}
	}
	if o.BreakerFailures <= 0 {
		o.BreakerFailures = 5
	}
	if o.PrimaryReadsPerSecond == 0 {
		o.PrimaryReadsPerSecond = 50
	}
	return urls, errors.Join(errs...)
}

// Client asks routers. It may be used by many at once.
type Client struct {
	o       Options
	routers []*remote
	http    *http.Client
	budget  *budget.Budget
	begun   time.Time
	turn    atomic.Uint64
	count   struct{ asked, failed, fallbacks, refused atomic.Uint64 }
}

// remote is one router.
type remote struct {
	base    string
	breaker breaker
}

// New returns a client, or an error that tells everything wrong with o. It does
// not connect.
func New(o Options) (*Client, error) {
	urls, err := o.validate()
	if err != nil {
		return nil, fmt.Errorf("router client: %w", err)
	}
	c := &Client{o: o, budget: budget.New(o.PrimaryReadsPerSecond), begun: time.Now()}
	for _, u := range urls {
		c.routers = append(c.routers, &remote{
			base:    strings.TrimSuffix(u.String(), "/"),
			breaker: breaker{limit: o.BreakerFailures, min: o.BreakerMin, max: o.BreakerMax},
		})
	}
	dialer := &net.Dialer{Timeout: o.Timeout, KeepAlive: 15 * time.Second}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: o.TLS, TLSHandshakeTimeout: 10 * o.Timeout,
		MaxIdleConns: 256, MaxIdleConnsPerHost: 128, IdleConnTimeout: time.Minute, DisableCompression: true,
	}}
	return c, nil
}

// Close frees idle connections. The client may not be used afterwards.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Counters is a reading of a client's counters, since its start.
type Counters struct {
	Asked     uint64 // questions
	Failed    uint64 // questions that no router answered
	Fallbacks uint64 // of these, sent to the primary within the budget
	Refused   uint64 // of these, refused because the budget was used up
}

// Counters reads the counters.
func (c *Client) Counters() Counters {
	return Counters{c.count.asked.Load(), c.count.failed.Load(), c.count.fallbacks.Load(), c.count.refused.Load()}
}

// Error is a mistake of the caller as a router named it (4xx): asking again
// changes nothing.
type Error struct {
	Status  int
	Code    string // of the closed list in router/API.md
	Field   string
	Offset  int // -1: none
	Message string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Field != "" {
		return fmt.Sprintf("router: %s: %s: %s", e.Code, e.Field, e.Message)
	}
	return fmt.Sprintf("router: %s: %s", e.Code, e.Message)
}

// wireError is an error's form on the wire.
type wireError struct {
	Error struct {
		Code       string  `json:"code"`
		Message    string  `json:"message"`
		Field      string  `json:"field"`
		Offset     *int    `json:"offset"`
		RetryAfter float64 `json:"retry_after_ms"`
		Otherwise  string  `json:"otherwise"`
	} `json:"error"`
}

// answer is what a router says with status 200. decode takes it whole or not at
// all: something else than a router may sit behind the address and say 200 too.
type answer interface{ decode(raw []byte) error }

// errNotRouter tells that an answer is none of a router's.
var errNotRouter = errors.New("not the answer of a router")

// errNoRouter tells that nobody answered.
var errNoRouter = errors.New("no router answered")

// maxAnswerBytes bounds what is read of an answer.
const maxAnswerBytes = 1 << 20

// ask puts one question to the routers in turn until one answers or the time is
// up. The answer goes into ok (200) or refusal (503 of a route); the error is an
// *Error, the caller's own context's, or errNoRouter.
func (c *Client) ask(ctx context.Context, timeout time.Duration, path string, question any, ok answer, refusal *wireError) error {
	c.count.asked.Add(1)
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("encode question: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	first := c.turn.Add(1)
	for i := range c.routers {
		r := c.routers[(first+uint64(i))%uint64(len(c.routers))]
		if !r.breaker.allow(time.Now()) {
			continue
		}
		answered, err := c.askOne(limited, r, path, body, ok, refusal)
		if !answered && ctx.Err() != nil { // the caller left
			r.breaker.leave()
			return ctx.Err()
		}
		r.breaker.done(answered, time.Now())
		if answered {
			return err
		}
		if limited.Err() != nil {
			break
		}
	}
	c.count.failed.Add(1)
	return errNoRouter
}

// askOne asks one router. answered is false when it is as good as dead.
func (c *Client) askOne(ctx context.Context, r *remote, path string, body []byte, ok answer, refusal *wireError) (answered bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+path, bytes.NewReader(body))
	if err != nil {
		return true, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.o.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.o.Token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	if err != nil {
		return false, err
	}
	if res.StatusCode == http.StatusOK {
		if err := ok.decode(raw); err != nil {
			return false, fmt.Errorf("decode answer: %w", err)
		}
		return true, nil
	}
	var we wireError
	if err := json.Unmarshal(raw, &we); err != nil || we.Error.Code == "" {
		return false, fmt.Errorf("status %d without a router's error", res.StatusCode)
	}
	e := &we.Error
	switch {
	case res.StatusCode == http.StatusServiceUnavailable && (e.Code == "budget" || e.Code == "no_primary" || e.Code == "write_unseen"):
		*refusal = we
		return true, nil
	case res.StatusCode >= 400 && res.StatusCode < 500:
		out := &Error{Status: res.StatusCode, Code: e.Code, Field: e.Field, Offset: -1, Message: e.Message}
		if e.Offset != nil {
			out.Offset = *e.Offset
		}
		return true, out
	}
	return false, fmt.Errorf("status %d, code %s", res.StatusCode, e.Code)
}

// now is a reading of a clock that does not go back, for the budget.
func (c *Client) now() int64 { return int64(time.Since(c.begun)) }
