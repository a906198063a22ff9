// Package testenv runs real servers in a sandbox: MySQL primaries and replicas,
// Redis, NATS, each as a process of its own on a free loopback port, in a
// folder of its own, provisioned when the machine has none, and gone when the
// process that started them is gone, however that happened.
//
// Main path: [Start] makes a [Cluster] of [Server] values; tests call
// testenvtest.Cluster, which wraps it.
//
// It serves tests and the product alike (sandbox, demo, bench, torture), so it
// knows nothing of testing.T. Faults are methods: [Server.Kill], [Server.Stop],
// [Server.StopSQLThread], [Server.SetDelay], [Server.HoldTable], [Proxy].
//
// After a crash of the process: a guard (a shell that reads from a pipe) kills
// every child it was told of and removes the sandbox's folders; what stays is
// the cache of packages and of the initialised data folder.
package testenv
