package local

import (
	"sync"
	"sync/atomic"

	"tidegate/cdc"
	"tidegate/cdc/event"
	"tidegate/index"
	"tidegate/router"
)

// The index answers what the router asks and takes what the follower brings.
var (
	_ router.Snapshot = (*index.Snapshot)(nil)
	_ cdc.Sink        = (*index.Index)(nil)
)

// news wakes those who wait for another snapshot. Without waiters it costs a
// lock that nobody contends.
type news struct {
	mu sync.Mutex
	ch chan struct{} // nil: nobody waits
}

func (n *news) changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}

// sink is the index, telling the news of each change.
type sink struct {
	*index.Index
	news *news
	// ended is set when Run is told to end: that the follower ends then is no cut.
	// What is known grows too old by itself.
	ended *atomic.Bool
}

func (s *sink) Start(cp *event.Checkpoint, seq uint64, h event.Header, v event.Version) error {
	defer s.news.tell()
	return s.Index.Start(cp, seq, h, v)
}

func (s *sink) Writes(seq uint64, m *event.Message) error {
	defer s.news.tell()
	return s.Index.Writes(seq, m)
}

func (s *sink) State(st *event.ServerState) error {
	defer s.news.tell()
	return s.Index.State(st)
}

func (s *sink) CaughtUp(seq uint64, connected bool) {
	if !connected && s.ended.Load() {
		return
	}
	defer s.news.tell()
	s.Index.CaughtUp(seq, connected)
}
