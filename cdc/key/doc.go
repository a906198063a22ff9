// Package key is the vocabulary of keys: what a caller names, what a row event
// touches, and the digests under which the two meet.
//
// A key has three forms:
//
//   - printed, what people and callers write: app.posts/42, app.posts/*,
//     app.posts@author_id/7 ([Parse], [Key.String]);
//   - compare form, bytes that are equal for two values exactly when (or at
//     least whenever) the column calls them equal ([Column.AppendForm]);
//   - digest, 128 bits keyed by a secret of the stream ([Hasher]), the only form
//     that is stored and sent.
//
// The main path is [Definition.Cover] on the reader's side, and
// [Column.AppendForm] with [TableScopes.Row] on the writer's side. Both fold with the same [Definition];
// splitting values that MySQL calls equal would be a wrong yes, so whatever can
// not be folded exactly is folded coarser or written as a wide scope (rules §4).
//
// COLLATIONS.md lists what folds how; a test holds it against a real server.
//
// The package keeps no state and talks to nobody. A process that imports it has
// glog's flush daemon running, which the collation library brings along.
package key
