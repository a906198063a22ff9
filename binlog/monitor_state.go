package binlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// publish composes the state and hands it over. An error of the stream is
// counted and mended by the next state; an error ends the session only when ctx
// has ended.
func (s *session) publish(ctx context.Context) error {
	st := s.compose()
	s.steer(st.Role)
	s.m.state.Store(st)
	if err := s.m.o.Publish(ctx, st); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.m.counters.publishErrors.Add(1)
		s.unsent = true
		return nil
	}
	s.unsent = false
	s.m.counters.published.Add(1)
	return nil
}

// factsMaxAge is when channel facts are too old to name a role by (P3).
const factsMaxAge = 10 * time.Second

// compose makes one consistent state: sets of one probe, and what was shown by
// the time of it or later, which only ever adds.
func (s *session) compose() *event.ServerState {
	m := s.m
	other := m.o.OtherPrimary != nil && m.o.OtherPrimary()
	var accepted []Acceptance
	if m.o.Accepted != nil {
		accepted = m.o.Accepted()
	}
	lower, known := 0, false
	if m.o.PrimaryNames != nil {
		lower, known = m.o.PrimaryNames()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.acceptLocked(accepted)
	// A table that was tainted since the last look at tables: an operator who
	// would accept it has to know which.
	m.tr.nameTaints(s.tables.names)
	facts := s.facts
	if time.Since(s.factsAt) > factsMaxAge {
		facts = nil
	}
	standing := decideRole(roleInput{
		writable: s.last.Writable(), executed: s.last.Executed, facts: facts,
		wasPrimary: s.wasPrimary, otherPrimary: other,
	})
	if standing.role != event.RoleUnknown {
		s.wasPrimary = standing.role == event.RolePrimary
	}
	s.setRoleLocked(standing.role)
	s.dirty = false
	binlog := m.remarkLocked()
	st := &event.ServerState{
		Server: m.o.Server.Name, AppAddr: m.o.Server.AppAddr, UUID: s.run.UUID,
		Epoch: s.epoch, DataSet: s.dataSet, History: s.history, LossSeen: s.lossSeen,
		Alive: true, Role: standing.role, Writable: s.last.Writable(), Drained: standing.drained,
		GTIDMode: s.last.GTIDMode, Follow: m.o.Server.Follow,
		Owned: s.last.Owned, Executed: s.last.Executed,
		Unproven: m.tr.unproven(s.last.Executed), Base: m.tr.published(),
		Hinted: m.tr.hinted(s.last.Executed), Ticks: slices.Clone(s.lastTicks),
		Taints: m.tr.taints, Errant: m.tr.accountedFor(s.last.Executed.Union(s.last.Owned)),
		Filtered: s.tables.printed, FilteredTables: s.tables.digests,
		BinlogFile: binlog.at.File, BinlogPos: binlog.at.Pos, BinlogMark: uint64(binlog.mark), Ends: m.ends,
		UptimeSeconds: s.last.UptimeSeconds, ThreadsRunning: s.last.ThreadsRunning,
		Process: s.run.Process, Connection: s.run.ConnectionID,
		ServerVersion: s.run.Version, RelaxedDurable: s.run.Relaxed || s.facts.relaxed, Grouped: s.facts.group.state != "",
		ProbedUnixMicro: s.run.Now.Add(time.Duration(s.probedClock - s.run.AskedAt)).UnixMicro(),
	}
	if st.AppAddr == "" {
		st.AppAddr = m.o.Server.Addr
	}
	if s.excluded != "" {
		st.Excluded = append(st.Excluded, s.excluded)
	}
	if facts != nil {
		describeChannels(st, facts)
	}
	if st.ReplicationErr == "" && st.Role == event.RoleReplica {
		st.ReplicationErr = m.stuck.text(st.Unproven)
	}
	s.distrustLocked(st)
	if facts != nil {
		st.Excluded = append(st.Excluded, facts.exclusions(lower, known)...)
		if x := facts.newTablesElsewhere(); x != "" && st.Role != event.RolePrimary {
			st.Excluded = append(st.Excluded, x)
		}
	}
	return st
}

// distrustLocked excludes a replica of which what was compared is not known to
// be of the stream as it is, or of which nothing will tell which of two
// transactions it has (rules §5.4, §11.2).
func (s *session) distrustLocked(st *event.ServerState) {
	if st.Role == event.RolePrimary || st.Follow == FollowExecuted {
		return
	}
	if s.m.o.Identities != nil && s.m.tr.starts == 0 {
		st.Excluded = append(st.Excluded, excludedUnread+": its tailer has not read the stream yet")
	}
	if s.factsAt.Before(s.lostAt) {
		st.Excluded = append(st.Excluded, excludedUnread+": transactions were lost, and it has not been asked since what it has received")
	}
	if mute := s.m.tr.mute(st.Executed); !mute.IsEmpty() {
		st.Excluded = append(st.Excluded, fmt.Sprintf(excludedMute+" under %s: "+
			"compare its data and accept them, or rebuild it from a server that is right and accept the copy", mute.Brief(16)))
	} else if doubtful := s.m.tr.doubtful(st.Executed, st.Owned, st.Received); !doubtful.IsEmpty() {
		st.Excluded = append(st.Excluded, fmt.Sprintf("%s: transactions were lost under %s, and it has not been compared yet whether it has (or has still to apply) those, or others that were given these GTIDs since",
			excludedUnread, doubtful.Brief(16)))
	}
}

// excludedMute begins the exclusion of a replica of which nothing tells which
// transactions it has under GTIDs that were given again (rules §11.2).
const excludedMute = "GTIDs were or may have been given again, or the primary wrote without one, and no binlog tells what this server has"

// IsCopyExclusion tells whether an entry of [event.ServerState].Excluded is there
// because the server's data came without a binlog that tells what it is.
func IsCopyExclusion(x string) bool { return strings.HasPrefix(x, excludedMute) }

// excludedUnread begins the exclusion of a replica whose tailer has still to read
// the stream, or its binlog again.
// Routers print it as reason catching_up.
const excludedUnread = "catching_up"

// describeChannels adds what replication does.
func describeChannels(st *event.ServerState, f *serverFacts) {
	st.ReplicationErr = f.replicationError()
	if c := f.source(); c != nil {
		st.SourceUUID = c.sourceUUID
		st.IORunning, st.SQLRunning = c.io == "ON", c.sql == "ON"
		st.Received = f.received()
	}
}

// acceptLocked applies what the operator accepted.
func (s *session) acceptLocked(list []Acceptance) {
	s.m.tr.acceptances(list, s.dataSet, func(announced event.Version) gtid.Set { return s.m.since(announced).Lost })
	for _, a := range list {
		if s.excluded != "" && a.DataSet == s.dataSet && a.Restart && a.Epoch >= s.exclAt {
			s.m.log.Info("restart accepted by the operator", "was", s.excluded)
			s.excluded = ""
		}
	}
}

func (s *session) setRoleLocked(r event.Role) {
	if r != s.role {
		s.m.log.Info("role", "was", roleName(s.role), "is", roleName(r))
		s.role = r
	}
	s.m.tr.primary = r == event.RolePrimary
}

func roleName(r event.Role) string {
	switch r {
	case event.RolePrimary:
		return "primary"
	case event.RoleReplica:
		return "replica"
	}
	return "unknown"
}

// steer starts and ends the reading of the server's own binlog: a primary's is
// read by the tailer that writes the stream.
func (s *session) steer(r event.Role) {
	if r == event.RoleUnknown || r == s.steered {
		return
	}
	s.steered = r
	select {
	case <-s.wantTail:
	default:
	}
	s.wantTail <- r == event.RoleReplica // capacity 1, and this is the only sender
}
