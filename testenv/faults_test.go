package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

const createT = "CREATE TABLE app.t (id INT PRIMARY KEY, v INT NOT NULL)"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func query(t *testing.T, s *testenv.Server, q string, args ...any) string {
	t.Helper()
	v, err := s.QueryString(testenvtest.Context(t, testenvtest.HangTimeout), q, args...)
	must(t, err)
	return v
}

func count(t *testing.T, s *testenv.Server) string {
	t.Helper()
	return query(t, s, "SELECT COUNT(*) FROM app.t")
}

// received waits until the replica has received all that the primary executed.
func received(t *testing.T, primary, replica *testenv.Server) {
	t.Helper()
	set := query(t, primary, "SELECT @@GLOBAL.gtid_executed")
	testenvtest.WaitUntil(t, testenvtest.HangTimeout, func() (bool, string) {
		got := query(t, replica, `SELECT GTID_SUBSET(?, CONCAT(@@GLOBAL.gtid_executed, ',', RECEIVED_TRANSACTION_SET))
			FROM performance_schema.replication_connection_status`, set)
		return got == "1", "received set lacks some of " + set
	})
}

// TestReplicaFaults goes through the faults that hold a replica back.
func TestReplicaFaults(t *testing.T) {
	t.Parallel()
	c := testenvtest.Cluster(t, testenv.Options{Servers: 2})
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	a, b := c.Server("a"), c.Server("b")
	must(t, a.Exec(ctx, createT+"; INSERT INTO app.t VALUES (1, 0), (2, 0)"))
	must(t, c.WaitInSync(ctx))

	next := 10
	write := func() {
		next++
		must(t, a.Exec(ctx, "UPDATE app.t SET v=? WHERE id=1", next))
	}
	value := func(s *testenv.Server) string { return query(t, s, "SELECT v FROM app.t WHERE id=1") }
	holds := []struct {
		name     string
		hold     func() (func(), error)
		receives bool
	}{
		{"table", func() (func(), error) { return b.HoldTable(ctx, "app.t") }, true},
		{"row", func() (func(), error) { return b.HoldRow(ctx, "app.t", "id=?", 1) }, true},
		{"sql thread", func() (func(), error) {
			return func() { must(t, b.StartSQLThread(ctx)) }, b.StopSQLThread(ctx)
		}, true},
		{"io thread", func() (func(), error) {
			return func() { must(t, b.StartIOThread(ctx)) }, b.StopIOThread(ctx)
		}, false},
	}
	for _, h := range holds {
		t.Run(h.name, func(t *testing.T) {
			before := value(b)
			release, err := h.hold()
			must(t, err)
			write()
			if h.receives {
				received(t, a, b)
			}
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			if err := c.WaitInSync(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("in sync although held: %v", err)
			}
			if got := value(b); got != before {
				t.Errorf("held replica shows %s, want %s", got, before)
			}
			release()
			must(t, c.WaitInSync(ctx))
			if got, want := value(b), strconv.Itoa(next); got != want {
				t.Errorf("after release %s, want %s", got, want)
			}
		})
	}
	t.Run("other rows pass a held row", func(t *testing.T) {
		release, err := b.HoldRow(ctx, "app.t", "id=?", 1)
		must(t, err)
		defer release()
		must(t, a.Exec(ctx, "UPDATE app.t SET v=5 WHERE id=2"))
		must(t, c.WaitInSync(ctx))
		release()
		release() // twice is allowed
	})
	t.Run("delay", func(t *testing.T) {
		before := value(b)
		must(t, b.SetDelay(ctx, time.Hour))
		write()
		// The applier has it in hand, and waits for nothing but its hour.
		testenvtest.WaitUntil(t, testenvtest.HangTimeout, func() (bool, string) {
			status, err := b.ReplicaStatus(ctx)
			left := status["SQL_Remaining_Delay"]
			return err == nil && left != "", fmt.Sprintf("applier: %s, remaining delay %q (%v)", status["Replica_SQL_Running_State"], left, err)
		})
		if got := value(b); got != before {
			t.Errorf("shows %s in spite of a delay of an hour, want %s", got, before)
		}
		must(t, b.SetDelay(ctx, 0))
		must(t, c.WaitInSync(ctx))
		if got, want := value(b), strconv.Itoa(next); got != want {
			t.Errorf("without the delay %s, want %s", got, want)
		}
		// What a delay lets pass at last, it applies by itself.
		must(t, b.SetDelay(ctx, time.Second))
		write()
		must(t, c.WaitInSync(ctx))
		must(t, b.SetDelay(ctx, 0))
		if err := b.SetDelay(ctx, 1500*time.Millisecond); err == nil {
			t.Error("half seconds accepted")
		}
	})
	t.Run("bad table", func(t *testing.T) {
		if _, err := b.HoldTable(ctx, "app.absent"); err == nil || !strings.Contains(err.Error(), "app.absent") {
			t.Errorf("hold an absent table: %v", err)
		}
	})
	t.Run("held over a kill", func(t *testing.T) {
		uuid, err := b.UUID(ctx)
		must(t, err)
		release, err := b.HoldTable(ctx, "app.t")
		must(t, err)
		must(t, b.Kill())
		release()
		// What an applier leaves that is killed while it starts.
		probe := "SQL_LOAD-" + uuid
		must(t, os.WriteFile(filepath.Join(filepath.Dir(b.DataDir()), "tmp", probe), nil, 0o600))
		must(t, b.Start(ctx))
		write()
		must(t, c.WaitInSync(ctx)) // nothing is held, and replication goes on by itself
	})
}

func TestBinlogsAndInjectedTransactions(t *testing.T) {
	t.Parallel()
	c := testenvtest.Cluster(t, testenv.Options{Servers: 2})
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	a, b := c.Server("a"), c.Server("b")
	must(t, a.Exec(ctx, createT+"; INSERT INTO app.t VALUES (1, 0)"))
	must(t, c.WaitInSync(ctx))

	t.Run("rotate", func(t *testing.T) {
		for _, s := range c.Servers() {
			before, err := s.Binlogs(ctx)
			must(t, err)
			executed := query(t, s, "SELECT @@GLOBAL.gtid_executed")
			must(t, s.RotateBinlog(ctx))
			after, err := s.Binlogs(ctx)
			must(t, err)
			if len(after) != len(before)+1 {
				t.Errorf("%s: files %v then %v, want one more", s.Name(), before, after)
			}
			if now := query(t, s, "SELECT @@GLOBAL.gtid_executed"); now != executed {
				t.Errorf("%s: rotating executed %s", s.Name(), now)
			}
		}
	})
	t.Run("purge", func(t *testing.T) {
		must(t, b.StopIOThread(ctx))
		must(t, a.Exec(ctx, "INSERT INTO app.t VALUES (2, 0)"))
		must(t, a.PurgeBinlogs(ctx))
		purged := query(t, a, "SELECT @@GLOBAL.gtid_purged")
		if executed := query(t, a, "SELECT @@GLOBAL.gtid_executed"); purged != executed {
			t.Errorf("purged %s, want all of %s", purged, executed)
		}
		must(t, b.StartIOThread(ctx))
		testenvtest.WaitUntil(t, testenvtest.HangTimeout, func() (bool, string) {
			status, err := b.ReplicaStatus(ctx)
			must(t, err)
			return status["Last_IO_Errno"] == "13114" || status["Last_IO_Errno"] == "1236", "receiver: " + status["Last_IO_Error"]
		})
		must(t, b.WipeAndRebuildFrom(ctx, a, true))
		must(t, c.WaitInSync(ctx))
	})
	t.Run("inject", func(t *testing.T) {
		uuid, err := a.UUID(ctx)
		must(t, err)
		last := query(t, a, "SELECT @@GLOBAL.gtid_executed")
		n, err := strconv.Atoi(last[strings.LastIndexAny(last, "-:")+1:])
		must(t, err)
		must(t, b.InjectEmpty(ctx, uuid+":"+strconv.Itoa(n+1)))
		must(t, a.Exec(ctx, "INSERT INTO app.t VALUES (77, 0)"))
		must(t, c.WaitInSync(ctx))
		if got := query(t, b, "SELECT COUNT(*) FROM app.t WHERE id=77"); got != "0" {
			t.Error("the row of an injected transaction is there")
		}
		if err := b.InjectEmpty(ctx, "nonsense"); err == nil {
			t.Error("nonsense injected")
		}
		must(t, b.Exec(ctx, "SELECT 1")) // the connection went back to AUTOMATIC
	})
	t.Run("read only", func(t *testing.T) {
		must(t, a.SetReadOnly(ctx, true))
		if err := a.Exec(ctx, "INSERT INTO app.t VALUES (90, 0)"); err == nil {
			t.Error("a read-only server takes writes")
		}
		must(t, a.Restart(ctx))
		if got := query(t, a, "SELECT @@GLOBAL.super_read_only"); got != "1" {
			t.Error("read-only forgotten over a restart")
		}
		must(t, a.SetReadOnly(ctx, false))
		must(t, a.Exec(ctx, "INSERT INTO app.t VALUES (90, 0)"))
	})
}

func TestWipeAndRebuild(t *testing.T) {
	t.Parallel()
	c := testenvtest.Cluster(t, testenv.Options{})
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	a, b, d := c.Server("a"), c.Server("b"), c.Server("c")
	must(t, a.Exec(ctx, createT+"; INSERT INTO app.t VALUES (1, 0)"))
	must(t, c.WaitInSync(ctx))
	must(t, d.StopSQLThread(ctx)) // c stays behind: an older backup
	must(t, a.Exec(ctx, "INSERT INTO app.t VALUES (2, 0)"))
	must(t, b.WaitForGTIDs(ctx, query(t, a, "SELECT @@GLOBAL.gtid_executed")))
	uuid, addr := query(t, b, "SELECT @@server_uuid"), b.Addr()

	stop := make(chan struct{})
	wrote := make(chan int, 1)
	go func() { // the source serves on while it is copied
		n := 0
		defer func() { wrote <- n }()
		for id := 100; ; id++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := a.Exec(ctx, "INSERT INTO app.t VALUES (?, 0)", id); err != nil {
				t.Errorf("write to the source during the copy: %v", err)
				return
			}
			n++
		}
	}()
	must(t, b.WipeAndRebuildFrom(ctx, a, true))
	close(stop)
	if <-wrote == 0 {
		t.Error("nothing was written during the copy")
	}
	must(t, d.StopIOThread(ctx))
	must(t, b.WaitForGTIDs(ctx, query(t, a, "SELECT @@GLOBAL.gtid_executed")))
	if got := query(t, b, "SELECT @@server_uuid"); got == uuid {
		t.Error("the same server_uuid, want a new one")
	}
	if got, want := count(t, b), count(t, a); got != want || b.Addr() != addr {
		t.Errorf("%s rows at %s, want %s at %s", got, b.Addr(), want, addr)
	}

	// From c, which lags: behind the same address, at an older position, with
	// the UUID that it had. Without a running receiver, it stays there.
	uuid = query(t, b, "SELECT @@server_uuid")
	must(t, a.Kill())
	rebuilt := make(chan error, 1)
	go func() { rebuilt <- b.WipeAndRebuildFrom(ctx, d, false) }()
	testenvtest.WaitUntil(t, testenvtest.HangTimeout, func() (bool, string) {
		n, err := b.QueryString(ctx, "SELECT COUNT(*) FROM app.t")
		return err == nil && n == "1", "rows " + n
	})
	if got := query(t, b, "SELECT @@server_uuid"); got != uuid {
		t.Errorf("server_uuid %s, want the old %s", got, uuid)
	}
	if got := query(t, b, "SELECT @@GLOBAL.super_read_only"); got != "1" {
		t.Error("the rebuilt replica is writable")
	}
	must(t, a.Start(ctx))
	must(t, <-rebuilt)
	must(t, b.WaitForGTIDs(ctx, query(t, a, "SELECT @@GLOBAL.gtid_executed")))
	if err := b.WipeAndRebuildFrom(ctx, b, true); err == nil {
		t.Error("rebuilt from itself")
	}
}
