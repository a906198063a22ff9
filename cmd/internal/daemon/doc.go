// Package daemon is the whole program without its command line: it turns a
// configuration into streams, tailing, a router and listeners, starts them in
// the order in which they need each other and stops them in reverse.
//
// The main path is [Open], [Daemon.Run]. `tidegate run`, `tail` and `serve`
// are the same code with other [Parts]; tests and the demo run it in process.
package daemon
