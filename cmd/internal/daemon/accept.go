package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/router/serve"
)

// Accept records what an operator accepts of a server, as it is now: its data
// set, epoch and executed set go with it, so that nothing later is accepted by
// it (rules §1, "accepted").
func Accept(ctx context.Context, conn *cdc.Conn, a serve.Acceptance) error {
	return accept(ctx, conn, a, func(*event.ServerState) gtid.Set { return gtid.Set{} })
}

// accept is Accept; shown tells what the server is proven to show of the stream.
func accept(ctx context.Context, conn *cdc.Conn, a serve.Acceptance, shown func(*event.ServerState) gtid.Set) error {
	state, err := conn.LastState(ctx, a.Server)
	if err != nil {
		return fmt.Errorf("accept for %s: %w", a.Server, err)
	}
	if state == nil {
		return fmt.Errorf("accept for %s: %w", a.Server, serve.ErrUnknownServer)
	}
	given, err := conn.Accepted(ctx)
	if err != nil {
		return fmt.Errorf("accept for %s: %w", a.Server, err)
	}
	if err := acceptable(state, a, shown(state), acceptedBefore(state, given)); err != nil {
		return fmt.Errorf("accept for %s: %w", a.Server, err)
	}
	return conn.Accept(ctx, cdc.Acceptance{
		Server: a.Server, DataSet: state.DataSet, Table: a.Table, GTIDs: a.GTIDs, Copy: a.Copy, Restart: a.Restart,
		Epoch: state.Epoch, Executed: state.Executed, LossSeen: state.LossSeen, Author: a.Author, Reason: a.Reason, At: time.Now().UTC(),
	})
}

// acceptedBefore are the GTIDs of acceptances that say what one of now would say:
// what was lost since an older one is not covered by it.
func acceptedBefore(s *event.ServerState, given []cdc.Acceptance) (out gtid.Set) {
	for _, x := range given {
		if x.Server == s.Server && x.DataSet == s.DataSet && x.LossSeen == s.LossSeen {
			out = out.Union(x.GTIDs)
		}
	}
	return out
}

// Accept records what an operator accepted. A table may be named in any way in
// which the primary would find it.
func (d *Daemon) Accept(ctx context.Context, a serve.Acceptance) error {
	if schema, table, err := key.ParseTable(a.Table); err == nil && d.Router.Index().Snapshot().FoldNames() {
		a.Table = string(key.AppendTable(nil, key.FoldName(schema), key.FoldName(table)))
	}
	return accept(ctx, d.Conn, a, d.shown)
}

// shown is what the router knows the server to show, if it knows this data set.
func (d *Daemon) shown(s *event.ServerState) gtid.Set {
	snap := d.Router.Index().Snapshot()
	i, ok := snap.ServerIndex(s.Server)
	if !ok || snap.Server(i) == nil || snap.Server(i).DataSet != s.DataSet {
		return gtid.Set{}
	}
	return snap.Confirmed(i)
}

// acceptable tells whether the server's state has what is to be accepted; an
// acceptance that changes nothing is a mistake that the operator should hear of.
func acceptable(s *event.ServerState, a serve.Acceptance, shown, before gtid.Set) error {
	switch {
	case a.Table == "*":
		for _, t := range s.Taints {
			if t.All {
				return nil
			}
		}
		return fmt.Errorf("%w: the server is not tainted as a whole", serve.ErrNotAcceptable)
	case a.Table != "":
		if _, _, err := key.ParseTable(a.Table); err != nil {
			return fmt.Errorf("%w: %q is no table: schema.table is wanted", serve.ErrNotAcceptable, a.Table)
		}
		var names []string
		for _, t := range s.Taints {
			if !t.All && t.Name == a.Table {
				return nil
			}
			if t.All {
				t.Name = "*, the server as a whole"
			}
			names = append(names, t.Name)
		}
		return fmt.Errorf("%w: table %s is not tainted (tainted: %s)", serve.ErrNotAcceptable, a.Table, listed(names))
	case a.Restart:
		if slices.ContainsFunc(s.Excluded, binlog.IsRestartExclusion) {
			return nil
		}
		return fmt.Errorf("%w: no restart excludes the server (excluded by: %s)", serve.ErrNotAcceptable, listed(s.Excluded))
	case a.Copy:
		if slices.ContainsFunc(s.Excluded, binlog.IsCopyExclusion) {
			return nil
		}
		return fmt.Errorf("%w: nothing that a copy brought excludes the server (excluded by: %s)", serve.ErrNotAcceptable, listed(s.Excluded))
	default:
		return acceptableGTIDs(s, a.GTIDs, shown, before)
	}
}

func acceptableGTIDs(s *event.ServerState, gtids, shown, before gtid.Set) error {
	var tainted gtid.Set
	for _, t := range s.Taints {
		if !t.GTID.IsZero() {
			tainted = tainted.Add(t.GTID)
		}
	}
	if known := s.Executed.Union(s.Owned).Union(tainted); !known.ContainsSet(gtids) {
		return fmt.Errorf("%w: the server does not have %s", serve.ErrNotAcceptable, gtids.Subtract(known).Brief(16))
	}
	rest := gtids.Subtract(shown.Subtract(tainted).Subtract(s.Errant))
	if rest.IsEmpty() {
		return fmt.Errorf("%w: nothing speaks against %s: the server is proven to show what the stream has under these GTIDs", serve.ErrNotAcceptable, gtids.Brief(16))
	}
	if rest.Subtract(before.Subtract(tainted)).IsEmpty() {
		return fmt.Errorf("%w: %s was accepted before", serve.ErrNotAcceptable, rest.Brief(16))
	}
	return nil
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
