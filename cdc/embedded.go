package cdc

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"
)

const (
	// embeddedFolder is the store's folder inside data_dir.
	embeddedFolder = "nats"
	// clusterFile names the cluster whose streams the folder holds.
	clusterFile = "CLUSTER"
	lockFile    = "LOCK"
	// embeddedPayloadBytes is the largest message of the embedded server: states
	// with very large sets are the only ones beyond 1 MiB.
	embeddedPayloadBytes = 8 << 20
	embeddedStoreBytes   = 1 << 42 // reservations are no limit; the disk is
	embeddedReadyTimeout = 30 * time.Second
)

// embedded is a NATS server inside this process. It opens no port.
type embedded struct {
	dir  string
	sync time.Duration
	log  *slog.Logger
	lock *os.File

	mu  sync.Mutex
	srv *server.Server // nil while stopped
}

// openEmbedded claims the store under dataDir for the cluster and starts the
// server. It refuses a store of another cluster ([ErrOtherCluster]) and one
// that another process uses ([ErrStoreInUse]).
func openEmbedded(cluster, dataDir string, syncEvery time.Duration, log *slog.Logger) (*embedded, error) {
	dir := filepath.Join(dataDir, embeddedFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create embedded NATS store: %w", err)
	}
	e := &embedded{dir: dir, sync: syncEvery, log: log}
	lock, err := lockStore(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, err
	}
	e.lock = lock
	err = claimStore(filepath.Join(dir, clusterFile), cluster)
	if err == nil {
		err = e.start()
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return e, nil
}

func lockStore(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock of embedded NATS store: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%w: it holds %s; stop that process, or name another data_dir", ErrStoreInUse, path)
		} else {
			err = fmt.Errorf("lock %s of embedded NATS store: %w", path, err)
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// claimStore writes the cluster's name before the first stream, or compares it.
func claimStore(path, cluster string) error {
	got, err := os.ReadFile(path)
	if err == nil {
		if string(got) != cluster {
			return fmt.Errorf("%w: %s says %q, configured is %q; use another data_dir, or the right cluster name", ErrOtherCluster, path, got, cluster)
		}
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read cluster of embedded NATS store: %w", err)
	}
	if err := writeSynced(path, []byte(cluster)); err != nil {
		return fmt.Errorf("claim embedded NATS store: %w", err)
	}
	return nil
}

func (e *embedded) start() error {
	srv, err := server.NewServer(&server.Options{
		ServerName: "tidegate", DontListen: true, JetStream: true, StoreDir: e.dir, NoSigs: true,
		JetStreamMaxStore: embeddedStoreBytes, MaxPayload: embeddedPayloadBytes, SyncInterval: e.sync,
	})
	if err != nil {
		return fmt.Errorf("make embedded NATS server: %w", err)
	}
	var said serverLog
	srv.SetLoggerV2(&said, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(embeddedReadyTimeout) {
		srv.Shutdown()
		srv.WaitForShutdown()
		return fmt.Errorf("start embedded NATS server in %s: not ready after %v: %s", e.dir, embeddedReadyTimeout, said.complaint())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.srv = srv
	return nil
}

func (e *embedded) stop() {
	e.mu.Lock()
	srv := e.srv
	e.srv = nil
	e.mu.Unlock()
	if srv != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
}

// InProcessConn implements nats.InProcessConnProvider: each reconnect asks the
// server that runs then.
func (e *embedded) InProcessConn() (net.Conn, error) {
	e.mu.Lock()
	srv := e.srv
	e.mu.Unlock()
	if srv == nil {
		return nil, errors.New("embedded NATS server is stopped")
	}
	return srv.InProcessConn()
}

func (e *embedded) close() error {
	e.stop()
	return e.lock.Close()
}
