package index

import (
	"fmt"
	"slices"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
)

// announce takes the run of the primary from which the writer writes from here
// on, and what was lost on the way (rules §6.2, §10).
func (ix *Index) announce(a *event.Announcement, v event.Version) error {
	if a.History != ix.history {
		return fmt.Errorf("history %d is announced without its checkpoint, at history %d: %w", a.History, ix.history, ErrDiscontinuity)
	}
	ix.n.Announcements++
	old := ix.announced
	same := old != nil && old.Server == a.Server && old.ServerUUID == a.ServerUUID && old.Epoch == a.Epoch
	if old == nil || old.ServerUUID != a.ServerUUID || !a.NewlyLost.IsEmpty() {
		ix.failover = v
	}
	// A replica's tailer says how far it has read: before it has come here, what
	// it compared may be of a stream that stepped back (rules §5.4, §10).
	ix.lossAt = v
	ix.announced = a
	ix.lose(a, v, same)
	ix.setGroups(a.Groups)
	ix.clk.ofRun = ix.clk.ofRun && same
	if same {
		ix.account(ix.explained.Union(a.Executed), ix.passing.Subtract(a.Executed))
		ix.left = ix.left.Union(a.Executed)
	} else {
		// What an earlier primary had explains nothing of this one's history, and
		// is not asked of it (rules §6.2: lost aside).
		ix.clk.executed = ix.clk.executed.Intersect(a.Executed)
		// Nor would the stream ever come to what is neither this one's nor lost, and
		// W would wait for it.
		ix.clk.probes = slices.DeleteFunc(slices.Clone(ix.clk.probes), func(p *probe) bool { return !within(p.executed, a.Executed, a.Lost) })
		ix.account(a.Executed, gtid.Set{})
		ix.left, ix.reigned = a.Executed, false
	}
	ix.clk.anonymous, ix.clk.refused = false, ""
	ix.pending.announced = true
	ix.reassess()
	ix.opt.Log.Info("primary announced", "server", a.Server, "epoch", uint64(a.Epoch), "version", uint64(v),
		"newly_lost", a.NewlyLost.Count(), "lost", ix.lost.Count())
	return nil
}

// lose takes what an announcement says is lost out of D and H, and moves the
// records that it wrote to the announcement's version: nobody knows what the
// rows show until everything up to there is confirmed.
func (ix *Index) lose(a *event.Announcement, v event.Version, same bool) {
	// What was lost and given again is part of H when a history has just begun
	// with it (rules §11.2): it was read from the primary, and comes no more.
	gone := a.Lost.Union(a.NewlyLost.Subtract(ix.h.Set()))
	if !gone.IsEmpty() && rule(ruleLostLeaves) {
		ix.d.Remove(gone)
		ix.h.Remove(gone)
		ix.dh.Remove(gone)
		if ranges := ix.ord.remove(gone); len(ranges) > 0 && rule(ruleLostMoves) {
			ix.pending.ordinals = true
			ix.tab.move(ranges, v, func(a, b uint64) {
				ix.n.RecordsMoved++
				if ix.pending.on {
					ix.pending.words(a, b, v)
				}
			})
		}
	}
	ix.lost = a.Lost
	if p := ix.clk.newest; same && p != nil && ix.clk.ofRun && rule(ruleShownAgain) {
		// A counted E of this very run has shown them since.
		ix.lost = ix.lost.Subtract(p.e)
	}
}

// setGroups notes the group columns that are recorded, and since when.
func (ix *Index) setGroups(list []event.GroupColumn) {
	fold := ix.announced != nil && ix.announced.FoldNames
	m := make(map[key.Digest]gtid.Set, len(list))
	for i := range list {
		g := &list[i]
		schema, table := g.Schema, g.Table
		if fold {
			schema, table = key.FoldName(schema), key.FoldName(table)
		}
		scopes := ix.hasher.Table(schema, table)
		column := scopes.Group(key.FoldName(g.Column)).AllRows
		m[column] = g.Before
		ix.widenOpen(column, g.Before)
	}
	ix.groups, ix.groupList = m, list
}
