package binlog

import (
	"context"
	"database/sql"
	"errors"
)

// PinAgain pins n times, one after another, to a server of whose pool of
// connections idle ones are there already. It returns the numbers of the idle
// connections and those of the pinned ones.
func PinAgain(ctx context.Context, cfg ServerConfig, idle, n int) (idles, pins []uint64, err error) {
	b, err := newSQLBackend(&cfg)
	if err != nil {
		return nil, nil, err
	}
	defer b.close()
	held := make([]*sql.Conn, idle)
	idles = make([]uint64, idle)
	for i := range held {
		if held[i], err = b.db.Conn(ctx); err != nil {
			return nil, nil, err
		}
		if err := held[i].QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&idles[i]); err != nil {
			return nil, nil, err
		}
	}
	for _, c := range held {
		if err := c.Close(); err != nil {
			return nil, nil, err
		}
	}
	for range n {
		l, err := b.pin(ctx)
		if err != nil {
			return nil, nil, err
		}
		f, err := l.run(ctx)
		if err := errors.Join(err, l.close()); err != nil {
			return nil, nil, err
		}
		pins = append(pins, f.ConnectionID)
	}
	return idles, pins, nil
}

// TriedKeys tells whether the tables under keys: were looked up, in vain or not.
func TriedKeys(in *Inspection) bool { return in.looked != nil || in.lookErr != nil }
