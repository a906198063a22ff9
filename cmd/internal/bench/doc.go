// Package bench measures what the project promises about speed and size, each
// figure beside a baseline that is measured in the same run, on real servers
// where servers are part of the figure. testenv/BENCHMARKS.md describes the
// method and names the bounds.
//
// The main path is [Run], which calls one function a row (rows.go), each of
// which returns [Figure] values; [WriteJSON] and [WriteTable] print them.
//
// Routers, Redis, MySQL and measured daemons are processes of their own where
// the row says so: children of this program, started again as
// `tidegate bench-child` ([Child]), and ended by testenv's guard when this
// process dies. Nothing is kept but what --profile asks for.
package bench
