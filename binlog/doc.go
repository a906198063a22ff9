// Package binlog reads one MySQL server: what it committed, which keys that
// touched, what it has executed, and what it is.
//
// Its main path is [NewTailer], [Tailer.Run], [Handler]. A tailer streams the
// binlog of one server as a replica would and hands over one
// [tidegate/cdc/event.Transaction] after another, in commit order. In [Keys]
// mode (the primary) a transaction carries the digests of everything that it
// wrote (rules §3 and §4); in [Hints] mode (a replica) its identity and tables,
// which say that something came, never that it is visible (rules §2).
//
// From the wire to a transaction:
//
//	packetSource   bytes of events, one connection, no queue      packet.go, source_gomysql.go
//	assembler      events to transactions                         assemble*.go
//	registry       tables, and which definition may be used       registry.go, definitions.go
//	definer        look-ups of definitions after DDL              definer.go, lookup.go
//	Tailer         sessions, resuming, errors                     tailer.go, connect.go
//
// What is not understood is written wide and counted; nothing is skipped in
// silence (P5).
//
// The package keeps nothing on disk. The executed set advances when the handler
// has taken a whole transaction, so after a crash, or a cut connection, a
// transaction that was under way comes again from its beginning, and one that
// was taken does not.
package binlog
