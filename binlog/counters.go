package binlog

import "tidegate/cdc/event"

// Cause says why a wide scope was written instead of keys.
type Cause uint8

// The causes of wide writes.
const (
	CauseDDL           Cause = iota // a statement that changes definitions
	CauseStatement                  // a write logged as a statement
	CauseCapped                     // more keys than KeyCap in one transaction
	CauseNoKey                      // the table has no key, or one that can not be folded
	CauseNoDefinition               // no definition is known to be the event's
	CauseImage                      // the row image does not carry the column
	CauseValue                      // a value that does not fold
	CauseCascade                    // rows of other tables than the event's: cascades that are not logged, MERGE tables
	CauseLarge                      // an event larger than is kept in memory
	CauseNotUnderstood              // an event or statement that nobody knows, or that can not be read
	numCauses
)

var causeNames = [numCauses]string{
	"ddl", "statement", "capped", "no_key", "no_definition", "image", "value", "cascade", "large", "not_understood",
}

func (c Cause) String() string { return causeNames[c] }

// Counters are totals since the tailer was made.
type Counters struct {
	Transactions  uint64
	Empty         uint64 // of them
	Holes         uint64
	Events        uint64
	Bytes         uint64            // of events, as they arrived
	Keys          uint64            // rows' and group values' scopes written
	Wide          [numCauses]uint64 // wide scopes written, by Cause
	NotUnderstood uint64            // events and statements that were not understood
	Capped        uint64            // transactions beyond KeyCap
	Reconnects    uint64            // connections after the first
	Failures      uint64            // attempts to connect that failed
	Lookups       uint64            // of definitions
	LookupErrors  uint64
	Corrupt       uint64 // events with a wrong checksum
}

// Causes calls f for each cause with its name and count.
func (c *Counters) Causes(f func(name string, n uint64)) {
	for i, n := range c.Wide {
		f(Cause(i).String(), n)
	}
}

// countTransaction counts what one transaction brought.
func (c *Counters) countTransaction(t *event.Transaction, keys int) {
	c.Transactions++
	c.Keys += uint64(keys)
	if t.Flags&event.Empty != 0 {
		c.Empty++
	}
	if t.Flags&event.Capped != 0 {
		c.Capped++
	}
}
