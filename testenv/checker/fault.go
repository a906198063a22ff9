package checker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"tidegate/testenv"
)

// Fault is something that goes wrong for a while. Strike brings it about, holds
// it (see [Strike.Hold]) and mends it before it returns: afterwards there is
// one writable primary, and every other server replicates from it. It heeds
// ctx only to give up; the end of a run does not cut a strike short.
type Fault struct {
	Name   string
	What   string // one line, for people
	Strike func(ctx context.Context, s *Striking) error
}

// Striking is one strike of a fault, as the fault sees the world. It belongs to
// the fault's goroutine.
type Striking struct {
	World *World
	Rand  *rand.Rand

	target     string
	begin, end Moment
}

// On names what is struck.
func (s *Striking) On(target string) { s.target = target }

// Began marks the moment at which the fault has taken effect; without it a
// strike begins when it was called for.
func (s *Striking) Began() { s.begin = s.World.rec.now() }

// Ended marks the moment at which the fault was mended; without it a strike
// ends when it returns.
func (s *Striking) Ended() { s.end = s.World.rec.now() }

// Hold lets the fault last between least and most.
func (s *Striking) Hold(ctx context.Context, least, most time.Duration) error {
	return sleep(ctx, least+time.Duration(s.Rand.Int64N(int64(most-least)+1)))
}

// Replica picks a replica.
func (s *Striking) Replica() *testenv.Server {
	rs := s.World.Cluster.Replicas()
	r := rs[s.Rand.IntN(len(rs))]
	s.On(r.Name())
	return r
}

// OtherReplica is a replica that is not r; nil when there is none.
func (s *Striking) OtherReplica(r *testenv.Server) *testenv.Server {
	for _, o := range s.World.Cluster.Replicas() {
		if o != r {
			return o
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// strikeTimeout bounds one strike; what takes longer is stuck.
const strikeTimeout = 2 * time.Minute

// strikes lets the faults strike in turn, each round in another order, with the
// world at peace for after between them, until until.
func (w *World) strikes(ctx context.Context, faults []Fault, rng *rand.Rand, after time.Duration, until Moment) error {
	if len(faults) == 0 {
		return nil
	}
	if err := sleep(ctx, time.Second); err != nil { // how it goes without a fault
		return nil
	}
	for round := 0; ; round++ {
		for _, i := range rng.Perm(len(faults)) {
			// Every fault strikes once, whatever the time; after that the clock
			// decides.
			if ctx.Err() != nil || round > 0 && w.rec.now() >= until-Moment(after) {
				return nil
			}
			if err := w.strike(ctx, &faults[i], rng); err != nil {
				return err
			}
			if err := sleep(ctx, after); err != nil {
				return nil
			}
		}
	}
}

func (w *World) strike(ctx context.Context, f *Fault, rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), strikeTimeout)
	defer cancel()
	s := &Striking{World: w, Rand: rng, begin: w.rec.now()}
	w.log.Info("fault begins", "fault", f.Name)
	err := f.Strike(ctx, s)
	if s.end == 0 {
		s.end = w.rec.now()
	}
	line := Strike{Name: f.Name, Target: s.target, Begin: s.begin, End: s.end}
	if err != nil {
		line.Err = err.Error()
	}
	w.rec.add(Line{Strike: &line})
	w.log.Info("fault ends", "fault", f.Name, "on", s.target, "err", err)
	if err != nil {
		return fmt.Errorf("fault %s on %s: %w", f.Name, s.target, err)
	}
	return w.identify(ctx)
}

// identify records which server_uuid each server has.
func (w *World) identify(ctx context.Context) error {
	var errs []error
	for _, s := range w.Cluster.Servers() {
		uuid, err := s.UUID(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		w.rec.add(Line{Identity: &Identity{Server: s.Name(), UUID: uuid}})
	}
	return errors.Join(errs...)
}
