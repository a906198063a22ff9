package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Port is a loopback port that this process holds for a server, also while the
// server is down: other sandboxes on the machine leave it alone.
type Port struct {
	// Number is the port.
	Number int

	lock *os.File
}

// ReservePort picks a free loopback port for a server that the caller will run.
// It lies outside the range that the kernel takes for outgoing connections. The
// caller releases it; the end of this process does too.
func ReservePort() (*Port, error) {
	cacheDir, err := Provisioning{}.cacheDir()
	if err != nil {
		return nil, err
	}
	return reservePort(cacheDir)
}

// Addr is the port on loopback, as "127.0.0.1:15003".
func (p *Port) Addr() string { return net.JoinHostPort(loopback, strconv.Itoa(p.Number)) }

// Release lets others have the port. It may be called twice.
func (p *Port) Release() { _ = p.lock.Close() }

const loopback = "127.0.0.1"

// lowestPort keeps clear of ports that machines commonly use.
const lowestPort = 15000

// reservePort picks a free port below the range from which the kernel takes
// ports for outgoing connections: within that range, a server that is down for
// a moment could lose its port to somebody's connection. The lock file lies in
// the cache folder; the kernel frees it when this process dies.
func reservePort(cacheDir string) (*Port, error) {
	dir := filepath.Join(cacheDir, "ports")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of port locks: %w", err)
	}
	top := ephemeralStart()
	for range 400 {
		number := lowestPort + rand.IntN(top-lowestPort)
		f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(number)), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, fmt.Errorf("open port lock: %w", err)
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && portFree(number) {
			return &Port{Number: number, lock: f}, nil
		}
		_ = f.Close()
	}
	return nil, errors.New("no free loopback port found")
}

func portFree(number int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(number)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func ephemeralStart() int {
	const usual = 32768
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return usual
	}
	fields := strings.Fields(string(data))
	if len(fields) != 2 {
		return usual
	}
	low, err := strconv.Atoi(fields[0])
	if err != nil || low < lowestPort+1000 {
		return usual // a machine that hands out nearly everything: nothing is better than the usual range
	}
	return low
}
