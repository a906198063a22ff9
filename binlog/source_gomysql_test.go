package binlog

import (
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestFactsStay: what a connection learned of its server is its own, whatever other
// connections read later. go-mysql reads results into buffers that it pools.
func TestFactsStay(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{Servers: 1})
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	s := c.Primary()
	want := map[uint16]string{}
	rows, err := s.DB().QueryContext(ctx, "SELECT id, collation_name FROM information_schema.collations")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var id uint16
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			t.Fatal(err)
		}
		want[id] = name
	}
	if err := rows.Err(); err != nil || len(want) < 100 {
		t.Fatalf("%d collations, %v", len(want), err)
	}
	_ = rows.Close()
	version, err := s.QueryString(ctx, "SELECT @@GLOBAL.version")
	if err != nil {
		t.Fatal(err)
	}
	cfg := &ServerConfig{Name: "a", Addr: s.Addr(), User: testenv.TidegateUser, Password: testenv.TidegatePassword}
	var mu sync.Mutex
	var all []Facts
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for range 5 {
				d, f, err := connectDump(ctx, dumpOptions{server: cfg, uuid: gtid.UUID{byte(n + 1)}, serverID: uint32(7000 + n), heartbeat: time.Second})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := d.c.Execute("SELECT REPEAT('garbage ', " + strconv.Itoa(n*100) + ")"); err != nil {
					t.Error(err)
				}
				d.close()
				mu.Lock()
				all = append(all, f)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, f := range all {
		if f.Version != version || !maps.Equal(f.Collations, want) {
			t.Fatalf("version %q, want %q; %d collations, the server's %d: %v", f.Version, version, len(f.Collations), len(want), f.Collations)
		}
	}
}
