// Package event is the vocabulary of Tidegate's streams: what a tailer says of
// committed transactions ([Transaction] and the other items of a [Message] of
// WRITES) and of servers ([ServerState], [TableDefinition] of STATE), and the
// wire form of both.
//
// Values of this package are plain data. A value that was handed to somebody
// else is not modified any more; sets and digests are shared, not copied.
//
// The wire form carries [Format]. Readers accept this format and the one
// before; a newer one is [ErrNewerFormat], and the reader stops and answers no
// (P3).
package event
