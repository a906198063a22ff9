package binlog

import (
	"slices"
	"testing"
)

// The texts in this file are what MySQL 9.7.4 printed.

// TestEncryptedBinaryLogs: SHOW BINLOG EVENTS says that binlog.000005 ends at 242.
func TestEncryptedBinaryLogs(t *testing.T) {
	var rows []textRow
	for _, r := range [][]string{{"binlog.000004", "221", "No"}, {"binlog.000005", "754", "Yes"}, {"binlog.000006", "710", "Yes"}} {
		rows = append(rows, textRow{[]string{"Log_name", "File_size", "Encrypted"}, r})
	}
	got, err := parseBinaryLogs(rows)
	want := []binlogFile{{"binlog.000004", 221}, {"binlog.000005", 242}, {"binlog.000006", 198}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

// TestPrintedXIDs: a number over 2^31 is printed without a sign in statements, and
// one over 2^32 is cut in the event that prepares.
func TestPrintedXIDs(t *testing.T) {
	for _, x := range []struct {
		statement    string
		formatID     uint32
		gtrid, bqual string
		verb         xaVerb
	}{
		{"XA COMMIT X'00ff27',X'5c60',2147483647", 1<<31 - 1, "\x00\xff'", "\\`", xaCommit},
		{"XA ROLLBACK X'6127625c',X'',4294967295", 1<<32 - 1, `a'b\`, "", xaRollback},
		{"XA COMMIT X'41',X'41',2147483648", 1 << 31, "A", "A", xaCommit},
		{"XA COMMIT X'41',X'41',4294967296", 0, "A", "A", xaCommit},
		{"XA START X'6f70',X'',1", 1, "op", "", xaStart},
		{"XA END X'6f70',X'',1", 1, "op", "", xaEnd},
	} {
		verb, xid, ok := parseXA(x.statement)
		if prepared := printXID([]byte(x.gtrid), []byte(x.bqual), int32(x.formatID)); !ok || verb != x.verb || xid != prepared {
			t.Errorf("%s: verb %d of %s, %v; it was prepared as %s", x.statement, verb, xid, ok, prepared)
		}
	}
}
