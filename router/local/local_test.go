package local_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"tidegate/cdc"
	"tidegate/router"
	"tidegate/router/local"
)

// Who is asked before anything was read says that, and not that there is no such
// server, no primary or no stream.
func TestCatchingUpAtFirst(t *testing.T) {
	conn, err := cdc.Open(t.Context(), cdc.Options{Cluster: "early", DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	for name, servers := range map[string][]router.ServerOptions{"none named": nil, "named": {{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}} {
		t.Run(name, func(t *testing.T) {
			l, err := local.Open(t.Context(), local.Options{Conn: conn, Servers: servers})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}()
			run, end := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			for _, running := range []bool{false, true} {
				if running { // on a stream without any tailer
					go func() { ended <- l.Run(run) }()
				}
				for _, level := range []router.Level{router.LevelEventual, router.LevelStrong} {
					req := router.Request{Server: "b", Level: level, MaxStaleness: time.Hour}
					var served, routed router.Answer
					if err := l.Serve(&req, &served); err != nil {
						t.Fatal(err)
					}
					req.Server = ""
					if err := l.Route(t.Context(), &req, &routed); err != nil {
						t.Fatal(err)
					}
					for what, ans := range map[string]router.Answer{"serve": served, "route": routed} {
						if ans.Yes || ans.Reason != router.ReasonCatchingUp || ans.Detail == "" || ans.Otherwise == 0 {
							t.Errorf("running %v: %s at %v: %v %v, %q, otherwise %v", running, what, level, ans.Yes, ans.Reason, ans.Detail, ans.Otherwise)
						}
					}
				}
			}
			end()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
