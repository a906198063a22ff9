package serve

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// MaxObserved is the largest number of reads of one report.
const MaxObserved = 1000

// observe takes what an application read and where.
func (s *Server) observe(w http.ResponseWriter, r *http.Request) *wireError {
	if err := s.o.Auth.allow(r, RoleRead); err != nil {
		return err
	}
	a := takeAsk(kindServe)
	defer a.put()
	if r.URL.RawQuery != "" {
		return bad(CodeUnknownField, "url", -1, "a report has no query")
	}
	if err := s.readBody(a, w, r); err != nil {
		return err
	}
	reads, err := parseObserved(a.body)
	if err != nil {
		return err
	}
	if err := s.o.Observer.Observe(r.Context(), reads); err != nil {
		var wrong *ReadError
		if errors.As(err, &wrong) {
			return bad(CodeBadField, item("reads", wrong.Read)+"."+wrong.Field, -1, wrong.Message)
		}
		e := fail(http.StatusServiceUnavailable, CodeUnavailable, "", err.Error())
		e.retryAfter = time.Second
		return e
	}
	a.out = append(a.out, `{"accepted":`...)
	a.out = append(strconv.AppendInt(a.out, int64(len(reads)), 10), '}')
	writeJSON(w, http.StatusOK, a.out)
	return nil
}

// parseObserved reads {"reads":[{"at","server","keys","session"}]}.
func parseObserved(body []byte) ([]ObservedRead, *wireError) {
	var reads []ObservedRead
	seen := false
	r := jsonReader{b: body}
	err := r.object(func(name string) *wireError {
		if name != "reads" || seen {
			return bad(CodeUnknownField, name, r.i, "a report has reads, once, and nothing else")
		}
		seen = true
		return r.array(func(n int) *wireError {
			if n == MaxObserved {
				return fail(http.StatusRequestEntityTooLarge, CodeTooLarge, "reads", "at most "+strconv.Itoa(MaxObserved)+" are allowed")
			}
			read, err := parseRead(&r, item("reads", n))
			reads = append(reads, read)
			return err
		})
	})
	if err == nil {
		err = r.end()
	}
	if err == nil && !seen {
		err = bad(CodeBadField, "reads", -1, "it is missing")
	}
	return reads, err
}

func parseRead(r *jsonReader, where string) (ObservedRead, *wireError) {
	var read ObservedRead
	at := r.i
	a := &ask{keyName: where + ".keys"} // its keys go to the observer for good
	err := r.object(func(name string) (err *wireError) {
		field := where + "." + name
		switch name {
		case "at":
			read.At, err = parseAt(r, field)
		case "server":
			if read.Server, err = r.text(); err == nil && read.Server == "" {
				err = bad(CodeBadField, field, r.i, "it is empty")
			}
		case "session":
			read.Session, err = r.text()
		case "keys":
			if err := a.once(gaveKeys, field); err != nil {
				return err
			}
			return r.array(func(n int) *wireError { return a.jsonKey(r, n) })
		default:
			err = bad(CodeUnknownField, field, r.i, "a read has at, server, keys and session")
		}
		return err
	})
	if err != nil {
		return read, err
	}
	read.Keys = a.keys
	switch {
	case read.Server == "":
		return read, bad(CodeBadField, where+".server", at, "it is missing")
	case read.At.IsZero():
		return read, bad(CodeBadField, where+".at", at, "it is missing")
	}
	return read, nil
}

// Numbers between these are times of our days in seconds; as milliseconds they
// are in the years 1970 to 1973.
const (
	leastSeconds = 1e8
	leastMillis  = 1e11
)

// parseAt reads a time: RFC 3339, or milliseconds since 1970.
func parseAt(r *jsonReader, field string) (time.Time, *wireError) {
	at := r.i
	if r.peek() == '"' {
		s, err := r.text()
		if err != nil {
			return time.Time{}, err
		}
		t, perr := time.Parse(time.RFC3339Nano, s)
		if perr != nil {
			return t, bad(CodeBadField, field, at, "it is neither RFC 3339 nor milliseconds since 1970")
		}
		return t, nil
	}
	s, err := r.number()
	if err != nil {
		return time.Time{}, bad(CodeBadField, field, at, "it is neither RFC 3339 nor milliseconds since 1970")
	}
	ms, perr := strconv.ParseFloat(s, 64)
	switch {
	case perr != nil || ms <= 0 || ms > 1e14:
		return time.Time{}, bad(CodeBadField, field, at, "it is out of range")
	case ms >= leastSeconds && ms < leastMillis:
		return time.Time{}, bad(CodeBadField, field, at, "milliseconds since 1970 are wanted, and this looks like seconds")
	}
	return time.UnixMicro(int64(ms * 1000)), nil
}
