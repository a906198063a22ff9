package serve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Response headers that never change, as net/http keeps them.
var (
	jsonType = []string{"application/json"}
	noStore  = []string{"no-store"}
)

func (s *Server) httpServer() *http.Server {
	l := &s.o.Limits
	return &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		TLSConfig:         s.o.TLS,
		ReadHeaderTimeout: l.HeaderTimeout,
		ReadTimeout:       l.BodyTimeout,
		WriteTimeout:      l.WriteTimeout,
		IdleTimeout:       l.IdleTimeout,
		MaxHeaderBytes:    l.HeaderBytes + l.URLBytes,
		ErrorLog:          slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
}

// serveHTTP is the one entry. Paths are told apart by hand: every answer, also
// that there is no such path, has the documented form.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s.counters.httpRequests.Add(1)
	if err := s.handle(w, r); err != nil {
		s.writeError(w, err)
	}
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request) *wireError {
	if len(r.RequestURI) > s.o.Limits.URLBytes {
		return fail(http.StatusRequestURITooLong, CodeTooLarge, "url", "longer than "+strconv.Itoa(s.o.Limits.URLBytes)+" bytes")
	}
	if s.foreign(r) {
		return fail(http.StatusForbidden, CodeForbidden, "Origin", "a page of another site asks through a browser; only programs and pages of this address may")
	}
	switch r.URL.Path {
	case "/v1/serve":
		if r.Method == http.MethodGet {
			return s.question(w, r, kindServe, false)
		}
		return s.post(w, r, func() *wireError { return s.question(w, r, kindServe, true) })
	case "/v1/route":
		return s.post(w, r, func() *wireError { return s.question(w, r, kindRoute, true) })
	case "/v1/batch":
		return s.post(w, r, func() *wireError { return s.batch(w, r) })
	case "/v1/observe":
		if s.o.Observer != nil {
			return s.post(w, r, func() *wireError { return s.observe(w, r) })
		}
		return fail(http.StatusNotFound, CodeNotFound, "url", "reports are taken by `tidegate observe` alone, which runs instead of `tidegate run`")
	case "/v1/servers":
		return s.get(w, r, func() *wireError { return s.servers(w, r) })
	case "/v1/keys":
		return s.get(w, r, func() *wireError { return s.keys(w, r) })
	case "/healthz":
		return s.health(w, r)
	case "/readyz":
		return s.ready(w, r)
	case "/metrics":
		if s.o.Metrics != nil {
			return s.get(w, r, func() *wireError { s.o.Metrics.ServeHTTP(w, r); return nil })
		}
	default:
		if name, ok := acceptPath(r.URL.Path); ok && s.o.Acceptor != nil {
			return s.post(w, r, func() *wireError { return s.accept(w, r, name) })
		}
		if name, ok := serverPath(r.URL.Path); ok {
			return s.get(w, r, func() *wireError { return s.eligible(w, r, name) })
		}
	}
	return fail(http.StatusNotFound, CodeNotFound, "url", "there is no such path")
}

// foreign tells whether a browser asks on behalf of a page that is not from this
// very address. Without credentials, or with a certificate that the browser shows
// by itself, such a page would have the rights of whoever looks at it. Programs
// send no Origin. A name that its owner points at this host (DNS rebinding) makes
// Origin and Host agree, so that without credentials only addresses and localhost
// count as this address.
func (s *Server) foreign(r *http.Request) bool {
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return false
	}
	u, err := url.Parse(origins[0])
	if err != nil || len(origins) > 1 || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
		return true
	}
	name := strings.ToLower(u.Hostname())
	return s.o.Auth == nil && name != "localhost" && net.ParseIP(name) == nil
}

// serverPath takes the name out of /v1/servers/{name}/eligible.
func serverPath(path string) (name string, ok bool) {
	name, ok = strings.CutPrefix(path, "/v1/servers/")
	if !ok {
		return "", false
	}
	name, ok = strings.CutSuffix(name, "/eligible")
	return name, ok && name != "" && !strings.Contains(name, "/")
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, f func() *wireError) *wireError {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return s.wrongMethod(w, "GET")
	}
	if err := s.o.Auth.allow(r, RoleRead); err != nil {
		return err
	}
	return f()
}

func (s *Server) post(w http.ResponseWriter, r *http.Request, f func() *wireError) *wireError {
	if r.Method != http.MethodPost {
		allowed := "POST"
		if r.URL.Path == "/v1/serve" {
			allowed = "GET, POST"
		}
		return s.wrongMethod(w, allowed)
	}
	return f()
}

func (s *Server) wrongMethod(w http.ResponseWriter, allowed string) *wireError {
	w.Header().Set("Allow", allowed)
	return fail(http.StatusMethodNotAllowed, CodeMethodNotAllowed, "", "the methods here are "+allowed)
}

// question answers one serve or route.
func (s *Server) question(w http.ResponseWriter, r *http.Request, k kind, body bool) *wireError {
	if err := s.o.Auth.allow(r, RoleRead); err != nil {
		return err
	}
	a := takeAsk(k)
	defer a.put()
	if err := a.query(r.URL.RawQuery); err != nil {
		return err
	}
	if !body && r.ContentLength != 0 {
		// Fields that nobody reads, a floor among them, would be a wrong yes.
		return bad(CodeBadField, "body", -1, "a GET has its fields in the query; POST takes a body")
	}
	if body {
		if err := s.readBody(a, w, r); err != nil {
			return err
		}
		jr := jsonReader{b: a.body}
		if err := a.json(&jr); err != nil {
			return err
		}
		if err := jr.end(); err != nil {
			return err
		}
	}
	if err := a.header(r.Header); err != nil {
		return err
	}
	if err := s.decide(r.Context(), a); err != nil {
		return err
	}
	a.out = a.appendAnswer(a.out)
	writeJSON(w, http.StatusOK, a.out)
	return nil
}

// decide puts a complete question to the router.
func (s *Server) decide(ctx context.Context, a *ask) *wireError {
	if err := a.complete(); err != nil {
		return err
	}
	for n, name := range a.exclude {
		// A mistyped name would leave the server that is meant among the targets.
		if !s.o.Router.Knows(name) {
			return bad(CodeBadField, item("exclude", n), -1, "there is no server of this name")
		}
	}
	var err error
	if a.kind == kindRoute {
		err = s.o.Router.Route(ctx, &a.req, &a.ans)
	} else {
		err = s.o.Router.Serve(&a.req, &a.ans)
	}
	if err != nil {
		return refused(err, a.keyName, func(n int) string { return a.printed[n] })
	}
	if a.kind == kindRoute && !a.ans.Yes {
		return noTarget(&a.ans)
	}
	return nil
}

// readBody reads at most BodyBytes into a.body.
func (s *Server) readBody(a *ask, w http.ResponseWriter, r *http.Request) *wireError {
	limit := s.o.Limits.BodyBytes
	tooLarge := fail(http.StatusRequestEntityTooLarge, CodeTooLarge, "body", "longer than "+strconv.Itoa(limit)+" bytes")
	if r.ContentLength > int64(limit) {
		return tooLarge
	}
	body := http.MaxBytesReader(w, r.Body, int64(limit))
	for {
		if len(a.body) == cap(a.body) {
			a.body = append(a.body, 0)[:len(a.body)]
		}
		n, err := body.Read(a.body[len(a.body):cap(a.body)])
		a.body = a.body[:len(a.body)+n]
		var mbe *http.MaxBytesError
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &mbe):
			return tooLarge
		default:
			return bad(CodeBadJSON, "body", len(a.body), "the body ended early")
		}
	}
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Cache-Control"] = noStore
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that went away has nobody to tell
}

func (s *Server) writeError(w http.ResponseWriter, e *wireError) {
	s.counters.httpErrors.Add(1)
	id := s.requestID()
	h := w.Header()
	h.Set("Tidegate-Request-Id", id)
	if e.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="tidegate"`)
	}
	if e.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((e.retryAfter+time.Second-1)/time.Second), 10))
	}
	writeJSON(w, e.status, e.appendError(nil, id))
}
