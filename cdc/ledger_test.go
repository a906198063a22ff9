package cdc

import (
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// TestHoleEndsOpenXA: what a hole hides may have ended a prepared transaction and
// prepared another one under its XID, so that no checkpoint may carry it behind the
// hole. One prepared behind it is carried.
func TestHoleEndsOpenXA(t *testing.T) {
	at := func(n int64) gtid.GTID { return gtid.GTID{UUID: gtid.UUID{1}, Seq: n} }
	prepare := func(n int64, xid string) *event.Transaction {
		return &event.Transaction{GTID: at(n), Flags: event.XAPrepare, XID: xid}
	}
	for name, hole := range map[string]*event.Hole{
		"purged":         {GTIDs: gtid.Of(at(2), at(3))},
		"without a GTID": {Anonymous: true},
	} {
		l := newLedger(4)
		l.item(prepare(1, "x"), 1)
		if n := len(l.checkpoint().Open); n != 1 {
			t.Fatalf("%s: %d are open before the hole, want 1", name, n)
		}
		l.item(hole, 2)
		l.item(prepare(4, "y"), 3)
		if open := l.checkpoint().Open; len(open) != 1 || open[0].XID != "y" {
			t.Errorf("%s: %v are open behind the hole, want y alone", name, open)
		}
	}
}
