// Package torture runs the consistency checker against a router on real
// servers, for `tidegate torture` and for the test that runs in CI.
//
// Its main path is [Run]: it starts a sandbox, makes the router that is asked
// for, lets testenv/checker loose on both, and returns the verdict. The routers
// are the whole program in this process ("real") and two that are broken on
// purpose, so that the checker shows that it can catch one: "hints" trusts
// binlog events, "window" reads from the primary for a fixed time after a write.
//
// Nothing survives a run but the history file and, on a crash of the process,
// what testenv's guard leaves: the package cache.
package torture
