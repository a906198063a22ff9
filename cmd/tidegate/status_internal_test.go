package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestStatusNamesReplicationTrouble: a server that may be read, and yet shows less
// and less, says why.
func TestStatusNamesReplicationTrouble(t *testing.T) {
	var b strings.Builder
	raw := json.RawMessage(`{"ready":true,"servers":[
		{"name":"b","role":"replica","eligible":true,"replication":"its binlog has a transaction without a GTID"},
		{"name":"c","role":"replica","eligible":true,"replication":null}]}`)
	if err := printStatus(&b, raw); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 4 || !strings.HasSuffix(lines[2], "eligible; replication: its binlog has a transaction without a GTID") || !strings.HasSuffix(lines[3], "  eligible") {
		t.Errorf("printed\n%s", b.String())
	}
}
