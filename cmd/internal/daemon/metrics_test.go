package daemon_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"tidegate/binlog"
	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/daemon"
	"tidegate/cmd/internal/metrics"
	"tidegate/router"
	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

// measured starts the whole program with its metrics, on a free port.
func (w *world) measured(s settings) *program {
	w.t.Helper()
	s.http = "127.0.0.1:0"
	cfg, err := w.config(s)
	w.must(err)
	return w.measuredAs(everything, cfg)
}

func (w *world) measuredAs(parts daemon.Parts, cfg *config.Config) *program {
	w.t.Helper()
	log := slog.New(slog.NewTextHandler(w.t.Output(), nil))
	d, err := daemon.Open(w.ctx, cfg, daemon.Options{
		Parts: parts, Log: log,
		Metrics: func(d *daemon.Daemon) http.Handler { return metrics.Handler(d, log) },
	})
	w.must(err)
	p := &program{Daemon: d, w: w, done: make(chan struct{})}
	p.run()
	return p
}

// get reads one page of the program's HTTP API.
func (p *program) get(path string) []byte { return p.getFrom(p.Server.HTTPAddr().String(), path) }

func (p *program) getFrom(addr, path string) []byte {
	p.w.t.Helper()
	req, err := http.NewRequestWithContext(p.w.ctx, http.MethodGet, "http://"+addr+path, nil)
	p.w.must(err)
	req.Close = true // no connection outlives the test
	res, err := http.DefaultTransport.RoundTrip(req)
	p.w.must(err)
	defer func() { p.w.must(res.Body.Close()) }()
	body, err := io.ReadAll(res.Body)
	p.w.must(err)
	if res.StatusCode != http.StatusOK {
		p.w.t.Fatalf("GET %s: %s\n%s", path, res.Status, body)
	}
	return body
}

// samples is one scrape, by name.
type samples map[string]*dto.MetricFamily

// scrape reads /metrics as Prometheus does.
func (p *program) scrape() samples { return p.scrapeFrom(p.Server.HTTPAddr().String()) }

func (p *program) scrapeFrom(addr string) samples {
	p.w.t.Helper()
	out := samples{}
	d := expfmt.NewDecoder(strings.NewReader(string(p.getFrom(addr, "/metrics"))), expfmt.NewFormat(expfmt.TypeTextPlain))
	for {
		var f dto.MetricFamily
		err := d.Decode(&f)
		if err == io.EOF {
			return out
		}
		p.w.must(err)
		out[f.GetName()] = &f
	}
}

// labels of one sample, by name.
func labels(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.GetLabel() {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

// value of a sample; a histogram's is its count.
func value(m *dto.Metric) float64 {
	switch {
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	default:
		return float64(m.GetHistogram().GetSampleCount())
	}
}

// sum adds the samples of a name that have all the labels, given as name=value;
// n is how many have.
func (s samples) sum(name string, want ...string) (total float64, n int) {
	for _, m := range s["tidegate_"+name].GetMetric() {
		have := labels(m)
		if !slices.ContainsFunc(want, func(w string) bool {
			l, v, _ := strings.Cut(w, "=")
			return have[l] != v
		}) {
			total += value(m)
			n++
		}
	}
	return total, n
}

// expected is what one metric has to show in the end.
type expected struct {
	name     string
	labels   []string
	from, to float64
}

// unmet are those that the scrape does not show.
func (s samples) unmet(list []expected) (out []string) {
	for _, e := range list {
		if v, n := s.sum(e.name, e.labels...); n == 0 || v < e.from || v > e.to {
			out = append(out, fmt.Sprintf("%s%v: %d samples, %v in all, want %v to %v", e.name, e.labels, n, v, e.from, e.to))
		}
	}
	return out
}

const many = 1e12

// TestMetricsOfAProgram scrapes a whole program on real servers while one
// replica lags in its applier and one in its receiver: every metric that is
// promised is there with a value that fits what happened.
func TestMetricsOfAProgram(t *testing.T) {
	began := time.Now()
	w := newWorld(t)
	// The least that the configuration allows, so that evicting is cheap.
	p := w.measured(settings{more: "index: {max_records: 1024}\n", canary: "{one_in: 1, per_s: 1000}"})
	p.ready()
	l := p.load()
	w.everybody(l)
	w.finish(l)
	w.must(w.c.WaitInSync(w.ctx))

	primary, b, c := w.c.Primary(), w.c.Replicas()[0], w.c.Replicas()[1]
	insert := func(from, n int) string {
		rows := make([]string, n)
		for i := range rows {
			rows[i] = fmt.Sprintf("(%d,0,0)", from+i)
		}
		return "INSERT INTO app.posts (id, author_id, v) VALUES " + strings.Join(rows, ",")
	}
	w.must(primary.Exec(w.ctx, insert(10_000, 3000))) // more keys than records
	// A text that can't be cut into words for sure: in its character set a byte
	// of a letter may be a quote.
	w.must(primary.Exec(w.ctx, "SET NAMES latin1; ALTER TABLE app.posts COMMENT 'é'"))
	w.must(w.c.WaitInSync(w.ctx))
	w.must(b.StopSQLThread(w.ctx))
	w.must(c.StopIOThread(w.ctx))
	const lagging = 7
	for i := range lagging {
		w.must(primary.Exec(w.ctx, insert(20_000+i, 1)))
	}

	list := w.metricsOf(began, lagging)
	var last samples
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		last = p.scrape()
		unmet := last.unmet(list)
		return len(unmet) == 0, strings.Join(unmet, "\n")
	})
	last.wantLabels(t, names(w.c.Servers()))
	last.wantUnits(t)
	for _, m := range last["tidegate_binlog_hint_to_proof_seconds"].GetMetric() {
		h := m.GetHistogram()
		if mean := h.GetSampleSum() / float64(max(1, h.GetSampleCount())); mean < 0 || mean > testTimeout.Seconds() {
			t.Errorf("%v: a mean of %v s from hint to proof", labels(m), mean)
		}
	}
	w.wantOldest(p, began)
}

// metricsOf is what a program shows that began then, while the first replica's
// applier and the second one's receiver lag by so many transactions.
func (w *world) metricsOf(began time.Time, lagging float64) []expected {
	primary, b, c := w.c.Primary(), w.c.Replicas()[0], w.c.Replicas()[1]
	serving := func(name string) string { return "server=" + name }
	list := []expected{
		{"router_decisions_total", []string{"target=replica", "level=key", "reason=applied"}, 2, many},
		{"router_decisions_total", []string{"target=primary", "level=key"}, 1, many},
		{"router_wrong_yes_total", nil, 0, 0},
		{"router_canary_checked_total", nil, 1, many},
		{"router_stale_answers_total", nil, 0, 0},
		{"index_ready", nil, 1, 1},
		{"index_watermark_age_seconds", nil, 0, 60},
		{"index_records", nil, 1, 1024},
		{"index_record_bytes", nil, 1024, 1 << 30},
		{"index_evictions_total", nil, 1, many},
		{"index_horizon_transactions", nil, 1, many},
		{"index_transactions_total", nil, 10, many},
		{"index_lost_transactions", nil, 0, 0},
		{"index_holes_total", nil, 0, 0},
		{"cdc_follower_lag_messages", nil, 0, 1e6},
		{"cdc_follower_connected", nil, 1, 1},
		{"cdc_follower_messages_total", nil, 1, many},
		{"cdc_follower_bytes_total", nil, 100, many},
		{"cdc_oldest_commit_timestamp_seconds", nil, float64(began.Unix()), many},
		{"cdc_writer_active", nil, 1, 1},
		{"cdc_writer_sessions_total", nil, 1, many},
		{"cdc_writer_transactions_total", nil, 10, many},
		{"cdc_states_published_total", nil, 3, many},
		{"binlog_tail_not_understood_total", nil, 1, many},
		{"binlog_tail_wide_writes_total", []string{"cause=ddl"}, 1, many},
		{"binlog_tail_wide_writes_total", []string{"cause=no_key"}, 0, 0},
		{"binlog_tail_transactions_total", nil, 10, many},
		{"serve_requests_total", []string{"protocol=http"}, 1, many},
		{"serve_connections", []string{"protocol=http"}, 1, 100},
		// b has what it does not show; c has not even received it.
		{"index_behind_transactions", []string{serving(b.Name())}, lagging, lagging},
		{"index_apply_behind_transactions", []string{serving(b.Name())}, lagging, lagging},
		{"index_transfer_behind_transactions", []string{serving(b.Name())}, 0, 0},
		{"index_behind_transactions", []string{serving(c.Name())}, lagging, lagging},
		{"index_apply_behind_transactions", []string{serving(c.Name())}, 0, 0},
		{"index_transfer_behind_transactions", []string{serving(c.Name())}, lagging, lagging},
		{"index_behind_transactions", []string{serving(primary.Name())}, 0, 0},
	}
	for _, name := range names(w.c.Servers()) {
		list = append(list,
			expected{"index_staleness_seconds", []string{serving(name)}, 0, testTimeout.Seconds()},
			expected{"index_lease_age_seconds", []string{serving(name)}, 0, 60},
			expected{"index_server_eligible", []string{serving(name)}, 1, 1},
			expected{"binlog_probes_total", []string{serving(name)}, 1, many},
			// More than one where a connection broke and the run could not be told to be the same.
			expected{"binlog_epochs_total", []string{serving(name)}, 1, many})
	}
	for _, s := range w.c.Replicas() {
		list = append(list,
			expected{"binlog_confirmations_total", []string{serving(s.Name())}, 1, many},
			// A proof may come before its hint, and is then not measured.
			expected{"binlog_hint_to_proof_seconds", []string{serving(s.Name())}, 0, many})
	}
	return list
}

// wantOldest holds the oldest transaction of WRITES against what the primary
// has, in /metrics and, by its name, in /v1/servers.
func (w *world) wantOldest(p *program, began time.Time) {
	w.t.Helper()
	var page struct {
		OldestGTID   string    `json:"oldest_gtid"`
		OldestCommit time.Time `json:"oldest_committed_at"`
	}
	w.must(json.Unmarshal(p.get("/v1/servers"), &page))
	at, n := p.scrape().sum("cdc_oldest_commit_timestamp_seconds")
	if n != 1 || at != float64(page.OldestCommit.UnixMicro())/1e6 {
		w.t.Errorf("%d samples: the oldest transaction was committed at %v; /v1/servers says %v", n, at, page.OldestCommit)
	}
	if page.OldestCommit.Before(began) || page.OldestCommit.After(time.Now()) {
		w.t.Errorf("the oldest transaction of a stream begun after %v was committed at %v", began, page.OldestCommit)
	}
	inside, err := w.c.Primary().QueryString(w.ctx, "SELECT GTID_SUBSET(?, @@GLOBAL.gtid_executed)", page.OldestGTID)
	w.must(err)
	if page.OldestGTID == "" || inside != "1" {
		w.t.Errorf("the oldest transaction %q is not one of the primary's", page.OldestGTID)
	}
}

// wantLabels holds every label of Tidegate's own metrics against a closed list.
func (s samples) wantLabels(t *testing.T, servers []string) {
	t.Helper()
	var causes binlog.Counters
	closed := map[string][]string{
		"server":   servers,
		"target":   {"none", "replica", "primary"},
		"level":    {"eventual", "bounded", "session", "key", "strong"},
		"reason":   router.Reasons(),
		"protocol": {"http", "resp"},
	}
	causes.Causes(func(name string, _ uint64) { closed["cause"] = append(closed["cause"], name) })
	for name, f := range s {
		if !strings.HasPrefix(name, "tidegate_") {
			continue
		}
		for _, m := range f.GetMetric() {
			for l, v := range labels(m) {
				if !slices.Contains(closed[l], v) {
					t.Errorf("%s{%s=%q}: a label from no closed list", name, l, v)
				}
			}
		}
	}
}

// wantUnits holds every name of Tidegate's own metrics against the form
// tidegate_<package>_<noun>_<unit>[_total].
func (s samples) wantUnits(t *testing.T) {
	t.Helper()
	packages := []string{"binlog", "cdc", "index", "router", "serve"}
	units := []string{"_seconds", "_bytes", "_transactions", "_messages", "_records", "_connections"}
	ours := 0
	for name, f := range s {
		rest, ok := strings.CutPrefix(name, "tidegate_")
		if !ok {
			continue
		}
		ours++
		pkg, _, _ := strings.Cut(rest, "_")
		if !slices.Contains(packages, pkg) || f.GetHelp() == "" {
			t.Errorf("%s: %q", name, f.GetHelp())
		}
		unit := slices.ContainsFunc(units, func(u string) bool { return strings.HasSuffix(name, u) })
		switch total := strings.HasSuffix(name, "_total"); f.GetType() {
		case dto.MetricType_COUNTER:
			if !total {
				t.Errorf("%s counts and does not end in _total", name)
			}
		case dto.MetricType_HISTOGRAM:
			if !unit {
				t.Errorf("%s has no unit", name)
			}
		default:
			// Without a unit: a truth, 1 or 0, as its help says.
			truth := strings.HasPrefix(f.GetHelp(), "1: ")
			if total || unit == truth {
				t.Errorf("%s (%s) has no unit, or one and is 1 or 0 all the same", name, f.GetHelp())
			}
			for _, m := range f.GetMetric() {
				if v := value(m); truth && v != 0 && v != 1 {
					t.Errorf("%s is %v", name, v)
				}
			}
		}
	}
	if ours < 60 {
		t.Errorf("only %d metrics of Tidegate's own", ours)
	}
}

// TestMetricsOfATail: tail answers no questions, and its metrics are served on the
// port that listen.metrics names.
func TestMetricsOfATail(t *testing.T) {
	w := newWorld(t)
	n := testenvtest.NATS(t, testenv.NATSOptions{})
	cfg, err := w.config(settings{nats: n.URL()})
	w.must(err)
	cfg.Listen.Metrics = w.port()
	p := w.measuredAs(tailOnly, cfg)
	testenvtest.WaitUntil(t, settle, func() (bool, string) {
		w.must(w.c.Primary().Exec(w.ctx, "UPDATE app.posts SET v = v + 1"))
		s := p.scrapeFrom(cfg.Listen.Metrics)
		if _, of := s.sum("router_decisions_total"); of != 0 {
			t.Fatal("a router's metrics where there is none")
		}
		confirmations, of := s.sum("binlog_confirmations_total", "server=b")
		written, _ := s.sum("cdc_writer_transactions_total")
		return of == 1 && confirmations > 0 && written > 0, fmt.Sprintf("confirmations of b %v (%d), transactions written %v", confirmations, of, written)
	})
}
