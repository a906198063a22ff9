package daemon

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"tidegate/binlog"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/router"
	"tidegate/router/local"
)

// canary holds some of the router's yes answers against the rows: what was read
// on the replica after the answer must be what the primary has, unless the key
// was written again. Anything else is a wrong yes: the run of the server is
// taken out of use, counted, and everything that explains it is logged.
type canary struct {
	d   *Daemon
	dbs map[string]*sql.DB
	// queue is short: a check that comes late proves nothing, so it is dropped
	// and counted.
	queue chan router.CanaryCheck

	checked, inconclusive, dropped, failed, wrong atomic.Uint64
}

// CanaryCounters are running totals.
type CanaryCounters struct {
	Checked      uint64 // came to a verdict
	Inconclusive uint64 // the key was written meanwhile, or evicted
	Dropped      uint64 // came while others were being checked
	Failed       uint64 // a row could not be read
	WrongYes     uint64
}

const (
	canaryTimeout = 5 * time.Second // of one check
	canaryQueue   = 8
)

func newCanary(d *Daemon) (*canary, error) {
	c := &canary{d: d, dbs: map[string]*sql.DB{}, queue: make(chan router.CanaryCheck, canaryQueue)}
	servers, err := ServerConfigs(d.Config, nil)
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		db, err := s.OpenDB()
		if err != nil {
			c.close()
			return nil, err
		}
		db.SetMaxOpenConns(2)
		db.SetConnMaxIdleTime(time.Minute)
		c.dbs[s.Name] = db
	}
	return c, nil
}

// check is the router's hook; it never blocks.
func (c *canary) check(x router.CanaryCheck) {
	select {
	case c.queue <- x:
	default:
		c.dropped.Add(1)
	}
}

func (c *canary) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case x := <-c.queue:
			one, cancel := context.WithTimeout(ctx, canaryTimeout)
			if err := c.judge(one, &x); err != nil && ctx.Err() == nil {
				c.failed.Add(1)
				c.d.log.Debug("canary: a row can't be read", "key", x.Key.String(), "error", err)
			}
			cancel()
		}
	}
}

// judge reads the row on the replica, then on the primary. When they differ it
// waits until the index is known to have every write that the primary's answer
// can have shown; only then is "no newer write of the key" a fact.
func (c *canary) judge(ctx context.Context, x *router.CanaryCheck) error {
	snap := c.d.Router.Index().Snapshot()
	def, ok := snap.Definition(x.Key.FoldedNames(snap.FoldNames()))
	replica, primary := c.dbs[x.Server], c.dbs[x.Primary]
	if !ok || replica == nil || primary == nil || x.Server == x.Primary {
		c.inconclusive.Add(1)
		return nil
	}
	shown, err := binlog.ReadCanary(ctx, replica, &def.Definition, x.Key)
	if err != nil {
		return fmt.Errorf("server %s: %w", x.Server, err)
	}
	want, err := binlog.ReadCanary(ctx, primary, &def.Definition, x.Key)
	if err != nil {
		return fmt.Errorf("server %s: %w", x.Primary, err)
	}
	if shown.Equal(want) {
		c.checked.Add(1)
		return nil
	}
	same, err := c.unwritten(ctx, x, &def.Definition, local.Clock())
	if err != nil {
		return err
	}
	if !same {
		c.inconclusive.Add(1)
		return nil
	}
	c.checked.Add(1)
	c.wrong.Add(1)
	why := fmt.Sprintf("key %s differs from the primary: %s", x.Key, shown.Differs(want))
	c.d.Router.Index().Distrust(x.Server, x.Epoch, why)
	c.d.log.Error("WRONG YES: a replica showed other contents than the primary, without a newer write of the key",
		"key", x.Key.String(), "server", x.Server, "server_uuid", x.UUID.String(), "epoch", x.Epoch, "primary", x.Primary,
		"differs", shown.Differs(want), "newest", uint64(x.Newest), "prefix", uint64(x.Prefix),
		"decided_at", x.DecidedAt, "watermark_at", x.WatermarkAt, "lease_at", x.LeaseAt, "staleness", x.Staleness,
		"confirmed", x.Confirmed.Brief(64), "delivered", x.Delivered.Brief(64), "horizon", x.Horizon.Brief(64))
	return nil
}

// unwritten waits for a watermark younger than at, and tells whether the newest
// record that covers the key is still the one that the answer knew.
func (c *canary) unwritten(ctx context.Context, x *router.CanaryCheck, def *key.Definition, at int64) (bool, error) {
	for {
		snap := c.d.Router.Index().Snapshot()
		if snap.WatermarkAt() > at {
			var cover key.Cover
			if err := def.Cover(snap.Hasher(), &x.Key, &cover); err != nil {
				return false, nil // the definition has changed: the key was written
			}
			scopes := append([]key.Digest{cover.Own}, cover.Wide[:cover.NWide]...)
			newest := make([]event.Version, len(scopes))
			if !snap.Newest(scopes, newest) {
				continue
			}
			var top event.Version
			for _, v := range newest {
				top = max(top, v)
			}
			// Without any record an eviction may have taken a newer one away.
			return top == x.Newest && (top != 0 || snap.Horizon().Equal(x.Horizon)), nil
		}
		timer := time.NewTimer(5 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, fmt.Errorf("no watermark young enough: %w", ctx.Err())
		case <-timer.C:
		}
	}
}

// CanaryCounters may be called at any time; zero without a canary.
func (d *Daemon) CanaryCounters() CanaryCounters {
	c := d.canary
	if c == nil {
		return CanaryCounters{}
	}
	return CanaryCounters{
		Checked: c.checked.Load(), Inconclusive: c.inconclusive.Load(), Dropped: c.dropped.Load(),
		Failed: c.failed.Load(), WrongYes: c.wrong.Load(),
	}
}

// close gives all connections up. Of one whose server is gone a pool says that it
// could not take its leave, which matters to nobody.
func (c *canary) close() {
	for _, db := range c.dbs {
		_ = db.Close()
	}
}
