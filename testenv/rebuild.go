package testenv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// WipeAndRebuildFrom throws away the server's data and gives it other's, as an
// operator restores a replica from a backup: behind the same address, with
// other's executed set (older than its own when other lags), with no binlog of
// before. newUUID says whether it comes back with a new server_uuid or with the
// one it had. It replicates from where it replicated before; a server that
// never did stands alone, writable or not as it was.
//
// other keeps running and serving writes: its clone plugin makes a consistent
// copy in a folder beside the server's ("CLONE LOCAL DATA DIRECTORY"), which
// needs neither a second server nor a network account nor a restart under a
// supervisor, as a remote clone does. Only DDL on other waits for the copy.
// What is not InnoDB comes back empty. The server may be down before; on an
// error it is down, and a further call starts over.
func (s *Server) WipeAndRebuildFrom(ctx context.Context, other *Server, newUUID bool) error {
	if err := s.wipeAndRebuildFrom(ctx, other, newUUID); err != nil {
		return fmt.Errorf("rebuild server %s from %s: %w", s.name, other.name, err)
	}
	return nil
}

func (s *Server) wipeAndRebuildFrom(ctx context.Context, other *Server, newUUID bool) error {
	if other == s {
		return errors.New("a server cannot be rebuilt from itself")
	}
	fresh, identity := s.DataDir()+".new", filepath.Join(s.DataDir(), "auto.cnf")
	if err := os.RemoveAll(fresh); err != nil { // left by a call that failed
		return err
	}
	if err := other.Exec(ctx, "CLONE LOCAL DATA DIRECTORY = '"+strings.ReplaceAll(fresh, "'", "''")+"'"); err != nil {
		return err
	}
	if err := s.Kill(); err != nil {
		return err
	}
	uuid, err := os.ReadFile(identity)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(uuid) > 0 && !newUUID {
		if err := os.WriteFile(filepath.Join(fresh, "auto.cnf"), uuid, 0o640); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(s.DataDir()); err != nil {
		return err
	}
	if err := os.Rename(fresh, s.DataDir()); err != nil {
		return err
	}
	// The copy carries other's replication settings: nothing may start by
	// itself before they are gone.
	if err := s.startWith(ctx, "--skip-replica-start"); err != nil {
		return err
	}
	if err := s.Exec(ctx, "RESET REPLICA ALL"); err != nil {
		return err
	}
	s.mu.Lock()
	source, via := s.source, s.via
	s.mu.Unlock()
	if source == nil {
		return nil
	}
	return s.RepointTo(ctx, source, via)
}
