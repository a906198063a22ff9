// Package tailing wires the first half of the product, from MySQL to the
// stream: a monitor for each server, its identities from the stream, and, where
// a server is the primary, the tailer that reads its binlog and the writer that
// publishes it.
//
// The main path is [Tailing.Run] -> server.run (one for each server) ->
// lead.session (one for the primary). The package keeps nothing on disk: after
// a crash the stream itself says where to go on (design, "the stream is its own
// checkpoint"), and STATE what was known of a server.
package tailing
