package router_test

import (
	"fmt"
	"strings"
	"testing"

	"tidegate/binlog/gtid"
	"tidegate/cdc/key"
	"tidegate/router"
	"tidegate/router/routertest"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// wideWorld has eight replicas and sets of 100 UUIDs with 100 intervals each.
func wideWorld(tb testing.TB) (*routertest.World, gtid.Set) {
	tb.Helper()
	var all, floor strings.Builder
	for u := range 100 {
		sep := ","
		if u == 0 {
			sep = ""
		}
		fmt.Fprintf(&all, "%s%08x-0000-0000-0000-000000000000", sep, u*7919)
		for i := range 100 {
			fmt.Fprintf(&all, ":%d-%d", 1+i*10, 5+i*10)
		}
		if u%12 == 0 && u < 96 {
			fmt.Fprintf(&floor, "%s%08x-0000-0000-0000-000000000000:%d-%d", sep, u*7919, 401, 404)
		}
	}
	set := mustSet(tb, all.String())
	w := healthy(tb)
	for i := 3; i < 9; i++ {
		st := *w.States[1]
		st.Server = fmt.Sprint("r", i)
		w.States = append(w.States, &st)
		w.ConfirmedSets = append(w.ConfirmedSets, set)
		w.Prefixes = append(w.Prefixes, v(100))
		w.Leases = append(w.Leases, w.Leases[1])
		w.FreshTimes = append(w.FreshTimes, w.FreshTimes[1])
		w.IneligibleFor = append(w.IneligibleFor, "")
	}
	for i := range w.ConfirmedSets {
		w.ConfirmedSets[i] = set
	}
	w.DeliveredSet = set
	return w, mustSet(tb, floor.String())
}

func BenchmarkDecide(b *testing.B) {
	w, floor := wideWorld(b)
	r := newRouter(b, w)
	for n := range 1000 {
		k := fmt.Sprintf("app.posts/%d", n)
		w.Records[own(b, k)] = v(50)
	}
	keys := make([]key.Key, 1000)
	for n := range keys {
		keys[n] = mustKey(b, fmt.Sprintf("app.posts/%d", n))
	}
	for _, c := range []struct {
		name  string
		floor gtid.Set
	}{{"key", gtid.Set{}}, {"key+floor8", floor}} {
		b.Run(c.name, func(b *testing.B) {
			req := router.Request{Server: "r5", Floor: c.floor}
			var ans router.Answer
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				req.Keys = keys[i%1000 : i%1000+1]
				if err := r.Serve(&req, &ans); err != nil || !ans.Yes {
					b.Fatal(ans.Reason, err)
				}
			}
		})
	}
	b.Run("key+horizon", func(b *testing.B) {
		old := *w
		old.HorizonSet = mustSet(b, w.DeliveredSet.String()) // equal, and shares nothing
		r := newRouter(b, &old)
		req := router.Request{Server: "r5"}
		var ans router.Answer
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			req.Keys = keys[i%1000 : i%1000+1]
			if err := r.Serve(&req, &ans); err != nil || !ans.Yes {
				b.Fatal(ans.Reason, err)
			}
		}
	})
	b.Run("route", func(b *testing.B) {
		req := router.Request{Floor: floor}
		var ans router.Answer
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			req.Keys = keys[i%1000 : i%1000+1]
			if err := r.Route(b.Context(), &req, &ans); err != nil || !ans.Yes {
				b.Fatal(ans.Reason, err)
			}
		}
	})
}
