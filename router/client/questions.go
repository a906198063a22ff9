package client

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Where is where to read.
type Where uint8

// The places.
const (
	// Nowhere: give the read up, or degrade; RetryAfter tells when to ask again.
	Nowhere Where = iota
	// Target: read at Decision.Target.
	Target
	// Primary: read where this application writes; no router named a server,
	// but a budget allows it.
	Primary
	// Anywhere: read at any replica; what is shown may be stale. Only at levels
	// eventual and bounded, when no router answers.
	Anywhere
)

// String returns the place's name.
func (w Where) String() string {
	switch w {
	case Target:
		return "target"
	case Primary:
		return "primary"
	case Anywhere:
		return "anywhere"
	}
	return "nowhere"
}

// RouterDown is the Reason of an answer that no router gave.
const RouterDown = "router_down"

// Query is what will be read, and what it must show. Names and values are those
// of the wire reference, router/API.md.
type Query struct {
	Keys  []string // printed: app.posts/42, app.posts/*, app.posts@author_id/7
	Level string   // empty: key when Keys are named
	// Floor is a set of GTIDs that the reader must see.
	Floor string
	// MaxStaleness bounds staleness at any level; 0: no bound.
	MaxStaleness time.Duration

	// Route only.
	Exclude       []string
	InTransaction bool
}

type question struct {
	Replica       string   `json:"replica,omitempty"`
	Keys          []string `json:"keys,omitempty"`
	Level         string   `json:"level,omitempty"`
	Floor         string   `json:"floor,omitempty"`
	MaxStaleness  *float64 `json:"max_staleness_ms,omitempty"`
	Exclude       []string `json:"exclude,omitempty"`
	InTransaction bool     `json:"in_transaction,omitempty"`
}

func (q *Query) wire() question {
	w := question{Keys: q.Keys, Level: q.Level, Floor: q.Floor}
	if q.MaxStaleness > 0 {
		ms := float64(q.MaxStaleness) / float64(time.Millisecond)
		w.MaxStaleness = &ms
	}
	return w
}

// mayBeStale tells the levels that promise nothing about writes.
func (q *Query) mayBeStale() bool {
	return (q.Level == "eventual" || q.Level == "bounded") && !q.InTransaction
}

// Notice is a soft hint for the person who waits.
type Notice struct {
	Code string `json:"code"`
	Key  string `json:"key"`
}

// Decision says where to read.
type Decision struct {
	Where      Where
	Reason     string // of the closed list, or RouterDown
	Target     string // the server's configured name, with Where Target
	Role       string
	Addr       string
	ServerUUID string // callers that can compare it, and Epoch, should
	Epoch      string
	Stale      bool
	Notice     *Notice
	RetryAfter time.Duration
}

// routed is what a router says to a route.
type routed struct {
	Target     string  `json:"target"`
	Role       string  `json:"role"`
	Addr       string  `json:"addr"`
	ServerUUID string  `json:"server_uuid"`
	Epoch      string  `json:"epoch"`
	Reason     string  `json:"reason"`
	Stale      bool    `json:"stale"`
	Notice     *Notice `json:"notice"`
}

func (a *routed) decode(raw []byte) error {
	var x routed
	if err := json.Unmarshal(raw, &x); err != nil {
		return err
	}
	if x.Target == "" || x.Reason == "" {
		return errNotRouter
	}
	*a = x
	return nil
}

// Route asks which server to read. When no router answers, the decision is
// Anywhere at levels that promise nothing, else Primary within the client's
// budget, else Nowhere; that is no error. An error is the caller's mistake
// (*Error) or the end of ctx.
func (c *Client) Route(ctx context.Context, q Query) (Decision, error) {
	w := q.wire()
	w.Exclude, w.InTransaction = q.Exclude, q.InTransaction
	var ok routed
	var refusal wireError
	timeout := c.o.Timeout
	if q.Floor != "" {
		timeout = c.o.FloorTimeout
	}
	err := c.ask(ctx, timeout, "/v1/route", w, &ok, &refusal)
	switch e := &refusal.Error; {
	case errors.Is(err, errNoRouter):
		return c.alone(&q), nil
	case err != nil:
		return Decision{}, err
	case e.Code != "":
		d := Decision{Reason: e.Code, RetryAfter: time.Duration(e.RetryAfter * float64(time.Millisecond))}
		if e.Otherwise == "primary" {
			d.Where = Primary
		}
		return d, nil
	}
	return Decision{
		Where: Target, Reason: ok.Reason, Target: ok.Target, Role: ok.Role, Addr: ok.Addr,
		ServerUUID: ok.ServerUUID, Epoch: ok.Epoch, Stale: ok.Stale, Notice: ok.Notice,
	}, nil
}

// alone decides without a router.
func (c *Client) alone(q *Query) Decision {
	switch {
	case q.mayBeStale():
		return Decision{Where: Anywhere, Reason: RouterDown, Stale: true}
	case c.budget.Take(c.now()):
		c.count.fallbacks.Add(1)
		return Decision{Where: Primary, Reason: RouterDown}
	}
	c.count.refused.Add(1)
	return Decision{Where: Nowhere, Reason: RouterDown, RetryAfter: max(time.Millisecond, time.Duration(c.budget.Wait(c.now())))}
}

// Verdict says whether one server may be read.
type Verdict struct {
	Serve      bool     `json:"serve"`
	Reason     string   `json:"reason"`
	Detail     string   `json:"detail"`
	Otherwise  string   `json:"otherwise"` // after a no: primary, wait or refuse
	Addr       string   `json:"addr"`
	ServerUUID string   `json:"server_uuid"`
	Epoch      string   `json:"epoch"`
	Blocked    []string `json:"blocked"`
	Need       string   `json:"need"`
	Stale      bool     `json:"stale"`
}

func (v *Verdict) decode(raw []byte) error {
	var x Verdict
	if err := json.Unmarshal(raw, &x); err != nil {
		return err
	}
	if x.Reason == "" || !x.Serve && x.Otherwise == "" {
		return errNotRouter
	}
	*v = x
	return nil
}

// Serve asks whether one server may be read. When no router answers, the
// verdict is a stale yes at levels that promise nothing, else a no whose
// Otherwise is primary within the client's budget and else refuse. Errors are
// as for Route.
func (c *Client) Serve(ctx context.Context, replica string, q Query) (Verdict, error) {
	w := q.wire()
	w.Replica = replica
	var v Verdict
	var refusal wireError
	err := c.ask(ctx, c.o.Timeout, "/v1/serve", w, &v, &refusal)
	if !errors.Is(err, errNoRouter) {
		return v, err
	}
	switch d := c.alone(&q); d.Where {
	case Anywhere:
		return Verdict{Serve: true, Stale: true, Reason: RouterDown}, nil
	case Primary:
		return Verdict{Reason: RouterDown, Otherwise: "primary"}, nil
	default:
		return Verdict{Reason: RouterDown, Otherwise: "refuse"}, nil
	}
}
