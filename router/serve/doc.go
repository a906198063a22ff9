// Package serve answers questions to a router over HTTP and RESP.
//
// The main path is [Open], [Server.Run], and in between one request: fields.go
// or respcmd.go turns what a caller wrote into a router.Request, the router
// decides, encode.go or respcmd.go writes the answer down. The wire reference,
// with the closed lists of reasons and error codes, is router/API.md.
//
// Whatever a caller sends is bounded: connections, headers, URL, body, frames,
// keys, time. A mistake is answered by a code, the field and the offset; the
// connection is kept where the protocol allows. A listener that is not loopback
// does not open without authentication.
//
// The package keeps nothing on disk; after a crash callers connect again.
package serve
