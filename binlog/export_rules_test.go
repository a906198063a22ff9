package binlog

import (
	"context"
	"errors"

	"tidegate/cdc/event"
	"tidegate/cdc/key"
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
		b.close()
		return nil, err
	}
	return &Prober{b, l}, nil
}

// Probe looks once, without waiting in the server.
func (p *Prober) Probe(ctx context.Context) (Probe, error) { return p.link.probe(ctx, probeRequest{}) }

// Close ends both connections.
func (p *Prober) Close() error {
	p.backend.close()
	return p.link.close()
}

// Excluded returns which of the tables, (schema, table) as the primary has them, a
// server is excluded for by its configuration, and its role as if the primary were
// not there.
func Excluded(ctx context.Context, cfg ServerConfig, tables [][2]string) (excluded [][2]string, role event.Role, err error) {
	b, err := newSQLBackend(&cfg)
	if err != nil {
		return nil, 0, err
	}
	defer b.close()
	f, err := b.facts(ctx)
	if err != nil {
		return nil, 0, err
	}
	own, err := b.tables(ctx)
	if err != nil {
		return nil, 0, err
	}
	var known []event.TableDefinition
	for _, n := range tables {
		known = append(known, event.TableDefinition{Definition: key.Definition{Schema: n[0], Table: n[1]}})
	}
	h := key.NewHasher(key.Secret{1})
	v := excludeTables(f.rules(), own, known, h, f.lowerCase != 0)
	for _, n := range tables {
		for _, d := range v.digests {
			if d == h.Table(n[0], n[1]).AnyRow {
				excluded = append(excluded, n)
			}
		}
	}
	return excluded, decideRole(roleInput{writable: !f.readOnly, facts: f}).role, nil
}

// FileEnds names how each binlog file but the last ends, oldest first, and compares
// where the list of files says that the last one ends with where the server writes.
func FileEnds(ctx context.Context, cfg ServerConfig) (ends []string, listed, written uint64, err error) {
	b, err := newSQLBackend(&cfg)
	if err != nil {
		return nil, 0, 0, err
	}
	defer b.close()
	l, err := b.pin(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	run, err := l.run(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	for i := range len(run.Files) - 1 {
		kind, err := l.fileEnd(ctx, run.Files[i], run.Files[i+1])
		if err != nil {
			return nil, 0, 0, err
		}
		ends = append(ends, kind)
	}
	f, err := b.facts(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	return ends, run.Files[len(run.Files)-1].Size, f.binlogFile.Pos, nil
}
