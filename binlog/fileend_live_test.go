package binlog_test

import (
	"slices"
	"testing"

	"tidegate/binlog"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// TestFileEnds: how files end that were rotated, with and without checksums, and
// those of a mysqld that was shut down or killed.
func TestFileEnds(t *testing.T) {
	c := testenvtest.Cluster(t, testenv.Options{Servers: 1, Args: []string{"--log-bin=bin.it's_é"}})
	s := c.Primary()
	ctx := testenvtest.Context(t, hang)
	write := func(statements string) {
		t.Helper()
		must(t, s.Exec(ctx, statements))
	}
	before, _, _, err := binlog.FileEnds(ctx, tidegateConfig(s))
	must(t, err)
	write("CREATE TABLE app.ends (id INT PRIMARY KEY); FLUSH BINARY LOGS")
	write("INSERT INTO app.ends VALUES (1); SET GLOBAL binlog_checksum = NONE") // begins a file
	write("INSERT INTO app.ends VALUES (2); FLUSH BINARY LOGS")
	write("INSERT INTO app.ends VALUES (3)")
	must(t, s.Stop(ctx))
	must(t, s.Start(ctx)) // with checksums again
	write("SET GLOBAL read_only = OFF; INSERT INTO app.ends VALUES (4)")
	must(t, s.Kill())
	must(t, s.Start(ctx))
	got, listed, written, err := binlog.FileEnds(ctx, tidegateConfig(s))
	must(t, err)
	want := append(before, "Rotate", "Rotate", "Rotate", "Stop", "")
	if !slices.Equal(got, want) {
		t.Errorf("the files end with %q, want %q", got, want)
	}
	if listed != written {
		t.Errorf("the last file ends at %d by the list, and the server writes at %d", listed, written)
	}
}
