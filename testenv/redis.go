package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tidegate/testenv/provision"
)

// EnvRedis names the environment variable that points at a redis-server of the
// user's own, with redis-cli beside it. It comes before everything else.
const EnvRedis = "TIDEGATE_REDIS_SERVER"

// RedisOptions say how a Redis is run. The zero value keeps nothing over a
// restart and asks for no password.
type RedisOptions struct {
	Provisioning

	// Dir is its folder, kept at the end; empty: a temporary one.
	Dir string
	// Password is what clients must give (as the default user); may be empty.
	Password string
	// Durable keeps every acknowledged write over a kill (append-only file,
	// fsync at each write).
	Durable bool
	// Args are further options ("--maxmemory", "1mb"), after the sandbox's own.
	Args []string
}

// Redis is one redis-server with its own folder and port, which it keeps
// through stops, kills and starts.
type Redis struct {
	*Process

	port     *Port
	password string
	cli      []string
}

func redisSet() provision.Set {
	return provision.Set{
		Name:       "redis",
		Needs:      []string{"usr/bin/redis-server", "usr/bin/redis-cli"},
		Candidates: []provision.Candidate{{Packages: []string{"redis-server", "redis-tools"}}},
	}
}

// findRedis returns the command lines of redis-server and redis-cli:
// TIDEGATE_REDIS_SERVER, the cache, provisioning, then PATH.
func findRedis(ctx context.Context, p Provisioning) (server, cli []string, err error) {
	if path := os.Getenv(EnvRedis); path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, nil, err
		}
		if _, err := exec.LookPath(abs); err != nil {
			return nil, nil, fmt.Errorf("use %s=%q: %w", EnvRedis, path, err)
		}
		return []string{abs}, []string{filepath.Join(filepath.Dir(abs), "redis-cli")}, nil
	}
	root, err := provision.Ensure(ctx, redisSet(), p.options())
	if err == nil {
		return root.Command("usr/bin/redis-server"), root.Command("usr/bin/redis-cli"), nil
	}
	path, lookErr := exec.LookPath("redis-server")
	if lookErr != nil {
		return nil, nil, fmt.Errorf("%w; then looked for redis-server on PATH: none; set %s to the path of one", err, EnvRedis)
	}
	return []string{path}, []string{filepath.Join(filepath.Dir(path), "redis-cli")}, nil
}

// StartRedis starts a Redis, provisioning it where that is needed, and returns
// when it answers. The caller closes it.
func StartRedis(ctx context.Context, opts RedisOptions) (*Redis, error) {
	server, cli, err := findRedis(ctx, opts.Provisioning)
	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	cacheDir, err := opts.cacheDir()
	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	if err := makeFolder(opts.Dir); err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	port, err := reservePort(cacheDir)
	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	r := &Redis{port: port, password: opts.Password, cli: cli}
	r.Process, err = NewProcess(Program{Name: "redis", Argv: server, Dir: opts.Dir, Ready: r.ping})
	if err != nil {
		port.Release()
		return nil, fmt.Errorf("start redis: %w", err)
	}
	r.SetArgv(append(server, r.args(opts)...)...)
	if err := r.Start(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// makeFolder makes a folder of the caller's choice; "" is none.
func makeFolder(dir string) error {
	if dir == "" {
		return nil
	}
	return os.MkdirAll(dir, 0o755)
}

func (r *Redis) args(opts RedisOptions) []string {
	args := []string{
		"--port", strconv.Itoa(r.port.Number), "--bind", loopback, "--dir", r.Dir(),
		"--daemonize", "no", "--save", "", "--tcp-backlog", "128",
	}
	if opts.Durable {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	} else {
		args = append(args, "--appendonly", "no")
	}
	if opts.Password != "" {
		args = append(args, "--requirepass", opts.Password)
	}
	return append(args, opts.Args...)
}

// Addr is host:port on loopback; it stays the same.
func (r *Redis) Addr() string { return r.port.Addr() }

// Port is the port of Addr.
func (r *Redis) Port() int { return r.port.Number }

// CLI is the command line of a redis-cli that talks to this server, with args.
func (r *Redis) CLI(args ...string) []string { return RedisCLI(r.cli, r.Addr(), r.password, args...) }

// RedisCLI is the command line of a redis-cli, given as its own command line,
// that talks to addr ("host:port"): Redis, or another server of its protocol.
func RedisCLI(cli []string, addr, password string, args ...string) []string {
	host, port, _ := strings.Cut(addr, ":")
	argv := append(append([]string(nil), cli...), "-h", host, "-p", port)
	if password != "" {
		argv = append(argv, "--no-auth-warning", "-a", password)
	}
	return append(argv, args...)
}

// FindRedisCLI is the command line of a redis-cli, provisioned where that is
// needed, for [RedisCLI].
func FindRedisCLI(ctx context.Context, p Provisioning) ([]string, error) {
	_, cli, err := findRedis(ctx, p)
	return cli, err
}

// pingTimeout bounds one question to a server that starts.
const pingTimeout = time.Second

// ping asks whether the server answers; one that wants a password does.
func (r *Redis) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	line, err := ask(ctx, r.Addr(), "PING\r\n")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "+PONG") && !strings.HasPrefix(line, "-NOAUTH") {
		return fmt.Errorf("redis says %q", strings.TrimSpace(line))
	}
	return nil
}

// ask connects, sends a question, and returns the first line that comes.
func ask(ctx context.Context, addr, question string) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := conn.Write([]byte(question)); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

// Close kills it and removes its temporary folder. It may be called twice.
func (r *Redis) Close() error {
	err := r.Process.Close()
	r.port.Release()
	return err
}
