package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidegate/testenv"
	"tidegate/testenv/checker"
)

// natsFault is the fault that needs NATS as a process of its own.
const natsFault = "nats"

// ownFaults are the faults of what lies between the servers and the answers.
// The router's own exist for "real" alone.
func ownFaults(via map[string]*testenv.Proxy, r *realRouter, nats *testenv.NATSProcess) []checker.Fault {
	fs := []checker.Fault{
		{Name: "cut", What: "the tailers' connections to a server break, some times", Strike: func(ctx context.Context, s *checker.Striking) error { return cut(ctx, s, via) }},
		{Name: "cut-event", What: "the tailers' connections break in the middle of an event", Strike: func(ctx context.Context, s *checker.Striking) error { return cutEvent(ctx, s, via) }},
		{Name: "stall", What: "nothing of a server's reaches the tailers, and no connection breaks", Strike: func(ctx context.Context, s *checker.Striking) error { return stall(ctx, s, via) }},
	}
	if r == nil {
		return fs
	}
	fs = append(fs, checker.Fault{Name: "router", What: "the router ends and starts again on the same data folder", Strike: func(ctx context.Context, s *checker.Striking) error {
		s.On("router")
		return r.restart(ctx, func() error { return s.Hold(ctx, 100*time.Millisecond, time.Second) })
	}})
	if nats == nil {
		return fs
	}
	return append(fs, checker.Fault{Name: natsFault, What: "NATS is stopped and started again", Strike: func(ctx context.Context, s *checker.Striking) error {
		s.On("nats")
		if err := nats.Stop(ctx); err != nil {
			return err
		}
		s.Began()
		return errors.Join(s.Hold(ctx, time.Second, 3*time.Second), nats.Start(ctx))
	}})
}

// proxied picks a server and its proxy.
func proxied(s *checker.Striking, via map[string]*testenv.Proxy) *testenv.Proxy {
	servers := s.World.Cluster.Servers()
	name := servers[s.Rand.IntN(len(servers))].Name()
	s.On(name)
	return via[name]
}

func cut(ctx context.Context, s *checker.Striking, via map[string]*testenv.Proxy) error {
	p := proxied(s, via)
	for range 4 {
		p.CutAll()
		if err := s.Hold(ctx, 200*time.Millisecond, 800*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func cutEvent(ctx context.Context, s *checker.Striking, via map[string]*testenv.Proxy) error {
	p := proxied(s, via)
	defer func() { _ = p.Pass() }()
	for range 3 {
		struck, err := p.CutAfter(testenv.FromTarget, 500+s.Rand.Int64N(20_000))
		if err != nil {
			return err
		}
		select {
		case <-struck:
		case <-time.After(3 * time.Second): // an idle server sends little
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return p.Pass()
}

func stall(ctx context.Context, s *checker.Striking, via map[string]*testenv.Proxy) error {
	p := proxied(s, via)
	p.Stall(testenv.FromTarget)
	err := s.Hold(ctx, 2*time.Second, 5*time.Second)
	return errors.Join(err, p.Pass())
}

// watched tells of each strike before it begins, and breaks it off when ctx ends:
// the checker lets a strike come to its end, which can take a minute, and mends
// what nobody looks at any more after an interrupt.
func (o *Options) watched(ctx context.Context, faults []checker.Fault) []checker.Fault {
	n := 0 // the checker strikes from one goroutine
	out := slices.Clone(faults)
	for i := range out {
		f := out[i]
		out[i].Strike = func(strike context.Context, s *checker.Striking) error {
			n++
			if o.Striking != nil {
				o.Striking(f.Name, n)
			}
			strike, breakOff := context.WithCancel(strike)
			defer breakOff()
			defer context.AfterFunc(ctx, breakOff)()
			return f.Strike(strike, s)
		}
	}
	return out
}

// choose picks faults by their names: "none", "all", or a list with commas.
func choose(names string, all []checker.Fault) ([]checker.Fault, error) {
	switch names {
	case "", "none":
		return nil, nil
	case "all":
		return all, nil
	}
	var out []checker.Fault
	var known []string
	for _, f := range all {
		known = append(known, f.Name)
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.Index(known, strings.TrimSpace(name))
		if i < 0 {
			return nil, fmt.Errorf("faults: no fault %q; there are none, all, %s", name, strings.Join(known, ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}
