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

// port is a loopback port that this process holds for a server, also while the
// server is down: other sandboxes on the machine leave it alone.
type port struct {
	number int
	lock   *os.File
}

// lowestPort keeps clear of ports that machines commonly use.
const lowestPort = 15000

// reservePort picks a free port below the range from which the kernel takes
// ports for outgoing connections: within that range, a server that is down for
// a moment could lose its port to somebody's connection. The lock file lies in
// the cache folder; the kernel frees it when this process dies.
func reservePort(cacheDir string) (*port, error) {
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
			return &port{number: number, lock: f}, nil
		}
		_ = f.Close()
	}
	return nil, errors.New("no free loopback port found")
}

func (p *port) release() { _ = p.lock.Close() }

func portFree(number int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(number)))
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
