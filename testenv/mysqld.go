package testenv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"tidegate/testenv/provision"
)

// EnvMySQLD names the environment variable that points at a mysqld of the
// user's own. It comes before everything else.
const EnvMySQLD = "TIDEGATE_MYSQLD"

// howToPoint ends every error about a missing server.
const howToPoint = "set " + EnvMySQLD + " to the path of a mysqld 8.0.26 or newer to use that one"

// Provisioning says where packages go and who hears about it. The zero value
// works.
type Provisioning struct {
	// CacheDir is the cache folder; empty: TIDEGATE_CACHE, else the user's own.
	CacheDir string
	// Progress may be nil. Calls come from one goroutine at a time.
	Progress provision.Progress
	// Logger may be nil.
	Logger *slog.Logger
}

func (p Provisioning) options() provision.Options {
	return provision.Options{CacheDir: p.CacheDir, Progress: p.Progress, Logger: p.Logger}
}

func (p Provisioning) cacheDir() (string, error) {
	if p.CacheDir != "" {
		return filepath.Abs(p.CacheDir)
	}
	return provision.CacheDir()
}

// mysqlSet is MySQL as Debian and Ubuntu ship it: Debian in its unstable suite
// only (stable has MariaDB), Ubuntu in each release.
func mysqlSet() provision.Set {
	return provision.Set{
		Name:  "mysql",
		Needs: []string{"usr/sbin/mysqld", "usr/share/mysql"},
		Candidates: []provision.Candidate{
			{Distro: "ubuntu", Packages: []string{"mysql-server-core", "mysql-client-core"}},
			{Distro: "ubuntu", Packages: []string{"mysql-server-core-8.4", "mysql-client-core-8.4"}},
			{Distro: "ubuntu", Packages: []string{"mysql-server-core-8.0", "mysql-client-core-8.0"}},
			{Distro: "debian", Suite: "sid", Packages: []string{"mysql-server-core", "mysql-client-core"}},
		},
	}
}

// MySQL is a MySQL server program that can be run. It is immutable.
type MySQL struct {
	// Version is the server's version, as "9.7.4".
	Version string
	// Origin says where it was found, for people: TIDEGATE_MYSQLD=..., the
	// cache, or PATH.
	Origin string

	root  *provision.Root // nil for a program of the machine's own
	path  string          // the program, when root is nil
	major int
	minor int
	patch int
}

// AtLeast says whether the version is major.minor.patch or newer.
func (m *MySQL) AtLeast(major, minor, patch int) bool {
	if m.major != major {
		return m.major > major
	}
	if m.minor != minor {
		return m.minor > minor
	}
	return m.patch >= patch
}

// command is the command line of mysqld with the options that depend on where
// the program lies, then args.
func (m *MySQL) command(args ...string) []string {
	var argv []string
	if m.root == nil {
		argv = []string{m.path, "--no-defaults"}
	} else {
		argv = m.root.Command("usr/sbin/mysqld", "--no-defaults",
			"--basedir="+m.root.Path("usr"),
			"--lc-messages-dir="+m.root.Path("usr/share/mysql"),
			"--character-sets-dir="+m.root.Path("usr/share/mysql/charsets"),
			"--plugin-dir="+m.root.Path("usr/lib/mysql/plugin"))
	}
	if os.Geteuid() == 0 {
		argv = append(argv, "--user=root") // mysqld refuses to run as root unless told
	}
	return append(argv, args...)
}

// Client is the command line of a mysql client that runs on this machine: the
// one on PATH, else the one that came with the server. It is empty when there is
// none.
func (m *MySQL) Client() []string {
	if _, err := exec.LookPath("mysql"); err == nil {
		return []string{"mysql"}
	}
	const client = "usr/bin/mysql"
	if m.root == nil {
		return nil
	}
	if _, err := os.Stat(m.root.Path(client)); err != nil {
		return nil
	}
	return m.root.Command(client)
}

// FindMySQL looks for a server: TIDEGATE_MYSQLD, the cache, provisioning, and
// mysqld on PATH when it is MySQL of a version that the sandbox can use. It
// blocks while packages are fetched. The error says which step failed and how
// to point at a server.
func FindMySQL(ctx context.Context, p Provisioning) (*MySQL, error) {
	if path := os.Getenv(EnvMySQLD); path != "" {
		m, err := ownMySQL(ctx, path, EnvMySQLD+"="+path)
		if err != nil {
			return nil, fmt.Errorf("use %s=%q: %w", EnvMySQLD, path, err)
		}
		return m, nil
	}
	root, err := provision.Ensure(ctx, mysqlSet(), p.options())
	if err == nil {
		m := &MySQL{root: root, Origin: "packages in " + root.Dir}
		if err = m.readVersion(ctx); err == nil {
			return m, nil
		}
		err = fmt.Errorf("run the provisioned mysqld: %w", err)
	}
	if ctx.Err() != nil {
		return nil, err
	}
	path, lookErr := exec.LookPath("mysqld")
	if lookErr != nil {
		return nil, fmt.Errorf("%w; then looked for mysqld on PATH: none; %s", err, howToPoint)
	}
	m, pathErr := ownMySQL(ctx, path, "PATH: "+path)
	if pathErr != nil {
		return nil, fmt.Errorf("%w; then tried mysqld on PATH: %w; %s", err, pathErr, howToPoint)
	}
	return m, nil
}

func ownMySQL(ctx context.Context, path, origin string) (*MySQL, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, errors.New("that is a folder; the path of the program mysqld is needed")
	}
	m := &MySQL{path: abs, Origin: origin}
	return m, m.readVersion(ctx)
}

var versionPattern = regexp.MustCompile(`Ver (\d+)\.(\d+)\.(\d+)(\S*)`)

// versionTimeout bounds "mysqld --version", which opens no file of data.
const versionTimeout = 20 * time.Second

func (m *MySQL) readVersion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	argv := m.command("--version")
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("run mysqld --version: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return m.parseVersion(string(out))
}

// parseVersion reads what "mysqld --version" printed.
func (m *MySQL) parseVersion(text string) error {
	text = strings.TrimSpace(text)
	if strings.Contains(text, "MariaDB") {
		return fmt.Errorf("this is MariaDB (%s), not MySQL", text)
	}
	found := versionPattern.FindStringSubmatch(text)
	if found == nil {
		return fmt.Errorf("cannot read a version in %q", text)
	}
	m.major, _ = strconv.Atoi(found[1])
	m.minor, _ = strconv.Atoi(found[2])
	m.patch, _ = strconv.Atoi(found[3])
	m.Version = fmt.Sprintf("%d.%d.%d", m.major, m.minor, m.patch)
	if !m.AtLeast(8, 0, 26) {
		return fmt.Errorf("version %s is older than 8.0.26, the first with every replication statement that the sandbox uses", m.Version)
	}
	return nil
}
