package rulestest

import (
	"fmt"
	"time"

	"tidegate/cdc/event"
	"tidegate/index"
	"tidegate/router"
)

// node is one router process: the real index and the real router, and a
// follower that feeds them.
type node struct {
	w      *world
	id     int
	offset int64 // of its clock, in steps

	incarnation [16]byte
	starts      byte
	ix          *index.Index
	rt          *router.Router
	ans         router.Answer
	// evictUnder makes the index forget records under the decision that comes
	// after so many others: between its snapshot and its look-ups.
	evictUnder, evictAfter int

	on   bool // it has read a checkpoint
	at   int  // messages read
	last uint64
	// target is the stream's end when the router began to read it.
	target int
	blind  bool
	tick   uint64
	seen   [numServers]int // states read
	def    int             // definitions read
	// held is what the newest state of each server that it took says.
	held [numServers]posted
	// written is what the stream gave to the index, so that a restart finds
	// what a store would have kept: the first saved of them.
	written []fed
	saved   int
}

// fed is one change of the index that a store keeps.
type fed struct {
	start   bool // the message begins the index anew
	message *message
	seq     uint64
	evict   int
}

func (w *world) newNode(id int) *node {
	n := &node{w: w, id: id, offset: int64(id) * 7000}
	n.open()
	return n
}

// open starts the process.
func (n *node) open() {
	n.starts++
	n.incarnation = [16]byte{byte(n.id + 1), n.starts}
	ix, err := index.Open(index.Options{
		Router: n.incarnation, Clock: n.clock, Secret: n.w.v.secret, Cluster: "shop", Servers: serverNames[:],
		Lease: leaseSteps * stepNanos, MaxRecords: 4096,
	})
	if err != nil {
		panic(err)
	}
	rt, err := router.New(router.Options{
		View: n.view, Clock: n.clock, Lease: leaseSteps * stepNanos, WatermarkMaxAge: markSteps * stepNanos,
	})
	if err != nil {
		panic(err)
	}
	n.ix, n.rt = ix, rt
	n.on, n.at, n.last, n.tick, n.def, n.blind = false, 0, 0, 0, 0, false
	n.held = [numServers]posted{}
	for x := range n.seen {
		n.seen[x] = max(0, len(n.w.states[x])-1) // the newest is enough
	}
}

func (n *node) clock() int64 { return (n.w.now + n.offset) * stepNanos }

// steps turns an age on the router's clock into a moment of the world.
func (n *node) steps(age time.Duration) int64 { return n.w.now - int64(age)/stepNanos }

func (n *node) view() router.Snapshot {
	s := n.ix.Snapshot()
	if n.evictUnder > 0 {
		if n.evictAfter--; n.evictAfter < 0 {
			k := n.evictUnder
			n.evictUnder = 0
			n.evict(k)
		}
	}
	return s
}

func (n *node) evict(k int) {
	n.ix.Evict(k)
	n.written = append(n.written, fed{evict: k})
	n.w.say("router %d forgets records; H %s", n.id, n.w.short(n.ix.Snapshot().Horizon()))
}

// read takes one message of WRITES.
func (w *world) read(n *node, b byte) bool {
	str := &w.stream
	switch {
	case n.blind:
		return false
	case !n.on || n.at < str.first:
		return n.cold(b)
	case n.at > len(str.messages): // noticed at the next connection
		return false
	case n.at == len(str.messages):
		n.ix.CaughtUp(uint64(len(str.messages)), true)
		return false
	case str.messages[n.at].prev != n.last:
		w.say("router %d: message %d does not follow what it read", n.id, n.at)
		return n.cold(b)
	}
	n.feed(fed{message: &str.messages[n.at], seq: uint64(n.at + 1)})
	n.ix.CaughtUp(uint64(len(str.messages)), true)
	return true
}

// feed gives a message to the index.
func (n *node) feed(f fed) {
	m := f.message
	n.at, n.last = int(f.seq), m.id
	if f.start {
		cp := m.items[0].ev.(*event.Checkpoint)
		if err := n.ix.Start(cp, f.seq, m.ev.Header, event.MakeVersion(m.ev.Timeline, m.ev.First)); err != nil {
			n.w.fail(PropertyStream, "router %d can not start at message %d: %v", n.id, f.seq, err)
		}
		n.on, n.written, n.saved = true, nil, 0
		n.target = len(n.w.stream.messages)
	} else if err := n.ix.Writes(f.seq, m.ev); err != nil {
		n.w.fail(PropertyStream, "router %d refuses message %d: %v", n.id, f.seq, err)
	}
	n.written = append(n.written, f)
	if n.w.traced {
		s := n.ix.Snapshot()
		n.w.say("router %d reads message %d: D %s, H %s, lost %s", n.id, f.seq, n.w.short(s.Delivered()), n.w.short(s.Horizon()), n.w.short(s.Lost()))
	}
}

// cold starts at a checkpoint.
func (n *node) cold(b byte) bool {
	at := n.w.stream.checkpoints()
	if len(at) == 0 {
		return false
	}
	i := at[pick(len(at), b)]
	n.w.say("router %d starts at the checkpoint in message %d", n.id, i+1)
	n.feed(fed{start: true, message: &n.w.stream.messages[i], seq: uint64(i + 1)})
	n.ix.CaughtUp(uint64(len(n.w.stream.messages)), true)
	return true
}

// reconnect compares the stream's end with the router's own position.
func (w *world) reconnect(n *node, b byte) bool {
	n.blind = false
	str := &w.stream
	if n.on && (n.at > len(str.messages) || n.at > 0 && n.at <= len(str.messages) && n.at > str.first && str.messages[n.at-1].id != n.last) {
		w.say("router %d finds that the stream stepped back", n.id)
		n.on = false
		if !n.cold(b) {
			n.ix.CaughtUp(uint64(n.at), false)
			n.blind = true
			return true
		}
	}
	if n.on {
		n.ix.CaughtUp(uint64(len(str.messages)), true)
	}
	return true
}

// cutOff takes the router off the stream.
func (w *world) cutOff(n *node) bool {
	if n.blind {
		return false
	}
	n.blind = true
	n.ix.CaughtUp(0, false)
	w.say("router %d is cut off from the stream", n.id)
	return true
}

// restart ends the process and starts it again, with what its store had kept
// (warm) or with nothing.
func (w *world) restart(n *node, warm bool) bool {
	kept := n.written[:n.saved:n.saved]
	n.open()
	w.say("router %d restarts, warm: %v", n.id, warm && len(kept) > 0)
	n.written, n.saved = nil, 0
	if !warm || len(kept) == 0 {
		return true
	}
	for _, f := range kept {
		if f.evict > 0 {
			n.evict(f.evict)
		} else {
			n.feed(f)
		}
	}
	n.saved = len(n.written)
	n.ix.CaughtUp(uint64(len(w.stream.messages)), true)
	return true
}

// takeState reads a state of a server from STATE: the next one, or at once the
// newest.
func (w *world) takeState(n *node, x int, b byte) bool {
	at := min(n.seen[x], len(w.states[x]))
	switch {
	case n.blind || len(w.states[x]) == 0:
		return false
	case at == len(w.states[x]) && b < 250:
		return false
	case b&3 == 0 || at == len(w.states[x]): // the newest; again, after a reconnect
		at = len(w.states[x]) - 1
	}
	p := w.states[x][at]
	n.seen[x] = at + 1
	if have := n.held[x].ev; have == nil || p.ev.Epoch >= have.Epoch {
		n.held[x] = p
	}
	if err := n.ix.State(p.ev); err != nil {
		panic(err)
	}
	if w.traced {
		s := n.ix.Snapshot()
		i, _ := s.ServerIndex(serverNames[x])
		reason, detail := s.Ineligible(i)
		w.say("router %d takes the state of %s: epoch %d, alive %v, C %s, W at %d, %s %s", n.id, serverNames[x], p.ev.Epoch, p.ev.Alive, w.short(s.Confirmed(i)), s.WatermarkAt()/stepNanos-n.offset, reason, detail)
	}
	return true
}

// define takes the newest definition of the table from STATE.
func (w *world) define(n *node) bool {
	if n.blind || n.def >= len(w.defsPosted) {
		return false
	}
	n.def = len(w.defsPosted)
	d := w.defsPosted[n.def-1]
	w.say("router %d takes definition %d of the table", n.id, d)
	return n.ix.Definition(w.v.defs[d]) == nil
}

// sendTick publishes a tick.
func (w *world) sendTick(n *node) bool {
	n.tick++
	n.ix.TickSent(n.tick, n.clock())
	return true
}

func (n *node) String() string { return fmt.Sprintf("router %d", n.id) }
