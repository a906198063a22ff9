package binlog

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"tidegate/binlog/gtid"
)

// TestMissingGroupTable: a table under keys: that is not there may come later;
// the log tells of it, since it may as well be mistyped.
func TestMissingGroupTable(t *testing.T) {
	g := &gate{answers: []func(lookupRequest) (*lookupResult, error){func(r lookupRequest) (*lookupResult, error) {
		return lookedTables(r, gtid.Set{}, map[string]int{"t": 0}), nil
	}}}
	s := newScriptServer(t, "gtid $A:1\n"+rowOfT)
	var log bytes.Buffer
	_, _, err := play(t, s, func(tl *Tailer, o *TailerOptions) {
		o.Groups = map[string][]string{"app.pots": {"author_id"}}
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		lookedUpBy(g, s, tl, o)
	})
	if err != nil {
		t.Errorf("run: %v", err)
	}
	if got := log.String(); strings.Count(got, "table=app.pots") != 1 || !strings.Contains(got, "level=WARN") {
		t.Errorf("the log says %q", got)
	}
}
