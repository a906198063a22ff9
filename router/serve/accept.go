package serve

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
)

// Acceptance is an operator's word that something about a server is in order
// (rules §1): exactly one of Table, GTIDs, Copy and Restart.
type Acceptance struct {
	Server  string
	Table   string   // schema.table whose taint is accepted
	GTIDs   gtid.Set // errant ones, or such whose data the operator vouches for
	Copy    bool     // its data is a copy of a server that is right
	Restart bool     // an unclean restart with relaxed durability
	Author  string
	Reason  string
}

// Acceptor records acceptances where every tailer sees them. It is called by
// many at once. [ErrUnknownServer] is a 404, [ErrNotAcceptable] a 400; any
// other error is a 503.
type Acceptor func(ctx context.Context, a Acceptance) error

var (
	// ErrUnknownServer: nothing is known of a server of that name.
	ErrUnknownServer = errors.New("no state of a server of this name is known")
	// ErrNotAcceptable: there is nothing to accept, or it is malformed.
	ErrNotAcceptable = errors.New("nothing to accept")
)

// acceptPath takes the name out of /v1/servers/{name}/accept.
func acceptPath(path string) (name string, ok bool) {
	name, ok = strings.CutPrefix(path, "/v1/servers/")
	if !ok {
		return "", false
	}
	name, ok = strings.CutSuffix(name, "/accept")
	return name, ok && name != "" && !strings.Contains(name, "/")
}

// accept records what an operator accepts.
func (s *Server) accept(w http.ResponseWriter, r *http.Request, server string) *wireError {
	if err := s.o.Auth.allow(r, RoleOperate); err != nil {
		return err
	}
	a := takeAsk(kindServe)
	defer a.put()
	if r.URL.RawQuery != "" {
		return bad(CodeUnknownField, "url", -1, "an acceptance has no query")
	}
	if err := s.readBody(a, w, r); err != nil {
		return err
	}
	x, wire := parseAcceptance(a.body)
	if wire != nil {
		return wire
	}
	x.Server = server
	err := s.o.Acceptor(r.Context(), x)
	switch {
	case errors.Is(err, ErrUnknownServer):
		return fail(http.StatusNotFound, CodeNotFound, "url", err.Error())
	case errors.Is(err, ErrNotAcceptable):
		return bad(CodeBadField, "", -1, err.Error())
	case err != nil:
		return fail(http.StatusServiceUnavailable, CodeUnavailable, "", err.Error())
	}
	a.out = append(a.out, `{"accepted":true}`...)
	writeJSON(w, http.StatusOK, a.out)
	return nil
}

const notATable = "it is no table: schema.table is wanted, names percent-encoded as in keys, or *"

// parseAcceptance reads {"table"|"gtids"|"copy"|"restart", "author", "reason"}.
func parseAcceptance(body []byte) (x Acceptance, err *wireError) {
	r := jsonReader{b: body}
	given := 0
	err = r.object(func(name string) (err *wireError) {
		switch name {
		case "table":
			given++
			if x.Table, err = r.text(); err == nil && x.Table != "" && x.Table != "*" {
				if _, _, parseErr := key.ParseTable(x.Table); parseErr != nil {
					return bad(CodeBadField, name, -1, notATable)
				}
			}
		case "gtids":
			given++
			var text string
			if text, err = r.text(); err == nil {
				set, parseErr := gtid.ParseNamed(text)
				if parseErr != nil {
					return badGTID(name, parseErr)
				}
				x.GTIDs = set
			}
		case "copy":
			given++
			x.Copy, err = r.boolean()
		case "restart":
			given++
			x.Restart, err = r.boolean()
		case "author":
			x.Author, err = r.text()
		case "reason":
			x.Reason, err = r.text()
		default:
			return bad(CodeUnknownField, name, r.i, "an acceptance has one of table, gtids, copy, restart, and author and reason")
		}
		return err
	})
	if err == nil {
		err = r.end()
	}
	switch {
	case err != nil:
	case given != 1 || x.Table == "" && x.GTIDs.IsEmpty() && !x.Copy && !x.Restart:
		err = bad(CodeBadField, "table", -1, "exactly one of table, gtids, copy: true and restart: true is needed")
	case x.Author == "":
		err = bad(CodeBadField, "author", -1, "it is missing: who accepts is kept")
	}
	return x, err
}
