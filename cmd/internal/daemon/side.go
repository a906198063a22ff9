package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// side is a listener beside those that answer questions: profiles on a local port,
// metrics where there is no HTTP API, or where they are to be read apart from it.
type side struct {
	what   string
	ln     net.Listener
	server *http.Server
}

func openSide(what, addr string, h http.Handler) (*side, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", what, err)
	}
	return &side{what, ln, &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}}, nil
}

// openSides opens those that the configuration names.
func (d *Daemon) openSides(o Options) error {
	if addr := d.Config.Listen.Pprof; addr != "" {
		s, err := openSide("profiles", addr, profiles())
		if err != nil {
			return err
		}
		d.sides = append(d.sides, s)
	}
	if addr := d.Config.Listen.Metrics; addr != "" && o.Metrics != nil {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", o.Metrics(d))
		s, err := openSide("metrics", addr, mux)
		if err != nil {
			return err
		}
		d.sides = append(d.sides, s)
	}
	return nil
}

func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

func (s *side) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.server.Close() })
	defer stop()
	if err := s.server.Serve(s.ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.what, err)
	}
	return nil
}

func (s *side) close() error {
	if err := s.ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
