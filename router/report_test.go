package router_test

import (
	"testing"

	"tidegate/cdc/event"
	"tidegate/router"
	"tidegate/router/routertest"
)

func TestReport(t *testing.T) {
	w := healthy(t)
	w.Behind(t, 1, "1-40", 40)
	w.States[1].Received = mustSet(t, uuidA+":1-90")
	w.Leases[2] = 0
	r := newRouter(t, w, func(o *router.Options) {
		o.Servers = []router.ServerOptions{{Name: "b", Weight: 3}, {Name: "new", Weight: 1}}
	})
	rep := r.Report()
	if !rep.Ready || rep.Primary != "a" || len(rep.Servers) != 4 {
		t.Fatalf("got ready %v, primary %q, %d servers; want ready, a, 4", rep.Ready, rep.Primary, len(rep.Servers))
	}
	b, c, fresh := rep.Servers[1], rep.Servers[2], rep.Servers[3]
	if b.BehindTxns != 60 || b.BehindTransfer != 10 || !b.Eligible || b.Weight != 3 {
		t.Errorf("b: got behind %d, in transfer %d, eligible %v, weight %d; want 60, 10, true, 3", b.BehindTxns, b.BehindTransfer, b.Eligible, b.Weight)
	}
	if c.Eligible || c.Reason != router.ReasonLeaseExpired || c.LeaseAge != router.Unknown {
		t.Errorf("c: got eligible %v, %s, lease age %v", c.Eligible, c.Reason, c.LeaseAge)
	}
	if fresh.Name != "new" || fresh.Eligible || fresh.State != nil {
		t.Errorf("a configured server that was never heard of: got %+v", fresh)
	}
}

func TestReadyNeedsIndexAndWatermark(t *testing.T) {
	for _, c := range []struct {
		change func(w *routertest.World)
		want   router.Reason
	}{
		{func(*routertest.World) {}, router.ReasonNone},
		{func(w *routertest.World) { w.IsReady = false }, router.ReasonCatchingUp},
		{func(w *routertest.World) { w.Watermark = 0 }, router.ReasonWatermarkOld},
		{func(w *routertest.World) { w.Watermark -= 10 * seconds }, router.ReasonWatermarkOld},
		{func(w *routertest.World) { w.Watermark -= 10 * seconds; w.Blind = w.Watermark }, router.ReasonBlind},
		{func(w *routertest.World) { w.Blind = w.Watermark }, router.ReasonNone}, // cut off just now: the watermark is still young
	} {
		w := healthy(t)
		c.change(w)
		w.Refused = "gtid_mode is ON_PERMISSIVE"
		ok, why, detail := newRouter(t, w).Ready()
		if why != c.want || ok != (c.want == router.ReasonNone) {
			t.Errorf("got %v %s, want %s", ok, why, c.want)
		}
		if why == router.ReasonBlind && detail != "cut off from the stream" {
			t.Errorf("got detail %q", detail)
		}
		if why == router.ReasonWatermarkOld && detail != w.Refused {
			t.Errorf("got detail %q, want %q", detail, w.Refused)
		}
	}
}

func TestKeyReport(t *testing.T) {
	w := healthy(t)
	w.Records[own(t, "app.posts/42")] = v(50)
	w.Behind(t, 1, "1-40", 40)
	r := newRouter(t, w)
	rep, why, err := r.Key(mustKey(t, "app.posts/42"))
	if err != nil || why != router.ReasonNone {
		t.Fatal(why, err)
	}
	if rep.Newest != event.MakeVersion(1, 50) || rep.Wide || rep.GTID != mustGTID(t, uuidA+":50") || rep.Definition != postsDef.Version {
		t.Errorf("got %+v", rep)
	}
	if s := rep.Servers; !s[0].Shown || s[1].Shown || s[1].Reason != router.ReasonKeyBehind || !s[2].Shown {
		t.Errorf("got %+v, want all but b to show it", s)
	}
	w.Records[posts.AllRows] = v(60)
	if rep, _, _ = r.Key(mustKey(t, "app.posts/42")); !rep.Wide || rep.Newest != v(60) {
		t.Errorf("got %+v, want the wide record", rep)
	}
	if _, why, _ := r.Key(mustKey(t, "app.none/42")); why != router.ReasonUnknownTable {
		t.Errorf("got %s, want unknown_table", why)
	}
	if _, _, err := r.Key(mustKey(t, "app.posts/x")); err == nil {
		t.Error("a key that does not fit was accepted")
	}
	w.IsReady = false
	if _, why, _ := r.Key(mustKey(t, "app.posts/42")); why != router.ReasonCatchingUp {
		t.Errorf("got %s, want catching_up", why)
	}
}
