package binlog_test

import (
	"slices"
	"testing"

	"tidegate/binlog"
	"tidegate/testenv/testenvtest"
)

// TestEachPinIsANewConnection: a pin that takes an older connection out of the
// pool has a lower number than the pin before it, which reads as a mysqld that
// was restarted: a new epoch, and a server without binlog and with relaxed
// durability stays excluded until somebody accepts it.
func TestEachPinIsANewConnection(t *testing.T) {
	idles, pins, err := binlog.PinAgain(testenvtest.Context(t, hang), tidegateConfig(servers.Primary()), 2, 4)
	must(t, err)
	if before := slices.Max(idles); pins[0] <= before {
		t.Errorf("the first pin is connection %d, made before connection %d", pins[0], before)
	}
	for i := 1; i < len(pins); i++ {
		if pins[i] <= pins[i-1] {
			t.Errorf("pins are connections %v: %d is not newer than the one before it", pins, pins[i])
		}
	}
}
