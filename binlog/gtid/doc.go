// Package gtid holds sets of MySQL global transaction identifiers.
//
// Everything that Tidegate promises is a statement about such sets: a replica
// shows a transaction when its GTID is in the replica's confirmed set (P1), a
// session may read where its floor is contained (P4), and what is not
// contained is named in the answer (P3). The main path is [Parse] (what a
// server printed), [Builder] (one transaction after another), and
// [Set.ContainsSet] (one decision).
//
// A [Set] is an immutable value. Its zero value is the empty set; any number
// of goroutines may use one at once; operations return new sets that share
// the interval lists they did not touch. A [Builder] is the mutable
// counterpart for one owner, which publishes snapshots cheaply.
//
// Text is read and written as MySQL 9.7 reads and writes it: tags, white
// space, upper case, reversed and overlapping intervals are normalised as the
// server normalises them, and what the server refuses with
// ER_MALFORMED_GTID_SET is refused here. The package's integration test holds
// parser, printer and algebra against a real server.
//
// Two binary forms exist: [Set.AppendBinary] is Tidegate's own compact one,
// [Set.EncodeSIDBlock] is MySQL's, as found in binlog files and in the
// replication protocol. The package keeps no state outside its values, so a
// crash can't leave anything behind.
//
// It imports the standard library only.
package gtid
