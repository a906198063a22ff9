package tailing

import (
	"sync"

	"tidegate/binlog"
	"tidegate/cdc"
)

// Counters are what the tailing counted so far.
type Counters struct {
	// Servers are those that this process watches now.
	Servers map[string]binlog.MonitorCounters
	// Sessions counts writer sessions begun here. Tailer and Writer are those
	// of the session that runs, or of the last one; Writing tells which.
	Sessions uint64
	Writing  bool
	Primary  string // of that session; empty: none yet
	Tailer   binlog.Counters
	Writer   cdc.WriterCounters
	States   cdc.StateCounters
}

// sessions remembers the newest session's parts for Counters.
type sessions struct {
	mu      sync.Mutex
	begun   uint64
	writing bool
	primary string
	tailer  *binlog.Tailer
	writer  *cdc.Writer
}

func (s *sessions) begin(primary string, t *binlog.Tailer, w *cdc.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	s.writing, s.primary, s.tailer, s.writer = true, primary, t, w
}

func (s *sessions) end() {
	s.mu.Lock()
	s.writing = false
	s.mu.Unlock()
}

// Counters may be called at any time.
func (t *Tailing) Counters() Counters {
	c := Counters{Servers: map[string]binlog.MonitorCounters{}, States: t.states.Counters()}
	for _, s := range t.servers {
		if m := s.monitor.Load(); m != nil {
			c.Servers[s.cfg.Name] = m.Counters()
		}
	}
	l := &t.lead.sessions
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Sessions, c.Writing, c.Primary = l.begun, l.writing, l.primary
	if l.tailer != nil {
		c.Tailer, c.Writer = l.tailer.Counters(), l.writer.Counters()
	}
	return c
}
