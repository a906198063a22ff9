// Package client asks a router over HTTP where to read, and keeps its head when
// no router answers.
//
// The main path is [New], [Client.Route] and [Client.Serve]. Each question has a
// short timeout (20 ms); a router that fails several times in a row is left
// alone for a while by a circuit breaker; and what would then have gone to the
// primary is metered by a budget of the client's own, so that a dead router, or
// all of them, is no stampede (P7). The rule for other clients stands in
// router/API.md and is the same.
//
// It imports the standard library and router/budget alone.
package client
