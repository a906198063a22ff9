package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/binlog"
	"tidegate/cmd/internal/tailing"
)

func collectTailing(s sink, c tailing.Counters) {
	for name, m := range c.Servers {
		s.counter("binlog_probes_total", "Probes of a server.", float64(m.Probes), "server", name)
		s.counter("binlog_confirmations_total", "Probes that proved at least one more transaction.", float64(m.Proofs), "server", name)
		s.counter("binlog_sessions_lost_total", "Pinned connections lost.", float64(m.SessionsLost), "server", name)
		s.counter("binlog_epochs_total", "Epochs begun.", float64(m.Epochs), "server", name)
		s.counter("binlog_compared_total", "Transactions of a replica held against the stream.", float64(m.Compared), "server", name)
		s.counter("binlog_not_shown_total", "Of them: executed and without their data.", float64(m.NotShown), "server", name)
		s.counter("binlog_taints_total", "Taints made.", float64(m.Tainted), "server", name)
		s.gauge("binlog_pending_transactions", "Transactions of a replica that wait for the stream.", float64(m.Pending), "server", name)
		s.counter("binlog_state_publish_errors_total", "States that could not be handed over.", float64(m.PublishErrors), "server", name)
		s.counter("binlog_purged_joined_total", "Transactions taken as shown because the binlog with them is gone.", float64(m.PurgedJoined), "server", name)
		s.delays(name, &m)
	}
	s.counter("cdc_writer_sessions_total", "Writer sessions begun by this process.", float64(c.Sessions))
	s.gauge("cdc_writer_active", "1: this process writes the stream.", bit(c.Writing))
	s.counter("cdc_states_published_total", "States and definitions stored.", float64(c.States.Published))
	s.counter("cdc_states_failed_total", "Attempts to store one that failed.", float64(c.States.Failed))
	if c.Primary == "" {
		return
	}
	t := c.Tailer
	s.counter("binlog_tail_transactions_total", "Transactions read from the primary in this session.", float64(t.Transactions))
	s.counter("binlog_tail_bytes_total", "Bytes of events read.", float64(t.Bytes))
	s.counter("binlog_tail_keys_total", "Keys recorded.", float64(t.Keys))
	s.counter("binlog_tail_not_understood_total", "Events and statements that were not understood; each was a wide write.", float64(t.NotUnderstood))
	s.counter("binlog_tail_reconnects_total", "Connections after the first.", float64(t.Reconnects))
	t.Causes(func(cause string, n uint64) {
		s.counter("binlog_tail_wide_writes_total", "Wide scopes written instead of keys.", float64(n), "cause", cause)
	})
	w := c.Writer
	s.counter("cdc_writer_messages_total", "Messages of WRITES acknowledged in this session.", float64(w.Messages))
	s.counter("cdc_writer_transactions_total", "Transactions acknowledged.", float64(w.Transactions))
	s.counter("cdc_writer_bytes_total", "Bytes acknowledged.", float64(w.Bytes))
	s.counter("cdc_writer_skipped_total", "Transactions that the stream had already.", float64(w.Skipped))
	s.counter("cdc_writer_resyncs_total", "Times the stream was asked what is in it.", float64(w.Resyncs))
	s.counter("cdc_writer_checkpoints_total", "Checkpoints written.", float64(w.Checkpoints))
	s.counter("cdc_writer_definitions_too_large_total", "Definitions of tables that NATS does not take; nobody may ask for these tables.", float64(w.TooLarge))
	s.gauge("cdc_writer_queue_bytes", "Waiting to be written.", float64(w.QueueBytes))
}

// delays sends the histogram of hint-to-proof delays, in seconds.
func (s sink) delays(server string, m *binlog.MonitorCounters) {
	buckets := map[float64]uint64{}
	var n uint64
	for i, c := range m.HintToProof {
		n += c
		buckets[math.Ldexp(1, i)/1e6] = n
	}
	d := prometheus.NewDesc("tidegate_binlog_hint_to_proof_seconds", "From the sight of a transaction in a binlog to the proof that the server shows it.", []string{"server"}, nil)
	s <- prometheus.MustNewConstHistogram(d, n, m.HintToProofTotal.Seconds(), buckets, server)
}
