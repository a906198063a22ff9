package binlog

import (
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// firstSight is what a data set had executed when it was first seen, as far as
// nothing tells yet whether that are the stream's transactions. Once in base, a
// GTID counts without any comparison as soon as the stream delivers it, so that
// one which the primary has not given yet must not be there: when the primary
// gives it, it names another transaction (rules §2.2).
type firstSight struct {
	// unvetted waits: for the stream's reader to begin, and, where the server's
	// binlog has nothing left to compare, for the announced primary's answer. It is
	// published as the part of Base that is unproven, which a restart goes on from.
	unvetted gtid.Set
	// purged is what the server's binlog could not show when the connection was
	// made.
	purged gtid.Set
	// doubted is compared like what came later. Until the primary was asked it does
	// not join base when it is purged, and what the primary lacked then never does.
	doubted gtid.Set
	asked   bool
	// gone is of doubted what was purged before it was compared.
	gone gtid.Set
}

// see starts to vet what was executed at first sight.
func (f *firstSight) see(executed gtid.Set) { *f = firstSight{unvetted: executed} }

// lose takes out what was lost once; it is handled by itself (rules §1). It
// returns whether there was something.
func (f *firstSight) lose(everLost gtid.Set) bool {
	if !everLost.Overlaps(f.unvetted) && !everLost.Overlaps(f.doubted) {
		return false
	}
	f.unvetted, f.doubted, f.gone = f.unvetted.Subtract(everLost), f.doubted.Subtract(everLost), f.gone.Subtract(everLost)
	return true
}

// vouched makes base of what the stream's reader began with. Of the rest, what
// the binlog still has is compared: it returns whether the binlog must be read
// for it. That is at most what lies between two checkpoints, and what is errant.
func (t *tracker) vouched(delivered gtid.Set) bool {
	if t.first.unvetted.IsEmpty() {
		return false
	}
	t.base = t.base.Union(t.first.unvetted.Intersect(delivered))
	rest := t.first.unvetted.Subtract(delivered)
	readable := rest.Subtract(t.first.purged)
	t.first.unvetted = rest.Intersect(t.first.purged)
	t.first.doubted = t.first.doubted.Union(readable)
	return !readable.IsEmpty()
}

// waits tells whether the announced primary is still to be asked.
func (f *firstSight) waits() bool {
	return !f.unvetted.IsEmpty() || !f.asked && !f.doubted.IsEmpty()
}

// vet makes base of what no binlog shows (any more) and e has, owned ∪ executed of
// the announced primary read after the first sight. What it lacks is errant, unless
// the server may be the next primary (rules §2.3): the primary may give the GTID
// to another transaction at any time, and so only its first answer counts. It
// returns what became errant.
func (t *tracker) vet(e gtid.Set, primary bool) (errant gtid.Set) {
	f := &t.first
	if !f.waits() {
		return gtid.Set{}
	}
	t.base = t.base.Union(f.unvetted.Union(f.gone).Intersect(e))
	f.unvetted, f.doubted, f.gone = f.unvetted.Subtract(e), f.doubted.Subtract(e), f.gone.Subtract(e)
	if primary {
		return gtid.Set{}
	}
	if f.asked = true; f.unvetted.IsEmpty() {
		return gtid.Set{}
	}
	errant, f.unvetted = f.unvetted, gtid.Set{}
	t.errant = t.errant.Union(errant)
	for src, iv := range errant.All() {
		t.taint(event.Taint{All: true, GTID: gtid.GTID{UUID: src.UUID, Tag: src.Tag, Seq: iv.First}, Reason: unseenReason})
		break
	}
	return errant
}

// published is base as a state carries it.
func (t *tracker) published() gtid.Set { return t.base.Union(t.first.unvetted.Subtract(t.accepted)) }

// confirmed is what the binlog need not be read for.
func (t *tracker) confirmed(executed gtid.Set) gtid.Set {
	return executed.Subtract(t.unproven(executed).Subtract(t.first.unvetted))
}
