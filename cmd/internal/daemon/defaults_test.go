package daemon_test

import (
	"os"
	"testing"

	"tidegate/binlog"
	"tidegate/cdc"
	"tidegate/cmd/internal/config"
	"tidegate/index"
	"tidegate/router"
	"tidegate/router/local"
	"tidegate/router/serve"
)

// TestDefaultsAreThePackages: who uses a package without the configuration gets
// the same. The one exception is tail.busy_pause, which a package has not unless it
// is asked for.
func TestDefaultsAreThePackages(t *testing.T) {
	c, err := config.Parse("f", []byte("cluster: shop\nservers:\n  - {name: a, addr: \"127.0.0.1:3306\"}\n"), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []struct {
		path      string
		got, want any
	}{
		{"nats.max_age", c.NATS.MaxAge, cdc.DefaultWritesMaxAge},
		{"nats.max_bytes", int64(c.NATS.MaxBytes), cdc.DefaultWritesMaxBytes},
		{"confirm.min_interval", c.Confirm.MinInterval, binlog.DefaultMinInterval},
		{"confirm.probe_timeout", c.Confirm.ProbeTimeout, binlog.DefaultProbeTimeout},
		{"tail.key_cap", c.Tail.KeyCap, binlog.DefaultKeyCap},
		{"tail.heartbeat", c.Tail.Heartbeat, binlog.DefaultHeartbeat},
		{"tail.read_timeout", c.Tail.ReadTimeout, binlog.DefaultReadTimeout},
		{"tail.checkpoint_every", c.Tail.CheckpointEvery, cdc.DefaultCheckpointAge},
		{"router.tick", c.Router.Tick, local.DefaultTick},
		{"router.tick of cdc", c.Router.Tick, cdc.DefaultTick},
		{"router.lease", c.Router.Lease, router.DefaultLease},
		{"router.lease of index", c.Router.Lease, index.DefaultLease},
		{"router.watermark_max_age", c.Router.WatermarkMaxAge, router.DefaultWatermarkMaxAge},
		{"router.probe_wait", c.Router.ProbeWait, router.DefaultProbeWait},
		{"index.max_records", c.Index.MaxRecords, index.DefaultMaxRecords},
		{"index.persist_every", c.Index.PersistEvery, index.DefaultFlushInterval},
		{"primary_budget.reads_per_s", c.Budget.ReadsPerSecond, router.DefaultPrimaryReadsPerSecond},
		{"canary.one_in", c.Canary.OneIn, router.DefaultCanaryOneIn},
		{"canary.per_s", c.Canary.PerSecond, router.DefaultCanaryPerSecond},
		{"listen.max_connections", c.Listen.MaxConn, serve.DefaultConns},
	} {
		if d.got != d.want {
			t.Errorf("%s: %v in the configuration, %v in its package", d.path, d.got, d.want)
		}
	}
}
