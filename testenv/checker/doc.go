// Package checker proves, on real servers, that a router's answers were true.
//
// Sessions write versions of keys on the primary and read where an [Answerer]
// says, with random delays between answer and read, while [Fault] values
// strike. Everything goes into a history file: each write with the moment of
// its acknowledgement, each answer with what was read after it, each fault.
// [Judge] then says from that file alone which reads broke which promise, how
// many reads went to replicas, and how many an oracle would have sent there,
// who asked every replica for the row at the moment of the decision.
//
// The main path is [Run], [Judge], [Report]. Replaying a saved history is
// [Judge] again: a run has no other judge.
//
// The checker knows only what direct SELECTs and acknowledgements told it, by
// the monotonic clock of this process. It imports nothing of the index, the
// router or the stream, and so can't inherit their mistakes.
//
// After a crash of the process the history holds what was flushed until then,
// and can be judged as far as it goes.
package checker
