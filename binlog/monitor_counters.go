package binlog

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// counters are a monitor's plain counters.
type counters struct {
	sessions, sessionsLost atomic.Uint64
	epochs, dataSets       atomic.Uint64
	probes, proofs         atomic.Uint64
	waitsExpired           atomic.Uint64
	published              atomic.Uint64
	publishErrors          atomic.Uint64
	factsErrors            atomic.Uint64
	tailRestarts           atomic.Uint64
	purgedJoined           atomic.Uint64
	errant                 atomic.Uint64
	retries, stops, reseed atomic.Uint64
	delays                 delayHistogram
}

// MonitorCounters is a snapshot of what a monitor counted since its start.
type MonitorCounters struct {
	Sessions, SessionsLost uint64 // pinned connections opened, and lost
	Epochs, DataSets       uint64 // begun
	Probes                 uint64
	Proofs                 uint64 // probes that proved at least one more transaction
	WaitsExpired           uint64 // proofs whose wait in the server ended by time
	Published              uint64
	PublishErrors          uint64
	FactsErrors            uint64 // looks at channels and settings that failed
	TailRestarts           uint64
	PurgedJoined           uint64 // GTIDs that joined base because the server's binlog no longer has them
	Errant                 uint64
	// Errors by what had to happen next: a new connection; the tail of the
	// server's binlog stopped or lacking purged files, which is read again too.
	Retries, Stops, Reseeds uint64
	Compared                uint64 // transactions held against the stream
	NotShown                uint64 // of them: compared and found without data
	Tainted                 uint64 // taints made
	Pending                 int    // sightings that wait for the stream
	// HintToProof counts delays from hint to proof: bucket i holds those below
	// 2^i microseconds and not below 2^(i-1).
	HintToProof      [32]uint64
	HintToProofTotal time.Duration
}

// delayHistogram has one bucket for each power of two of microseconds.
type delayHistogram struct {
	buckets [32]atomic.Uint64
	sum     atomic.Int64
}

func (h *delayHistogram) add(d time.Duration) {
	us := uint64(max(0, d.Microseconds()))
	h.buckets[min(bits.Len64(us), len(h.buckets)-1)].Add(1)
	h.sum.Add(int64(d))
}

// Counters returns what was counted so far.
func (m *Monitor) Counters() MonitorCounters {
	c := &m.counters
	out := MonitorCounters{
		Sessions: c.sessions.Load(), SessionsLost: c.sessionsLost.Load(),
		Epochs: c.epochs.Load(), DataSets: c.dataSets.Load(),
		Probes: c.probes.Load(), Proofs: c.proofs.Load(), WaitsExpired: c.waitsExpired.Load(),
		Published: c.published.Load(), PublishErrors: c.publishErrors.Load(), FactsErrors: c.factsErrors.Load(),
		TailRestarts: c.tailRestarts.Load(), PurgedJoined: c.purgedJoined.Load(), Errant: c.errant.Load(),
		Retries: c.retries.Load(), Stops: c.stops.Load(), Reseeds: c.reseed.Load(),
		HintToProofTotal: time.Duration(c.delays.sum.Load()),
	}
	for i := range out.HintToProof {
		out.HintToProof[i] = c.delays.buckets[i].Load()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out.Compared, out.NotShown, out.Tainted = m.tr.compared, m.tr.emptied, m.tr.tainted
	out.Pending = len(m.tr.pending)
	return out
}
