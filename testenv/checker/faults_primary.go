package checker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tidegate/testenv"
)

func primaryFaults() []Fault {
	return []Fault{
		{Name: "big-transaction", What: "a transaction of many rows, and of a key that is read", Strike: bigTransaction},
		{Name: "ddl", What: "ALTER of a table that is read, TRUNCATE of another", Strike: ddl},
		{Name: "primary-restart", What: "the primary is stopped cleanly and started again", Strike: restartPrimary},
		{Name: "primary-kill", What: "the primary is killed with SIGKILL and started again", Strike: killPrimary},
		{Name: "switch-over", What: "a replica becomes the primary as planned", Strike: switchOver},
		{Name: "failover", What: "the primary is killed and a replica promoted", Strike: failOver},
		{Name: "lossy-failover", What: "the same, after the replicas received nothing for a while: writes are lost", Strike: lossyFailOver},
	}
}

// faultSession is the number under which faults write.
const faultSession = -1

// bigTransaction commits thousands of rows together with a hot key, some times:
// each takes a replica a while to apply, long after its events arrived.
func bigTransaction(ctx context.Context, s *Striking) error {
	var c writer
	defer c.drop()
	s.On(s.World.Cluster.Primary().Name())
	for range 3 {
		k := hotKey(s.Rand.IntN(len(tables)))
		rows := []WrittenRow{{Key: k, Group: k.firstGroup()}}
		if _, err := s.World.write(ctx, &c, faultSession, rows, "UPDATE "+sideTable+" SET n=n+1"); err != nil {
			return err
		}
	}
	return s.World.inSync(ctx)
}

// inSync waits for the replicas to have what the primary has.
func (w *World) inSync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return w.Cluster.WaitInSync(ctx)
}

// ddl changes the definition of a table that is read while it is read, and
// empties one that is not.
func ddl(ctx context.Context, s *Striking) error {
	p := s.World.Cluster.Primary()
	t := schema + "." + tables[s.Rand.IntN(len(tables))].name
	s.On(t)
	for _, statement := range []string{
		"ALTER TABLE " + t + " ADD COLUMN extra INT",
		"CREATE TABLE " + schema + ".scratch (id INT PRIMARY KEY)",
		"INSERT INTO " + schema + ".scratch VALUES (1), (2)",
		"TRUNCATE TABLE " + schema + ".scratch",
		"ALTER TABLE " + t + " DROP COLUMN extra",
		"ALTER TABLE " + t + " ENGINE=InnoDB",
		"DROP TABLE " + schema + ".scratch",
	} {
		if err := p.Exec(ctx, statement); err != nil {
			return err
		}
		if err := s.Hold(ctx, 200*time.Millisecond, 400*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func restartPrimary(ctx context.Context, s *Striking) error {
	p := s.World.Cluster.Primary()
	s.On(p.Name())
	return s.World.While(p, func() error {
		s.Began()
		return p.Restart(ctx)
	})
}

func killPrimary(ctx context.Context, s *Striking) error {
	p := s.World.Cluster.Primary()
	s.On(p.Name())
	return s.World.While(p, func() error {
		if err := p.Kill(); err != nil {
			return err
		}
		s.Began()
		return errors.Join(s.Hold(ctx, 300*time.Millisecond, time.Second), p.Start(ctx))
	})
}

func switchOver(ctx context.Context, s *Striking) error {
	next := s.Replica()
	return s.World.ChangePrimary(ctx, nil, func(ctx context.Context) error {
		return s.World.Cluster.Promote(ctx, next, true)
	})
}

// failOver kills the primary while sessions write: what a replica had not
// received is lost. The old primary comes back as a replica of the new one, with
// its data, once sessions had a while without it.
func failOver(ctx context.Context, s *Striking) error {
	c := s.World.Cluster
	old, next := c.Primary(), (*testenv.Server)(nil)
	return s.World.While(old, func() error {
		err := s.World.ChangePrimary(ctx, func(context.Context) error { return old.Kill() }, func(ctx context.Context) error {
			// Of the replicas the one that received most, or the others would
			// hold what is lost.
			var err error
			if next, err = s.World.mostAdvanced(ctx); err != nil {
				return err
			}
			s.On(old.Name() + " to " + next.Name())
			return c.Promote(ctx, next, false)
		})
		if err != nil {
			return err
		}
		if err := s.Hold(ctx, 500*time.Millisecond, 1500*time.Millisecond); err != nil {
			return err
		}
		return s.World.rebuild(ctx, old, next, false)
	})
}

// lossyFailOver stops the receivers first, so that acknowledged writes are lost
// for certain.
func lossyFailOver(ctx context.Context, s *Striking) error {
	for _, r := range s.World.Cluster.Replicas() {
		if err := r.StopIOThread(ctx); err != nil {
			return err
		}
	}
	s.Began()
	if err := s.Hold(ctx, 300*time.Millisecond, 800*time.Millisecond); err != nil {
		return err
	}
	return failOver(ctx, s)
}

// mostAdvanced is the replica that received most.
func (w *World) mostAdvanced(ctx context.Context) (*testenv.Server, error) {
	var best *testenv.Server
	var bestSet string
	for _, r := range w.Cluster.Replicas() {
		set, err := received(ctx, r)
		if err != nil {
			return nil, err
		}
		if best == nil {
			best, bestSet = r, set
			continue
		}
		var within bool
		if err := r.QueryRow(ctx, "SELECT GTID_SUBSET(?, ?)", bestSet, set).Scan(&within); err != nil {
			return nil, fmt.Errorf("compare what replicas received: %w", err)
		}
		if within {
			best, bestSet = r, set
		}
	}
	if best == nil {
		return nil, errors.New("there is no replica to promote")
	}
	return best, nil
}

// received is what a replica has executed or still has to apply.
func received(ctx context.Context, r *testenv.Server) (string, error) {
	executed, err := r.GTIDExecuted(ctx)
	if err != nil {
		return "", err
	}
	status, err := r.ReplicaStatus(ctx)
	if err != nil {
		return "", err
	}
	if more := status["Retrieved_Gtid_Set"]; more != "" {
		executed += "," + more
	}
	return executed, nil
}
