package checker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ServerFaults are the faults of MySQL servers, in the order of their worth.
func ServerFaults() []Fault {
	return append(replicaFaults(), primaryFaults()...)
}

func replicaFaults() []Fault {
	return []Fault{
		{Name: "applier", What: "a replica's applier is stopped", Strike: stopApplier},
		{Name: "receiver", What: "a replica's receiver is stopped: it looks idle and healthy", Strike: stopReceiver},
		{Name: "delay", What: "a replica applies seconds late", Strike: delayApplier},
		{Name: "row-lock", What: "a row is locked on a replica", Strike: lockRow},
		{Name: "table-lock", What: "a table is locked on a replica", Strike: lockTable},
		{Name: "replica-kill", What: "a replica is killed with SIGKILL and started again", Strike: killReplica},
		{Name: "replica-restart", What: "a replica is stopped cleanly and started again", Strike: restartReplica},
		{Name: "rebuild", What: "a replica is wiped and rebuilt behind its address at an older position", Strike: rebuildReplica},
		{Name: "empty-gtid", What: "a GTID is injected empty on a replica, which is rebuilt afterwards", Strike: injectEmpty},
	}
}

func stopApplier(ctx context.Context, s *Striking) error {
	r := s.Replica()
	if err := r.StopSQLThread(ctx); err != nil {
		return err
	}
	s.Began()
	// Longer than any fixed window that a router might trust.
	return errors.Join(s.Hold(ctx, 6*time.Second, 8*time.Second), r.StartSQLThread(ctx))
}

func stopReceiver(ctx context.Context, s *Striking) error {
	r := s.Replica()
	if err := r.StopIOThread(ctx); err != nil {
		return err
	}
	s.Began()
	return errors.Join(s.Hold(ctx, 2*time.Second, 4*time.Second), r.StartIOThread(ctx))
}

func delayApplier(ctx context.Context, s *Striking) error {
	r := s.Replica()
	if err := r.SetDelay(ctx, 2*time.Second); err != nil {
		return err
	}
	s.Began()
	return errors.Join(s.Hold(ctx, 4*time.Second, 6*time.Second), r.SetDelay(ctx, 0))
}

func lockRow(ctx context.Context, s *Striking) error {
	r := s.Replica()
	k := hotKey(s.Rand.IntN(hotKeys))
	s.On(r.Name() + " " + k.String())
	release, err := r.HoldRow(ctx, schema+"."+k.table().name, k.whereText())
	if err != nil {
		return err
	}
	return holdLock(ctx, s, release)
}

func lockTable(ctx context.Context, s *Striking) error {
	r := s.Replica()
	t := schema + "." + tables[s.Rand.IntN(len(tables))].name
	s.On(r.Name() + " " + t)
	release, err := r.HoldTable(ctx, t)
	if err != nil {
		return err
	}
	return holdLock(ctx, s, release)
}

// holdLock keeps what release gives back for a while.
func holdLock(ctx context.Context, s *Striking, release func()) error {
	defer release()
	s.Began()
	err := s.Hold(ctx, 2*time.Second, 4*time.Second)
	release()
	s.Ended()
	return err
}

func killReplica(ctx context.Context, s *Striking) error {
	r := s.Replica()
	return s.World.While(r, func() error {
		if err := r.Kill(); err != nil {
			return err
		}
		s.Began()
		return errors.Join(s.Hold(ctx, 500*time.Millisecond, 2*time.Second), r.Start(ctx))
	})
}

func restartReplica(ctx context.Context, s *Striking) error {
	r := s.Replica()
	return s.World.While(r, func() error {
		s.Began()
		return r.Restart(ctx)
	})
}

// rebuildReplica gives a replica the data of another one that lags, so that it
// comes back older than it was; half of the time under its old server_uuid.
func rebuildReplica(ctx context.Context, s *Striking) (err error) {
	r := s.Replica()
	from := s.OtherReplica(r)
	if from == nil {
		return errors.New("it takes two replicas")
	}
	if err := from.StopSQLThread(ctx); err != nil {
		return err
	}
	s.Began()
	err = s.Hold(ctx, 500*time.Millisecond, time.Second)
	if err == nil {
		err = s.World.rebuild(ctx, r, from, s.Rand.IntN(2) == 0)
	}
	return errors.Join(err, from.StartSQLThread(ctx))
}

// injectEmpty has a replica execute one write's GTID without its data. What the
// row then lacks it lacks until its next write, or until the rebuild that ends
// the fault.
func injectEmpty(ctx context.Context, s *Striking) error {
	r := s.Replica()
	if err := r.StopSQLThread(ctx); err != nil {
		return err
	}
	s.Began()
	g, err := s.World.nextWrite(ctx)
	if err == nil {
		s.On(r.Name() + " " + g)
		err = r.InjectEmpty(ctx, g)
	}
	if err = errors.Join(err, r.StartSQLThread(ctx)); err != nil {
		return err
	}
	if err := s.Hold(ctx, 2*time.Second, 4*time.Second); err != nil {
		return err
	}
	return s.World.rebuild(ctx, r, s.World.Cluster.Primary(), s.Rand.IntN(2) == 0)
}

// nextWrite waits for a write that is acknowledged after the call, and returns
// its GTID.
func (w *World) nextWrite(ctx context.Context) (string, error) {
	now := w.rec.now()
	for {
		if t := w.newest.Load(); t != nil && t.Begin > now {
			return t.GTID, nil
		}
		if err := sleep(ctx, 2*time.Millisecond); err != nil {
			return "", fmt.Errorf("no session writes: %w", err)
		}
	}
}
