package testenv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Drain says what a failover does with what the new primary has received and
// not applied yet.
type Drain int

const (
	// DrainFirst applies it, then makes the server writable: the right order.
	DrainFirst Drain = iota
	// DrainAfter makes the server writable at once, while its applier still
	// works through it: for a while it is a writable server with a channel.
	DrainAfter
	// DrainNever throws it away: received transactions are lost.
	DrainNever
)

// PromoteOptions say how a server becomes the primary. The zero value is an
// orderly failover.
type PromoteOptions struct {
	// Planned waits until the new primary has all that the old one has, which
	// must be running; nothing is lost, and the old one becomes a replica.
	Planned bool
	// Drain is for a failover; a planned change has nothing to drain.
	Drain Drain
	// LeaveOld leaves an old primary that still runs writable: two primaries.
	LeaveOld bool
}

// Promote makes newPrimary the primary. Planned: the old primary is made
// read-only, newPrimary catches up, the old one becomes its replica. Otherwise
// it is a failover: the old primary may be down, else it is fenced (read-only)
// and left alone; what newPrimary received is applied before it is writable.
// Running replicas that followed the old primary (or newPrimary) follow
// newPrimary; those behind another replica stay there. An old primary that is
// down comes back read-only and without a source.
func (c *Cluster) Promote(ctx context.Context, newPrimary *Server, planned bool) error {
	return c.PromoteWith(ctx, newPrimary, PromoteOptions{Planned: planned})
}

// PromoteWith is Promote with options.
func (c *Cluster) PromoteWith(ctx context.Context, newPrimary *Server, opts PromoteOptions) error {
	old := c.Primary()
	if newPrimary == old {
		return fmt.Errorf("promote %s: it is the primary", newPrimary.name)
	}
	if !newPrimary.Running() {
		return fmt.Errorf("promote %s: it does not run", newPrimary.name)
	}
	if opts.Planned && (opts.Drain != DrainFirst || opts.LeaveOld) {
		return errors.New("promote: Drain and LeaveOld are for a failover, not for a planned change")
	}
	var err error
	if opts.Planned {
		err = c.handOver(ctx, old, newPrimary)
	} else {
		err = c.failOver(ctx, old, newPrimary, opts)
	}
	if err != nil {
		return fmt.Errorf("promote %s: %w", newPrimary.name, err)
	}
	return nil
}

// fenceTimeout bounds the fencing of an old primary in a failover: it may be
// frozen, or in the middle of a commit that waits for an acknowledgement.
const fenceTimeout = 10 * time.Second

func (c *Cluster) handOver(ctx context.Context, old, next *Server) error {
	if err := old.SetReadOnly(ctx, true); err != nil {
		return err
	}
	set, err := old.GTIDExecuted(ctx)
	if err == nil {
		err = next.WaitForGTIDs(ctx, set)
	}
	if err != nil {
		return errors.Join(err, old.SetReadOnly(ctx, false)) // as before
	}
	if err := next.leaveSource(ctx); err != nil {
		return err
	}
	if err := c.crown(ctx, next); err != nil {
		return err
	}
	if err := c.followNew(ctx, old, next); err != nil {
		return err
	}
	if err := old.RepointTo(ctx, next, ""); err != nil {
		return err
	}
	return c.applySemiSync(ctx, next)
}

func (c *Cluster) failOver(ctx context.Context, old, next *Server, opts PromoteOptions) error {
	if !opts.LeaveOld {
		old.rememberReadOnly(true) // also for one that is down
		if old.Running() {
			fence, cancel := context.WithTimeout(ctx, fenceTimeout)
			defer cancel()
			if err := old.SetReadOnly(fence, true); err != nil {
				return fmt.Errorf("fence the old primary (kill it first, or use LeaveOld): %w", err)
			}
		}
	}
	if err := next.StopIOThread(ctx); err != nil {
		return err
	}
	if opts.Drain == DrainFirst {
		if err := next.drain(ctx); err != nil {
			return err
		}
	}
	if opts.Drain == DrainAfter {
		if err := c.crown(ctx, next); err != nil {
			return err
		}
		if err := next.drain(ctx); err != nil {
			return err
		}
	}
	if err := next.leaveSource(ctx); err != nil {
		return err
	}
	if err := c.crown(ctx, next); err != nil {
		return err
	}
	if err := c.followNew(ctx, old, next); err != nil {
		return err
	}
	old.mu.Lock()
	old.source, old.via = next, "" // where a rebuild will put it
	old.mu.Unlock()
	return c.applySemiSync(ctx, next)
}

// drain applies all that the server has received, also when it applied with a
// delay or not at all; the receiver is stopped.
func (s *Server) drain(ctx context.Context) error {
	status, err := s.ReplicaStatus(ctx)
	if err != nil {
		return err
	}
	if status == nil {
		return nil
	}
	if delay, err := strconv.Atoi(status["SQL_Delay"]); err != nil || delay != 0 {
		if err := s.SetDelay(ctx, 0); err != nil {
			return err
		}
	} else if err := s.StartSQLThread(ctx); err != nil {
		return err
	}
	if set := status["Retrieved_Gtid_Set"]; set != "" {
		return s.WaitForGTIDs(ctx, set)
	}
	return nil
}

// leaveSource ends the server's replication and forgets its source.
func (s *Server) leaveSource(ctx context.Context) error {
	if err := s.Exec(ctx, "STOP REPLICA; RESET REPLICA ALL"); err != nil {
		return err
	}
	s.mu.Lock()
	s.source, s.via = nil, ""
	s.mu.Unlock()
	return nil
}

// crown makes the server writable and the cluster's primary. From here on the
// cluster counts it as the primary, whatever fails later.
func (c *Cluster) crown(ctx context.Context, next *Server) error {
	if err := next.SetReadOnly(ctx, false); err != nil {
		return err
	}
	c.mu.Lock()
	c.primary = next
	c.mu.Unlock()
	return nil
}

// followNew repoints the running servers whose source was the old primary or
// the new one.
func (c *Cluster) followNew(ctx context.Context, old, next *Server) error {
	followers := slices.DeleteFunc(c.Servers(), func(s *Server) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		follows := s != old && s != next && (s.source == old || s.source == next)
		if follows && !s.Running() {
			s.source, s.via = next, "" // for a rebuild
		}
		return !follows || !s.Running()
	})
	return c.each(ctx, followers, func(ctx context.Context, s *Server) error { return s.RepointTo(ctx, next, "") })
}
