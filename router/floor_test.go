package router_test

import (
	"context"
	"testing"

	"tidegate/router"
	"tidegate/router/routertest"
)

// TestFloorDroppedIsTold: what nobody has holds nothing back, and the answer
// tells of it; what is there, or still on its way, is not called dropped.
func TestFloorDroppedIsTold(t *testing.T) {
	for _, tt := range []struct {
		name, floor string
		probed      bool // a probe begun after the request has come
		yes, want   bool
	}{
		{"nobody has it", "1-50:500", true, true, true},
		{"delivered", "1-50", true, true, false},
		{"being committed", "101", true, false, false},
		{"no probe since", "500", false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := routertest.Healthy(t)
			w.E = routertest.Set(t, routertest.UUIDA+":1-101")
			if tt.probed {
				w.EAt = routertest.Now
			}
			r := newRouter(t, w)
			req := router.Request{Level: router.LevelSession, Floor: routertest.Set(t, routertest.UUIDA+":"+tt.floor)}
			var ans router.Answer
			if err := r.Route(context.Background(), &req, &ans); err != nil || ans.Yes != tt.yes || ans.FloorDropped != tt.want {
				t.Errorf("got yes %v, dropped %v, %v; want %v, %v", ans.Yes, ans.FloorDropped, err, tt.yes, tt.want)
			}
		})
	}
}
