package serve

import (
	"context"
	"net/http"
	"strconv"
)

// MaxBatch is the largest number of requests of one batch.
const MaxBatch = 256

// batch answers up to MaxBatch questions; one that names a replica is a serve,
// another a route. What is wrong with one of them is that one's answer. Routes
// that wait for a probe of the primary share one wait: it is the same probe.
func (s *Server) batch(w http.ResponseWriter, r *http.Request) *wireError {
	if err := s.o.Auth.allow(r, RoleRead); err != nil {
		return err
	}
	whole := takeAsk(kindRoute)
	defer whole.put()
	if r.URL.RawQuery != "" {
		return bad(CodeUnknownField, "url", -1, "a batch has no query")
	}
	if err := s.readBody(whole, w, r); err != nil {
		return err
	}
	items, err := batchItems(whole.body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Router.ProbeWait())
	defer cancel()
	arrived := s.o.Router.Now()
	out := append(whole.out, `{"answers":[`...)
	for i, span := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = s.batchItem(ctx, r.Header, arrived, whole.body[:span.end], span, out)
	}
	out = append(out, "]}"...)
	writeJSON(w, http.StatusOK, out)
	whole.out = out
	return nil
}

// span is where an item lies in the body.
type span struct {
	start, end int
	replica    bool
}

// batchItems finds the items and checks that all of the body is JSON.
func batchItems(body []byte) ([]span, *wireError) {
	var items []span
	seen := false
	r := jsonReader{b: body}
	err := r.object(func(name string) *wireError {
		if name != "requests" {
			return bad(CodeUnknownField, name, r.i, "there is no such field here")
		}
		if seen {
			return bad(CodeBadField, name, r.i, "it is given twice")
		}
		seen = true
		return r.array(func(n int) *wireError {
			if n == MaxBatch {
				return fail(http.StatusRequestEntityTooLarge, CodeTooLarge, "requests", "at most "+strconv.Itoa(MaxBatch)+" are allowed")
			}
			if r.peek() != '{' {
				return bad(CodeBadField, item("requests", n), r.i, "it is not an object")
			}
			sp := span{start: r.i}
			if err := r.object(func(name string) *wireError {
				sp.replica = sp.replica || name == "replica"
				return r.skip(0)
			}); err != nil {
				return err
			}
			sp.end = r.i
			items = append(items, sp)
			return nil
		})
	})
	if err == nil {
		err = r.end()
	}
	if err == nil && !seen {
		err = bad(CodeBadField, "requests", -1, "it is missing")
	}
	return items, err
}

func (s *Server) batchItem(ctx context.Context, h http.Header, arrived int64, body []byte, sp span, out []byte) []byte {
	k := kindRoute
	if sp.replica {
		k = kindServe
	}
	a := takeAsk(k)
	defer a.put()
	// All items arrived with the batch: the probe that one of them waited for
	// began after the others as well.
	a.req.ArrivedAt = arrived
	err := a.json(&jsonReader{b: body, i: sp.start})
	if err == nil {
		err = a.header(h)
	}
	if err == nil {
		err = s.decide(ctx, a)
	}
	if err != nil {
		return err.appendError(out, "")
	}
	return a.appendAnswer(out)
}
