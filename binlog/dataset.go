package binlog

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// excludedRestart begins the exclusion of a server with relaxed durability that
// stopped uncleanly (rules §2.5). Routers print it as reason epoch_changed.
const excludedRestart = "epoch_changed"

// IsRestartExclusion tells whether an entry of [event.ServerState].Excluded is
// there for an unclean restart with relaxed durability.
func IsRestartExclusion(x string) bool { return strings.HasPrefix(x, excludedRestart) }

// remembered is what the monitor still knows of a server when it meets it
// again: from its own last session, or from the state it published before it
// was restarted.
type remembered struct {
	state *event.ServerState
	// run and lastUptime are those of the last session of this process; nil
	// after a restart of the monitor.
	run        *runFacts
	lastUptime time.Duration
	uptimeAt   int64 // by the suspend-aware clock; 0: never probed
}

// judgement says what a new session continues.
type judgement struct {
	newDataSet bool
	newRun     bool
	why        string // for people: why it is a new data set or run
	// stopped tells that mysqld may have stopped since it was last seen.
	stopped bool
	// from is the first binlog file whose end is evidence of how it stopped; -1:
	// there is no evidence in the binlog.
	from int
}

// judge decides whether a server that answers continues the data set and the
// run that were known (rules §1).
func judge(was *remembered, now *runFacts) judgement {
	if was == nil || was.state == nil {
		return judgement{newDataSet: true, newRun: true, why: "first seen", from: -1}
	}
	st := was.state
	j := judgement{from: -1}
	follow := st.Follow
	otherFile := st.BinlogMark != 0 && now.Mark != 0 && fileMark(st.BinlogMark) != now.Mark
	switch {
	case st.UUID != now.UUID:
		j.newDataSet, j.why = true, fmt.Sprintf("server_uuid was %s and is %s", st.UUID, now.UUID)
	case !now.Executed.ContainsSet(st.Executed):
		g, _ := now.Executed.FirstMissing(st.Executed)
		j.newDataSet, j.why = true, fmt.Sprintf("gtid_executed has shrunk: %s is missing", g)
	case follow != FollowExecuted && st.BinlogFile != "":
		j.why = continues(st.BinlogFile, st.BinlogPos, now.Files)
		if j.why == "" && otherFile {
			j.why = fmt.Sprintf("binlog %s was made %s and is another file of that name, made %s", st.BinlogFile, fileMark(st.BinlogMark).created(), now.Mark.created())
		}
		j.newDataSet = j.why != ""
	}
	j.newRun, j.stopped = true, true
	if !j.newDataSet {
		switch {
		case was.run != nil:
			same, why := sameRun(was.run, now, was.lastUptime, was.uptimeAt)
			j.newRun, j.stopped = !same, !same
			j.why = why
		default:
			j.why = "the tailer was restarted"
			j.stopped = !plausiblySameRun(st, now)
		}
	}
	if !otherFile { // files of another binlog are no evidence
		j.from = fileIndex(now.Files, st.BinlogFile)
	}
	return j
}

// fileIndex finds a file by name; -1: it is not there.
func fileIndex(files []binlogFile, name string) int {
	for i, f := range files {
		if f.Name == name {
			return i
		}
	}
	return -1
}

// continues says why the binlog does not continue a position; empty: it does. A
// file that was purged is consistent with continuing: the purged GTIDs are
// handled by themselves, and keeping the data set keeps its taints, which is
// the careful side.
func continues(file string, pos uint64, files []binlogFile) string {
	if len(files) == 0 {
		return "the binlog that was read is gone"
	}
	if i := fileIndex(files, file); i >= 0 {
		if files[i].Size < pos {
			return fmt.Sprintf("binlog %s was read to %d and ends at %d", file, pos, files[i].Size)
		}
		return ""
	}
	base, n, ok := binlogNumber(file)
	firstBase, first, firstOK := binlogNumber(files[0].Name)
	if ok && firstOK && base == firstBase && first > n {
		return ""
	}
	return fmt.Sprintf("binlog %s is not there any more, and was not purged", file)
}

// binlogNumber splits "binlog.000012".
func binlogNumber(name string) (base string, n uint64, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(name[i+1:], 10, 64)
	return name[:i], n, err == nil
}

// after orders positions of one binlog.
func (p Position) after(o Position) bool {
	if p.File == o.File {
		return p.Pos > o.Pos
	}
	_, a, okA := binlogNumber(p.File)
	_, b, okB := binlogNumber(o.File)
	return okA && (!okB || a > b)
}

// sameRun tells whether mysqld has not been restarted between two sessions: the
// process has the same number, it has counted connections on, and it has been
// up for at least as long as the time between, by a clock that counts what this
// host slept through: with one that stops, an uptime since a restart meanwhile
// would be long enough.
func sameRun(was, now *runFacts, lastUptime time.Duration, uptimeAt int64) (bool, string) {
	switch {
	case was.UUID != now.UUID:
		return false, "another server_uuid"
	case was.Process != now.Process:
		return false, fmt.Sprintf("mysqld was process %d and is %d", was.Process, now.Process)
	case now.ConnectionID <= was.ConnectionID:
		return false, "connections are counted from the start again"
	case uptimeAt == 0:
		return false, "no probe has told how long mysqld was up"
	}
	between := max(0, time.Duration(now.AskedAt-uptimeAt).Truncate(time.Second))
	if now.Uptime < lastUptime+between {
		return false, fmt.Sprintf("mysqld has been up for %s only", now.Uptime)
	}
	return true, ""
}

// plausiblySameRun is [sameRun] for a tailer whose memory is gone: what tells runs
// apart is what the last state says. Instead of the time between, start times are
// compared, by the server's own wall clock, since two tailers' hosts may be an hour
// apart: a restart after the last probe moves the start by more than the uptime that
// was seen then. A clock that was set by more than that looks like a restart, and so
// does a run of which next to nothing was seen: both starts are rounded to seconds.
func plausiblySameRun(st *event.ServerState, now *runFacts) bool {
	uptime := time.Duration(st.UptimeSeconds) * time.Second
	if uptime <= 2*time.Second || now.Uptime < uptime || st.Process != now.Process || now.ConnectionID <= st.Connection {
		return false
	}
	startedWas := time.UnixMicro(st.ProbedUnixMicro).Add(-uptime)
	moved := now.Now.Add(-now.Uptime).Sub(startedWas).Abs()
	return moved < min(uptime/2, time.Minute)
}

// endOf names the last event of a closed binlog file.
type endOf func(f, next binlogFile) (string, error)

// uncleanStop looks at the ends of all files that were closed since file from:
// a file that ends neither in a rotation nor in a STOP was being written when
// mysqld died.
func uncleanStop(files []binlogFile, from int, end endOf) (string, error) {
	for i := from; i < len(files)-1; i++ {
		kind, err := end(files[i], files[i+1])
		if err != nil {
			return "", err
		}
		if kind == "" {
			return files[i].Name, nil
		}
	}
	return "", nil
}

// restartExclusion decides rules §2.5 for a session: the printed exclusion, or
// empty. was is the state before; relaxedNow is the server's setting now, which
// counts too, since a change of it may have been missed.
func restartExclusion(was *event.ServerState, j judgement, now *runFacts, relaxed bool, end endOf) (string, error) {
	if was == nil || !relaxed {
		return "", nil
	}
	if was.UUID != now.UUID {
		return "", nil // rebuilt
	}
	if was.Follow == FollowExecuted {
		if j.newDataSet || !j.stopped {
			return "", nil
		}
		return excludedRestart + ": restarted with relaxed durability, and without a binlog there is no evidence of how it stopped", nil
	}
	if j.from < 0 {
		// The file is gone: purged (same data set), or the server was rebuilt.
		if j.newDataSet || !j.stopped {
			return "", nil
		}
		return excludedRestart + ": restarted with relaxed durability, and binlog " + was.BinlogFile + ", which would tell how it stopped, is purged", nil
	}
	// A crash that cut the binlog itself looks like another data set; under the
	// same UUID and in the same files it stays a crash.
	file, err := uncleanStop(now.Files, j.from, end)
	if err != nil {
		return "", err
	}
	if file == "" {
		return "", nil
	}
	return excludedRestart + ": restarted with relaxed durability after binlog " + file + " ended without a clean stop; transactions that it acknowledged may be gone", nil
}

// executedShrank reports the first GTID that a probe lacks of the one before.
func executedShrank(before, now gtid.Set) (gtid.GTID, bool) {
	if now.ContainsSet(before) {
		return gtid.GTID{}, false
	}
	return now.FirstMissing(before)
}
