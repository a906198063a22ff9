// Package demo shows, on real MySQL servers that it starts itself, what three
// ways of choosing a server for a read do to the same reads at the same
// moments: any replica, the primary for five seconds after a write, and
// Tidegate.
//
// The main path is [Run]: it starts a primary and two replicas ([tidegate/testenv]),
// the whole program in process ([tidegate/cmd/internal/daemon]), sessions that
// write posts and read them back (session.go), and faults that make the replicas
// lag in turns (faults.go). What is stale is judged by SELECTs and
// acknowledgements alone: nothing that Tidegate knows takes part in the verdict.
//
// Everything lives in the sandbox's temporary folder, so that the sandbox's
// guard removes it also when this process is killed. What stays is the cache.
package demo
