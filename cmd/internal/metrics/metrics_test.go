package metrics

import (
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"tidegate/binlog"
	"tidegate/cmd/internal/tailing"
	"tidegate/router/serve"
)

// Every metric that the parts send must be one that Prometheus takes: gathered
// by a pedantic registry, with the prefix. Units, labels and the values of a
// whole program: TestMetricsOfAProgram in package daemon.
func TestMetricsAreWellFormed(t *testing.T) {
	c := tailing.Counters{Servers: map[string]binlog.MonitorCounters{"a": {Probes: 7}, "b": {}}, Primary: "a"}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(gatherer(func(s sink) {
		collectTailing(s, c)
		collectServe(s, serve.Counters{HTTPRequests: 3})
	}))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) < 25 {
		t.Errorf("got %d metric families", len(families))
	}
	name := regexp.MustCompile(`^tidegate_(binlog|cdc|index|router|serve)_[a-z_]+$`)
	for _, f := range families {
		if !name.MatchString(f.GetName()) || f.GetHelp() == "" {
			t.Errorf("metric %q, help %q", f.GetName(), f.GetHelp())
		}
		if f.GetName() == "tidegate_binlog_probes_total" {
			if got := f.GetMetric()[0].GetCounter().GetValue(); got != 7 {
				t.Errorf("probes of a: got %v, want 7", got)
			}
		}
	}
}

type gatherer func(sink)

func (gatherer) Describe(chan<- *prometheus.Desc)      {}
func (g gatherer) Collect(ch chan<- prometheus.Metric) { g(ch) }
