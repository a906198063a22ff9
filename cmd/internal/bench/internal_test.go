package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tidegate/testenv"
)

func TestQuantile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, tt := range []struct {
		xs   []float64
		q    float64
		want float64
	}{
		{nil, 0.5, 0},
		{[]float64{7}, 0.99, 7},
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{4, 1, 3, 2}, 0.5, 2},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
		{hundred, 0, 1},
	} {
		if got := quantile(tt.xs, tt.q); got != tt.want {
			t.Errorf("quantile of %d values at %v is %v, want %v", len(tt.xs), tt.q, got, tt.want)
		}
	}
	for _, tt := range []struct {
		xs   []float64
		want float64
	}{{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(tt.xs); got != tt.want {
			t.Errorf("median of %v is %v, want %v", tt.xs, got, tt.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("quantile sorted its caller's values")
	}
}

func TestRoundsAlternate(t *testing.T) {
	var order []string
	side := func(name string, x float64) func(context.Context) (float64, error) {
		return func(context.Context) (float64, error) {
			order = append(order, name)
			return x * float64(len(order)), nil
		}
	}
	as, bs, err := rounds(t.Context(), 3, side("a", 2), side("b", 1))
	if err != nil || len(as) != 3 || len(bs) != 3 {
		t.Fatal(as, bs, err)
	}
	if got := strings.Join(order, ""); got != "ababab" {
		t.Errorf("order is %s", got)
	}
	// Ratios 2/2, 6/4, 10/6: the median round counts, not the medians' quotient.
	if got := medianRatio(as, bs); math.Abs(got-1.5) > 1e-9 {
		t.Errorf("median ratio is %v, want 1.5", got)
	}
}

func TestRotatedGivesEachSideEachPlace(t *testing.T) {
	var order []string
	side := func(name string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) {
			order = append(order, name)
			return name + strconv.Itoa(len(order)), nil
		}
	}
	got, err := rotated(t.Context(), 3, side("a"), side("b"), side("c"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "abcbcacab" {
		t.Errorf("order is %s", got)
	}
	if want := [][]string{{"a1", "a6", "a8"}, {"b2", "b4", "b9"}, {"c3", "c5", "c7"}}; !slices.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("got %v, want %v", got, want)
	}
	if full.confirmRound%3 != 0 {
		t.Errorf("in %d rounds the three sides do not have each place equally often", full.confirmRound)
	}
	failed := errors.New("no")
	if _, err := rotated(t.Context(), 1, side("a"), func(context.Context) (string, error) { return "", failed }); !errors.Is(err, failed) {
		t.Errorf("got %v, want the error of the side that failed", err)
	}
}

func TestBoundsJudgeTheRatioWhereThereIsOne(t *testing.T) {
	for _, tt := range []struct {
		f         Figure
		must, aim float64
		m, a      bool
	}{
		{figure("x", 10, "ns", lower), 10, 5, true, false},
		{figure("x", 11, "ns", lower), 10, 5, false, false},
		{figure("x", 100, "us", lower).against(100, 1), 1.5, 1, true, true},
		{figure("x", 1, "1/s", higher).against(10, 0.4), 0.33, 0.5, true, false},
		{figure("x", 0, "failures", lower), 0, 0, true, true},
	} {
		f := tt.f.must(tt.must).aim(tt.aim)
		if *f.MeetsMust != tt.m || *f.MeetsAim != tt.a {
			t.Errorf("%v %v: meets must %v, aim %v; want %v, %v", f.Value, f.Better, *f.MeetsMust, *f.MeetsAim, tt.m, tt.a)
		}
	}
}

func TestAnswersAreUnderstood(t *testing.T) {
	const id = "$-1\r\n$-1\r\n:0\r\n$3\r\nabc\r\n$2\r\n10\r\n"
	for _, tt := range []struct {
		name string
		p    protocol
		in   string
		yes  bool
		err  string
	}{
		{"resp yes", askRESP{}, "*7\r\n:1\r\n$7\r\napplied\r\n" + id, true, ""},
		{"resp no", askRESP{}, "*7\r\n:0\r\n$10\r\nkey_behind\r\n$7\r\nprimary\r\n$-1\r\n:0\r\n$-1\r\n$-1\r\n", false, ""},
		{"resp error", askRESP{}, "-ERR bad_key\r\n", false, "bad_key"},
		{"resp nonsense", askRESP{}, ":1\r\n", false, "answered"},
		{"redis value", askRedis{}, "$2\r\nhi\r\n", true, ""},
		{"redis without it", askRedis{}, "$-1\r\n", false, ""},
		{"http yes", askHTTP{}, "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"serve\":true}", true, ""},
		{"http no", askHTTP{}, "HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{\"serve\":false}", false, ""},
		{"http error", askHTTP{}, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", false, "400"},
		{"http without length", askHTTP{}, "HTTP/1.1 200 OK\r\n\r\n", false, "not expected"},
	} {
		// A second answer behind the first shows that the first was read whole.
		r := bufio.NewReader(strings.NewReader(tt.in + tt.in))
		for range 2 {
			yes, err := tt.p.readYes(r)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%s: error %v, want one with %q", tt.name, err, tt.err)
				}
				break
			}
			if err != nil || yes != tt.yes {
				t.Errorf("%s: yes %v, error %v", tt.name, yes, err)
			}
		}
	}
}

func TestParseStat(t *testing.T) {
	got, err := parseStat("12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0 99")
	if err != nil || got != 2e6 {
		t.Errorf("got %v, %v; want two seconds", got, err)
	}
	for _, bad := range []string{"", "12 (x) S 1 2", "12 (x) S 1 2 3 4 5 6 7 8 9 10 x 50 0"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("parseStat(%q) returned no error", bad)
		}
	}
}

func TestParseCounter(t *testing.T) {
	text := "# HELP x_total y\nx_total{server=\"b\"} 12\nx_total{server=\"c\"} 1.5e+06\nx_total_more{server=\"d\"} 1\n"
	got, err := parseCounter([]byte(text), "x_total", "server")
	if err != nil || len(got) != 2 || got["b"] != 12 || got["c"] != 1.5e6 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseCounter([]byte("x_total{server=\"b\"} many\n"), "x_total", "server"); err == nil {
		t.Error("a value that is no number was read")
	}
}

// What bare readers are held against is that they read everything: one that has
// ended must not pass for one that costs nothing.
func TestBareReadersReadEverything(t *testing.T) {
	ctx := t.Context()
	c, err := testenv.Start(ctx, testenv.Options{Servers: 2})
	if err != nil {
		t.Fatalf("%v\nto provide it: go run ./cmd/tidegate bench --quick, once with a network, or set TIDEGATE_MYSQLD", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	commit := func(sql string) {
		t.Helper()
		if err := errors.Join(c.Primary().Exec(ctx, sql), c.WaitInSync(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	commit("CREATE TABLE app.bare (id INT PRIMARY KEY)")
	readers, err := startBareReaders(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer readers.close()
	const n = 5
	for i := range n {
		commit("INSERT INTO app.bare VALUES (" + strconv.Itoa(i) + ")")
	}
	if err := readers.await(ctx); err != nil {
		t.Fatal(err)
	}
	for _, r := range readers {
		if got := r.txns.Load(); got != n {
			t.Errorf("of %s, %d transactions were read, want %d", r.server.Name(), got, n)
		}
	}
	replica := readers[1]
	closeWithin(replica.syncer.Close)
	commit("INSERT INTO app.bare VALUES (" + strconv.Itoa(n) + ")")
	if err := readers.await(ctx); err == nil || !strings.Contains(err.Error(), replica.server.Name()) {
		t.Errorf("got %v after the reader of %s was closed, want an error that names it", err, replica.server.Name())
	}
}

// The world of decide and its questions are what the row says they are.
func TestWorld(t *testing.T) {
	w, err := newWorld(decideReplicas)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.fill(2000); err != nil {
		t.Fatal(err)
	}
	if err := w.states(10); err != nil {
		t.Fatal(err)
	}
	s := w.ix.Snapshot()
	if ok, why := s.Ready(); !ok {
		t.Fatalf("not ready: %s", why)
	}
	if n := w.ix.Counters().Records; n < 2000 {
		t.Errorf("%d records, want 2000", n)
	}
	for i := range s.NumServers() {
		c := s.Confirmed(i)
		if c.Sources() != worldUUIDs || c.NumIntervals() != worldUUIDs*worldIntervals {
			t.Errorf("server %d: %d sources, %d intervals", i, c.Sources(), c.NumIntervals())
		}
	}
	if s.NumServers() != decideReplicas+1 {
		t.Errorf("%d servers", s.NumServers())
	}
	qs, err := w.questions(64)
	if err != nil {
		t.Fatal(err)
	}
	var servers []string
	for range 64 {
		q := qs.next()
		if n := q.Floor.NumIntervals(); n != floorIntervals {
			t.Errorf("floor of %d intervals", n)
		}
		if n, err := strconv.Atoi(q.Keys[0].Values[0].Text); err != nil || n >= w.record {
			t.Errorf("row %q of %d (%v)", q.Keys[0].Values[0].Text, w.record, err)
		}
		servers = append(servers, q.Server)
	}
	slices.Sort(servers)
	if got := slices.Compact(servers); len(got) != decideReplicas || slices.Contains(got, "a") {
		t.Errorf("asked of %v", got)
	}
}

// A round whose clock was started too late is measured again, and one that goes
// wrong otherwise is not; a machine that stays busy is named as the reason.
func TestLateRoundsAreMeasuredAgain(t *testing.T) {
	other := errors.New("other")
	late := fmt.Errorf("%w: 3 of 4", errLate)
	for name, c := range map[string]struct {
		results []error // of one try after the other
		want    error
		tries   int
	}{
		"at once":     {[]error{nil}, nil, 1},
		"second try":  {[]error{late, nil}, nil, 2},
		"other error": {[]error{late, other, nil}, other, 2},
		"always late": {[]error{late, late, late, nil}, errLate, lateTries},
	} {
		tries := 0
		x, err := inTime(func() (float64, error) {
			tries++
			return float64(tries), c.results[tries-1]
		})
		if !errors.Is(err, c.want) || tries != c.tries || c.want == nil && x != float64(tries) {
			t.Errorf("%s: %v, %v after %d tries", name, x, err, tries)
		}
		if c.want == errLate && !strings.Contains(err.Error(), "too busy") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
