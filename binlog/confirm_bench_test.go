package binlog_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// BenchmarkProof measures how long after a replica has executed a transaction
// (an independent WAIT_FOR_EXECUTED_GTID_SET has returned) the monitor has
// published its proof, for proofs that wait inside the server and for plain
// probes that are repeated.
func BenchmarkProof(b *testing.B) {
	c := testenvtest.Cluster(b, testenv.Options{Servers: 2})
	ctx := context.Background()
	if err := c.Primary().Exec(ctx, "CREATE TABLE app.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)"); err != nil {
		b.Fatal(err)
	}
	for i, way := range []struct {
		name string
		wait time.Duration
	}{{"wait", 0}, {"reprobe", time.Microsecond}} {
		b.Run(way.name, func(b *testing.B) { benchmarkProof(b, c, byte(i), way.wait) })
	}
}

func benchmarkProof(b *testing.B, c *testenv.Cluster, writer byte, wait time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	replica := c.Replicas()[0]
	var mu sync.Mutex
	published := map[int64]time.Time{}
	uuid := gtid.UUID{0xbe, writer, byte(b.N), byte(b.N >> 8), byte(time.Now().UnixNano())}
	var newest int64
	news := make(chan struct{}, 1)
	o := binlog.MonitorOptions{
		Server: tidegateConfig(replica), Hasher: testHasher, WaitSlice: wait, Identities: everything{},
		NextEpoch: func(context.Context) (event.Epoch, error) { return event.Epoch(epochs.Add(1)), nil },
		Publish: func(_ context.Context, st *event.ServerState) error {
			now := time.Now()
			mu.Lock()
			defer mu.Unlock()
			for n := st.Executed.Subtract(st.Unproven).Max(gtid.Source{UUID: uuid}); newest < n; {
				newest++
				published[newest] = now
			}
			select {
			case news <- struct{}{}:
			default:
			}
			return nil
		},
	}
	o.Tail = binlog.HintsTail(binlog.TailerOptions{Server: o.Server, Hasher: testHasher})
	m, err := binlog.NewMonitor(o)
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	<-news
	w, err := c.Primary().DB().Conn(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	var delays []time.Duration
	for n := int64(1); b.Loop(); n++ {
		g := gtid.GTID{UUID: uuid, Seq: n}
		if _, err := w.ExecContext(ctx, fmt.Sprintf("SET gtid_next = '%s'; INSERT INTO app.t (v) VALUES (1); SET gtid_next = 'AUTOMATIC'", g)); err != nil {
			b.Fatal(err)
		}
		if err := replica.WaitForGTIDs(ctx, g.String()); err != nil {
			b.Fatal(err)
		}
		at := time.Now()
		for {
			mu.Lock()
			p, ok := published[n]
			mu.Unlock()
			if ok {
				delays = append(delays, max(0, p.Sub(at)))
				break
			}
			<-news
		}
	}
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	slices.Sort(delays)
	b.ReportMetric(float64(delays[len(delays)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(delays[len(delays)*99/100].Microseconds()), "p99-us")
	counters := m.Counters()
	b.ReportMetric(float64(counters.Probes)/float64(len(delays)), "probes/txn")
}

// everything is a stream that has no identity of anything, so that what the
// binlog shows counts as shown at once.
type everything struct{}

func (everything) Lookup(gtid.GTID) event.Known {
	return event.Known{State: event.NoIdentity, At: event.Reading{Starts: 1}}
}
func (everything) Since(event.Version) event.Turn { return event.Turn{History: 1, Starts: 1} }
func (everything) LostIdentity(event.Identity) (bool, event.Reading) {
	return false, event.Reading{Starts: 1}
}
func (everything) Changed() <-chan struct{}        { return nil }
func (everything) Forget(gtid.GTID, event.Reading) {}
