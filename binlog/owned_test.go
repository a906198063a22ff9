package binlog_test

import (
	"testing"

	"tidegate/binlog"
	"tidegate/binlog/gtid"
)

// TestOwnedOfSeveralSources: the first three texts are what MySQL 9.7.4 printed, the
// first two shortened. It puts nothing between one source and the next (rules §6.2: E must
// have all of them).
func TestOwnedOfSeveralSources(t *testing.T) {
	const u, e = "ee9d0cd1-ecfe-11f1-85e4-02fc00000001", "eeeeeeee-0000-0000-0000-00000000000"
	const digits = "01234567-8901-2345-6789-012345678901" // no letter ends the thread before it
	for _, c := range []struct{ owned, want string }{
		{e + "0:2#14" + e + "1:2#13" + e + "2:2#15" + e + "3:3#10", e + "0:2," + e + "1:2," + e + "2:2," + e + "3:3"},
		{u + ":wt0:581#11" + u + ":wt1:583#12" + u + ":wt2:590#13", u + ":wt0:581:wt1:583:wt2:590"},
		{
			digits + ":5#39" + e + "1:5005#40:5001#35:5002#38" + e + "1:s:1#41" + e + "1:t:1001#37:1002#36" + e + "2:t:7#34",
			digits + ":5," + e + "1:5001-5002:5005:s:1:t:1001-1002," + e + "2:t:7",
		},
		{u + ":wt0:581#11" + u + ":7#12", u + ":7:wt0:581"},
		{u + ":1#2#3" + digits + ":4#5" + digits + ":t:6#78" + u + ":9#10", u + ":1:9," + digits + ":4:t:6"},
	} {
		want, err := gtid.Parse(c.want)
		must(t, err)
		if got, err := binlog.ParseOwned(c.owned); err != nil || !got.Equal(want) {
			t.Errorf("%s: got %s, %v; want %s", c.owned, got.OneLine(), err, want.OneLine())
		}
	}
}
