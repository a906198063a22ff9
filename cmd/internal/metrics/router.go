package metrics

import (
	"tidegate/cmd/internal/daemon"
	"tidegate/router/local"
	"tidegate/router/serve"
)

func collectRouter(s sink, d *daemon.Daemon) {
	c := d.Router.Router().Counters()
	for _, x := range c.Decisions {
		s.counter("router_decisions_total", "Decisions by where they send the read, level and reason.", float64(x.N),
			"target", x.Target.String(), "level", x.Level.String(), "reason", x.Reason.String())
	}
	s.counter("router_stale_answers_total", "Answers flagged stale, given while blind.", float64(c.Stale))
	s.counter("router_bad_requests_total", "Requests refused as mistaken.", float64(c.BadInput))
	s.counter("router_retries_total", "Decisions begun again because records moved on under them.", float64(c.Retries))
	s.counter("router_probe_waits_total", "Routes that waited for a probe of the primary.", float64(c.Waits))
	k := d.CanaryCounters()
	s.counter("router_canary_checked_total", "Yes answers held against the rows, with a verdict.", float64(k.Checked))
	s.counter("router_canary_inconclusive_total", "Canary checks without a verdict: the key was written meanwhile.", float64(k.Inconclusive))
	s.counter("router_canary_dropped_total", "Canary checks dropped because others were running.", float64(k.Dropped))
	s.counter("router_canary_failed_total", "Canary checks whose rows could not be read.", float64(k.Failed))
	s.counter("router_wrong_yes_total", "Yes answers contradicted by the rows. Anything but 0 is a bug or a damaged replica.", float64(k.WrongYes))
}

func collectIndex(s sink, d *daemon.Daemon) {
	c := d.Router.Index().Counters()
	now := local.Clock()
	snap := d.Router.Index().Snapshot()
	ready, _ := snap.Ready()
	s.gauge("index_ready", "1: caught up with the stream and a primary is announced.", bit(ready))
	s.counter("index_transactions_total", "Transactions taken in from the stream.", float64(c.Transactions))
	s.counter("index_holes_total", "Holes taken in.", float64(c.Holes))
	s.gauge("index_records", "Records in memory.", float64(c.Records))
	s.gauge("index_record_bytes", "Memory of the records, in bytes.", float64(c.RecordBytes))
	s.counter("index_evictions_total", "Times that the horizon was moved for room.", float64(c.Evictions))
	s.gauge("index_horizon_transactions", "Transactions below the horizon.", float64(c.HorizonGTIDs))
	s.gauge("index_lost_transactions", "Transactions lost in failovers.", float64(c.Lost))
	s.counter("index_rebuilds_total", "Starts at a checkpoint.", float64(c.Rebuilds))
	s.counter("index_probes_counted_total", "Probes of the primary that counted for the watermark.", float64(c.ProbesCounted))
	s.counter("index_probes_refused_total", "Probes of the primary that did not count.", float64(c.ProbesRefused))
	s.gauge("index_pending_bytes", "What a flush will write, in bytes.", float64(c.PendingBytes))
	s.counter("index_flushes_total", "Batches written to the data folder.", float64(c.Flushes))
	if at := snap.WatermarkAt(); at != 0 {
		s.gauge("index_watermark_age_seconds", "Age of the watermark.", float64(now-at)/1e9)
	}
	for i := range snap.NumServers() {
		st := snap.Server(i)
		if st == nil {
			continue
		}
		if at := snap.FreshAt(i); at != 0 {
			s.gauge("index_staleness_seconds", "Time since the newest moment whose writes a server is proven to show all.", float64(now-at)/1e9, "server", st.Server)
		}
		if at := snap.LeaseAt(i); at != 0 {
			s.gauge("index_lease_age_seconds", "Time since the newest tick that a server's state named.", float64(now-at)/1e9, "server", st.Server)
		}
		reason, _ := snap.Ineligible(i)
		s.gauge("index_server_eligible", "1: nothing excludes the server (its lease aside).", bit(reason == ""), "server", st.Server)
		missing := snap.Delivered().Subtract(snap.Confirmed(i)).Subtract(snap.Lost())
		s.gauge("index_behind_transactions", "Delivered transactions that a server is not proven to show.", float64(missing.Count()), "server", st.Server)
		received := st.Received.Union(st.Executed)
		s.gauge("index_transfer_behind_transactions", "Delivered transactions that a server has not received.", float64(missing.Subtract(received).Count()), "server", st.Server)
		s.gauge("index_apply_behind_transactions", "Transactions that a server has received and not shown.", float64(missing.Intersect(received).Count()), "server", st.Server)
	}
	f := d.Router.Follower().Counters()
	s.gauge("cdc_follower_lag_messages", "Messages of WRITES not yet taken in.", float64(f.LagMessages))
	s.gauge("cdc_follower_connected", "1: connected to the stream.", bit(f.Connected))
	s.counter("cdc_follower_messages_total", "Messages of WRITES taken in.", float64(f.Messages))
	s.counter("cdc_follower_bytes_total", "Their bytes.", float64(f.Bytes))
	s.counter("cdc_follower_rebuilds_total", "Starts at a checkpoint because the stream was not the one followed.", float64(f.Rebuilds))
	// The GTID itself changes with each purge: a label of it would be a new series
	// each time, so /v1/servers and `tidegate status` name it. STATE has no oldest
	// one: it keeps the newest message of each subject and loses none to age.
	if f.OldestAt != 0 {
		s.gauge("cdc_oldest_commit_timestamp_seconds", "Commit time of the oldest transaction that WRITES still holds.", float64(f.OldestAt)/1e6)
	}
}

func collectServe(s sink, c serve.Counters) {
	s.counter("serve_requests_total", "Requests answered.", float64(c.HTTPRequests), "protocol", "http")
	s.counter("serve_requests_total", "Requests answered.", float64(c.RESPCommands), "protocol", "resp")
	s.counter("serve_errors_total", "Requests answered by an error.", float64(c.HTTPErrors), "protocol", "http")
	s.counter("serve_errors_total", "Requests answered by an error.", float64(c.RESPErrors), "protocol", "resp")
	s.gauge("serve_connections", "Open connections.", float64(c.HTTPConns), "protocol", "http")
	s.gauge("serve_connections", "Open connections.", float64(c.RESPConns), "protocol", "resp")
	s.counter("serve_connections_refused_total", "Connections beyond the limit.", float64(c.ConnsRefused))
}
