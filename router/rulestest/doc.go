// Package rulestest holds the real index and the real router against a world in
// which everything that can go wrong does so in random order: MySQL servers,
// their tailers and the stream are modelled here, step by step, and what the
// router answers is compared with what each server really shows.
//
// The main path is [Generate], which draws a run, [Play], which plays it and
// returns the first violation, and [Shrink], which deletes from a run what its
// violation does not need. A run is a list of steps of four bytes. A step that
// can not happen does nothing, so that every part of a run is a run too, and any
// bytes are one ([ParseRun]).
//
// What is true is kept beside each transaction: which rows it really changed,
// when it was acknowledged, whether and when it was lost. Nothing of that is
// derived from scopes, GTID sets or anything else that the index sees.
//
// Time is a count of steps. Each router reads it from a clock of its own. The
// properties are listed at [Property].
//
// TestRules plays 20,000 runs; -rules.runs=2000000 -rules.seed=7 plays others, for
// at most -rules.for=10m. A
// failure prints the shrunk run, what happened in it, and its bytes for
// -rules.play. TestHunts draws runs as the mutation guard does. FuzzRules lets
// the fuzzer draw them. TestMutantsDie builds index and router with switchable
// rules (build tag mutants) and demands that each rule, left out, is noticed by
// the tables of its own package, and gives a wrong answer in its trace under
// testdata/traces, or in some random run; mutantHunts tells why a few can't:
// go test -tags mutants -run TestMutants -rules.record writes traces anew where
// they no longer do. Traces named found_ are violations that the runs found in
// the product or in its rules.
//
// Not modelled: how keys fold, clients' timeouts, the wire forms, torn batches
// of a store, several tables. Those have tests where they live.
package rulestest
