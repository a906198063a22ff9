// Package local is the router inside the caller's own process: it follows the
// stream, keeps the index and decides, all in memory, without a network round
// trip for a question. `tidegate run` and `tidegate serve` use the same wiring.
//
// The main path is [Open], [Local.Run], [Local.Serve] (or Route). It needs a
// NATS that the tailers write to; it never speaks to MySQL.
//
// With a data folder the index is warm after a restart, but nothing is answered
// yes before the stream is caught up with and servers were heard of again: what
// servers show is never restored from disk (rules §5.6). After a crash the
// folder holds the last whole batch.
package local
