package binlog_test

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// realTxns is how many single-row transactions BenchmarkRealServer writes once.
const realTxns = 20_000

// BenchmarkRealServer reads the same transactions of a real server with the
// tailer in Keys mode and with go-mysql in raw mode, by turns. One operation is
// one reading of all of them.
func BenchmarkRealServer(b *testing.B) {
	primary := servers.Primary()
	s := newSession(b, primary)
	schema(b, s, "delivery")
	s.exec("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40))",
		"CREATE PROCEDURE fill(n INT) BEGIN WHILE n>0 DO INSERT INTO t VALUES (n,'some text of a row'); SET n=n-1; END WHILE; END",
		"SET GLOBAL sync_binlog=0", "SET GLOBAL innodb_flush_log_at_trx_commit=0")
	from := executed(b, primary)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if _, err := s.conn.ExecContext(ctx, "CALL fill(?)", realTxns); err != nil {
		b.Fatal(err)
	}
	s.exec("SET GLOBAL sync_binlog=DEFAULT", "SET GLOBAL innodb_flush_log_at_trx_commit=DEFAULT")
	var ours, theirs time.Duration
	b.ResetTimer()
	for b.Loop() {
		ours += timed(func() { readTailer(b, primary, from) })
		theirs += timed(func() { readGoMySQL(b, primary, from) })
	}
	n := float64(realTxns * b.N)
	b.ReportMetric(n/ours.Seconds(), "tailer-txn/s")
	b.ReportMetric(n/theirs.Seconds(), "go-mysql-txn/s")
	b.ReportMetric(theirs.Seconds()/ours.Seconds(), "x")
}

func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// untilHandler ends after so many transactions.
type untilHandler struct {
	left int
	done func()
}

func (h *untilHandler) Transaction(context.Context, *event.Transaction, binlog.Position) error {
	if h.left--; h.left == 0 {
		h.done()
	}
	return nil
}
func (h *untilHandler) Hole(context.Context, *event.Hole) error                    { return nil }
func (h *untilHandler) Definitions(context.Context, []event.TableDefinition) error { return nil }
func (h *untilHandler) Progress(context.Context, binlog.Position) error            { return nil }

func readTailer(b *testing.B, s *testenv.Server, from gtid.Set) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	t, err := binlog.NewTailer(binlog.TailerOptions{Server: serverConfig(s), From: from, Hasher: testHasher})
	if err != nil {
		b.Fatal(err)
	}
	if err := t.Run(ctx, &untilHandler{realTxns, cancel}); ctx.Err() == nil {
		b.Fatal(err)
	}
}

func readGoMySQL(b *testing.B, s *testenv.Server, from gtid.Set) {
	b.Helper()
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		b.Fatal(err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		b.Fatal(err)
	}
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: 4711, Flavor: mysql.MySQLFlavor, Host: host, Port: uint16(number),
		User: testenv.TidegateUser, Password: testenv.TidegatePassword, RawModeEnabled: true, Logger: slog.New(slog.DiscardHandler),
	})
	defer syncer.Close()
	set, err := mysql.ParseMysqlGTIDSet(from.OneLine())
	if err != nil {
		b.Fatal(err)
	}
	stream, err := syncer.StartSyncGTID(set)
	if err != nil {
		b.Fatal(err)
	}
	ctx := testenvtest.Context(b, hang)
	for n := 0; n < realTxns; {
		ev, err := stream.GetEvent(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if ev.Header.EventType == replication.XID_EVENT {
			n++
		}
	}
}
