package daemon

import (
	"errors"
	"strings"
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cdc"
	"tidegate/cdc/event"
	"tidegate/router/serve"
)

// What an acceptance would change nothing about is refused, with what there is to
// accept instead.
func TestAcceptable(t *testing.T) {
	set := func(text string) gtid.Set {
		s, err := gtid.ParseNamed(strings.ReplaceAll(text, "U", "7ee0564e-ed4b-11f1-9be0-02fc00000001"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one := func(text string) (g gtid.GTID) {
		for source, iv := range set(text).All() {
			g = gtid.GTID{UUID: source.UUID, Seq: iv.First}
		}
		return g
	}
	state := &event.ServerState{
		Server: "b", DataSet: 7, LossSeen: 3, Executed: set("U:1-20"), Errant: set("U:15"),
		Taints: []event.Taint{{All: true, GTID: one("U:9")}, {Name: "app.posts", GTID: one("U:10")}},
	}
	given := []cdc.Acceptance{
		{Server: "b", DataSet: 7, LossSeen: 3, GTIDs: set("U:9,U:18")},
		{Server: "b", DataSet: 6, LossSeen: 3, GTIDs: set("U:19")}, // another data set
		{Server: "b", DataSet: 7, LossSeen: 2, GTIDs: set("U:19")}, // transactions were lost since
		{Server: "c", DataSet: 7, LossSeen: 3, GTIDs: set("U:19")},
	}
	before, shown := acceptedBefore(state, given), set("U:1-10,U:15")
	for _, c := range []struct {
		name string
		a    serve.Acceptance
		want string // of the refusal; empty: acceptable
	}{
		{"a table without fault", serve.Acceptance{Table: "app.users"}, "table app.users is not tainted (tainted: *, the server as a whole, app.posts)"},
		{"a tainted table", serve.Acceptance{Table: "app.posts"}, ""},
		{"the whole", serve.Acceptance{Table: "*"}, ""},
		{"shown", serve.Acceptance{GTIDs: set("U:1-8")}, "nothing speaks against"},
		{"not there", serve.Acceptance{GTIDs: set("U:20-21")}, "does not have"},
		{"not shown", serve.Acceptance{GTIDs: set("U:8,U:19")}, ""},
		{"errant", serve.Acceptance{GTIDs: set("U:15")}, ""},
		{"tainted, accepted by a word that did not count", serve.Acceptance{GTIDs: set("U:9")}, ""},
		{"accepted before", serve.Acceptance{GTIDs: set("U:1-3,U:18")}, "was accepted before"},
		{"no restart", serve.Acceptance{Restart: true}, "no restart excludes the server (excluded by: none)"},
	} {
		err := acceptable(state, c.a, shown, before)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, serve.ErrNotAcceptable) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}
