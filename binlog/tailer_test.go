package binlog_test

import (
	"testing"

	"tidegate/binlog"
	"tidegate/cdc/event"
)

// schema makes an empty schema for one test.
func schema(t testing.TB, s *session, name string) {
	t.Helper()
	s.exec("DROP DATABASE IF EXISTS "+name, "CREATE DATABASE "+name, "USE "+name)
}

func TestTailsKeysAndHints(t *testing.T) {
	s := newSession(t, servers.Primary())
	schema(t, s, "basic")
	s.exec("CREATE TABLE t (id INT PRIMARY KEY, g INT, v VARCHAR(20))")
	l := startTail(t, servers.Primary(), func(o *binlog.TailerOptions) {
		o.Groups = map[string][]string{"basic.t": {"g"}}
	})
	h := startTail(t, servers.Primary(), func(o *binlog.TailerOptions) { o.Mode = binlog.Hints })
	l.defined("basic.t")
	before := executed(t, servers.Primary())
	s.exec("INSERT INTO t VALUES (1,10,'a'),(2,20,'b')", "UPDATE t SET g=30, v='c' WHERE id=2", "DELETE FROM t WHERE id=1")
	set := l.caughtUp()
	h.caughtUp()
	d, _ := l.rec.definition("basic.t")
	n := scopeNames{}
	n.table("basic", "t")
	for _, k := range []string{"basic.t/1", "basic.t/2", "basic.t@g/10", "basic.t@g/20", "basic.t@g/30"} {
		n.key(t, &d.Definition, k)
	}
	txns := l.rec.in(set.Subtract(before))
	if len(txns) != 3 {
		t.Fatalf("%d transactions", len(txns))
	}
	same(t, "insert", n.names(txns[0]), []string{"any:basic.t", "basic.t/1", "basic.t/2", "basic.t@g/10", "basic.t@g/20"})
	same(t, "update", n.names(txns[1]), []string{"any:basic.t", "basic.t/2", "basic.t@g/20", "basic.t@g/30"})
	same(t, "delete", n.names(txns[2]), []string{"any:basic.t", "basic.t/1", "basic.t@g/10"})
	for i, tx := range h.rec.in(set.Subtract(before)) {
		same(t, "hint", n.names(tx), []string{"any:basic.t"})
		if tx.Identity() != txns[i].Identity() || tx.OriginalCommit == 0 || tx.SizeBytes != txns[i].SizeBytes {
			t.Errorf("hint %+v, transaction %+v", tx, txns[i])
		}
		if len(txns[i].Defs) != 1 || txns[i].Defs[0].Version != d.Version || txns[i].Flags != event.CascadesLogged {
			t.Errorf("transaction %+v, definition %x", txns[i], d.Version)
		}
	}
	_ = event.Empty
}
