// Package metrics turns the plain counters of the other packages into
// Prometheus metrics, named tidegate_<package>_<noun>_<unit>[_total], in one
// private registry. Its main path is [Handler]. Labels are bounded: servers,
// levels, reasons and causes, all from closed lists or the configuration.
package metrics

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tidegate/cmd/internal/daemon"
)

// Handler serves the metrics of a daemon. Reading them takes no lock that a
// decision waits for.
func Handler(d *daemon.Daemon, log *slog.Logger) http.Handler {
	r := Registry(d)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandling: promhttp.HTTPErrorOnError,
	})
}

// Registry holds the metrics of a daemon.
func Registry(d *daemon.Daemon) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collector{d},
	)
	return r
}

// collector reads every package's counters at each scrape.
type collector struct{ d *daemon.Daemon }

// Describe sends nothing: which metrics there are depends on the parts that
// run, so the collector is an unchecked one.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := sink(ch)
	if c.d.Router != nil {
		collectRouter(s, c.d)
		collectIndex(s, c.d)
	}
	if c.d.Tailing != nil {
		collectTailing(s, c.d.Tailing.Counters())
	}
	if c.d.Server != nil {
		collectServe(s, c.d.Server.Counters())
	}
}

// sink sends one sample at a time. labels are name, value pairs.
type sink chan<- prometheus.Metric

func (s sink) counter(name, help string, v float64, labels ...string) {
	s.send(prometheus.CounterValue, name, help, v, labels)
}

func (s sink) gauge(name, help string, v float64, labels ...string) {
	s.send(prometheus.GaugeValue, name, help, v, labels)
}

func (s sink) send(t prometheus.ValueType, name, help string, v float64, labels []string) {
	names, values := split(labels)
	s <- prometheus.MustNewConstMetric(prometheus.NewDesc("tidegate_"+name, help, names, nil), t, v, values...)
}

func split(labels []string) (names, values []string) {
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	return names, values
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
