// Package index holds what a router knows: which scopes were written when
// (records), what every server is proven to show (C(X), prefix, freshness,
// lease), how far the primary's commits are known (W), and for which GTIDs
// records may be missing (the horizon H).
//
// The main path is [Open], the methods that a follower of the streams calls
// ([Index.Start], [Index.Writes], [Index.State], [Index.Definition]) with
// [Index.TickSent] for the router's own ticks, and [Index.Snapshot], from which
// decisions are made. It follows the rules 2, 3, 5, 6 and 10.
//
// One mutex serialises the changes. Readers get an immutable [Snapshot] through
// an atomic pointer and look records up in a table that is read without locks.
// The order of the steps is what keeps a reader right: records are put before
// the snapshot is published that counts their transaction as delivered, and the
// grown horizon is published before the first record that it covers leaves
// (P2). Ignorance is a no: an index that is not caught up, or whose stream broke
// off, says so by [Snapshot.Ready] (P3).
//
// With a [Store] everything that belongs to the stream is written as one batch:
// records, D, H, which transaction has which version, open XA transactions, a
// half-read transaction, definitions' versions and the stream position. After a
// crash the index is what some flush left, as a whole, and the follower goes on
// from that position. What is known of servers (C(X), W, leases) is never
// restored; it comes from the streams anew.
package index
