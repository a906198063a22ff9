package testenv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tidegate/testenv/provision"
)

// initArgs make a small data folder. What is fixed at initialisation must fit
// serverArgs.
func initArgs() []string {
	return []string{
		"--initialize-insecure", "--mysqlx=OFF", "--skip-log-bin",
		"--innodb-redo-log-capacity=8388608", "--innodb-buffer-pool-size=67108864",
		"--innodb-log-buffer-size=1048576", "--innodb-flush-log-at-trx-commit=0",
		"--secure-file-priv=", "--log-error-verbosity=2", doublewritePages,
	}
}

// template returns the folder of an initialised data folder for m, from the
// cache or made now; more are options that it is initialised with besides. It is read-only for its users.
func template(ctx context.Context, m *MySQL, g *guard, p Provisioning, more []string) (string, error) {
	cache, err := p.cacheDir()
	if err != nil {
		return "", err
	}
	sql, args := accountsSQL(), append(initArgs(), more...)
	digest := sha256.New()
	fmt.Fprintln(digest, m.Version, m.path, strings.Join(args, " "), sql)
	if m.root != nil {
		fmt.Fprintln(digest, strings.Join(m.root.Packages, " "))
	}
	name := "mysql-" + m.Version + "-" + hex.EncodeToString(digest.Sum(nil))[:12]
	dir := filepath.Join(cache, "templates", name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	unlock, err := provision.Lock(ctx, filepath.Join(cache, "locks", name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if p.Progress != nil {
		p.Progress("initialise a data folder", 0, 1)
	}
	if err := initialise(ctx, m, g, cache, name, sql, args); err != nil {
		return "", fmt.Errorf("initialise a data folder for MySQL %s: %w", m.Version, err)
	}
	if p.Progress != nil {
		p.Progress("initialise a data folder", 1, 1)
	}
	return dir, nil
}

func initialise(ctx context.Context, m *MySQL, g *guard, cache, name, sql string, args []string) error {
	work := filepath.Join(cache, "work", name)
	if err := os.RemoveAll(work); err != nil { // left by a process that died
		return err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	initFile, data, logFile := filepath.Join(work, "accounts.sql"), filepath.Join(work, "data"), filepath.Join(work, "log")
	if err := os.WriteFile(initFile, []byte(sql), 0o644); err != nil {
		return err
	}
	argv := m.command(append(args, "--datadir="+data, "--init-file="+initFile)...)
	p, err := startRun(g, argv, nil, work, logFile)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.kill())
	}
	if err := p.result(); err != nil {
		return fmt.Errorf("%w: %s", err, logTail(logFile, 8))
	}
	// Each copy is a server of its own.
	if err := os.Remove(filepath.Join(data, "auto.cnf")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	place := filepath.Join(cache, "templates", name)
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return err
	}
	return os.Rename(data, place)
}

// copyTree copies a folder of plain files. Files of one byte value throughout
// are common in InnoDB's; holes are kept where the kernel copies in place.
func copyTree(ctx context.Context, from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o750)
		case d.Type().IsRegular():
			return copyFile(path, target)
		default:
			return nil // sockets and the like belong to the run that made them
		}
	})
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		return errors.Join(fmt.Errorf("copy %s: %w", from, err), dst.Close())
	}
	return dst.Close()
}
