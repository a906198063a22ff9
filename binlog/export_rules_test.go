package binlog

import (
	"context"
	"errors"
)

// Prober sends the monitor's own probe over a pinned connection. One goroutine
// uses it.
type Prober struct {
	backend *sqlBackend
	link    link
}

// NewProber connects to a server. The caller closes it.
func NewProber(ctx context.Context, cfg ServerConfig) (*Prober, error) {
	b, err := newSQLBackend(&cfg)
	if err != nil {
		return nil, err
	}
	l, err := b.pin(ctx)
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return &Prober{b, l}, nil
}

// Probe looks once, without waiting in the server.
func (p *Prober) Probe(ctx context.Context) (Probe, error) { return p.link.probe(ctx, probeRequest{}) }

// Close ends both connections.
func (p *Prober) Close() error { return errors.Join(p.link.close(), p.backend.close()) }

// ParseOwned reads @@global.gtid_owned.
var ParseOwned = parseOwned
