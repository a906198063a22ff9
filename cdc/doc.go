// Package cdc carries Tidegate's streams over NATS JetStream: WRITES, what
// committed transactions wrote, in commit order; and STATE, the newest state
// of each server and definition of each table.
//
// The main path: [Open] connects (or starts the embedded server) and makes the
// streams; [OpenWriter] wins the leader key, reads the tail and, after
// [Writer.Begin], publishes what the primary's tailer appends; a [Follower]
// hands the stream to an index. [Identities] is the arrow back to a replica's
// tailer, [StatePublisher] feeds STATE, [Ticks] and [TickCollector] carry the
// routers' ticks.
//
// # What holds after a crash
//
// WRITES is its own checkpoint: a writer starts from what the stream says and
// from nothing else, and skips by identity what is already there (rules §11.4).
// Each message carries the stream's incarnation, a count and the digest of the
// message before; the stream refuses a message that does not follow the last
// one (expected-last-subject-sequence), so that neither a rival writer nor a
// retry can change the order. An acknowledgement is not an fsync: after a power
// cut the tail may have stepped back; the writer notices when it reconnects and
// starts again from the tail, readers notice by the chain and rebuild.
package cdc
