package router

import (
	"strings"
	"sync/atomic"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/router/budget"
)

// CanaryCheck is one yes answer that is to be checked against the servers: the
// row is read on Server and on the primary, and different contents without a
// newer write of the key contradict the answer.
type CanaryCheck struct {
	Key     key.Key // a copy; exactly one row
	Server  string
	UUID    gtid.UUID
	Epoch   event.Epoch
	Primary string

	// What the answer stood on.
	DecidedAt   int64 // by the router's clock, nanoseconds
	WatermarkAt int64
	LeaseAt     int64
	Newest      event.Version // newest record that covers the key; 0: none
	Prefix      event.Version
	Confirmed   gtid.Set
	Delivered   gtid.Set
	Horizon     gtid.Set
	Staleness   time.Duration // Unknown when it is
}

// canary picks the yes answers to check.
type canary struct {
	oneIn uint64
	limit *budget.Budget
	seen  atomic.Uint64
}

func (c *canary) maybe(r *Router, q *question, i int, ans *Answer) {
	if c.seen.Add(1)%c.oneIn != 0 {
		return
	}
	k := int(r.o.Random() % uint64(len(q.keys)))
	if !q.keys[k].oneRow || !c.limit.Take(q.now) {
		return
	}
	check := CanaryCheck{
		Key: cloneKey(&q.req.Keys[k]), Server: ans.Server, UUID: ans.UUID, Epoch: ans.Epoch,
		DecidedAt: q.now, WatermarkAt: q.watermarkAt, LeaseAt: q.snap.LeaseAt(i),
		Newest: max(q.keys[k].own, q.keys[k].wide), Prefix: q.snap.Prefix(i),
		Confirmed: q.snap.Confirmed(i), Delivered: q.snap.Delivered(), Horizon: q.snap.Horizon(),
		Staleness: ans.Staleness,
	}
	if st := q.snap.Server(q.primary); st != nil {
		check.Primary = st.Server
	}
	r.counters.canaries.Add(1)
	r.o.Canary(check)
}

// cloneKey copies a key whose strings may lie in a buffer that its caller will
// use again.
func cloneKey(k *key.Key) key.Key {
	c := key.Key{
		Kind: k.Kind, Schema: strings.Clone(k.Schema), Table: strings.Clone(k.Table),
		Column: strings.Clone(k.Column), Values: make([]key.TextValue, len(k.Values)),
	}
	for i, v := range k.Values {
		c.Values[i] = key.TextValue{Text: strings.Clone(v.Text), Null: v.Null}
	}
	return c
}
