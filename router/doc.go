// Package router decides: may this server be read for these keys, or which
// server may?
//
// The main path is three names: [Router.Serve] asks about one server,
// [Router.Route] chooses one, and both look at one immutable [Snapshot] of what
// the index knows and go through the checks of rules §7 in decide.go. A yes is
// given only when the snapshot proves it; whatever is not known is a no with its
// [Reason] (P3). The one flagged exception is [Answer].Stale, at levels bounded
// and eventual, while the router itself is cut off.
//
// A decision takes no lock, waits for nobody (but for Route's one bounded wait
// for a probe of the primary) and allocates nothing when it is a yes.
// Fallbacks to the primary are metered by one budget a router (P7).
//
// The package keeps nothing on disk: after a crash it knows what the index
// knows. It imports neither the index nor the stream nor a wire protocol; those
// who wire it hand it a view, a clock and a hook.
package router
