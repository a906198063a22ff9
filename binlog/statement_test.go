package binlog

import "testing"

// TestUnreadableCharset: a statement whose bytes its character set reads otherwise
// than as ASCII names other tables than it seems to, and is as wide as the databases
// that the server listed.
func TestUnreadableCharset(t *testing.T) {
	for _, tt := range []struct {
		charset, text string
		readable      bool
	}{
		{"utf8mb4", "OPTIMIZE TABLE `t[`", true},
		{"utf8mb3", "OPTIMIZE TABLE tÄ", true},
		{"latin1", "OPTIMIZE TABLE `t[`", true},
		{"latin1", "OPTIMIZE TABLE t\xc4", false},
		{"utf8mb4", "OPTIMIZE TABLE t\xc4", false},
		{"gbk", "OPTIMIZE TABLE `t\x81`", false},
		{"swe7", "OPTIMIZE TABLE t[", false}, // of tÄ
		{"swe7", "RENAME TABLE t TO u", false},
	} {
		q := queryEvent{text: []byte(tt.text), schema: []byte("app"), known: true, databases: [][]byte{[]byte("app")}}
		e := classify(&q, tt.charset)
		want := reachSchemas
		if tt.readable {
			want = reachTables
		}
		if e.understood != tt.readable || e.reach != want || !e.ddl {
			t.Errorf("%s in %s: understood %v, reach %d, ddl %v; want %v, %d", tt.text, tt.charset, e.understood, e.reach, e.ddl, tt.readable, want)
		}
		if !tt.readable && (len(e.schemas) != 1 || e.schemas[0] != "app") {
			t.Errorf("%s in %s reaches %q", tt.text, tt.charset, e.schemas)
		}
	}
	// The server lists the schema of a MERGE table, and not those of the tables that
	// are emptied with it.
	q := queryEvent{text: []byte("/* \xe9 */ tRuncate m"), schema: []byte("app"), known: true, databases: [][]byte{[]byte("app")}}
	if e := classify(&q, "latin1"); e.reach != reachEverything || e.understood {
		t.Errorf("TRUNCATE in bytes of latin1: understood %v, reach %d; want everything", e.understood, e.reach)
	}
}
