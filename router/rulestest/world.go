package rulestest

import (
	"encoding/binary"
	"fmt"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
)

// stepNanos is what one step is on a router's clock.
const stepNanos = 1_000_000

// In steps. A rebuild takes longer than a lease (rules §6.3).
const (
	leaseSteps = 90
	markSteps  = 140
)

// world is one run: what is, what the stream says of it, and what the routers
// make of it. One goroutine owns it.
type world struct {
	v        *words
	features mask
	now      int64 // steps so far
	healing  bool
	patient  bool // the trace tells of every round of heal

	// What is.
	txs     []transaction
	slots   []gtid.GTID // every GTID that there ever was
	sets    map[set]gtid.Set
	groupOf [numRows]int8 // current value of the group column
	def     int8          // current definition
	servers [numServers]server
	backups []server
	uuids   byte // given so far
	commits int64

	// What Tidegate makes of it.
	tailers    [numServers]tailer
	states     [numServers][]posted
	defsPosted []int8 // definitions of the table in STATE, the newest last
	stream     stream
	writer     writer
	kv         struct {
		timeline   uint32
		generation event.Generation
		history    event.History
		epoch      event.Epoch
	}
	groupsOn bool // the group column is configured
	routers  [numRouters]*node

	// Who asks.
	sessions [numSessions]session
	asks     []ask

	violation *Violation
	traced    bool
	trace     []string
	stats     Stats
}

// Stats counts what a run reached.
type Stats struct {
	Runs    int
	Steps   int // primitive ones
	Answers int // questions asked
	Yes     int // of them yes
	// Lagging is yes answers of a replica that lacks something the primary has.
	Lagging int
	ByLevel [8]int
}

// Add adds another run's.
func (s *Stats) Add(o Stats) {
	s.Runs += o.Runs
	s.Steps += o.Steps
	s.Answers += o.Answers
	s.Yes += o.Yes
	s.Lagging += o.Lagging
	for i := range s.ByLevel {
		s.ByLevel[i] += o.ByLevel[i]
	}
}

// session is one reader that also writes.
type session struct {
	floor  set // GTIDs that it names as its floor
	told   set // transactions that it must see: written and acknowledged, or read
	toldAt [maxTransactions]int64
}

func newWorld(r Run, traced bool) *world {
	w := &world{v: vocabulary(), features: r.features(), sets: map[set]gtid.Set{}, traced: traced, now: 10}
	options := r.Header[4]
	for i := range w.servers {
		s := &w.servers[i]
		s.up, s.run, s.data, s.uuid = true, 1, 1, w.newUUID()
		s.ordered = options>>uint(i)&1 == 1
		s.groupCommitOrder = options&0x40 == 0
		for g := range s.holds {
			s.holds[g] = nothing
		}
	}
	w.servers[2].followExecuted = options&0x18 == 0x18
	w.servers[1].relaxed = w.features.has(FeatureRelaxed)
	w.servers[0].primary = true
	w.groupsOn = !w.features.has(FeatureGroups)
	for i := range w.tailers {
		w.tailers[i].reset()
	}
	for i := range w.routers {
		w.routers[i] = w.newNode(i)
	}
	for i := range w.servers {
		w.cycle(i, 0)
	}
	for range 5 {
		w.publish(0, 0)
	}
	for _, n := range w.routers {
		for range 3 {
			w.read(n, 0)
		}
		w.define(n)
	}
	for i := range w.servers {
		w.cycle(i, 0)
	}
	return w
}

func (w *world) newUUID() (u gtid.UUID) {
	w.uuids++
	u[0], u[15] = 0xa0+w.uuids, w.uuids
	return u
}

// say adds a line to the trace.
func (w *world) say(format string, args ...any) {
	if w.traced {
		w.trace = append(w.trace, fmt.Sprintf("%4d  ", w.now)+fmt.Sprintf(format, args...))
	}
}

// gtids makes the set that the product sees.
func (w *world) gtids(s set) gtid.Set {
	if s == 0 {
		return gtid.Set{}
	}
	out, ok := w.sets[s]
	if !ok {
		var list [maxTransactions]gtid.GTID
		n := 0
		s.each(func(i int8) { list[n] = w.slots[i]; n++ })
		out = gtid.Of(list[:n]...)
		w.sets[s] = out
	}
	return out
}

// slot finds or makes the slot of a GTID; -1: there is no room.
func (w *world) slot(g gtid.GTID) int8 {
	for i, have := range w.slots {
		if have == g {
			return int8(i)
		}
	}
	if len(w.slots) >= maxTransactions {
		return -1
	}
	w.slots = append(w.slots, g)
	return int8(len(w.slots) - 1)
}

// print names GTIDs and transactions in a trace.
func (s set) print(letter string) string {
	if s == 0 {
		return "{}"
	}
	out := ""
	s.each(func(i int8) { out += fmt.Sprintf(" %s%d", letter, i) })
	return "{" + out[1:] + "}"
}

// short names the GTIDs of a set of the product, for a trace.
func (w *world) short(s gtid.Set) string {
	var out set
	for i, g := range w.slots {
		if s.Contains(g) {
			out |= one(int8(i))
		}
	}
	return out.print("g")
}

func name(x int8) string {
	if x < 0 {
		return "none"
	}
	return serverNames[x]
}

// digestOf stands for the digest of a message.
func digestOf(id uint64) (d [16]byte) {
	binary.BigEndian.PutUint64(d[:], id)
	return d
}

func (w *world) primary() int8 {
	for i := range w.servers {
		if w.servers[i].primary {
			return int8(i)
		}
	}
	return -1
}
