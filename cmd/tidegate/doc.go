// Command tidegate tells applications whether a MySQL replica already shows
// what a reader must see.
//
// main.go names the commands, each of which has a file of its own:
//
//	run, tail, serve   run.go: the program, or one of its halves; cmd/internal/daemon
//	                   wires it from cmd/internal/tailing (binlog to stream),
//	                   router/local (stream to answers) and router/serve (HTTP, RESP)
//	observe            observe.go: the same, judging reads that applications report
//	check              check.go: what breaks a promise on a server, and its mend
//	config             config.go: an example, the reference, or what is wrong with a file
//	status, accept     status.go, accept.go: ask a router that runs (cmd/internal/api)
//	sandbox, demo      sandbox.go, demo.go: real servers to play with (testenv)
//	torture, bench     torture.go, bench.go: are the answers true, and what do they cost
//
// The main path is run.go: runDaemon, then daemon.Open and Daemon.Run. exit.go
// has what every command ends with: 0, 1 (found or failed) or 2 (called wrongly,
// nothing begun). A command keeps nothing but run, tail, serve and observe in
// data_dir; after a crash these start again as if they had ended.
package main
