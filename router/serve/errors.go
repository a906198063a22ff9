package serve

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
	"tidegate/router"
)

// Code names what went wrong, for programs. The list is closed: it only grows.
type Code string

// The codes. Those of router.ErrorCode and, for a route without a target, the
// reasons budget, no_primary and write_unseen belong to the list as well.
const (
	CodeBadJSON          Code = "bad_json"           // the body is not JSON of the right shape
	CodeBadQuery         Code = "bad_query"          // the query is not percent-encoded properly
	CodeBadFrame         Code = "bad_frame"          // RESP: not a command; the connection ends
	CodeUnknownField     Code = "unknown_field"      // a field, option or header that does not exist
	CodeUnknownCommand   Code = "unknown_command"    // RESP
	CodeBadField         Code = "bad_field"          // a field's value has the wrong type or range
	CodeBadKey           Code = "bad_key"            // malformed, or does not fit its table
	CodeBadGTID          Code = "bad_gtid"           // malformed GTID set
	CodeTooLarge         Code = "too_large"          // more of something than is allowed
	CodeUnauthorized     Code = "unauthorized"       // no known caller
	CodeForbidden        Code = "forbidden"          // a known caller without the role, or a browser with another site's page
	CodeNotFound         Code = "not_found"          // no such path or server
	CodeMethodNotAllowed Code = "method_not_allowed" // the path exists, the method does not
	CodeUnavailable      Code = "unavailable"        // stopping, too many connections, or an observer that is full
)

// Codes returns the closed list, for references.
func Codes() []string {
	out := []string{}
	for _, c := range []Code{
		CodeBadJSON, CodeBadQuery, CodeBadFrame, CodeUnknownField, CodeUnknownCommand, CodeBadField, CodeBadKey,
		CodeBadGTID, CodeTooLarge, CodeUnauthorized, CodeForbidden, CodeNotFound, CodeMethodNotAllowed, CodeUnavailable,
		Code(router.CodeLevelRequired), Code(router.CodeKeysRequired), Code(router.CodeFloorRequired), Code(router.CodeBoundRequired),
		Code(router.ReasonBudget.String()), Code(router.ReasonNoPrimary.String()), Code(router.ReasonWriteUnseen.String()),
	} {
		out = append(out, string(c))
	}
	return out
}

// wireError is one answer that is an error.
type wireError struct {
	status     int // HTTP
	code       Code
	field      string // as the caller spelled it; may be empty
	offset     int    // byte within the field's value (bad_json: the body); negative: none
	message    string
	retryAfter time.Duration // positive: when to come again
	otherwise  string        // a route without a target: what to do instead
}

func fail(status int, code Code, field, message string) *wireError {
	return &wireError{status: status, code: code, field: field, offset: -1, message: message}
}

func bad(code Code, field string, offset int, message string) *wireError {
	return &wireError{status: http.StatusBadRequest, code: code, field: field, offset: offset, message: message}
}

// item names one value of a field that repeats.
func item(field string, n int) string { return fmt.Sprintf("%s[%d]", field, n) }

func badKey(field string, n int, err error) *wireError {
	offset := -1
	var pe *key.ParseError
	if errors.As(err, &pe) {
		offset = pe.Offset
	}
	return bad(CodeBadKey, item(field, n), offset, err.Error())
}

func badGTID(field string, err error) *wireError {
	offset := -1
	var pe *gtid.ParseError
	if errors.As(err, &pe) {
		offset = pe.Offset
	}
	return bad(CodeBadGTID, field, offset, err.Error())
}

// refused turns what the router says of a mistaken request into an answer. keys
// is the name of the field that holds keys, printed returns one as it was
// written ("" when it was not printed).
func refused(err error, keys string, printed func(int) string) *wireError {
	var re *router.RequestError
	if !errors.As(err, &re) {
		return fail(http.StatusBadRequest, CodeBadField, "", err.Error())
	}
	field := re.Field
	if field == "key" {
		field = keys
	}
	if re.Item < 0 {
		return bad(Code(re.Code), field, re.Offset, re.Message)
	}
	e := bad(Code(re.Code), item(field, re.Item), re.Offset, re.Message)
	var ve *key.ValueError
	if e.offset < 0 && errors.As(err, &ve) {
		e.offset = valueOffset(printed(re.Item), ve.Index)
	}
	return e
}

// valueOffset is where the n-th value of a printed key begins; -1 when the key
// was not printed.
func valueOffset(printed string, n int) int {
	at := strings.IndexByte(printed, '/')
	if at < 0 {
		return -1
	}
	at++
	for ; n > 0; n-- {
		comma := strings.IndexByte(printed[at:], ',')
		if comma < 0 {
			break
		}
		at += comma + 1
	}
	return at
}

// noTarget is what a route without a target looks like.
func noTarget(ans *router.Answer) *wireError {
	e := fail(http.StatusServiceUnavailable, Code(ans.Reason.String()), "", ans.Detail)
	switch {
	case e.message != "":
	case ans.Reason == router.ReasonWriteUnseen:
		e.message = "the primary does not show the floor yet"
	default:
		e.message = "no server can be named"
	}
	e.retryAfter = max(ans.RetryAfter, time.Millisecond)
	e.otherwise = ans.Otherwise.String()
	return e
}
