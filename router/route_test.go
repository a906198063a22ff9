package router_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidegate/binlog/gtid"
	"tidegate/cdc/event"
	"tidegate/cdc/key"
	"tidegate/router"
	"tidegate/router/routertest"
)

func route(t testing.TB, r *router.Router, ask string) router.Answer {
	t.Helper()
	req := parseAsk(t, ask)
	req.Server = ""
	var ans router.Answer
	if err := r.Route(context.Background(), &req, &ans); err != nil {
		t.Fatalf("route %q: %v", ask, err)
	}
	return ans
}

// noWait makes Route give up on a probe at once.
func noWait(o *router.Options) { o.ProbeWait = time.Nanosecond }

func TestRouteTargets(t *testing.T) {
	behindAll := func(w *routertest.World) {
		w.Behind(t, 1, "1-40", 40)
		w.Behind(t, 2, "1-30", 30)
	}
	for _, c := range []struct {
		name   string
		change func(w *routertest.World)
		ask    string
		want   string // target, then the answer
	}{
		{"a replica that may serve", func(w *routertest.World) { w.Behind(t, 1, "1-40", 40) }, "app.posts/42", "c yes applied"},
		{"no replica may: the primary, with the reason of the one that came farthest", func(w *routertest.World) {
			behindAll(w)
			w.Leases[2] = 0
		}, "app.posts/42", "a yes key_behind"},
		{"a transaction", nil, "app.posts/42 intx=", "a yes primary"},
		{"strong", nil, "level=strong", "a yes strong"},
		{"excluded by the caller", nil, "app.posts/41 exclude=b", "c yes applied"},
		{"all replicas excluded", nil, "app.posts/41 exclude=b exclude=c", "a yes primary"},
		{"all excluded", nil, "app.posts/41 exclude=b exclude=c exclude=a", " no no_primary refuse"},
		{"no primary, key", func(w *routertest.World) { w.HasPrimary = false }, "app.posts/42", " no no_primary refuse"},
		{"no primary, eventual", func(w *routertest.World) { w.HasPrimary = false; w.Leases[1] = 0 }, "level=eventual", "c yes applied"},
		{"no primary, nobody", func(w *routertest.World) { w.HasPrimary = false; w.Leases[1], w.Leases[2] = 0, 0 }, "level=eventual", " no no_primary refuse"},
		{"the primary is not eligible", func(w *routertest.World) { behindAll(w); w.IneligibleFor[0] = "excluded" }, "app.posts/42", " no no_primary refuse"},
		{"the table is tainted on the primary", func(w *routertest.World) { behindAll(w); w.ExcludedTables[0] = posts.AnyRow }, "app.posts/42", " no no_primary refuse"},
		{"a table whose engine does not keep what a replica executed", func(w *routertest.World) {
			d := *postsDef
			d.Engine = "MEMORY"
			w.Defs["app.posts"] = &d
		}, "app.posts/42", "a yes excluded"},
		{"not ready, primary known", func(w *routertest.World) { w.IsReady = false }, "app.posts/42", "a yes catching_up"},
		{"blind: bounded", func(w *routertest.World) { w.CutOff(); w.States[2].Alive = false }, "level=bounded stale=1s", "b yes blind stale"},
		{"blind: key, primary's lease over", func(w *routertest.World) { w.CutOff() }, "app.posts/42", " no no_primary primary"},
		{"not announced yet", func(w *routertest.World) { w.HasPrimary, w.PrimaryReason = false, "catching_up" }, "app.posts/42", " no no_primary wait"},
		{"blind: key, primary's lease young", func(w *routertest.World) {
			young := w.Leases[0]
			w.CutOff()
			w.Leases[0] = young
		}, "app.posts/42", "a yes blind"},
		{"the floor is not on the primary either", nil, "app.posts/42 floor=" + uuidA + ":101", " no write_unseen wait"},
		{"the floor is on the primary alone", func(w *routertest.World) {
			w.ConfirmedSets[0] = mustSet(t, uuidA+":1-101")
			w.Behind(t, 1, "1-40", 40)
		}, "app.posts/42 floor=" + uuidA + ":101", "a yes write_unseen"},
		{"the floor is lost", func(w *routertest.World) { w.LostSet = mustSet(t, uuidC+":7") }, "level=strong floor=" + uuidC + ":7 arrived=-100ms", "a yes strong"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := healthy(t)
			w.Records[own(t, "app.posts/42")] = v(50)
			if c.change != nil {
				c.change(w)
			}
			ans := route(t, newRouter(t, w, noWait), c.ask)
			if got := ans.Server + " " + printAnswer(&ans); got != c.want {
				t.Errorf("got %q (%s), want %q", got, ans.Detail, c.want)
			}
			if !ans.Yes && ans.RetryAfter <= 0 {
				t.Error("a route without a target has no hint when to retry")
			}
		})
	}
}

func TestRouteTellsOfSpreading(t *testing.T) {
	w := healthy(t)
	w.Records[own(t, "app.posts/42")] = v(50)
	w.Behind(t, 1, "1-40", 40)
	r := newRouter(t, w)
	if ans := route(t, r, "app.posts/1 app.posts/42"); !ans.Spreading || ans.SpreadingKey != 1 || ans.Server != "c" {
		t.Errorf("got spreading %v, key %d, server %q; want key 1 spreading, read on c", ans.Spreading, ans.SpreadingKey, ans.Server)
	}
	w.Behind(t, 1, "1-100", 100)
	if ans := route(t, r, "app.posts/1 app.posts/42"); ans.Spreading {
		t.Error("spreading although every replica shows the key")
	}
	w.Behind(t, 1, "1-40", 40)
	w.Leases[1] = 0
	if ans := route(t, r, "app.posts/1 app.posts/42"); ans.Spreading {
		t.Error("a replica that is not eligible counts for spreading")
	}
}

func TestRouteSharesByWeight(t *testing.T) {
	w := healthy(t)
	r := newRouter(t, w, func(o *router.Options) {
		o.Servers = []router.ServerOptions{{Name: "a"}, {Name: "b", Weight: 3}, {Name: "c", Weight: 1}}
	})
	got := map[string]int{}
	for range 4000 {
		ans := route(t, r, "level=eventual")
		got[ans.Server]++
	}
	if n := got["b"]; n < 2700 || n > 3300 {
		t.Errorf("b with weight 3 of 4 got %d of 4000 reads, want about 3000 (%v)", n, got)
	}
}

func TestRouteWeightZeroIsNotChosen(t *testing.T) {
	r := newRouter(t, healthy(t), func(o *router.Options) { o.Servers = []router.ServerOptions{{Name: "b", Weight: 0}} })
	for range 200 {
		if ans := route(t, r, "level=eventual"); ans.Server != "c" {
			t.Fatalf("got %q, want c alone", ans.Server)
		}
	}
}

func TestRouteFreshest(t *testing.T) {
	w := healthy(t)
	w.FreshTimes[2] = w.FreshTimes[1] + 1
	r := newRouter(t, w, func(o *router.Options) { o.Choice = router.ChooseFreshest })
	for range 50 {
		if ans := route(t, r, "level=eventual"); ans.Server != "c" {
			t.Fatalf("got %q, want c, the freshest", ans.Server)
		}
	}
}

func TestBudgetBoundsFallbacks(t *testing.T) {
	w := healthy(t)
	w.Records[own(t, "app.posts/42")] = v(50)
	w.Behind(t, 1, "1-40", 40)
	w.Behind(t, 2, "1-40", 40)
	now := epoch0
	r := newRouter(t, w, func(o *router.Options) {
		o.PrimaryReadsPerSecond = 100
		o.Clock = func() int64 { return now }
	})
	primary, waits, refused := 0, 0, 0
	for i := range 20_000 { // ten seconds, one question each half millisecond
		now = epoch0 + int64(i)*int64(500*time.Microsecond)
		w.Watermark, w.Leases[0], w.Leases[1], w.Leases[2] = now, now, now, now
		if i%2 == 0 {
			req := parseAsk(t, "app.posts/42")
			var ans router.Answer
			if err := r.Serve(&req, &ans); err != nil {
				t.Fatal(err)
			}
			switch ans.Otherwise {
			case router.OtherwisePrimary:
				primary++
			case router.OtherwiseWait:
				waits++
			}
			continue
		}
		if ans := route(t, r, "app.posts/42"); ans.Yes {
			primary++
		} else if ans.Reason == router.ReasonBudget {
			refused++
		}
	}
	if primary < 950 || primary > 1011 {
		t.Errorf("%d reads fell back in 10 s, want about 1000 and at most the budget with one burst", primary)
	}
	if waits == 0 || refused == 0 {
		t.Errorf("serve answered wait %d times and route budget %d times, want both", waits, refused)
	}
	if ans := route(t, r, "level=strong"); !ans.Yes {
		t.Error("level strong is charged to the fallback budget")
	}
}

func TestAdvisoryQuestionsAreFree(t *testing.T) {
	w := healthy(t)
	r := newRouter(t, w, func(o *router.Options) { o.PrimaryReadsPerSecond = 1 })
	w.Leases[1] = 0
	req := parseAsk(t, "level=eventual")
	req.Advisory = true
	var ans router.Answer
	for range 10 {
		if err := r.Serve(&req, &ans); err != nil || ans.Otherwise != router.OtherwisePrimary {
			t.Fatalf("got %v, %v; want primary each time", ans.Otherwise, err)
		}
	}
	if c := r.Counters(); len(c.Decisions) != 0 {
		t.Errorf("advisory questions were counted as decisions: %v", c.Decisions)
	}
}

// guarded is a snapshot that a test exchanges while Route waits.
type guarded struct {
	mu      sync.Mutex
	w       *routertest.World
	changed chan struct{}
}

func (g *guarded) view() router.Snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.w
}

func (g *guarded) news() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

func (g *guarded) put(w *routertest.World) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.w = w
	close(g.changed)
	g.changed = make(chan struct{})
}

func TestRouteWaitsForTheNextProbe(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(w *routertest.World, now int64)
		want string
	}{
		{"which shows the write", func(w *routertest.World, _ int64) { w.ConfirmedSets[0] = mustSet(t, uuidA+":1-101") }, "a yes write_unseen"},
		{"which shows that it never happened", func(w *routertest.World, now int64) { w.EAt = now }, "b yes applied"},
		{"which never comes", func(*routertest.World, int64) {}, " no write_unseen wait"},
	} {
		for _, poll := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					begun := time.Now()
					clock := func() int64 { return epoch0 + int64(time.Since(begun)) }
					make1 := func() *routertest.World {
						w := healthy(t)
						w.Leases[2] = 0
						return w
					}
					g := &guarded{w: make1(), changed: make(chan struct{})}
					o := router.Options{View: g.view, Clock: clock, Changed: g.news, ProbeWait: 500 * time.Millisecond}
					if poll {
						o.Changed = nil
					}
					r, err := router.New(o)
					if err != nil {
						t.Fatal(err)
					}
					done := make(chan router.Answer)
					go func() { done <- route(t, r, "app.posts/42 floor="+uuidA+":101") }()
					synctest.Wait()
					<-time.After(20 * time.Millisecond) // of the bubble's clock: it passes once everybody waits
					w := make1()
					c.then(w, clock())
					g.put(w)
					ans := <-done
					if got := ans.Server + " " + printAnswer(&ans); got != c.want {
						t.Errorf("got %q (%s), want %q", got, ans.Detail, c.want)
					}
					if ans.Waited < 20*time.Millisecond || ans.Waited > 501*time.Millisecond {
						t.Errorf("waited %v, want at least the 20 ms until the news and at most the bound", ans.Waited)
					}
				})
			})
		}
	}
}

func TestRouteStopsWaitingWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, healthy(t), func(o *router.Options) { o.ProbeWait = time.Hour })
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		req := parseAsk(t, "level=strong floor="+uuidA+":101")
		var ans router.Answer
		begun := time.Now()
		if err := r.Route(ctx, &req, &ans); err != nil || ans.Yes || ans.Reason != router.ReasonWriteUnseen {
			t.Errorf("got %+v, %v; want write_unseen", ans.Reason, err)
		}
		if d := time.Since(begun); d != 30*time.Millisecond {
			t.Errorf("returned after %v, want with the caller's 30 ms", d)
		}
	})
}

func TestExplainNamesWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		name, ask string
		change    func(w *routertest.World)
		need      string
		behind    int64
		blocked   int
	}{
		{"key", "app.posts/1 app.posts/42", func(w *routertest.World) {
			w.Records[own(t, "app.posts/42")] = v(50)
			w.Behind(t, 1, "1-40", 40)
		}, uuidA + ":50", 60, 1},
		{"group whose newest write is there and an older one is not", "app.posts@author_id/7", func(w *routertest.World) {
			w.Records[own(t, "app.posts@author_id/7")] = v(50)
			w.Behind(t, 1, "1-40:50-100", 40)
		}, uuidA + ":41-49", 9, 1},
		{"session", "level=session floor=" + uuidA + ":30-70", func(w *routertest.World) { w.Behind(t, 1, "1-40", 40) }, uuidA + ":41-70", 60, 0},
		{"unseen", "app.posts/42 floor=" + uuidA + ":99-102", nil, uuidA + ":101-102", 0, 0},
		{"horizon", "app.posts/42", func(w *routertest.World) {
			w.HorizonSet = mustSet(t, uuidA+":1-60")
			w.Behind(t, 1, "1-50", 50)
		}, uuidA + ":51-60", 50, 0},
		{"a lost transaction is not counted", "app.posts/42", func(w *routertest.World) {
			w.Watermark = 0
			w.LostSet = mustSet(t, uuidA+":60")
			w.Behind(t, 1, "1-50", 50)
		}, "", 49, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := healthy(t)
			if c.change != nil {
				c.change(w)
			}
			req := parseAsk(t, c.ask)
			var ans router.Answer
			if err := newRouter(t, w).Serve(&req, &ans); err != nil || ans.Yes {
				t.Fatalf("got yes %v, %v; want a no", ans.Yes, err)
			}
			if !ans.Need.Equal(mustSet(t, c.need)) || ans.BehindTxns != c.behind || ans.NumBlocked != c.blocked {
				t.Errorf("got need %s, behind %d, %d blocked; want %s, %d, %d", ans.Need, ans.BehindTxns, ans.NumBlocked, c.need, c.behind, c.blocked)
			}
		})
	}
}

func TestNeedIsBounded(t *testing.T) {
	w := healthy(t)
	floor := gtid.Set{}
	for n := range int64(40) {
		floor = floor.Add(gtid.GTID{UUID: w.States[0].UUID, Seq: 1 + 2*n})
	}
	w.ConfirmedSets[1] = gtid.Set{}
	req := router.Request{Server: "b", Level: router.LevelSession, Floor: floor, Explain: true}
	var ans router.Answer
	if err := newRouter(t, w).Serve(&req, &ans); err != nil {
		t.Fatal(err)
	}
	if n := ans.Need.NumIntervals(); n != router.MaxNeedIntervals || !ans.NeedCut {
		t.Errorf("got %d intervals, cut %v; want %d and cut", n, ans.NeedCut, router.MaxNeedIntervals)
	}
}

func TestFloorLostIsTold(t *testing.T) {
	w := healthy(t)
	w.LostSet = mustSet(t, uuidC+":7")
	r := newRouter(t, w)
	for ask, want := range map[string]bool{
		"level=session floor=" + uuidC + ":7 arrived=-100ms":               true,
		"app.posts/1 floor=" + uuidA + ":5," + uuidC + ":7 arrived=-100ms": true,
		"app.posts/1 floor=" + uuidA + ":5":                                false,
	} {
		req := parseAsk(t, ask)
		var ans router.Answer
		if err := r.Serve(&req, &ans); err != nil || !ans.Yes || ans.FloorLost != want {
			t.Errorf("%s: got yes %v, lost %v, %v; want yes, lost %v", ask, ans.Yes, ans.FloorLost, err, want)
		}
	}
}

func TestCanaryIsRareAndHoldsACopy(t *testing.T) {
	w := healthy(t)
	w.Records[own(t, "app.posts/42")] = v(50)
	now := epoch0
	var got []router.CanaryCheck
	r := newRouter(t, w, func(o *router.Options) {
		o.Clock = func() int64 { return now }
		o.Canary = func(c router.CanaryCheck) { got = append(got, c) }
		o.CanaryOneIn, o.CanaryPerSecond = 10, 2
	})
	req := parseAsk(t, "app.posts/42")
	var ans router.Answer
	for i := range 100 {
		now = epoch0 + int64(i)*int64(time.Millisecond)
		if err := r.Serve(&req, &ans); err != nil || !ans.Yes {
			t.Fatal(ans.Reason, err)
		}
	}
	if len(got) != 1 {
		t.Fatalf("%d checks in a tenth of a second, want 1 (one in 10, at most 2 a second)", len(got))
	}
	req.Keys[0].Values[0].Text = "overwritten"
	c := got[0]
	if c.Key.String() != "app.posts/42" || c.Server != "b" || c.Primary != "a" || c.Epoch != event.Epoch(11) || c.Newest != v(50) || c.Prefix != v(100) {
		t.Errorf("got %+v", c)
	}
	for _, ask := range []string{"app.posts@author_id/7", "app.posts/42 level=eventual", "app.posts/42 server=a"} {
		got = nil
		for i := range 40 {
			now += int64(i) * int64(time.Second)
			w.Watermark, w.Leases[0], w.Leases[1] = now, now, now
			q := parseAsk(t, ask)
			if err := r.Serve(&q, &ans); err != nil || !ans.Yes {
				t.Fatal(ask, ans.Reason, err)
			}
		}
		if len(got) != 0 {
			t.Errorf("%s: was checked, although it can't be told by one row on a replica", ask)
		}
	}
}

func TestCountersCountEachDecision(t *testing.T) {
	w := healthy(t)
	r := newRouter(t, w, noWait)
	var ans router.Answer
	for _, ask := range []string{"app.posts/1", "app.posts/1", "level=strong", "app.posts/1 server=a"} {
		req := parseAsk(t, ask)
		if err := r.Serve(&req, &ans); err != nil {
			t.Fatal(err)
		}
	}
	route(t, r, "level=strong")
	got := map[string]uint64{}
	for _, d := range r.Counters().Decisions {
		got[d.Target.String()+" "+d.Level.String()+" "+d.Reason.String()] = d.N
	}
	want := map[string]uint64{"replica key applied": 2, "primary strong strong": 2, "primary key primary": 1}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for k, n := range want {
		if got[k] != n {
			t.Errorf("%s: got %d, want %d", k, got[k], n)
		}
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	_, err := router.New(router.Options{Lease: -1, Servers: []router.ServerOptions{{Name: "a"}, {Name: "a"}}})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"View", "Clock", "Lease", "a is named twice"} {
		if !contains(err.Error(), part) {
			t.Errorf("%q does not tell of %s", err, part)
		}
	}
}

// TestNoAdviceForAnExcludedPrimary: what keeps Route from naming the primary
// keeps Serve from sending the read there.
func TestNoAdviceForAnExcludedPrimary(t *testing.T) {
	for name, spoil := range map[string]func(*routertest.World){
		"excluded":      func(w *routertest.World) { w.IneligibleFor[0] = "excluded" },
		"tainted table": func(w *routertest.World) { w.ExcludedTables[0] = posts.AnyRow },
	} {
		t.Run(name, func(t *testing.T) {
			w := healthy(t)
			w.Records[own(t, "app.posts/42")] = v(50)
			w.Behind(t, 1, "1-40", 40)
			w.Behind(t, 2, "1-40", 40)
			spoil(w)
			r := newRouter(t, w)
			req := router.Request{Server: "b", Keys: []key.Key{mustKey(t, "app.posts/42")}}
			var ans router.Answer
			if err := r.Serve(&req, &ans); err != nil {
				t.Fatal(err)
			}
			if ans.Yes || ans.Otherwise == router.OtherwisePrimary {
				t.Errorf("got yes %v, otherwise %q", ans.Yes, ans.Otherwise)
			}
			if err := r.Route(t.Context(), &req, &ans); err != nil {
				t.Fatal(err)
			}
			if ans.Yes || ans.Reason != router.ReasonNoPrimary {
				t.Errorf("route: got yes %v, reason %v", ans.Yes, ans.Reason)
			}
		})
	}
}
