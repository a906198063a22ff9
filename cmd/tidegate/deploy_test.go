package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tidegate/cmd/internal/config"
)

// unit reads the [Service] settings of a systemd unit.
func unit(t *testing.T, text string) map[string]string {
	t.Helper()
	out, section := map[string]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = line
		case !ok:
			t.Errorf("the unit has a line without a value: %q", line)
		case section == "[Service]":
			if _, twice := out[name]; twice {
				t.Errorf("%s is set twice", name)
			}
			out[name] = value
		}
	}
	return out
}

// The unit and the configuration in deploy/ fit each other and the program: what
// the unit starts is a command line that runs with that configuration, which
// keeps its data where the unit lets it write, and takes from the environment
// only what the unit says to put there.
func TestDeploy(t *testing.T) {
	const (
		binary      = "/usr/local/bin/tidegate"
		installed   = "/etc/tidegate/tidegate.yaml"
		environment = "/etc/tidegate/environment"
		variable    = "TIDEGATE_MYSQL_PASSWORD"
	)
	sample := filepath.Join(root, "deploy", "tidegate.yaml")
	text, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	service, err := os.ReadFile(filepath.Join(root, "deploy", "tidegate.service"))
	if err != nil {
		t.Fatal(err)
	}
	u := unit(t, string(service))

	var asked []string
	cfg, err := config.Load(sample, func(name string) (string, bool) {
		asked = append(asked, name)
		return "secret", true
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(asked)
	if asked = slices.Compact(asked); !slices.Equal(asked, []string{variable}) {
		t.Errorf("the configuration asks the environment for %v, want %s alone", asked, variable)
	}
	for _, s := range cfg.Servers {
		if s.Password.Reveal() != "secret" {
			t.Errorf("server %s takes its password from elsewhere", s.Name)
		}
	}
	for name, want := range map[string]string{
		"StateDirectory": filepath.Base(cfg.DataDir), "WorkingDirectory": cfg.DataDir, "EnvironmentFile": "-" + environment,
		"ExecStartPre": binary + " config -c " + installed, "ExecStart": binary + " run -c " + installed,
	} {
		if u[name] != want {
			t.Errorf("the unit's %s is %q, want %q", name, u[name], want)
		}
	}
	if cfg.DataDir != "/var/lib/"+u["StateDirectory"] {
		t.Errorf("data_dir %s is not the unit's StateDirectory %s", cfg.DataDir, u["StateDirectory"])
	}
	if !strings.Contains(string(service), variable+"=") || !strings.Contains(string(text), environment) {
		t.Errorf("it is not told that %s comes from %s", variable, environment)
	}

	// The unit's command lines, with the sample where it is to be installed: first
	// as it is, then on addresses of this machine where nothing answers.
	p := newPlace(t)
	command := func(name, file string) []string {
		argv := strings.Fields(u[name])
		for i, arg := range argv {
			if arg == installed {
				argv[i] = file
			}
		}
		return argv[1:]
	}
	p.callWith(t, []string{variable + "=secret"}, command("ExecStartPre", p.file(t, "sample.yaml", string(text)))...).want(t, exitOK)
	if r := p.call(t, command("ExecStartPre", filepath.Join(p.dir, "sample.yaml"))...).want(t, exitUsage); !strings.Contains(r.err, variable) {
		t.Errorf("without the variable: %s", r.err)
	}
	local := strings.NewReplacer(cfg.DataDir, filepath.Join(p.dir, "data"), ":7400", ":0", ":7401", ":0").Replace(string(text))
	local = regexp.MustCompile(`"10\.0\.0\.(\d):3306"`).ReplaceAllString(local, `"127.0.0.$1:1"`)
	t.Setenv(variable, "secret")
	r := p.start(t, command("ExecStart", p.file(t, "local.yaml", local))...)
	r.until("it answers", func() bool {
		return strings.Contains(r.err.String(), "answering over HTTP") && strings.Contains(r.err.String(), "answering over RESP")
	})
	r.end(syscall.SIGTERM).want(t, exitOK)
	if got := listing(t, p.dir); got != "data local.yaml sample.yaml" {
		t.Errorf("it made %s", got)
	}
}
