package testenv_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tidegate/testenv"
	"tidegate/testenv/testenvtest"
)

func TestChosenServer(t *testing.T) {
	ctx := testenvtest.Context(t, testenvtest.StartTimeout)
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
		return path
	}
	says := func(name, version string) string { return script(name, "echo '"+version+"'") }
	for _, tt := range []struct{ name, path, want string }{
		{"missing", filepath.Join(dir, "absent"), "no such file"},
		{"folder", dir, "that is a folder"},
		{"not executable", func() string {
			path := script("plain", "")
			must(t, os.Chmod(path, 0o644))
			return path
		}(), "permission denied"},
		{"fails", script("fails", "echo broken >&2; exit 7"), "broken"},
		{"nonsense", says("nonsense", "hello"), "cannot read a version"},
		{"mariadb", says("mariadb", "mariadbd  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu"), "MariaDB"},
		{"5.7", says("old", "mysqld  Ver 5.7.44 for Linux on x86_64 (MySQL Community Server)"), "older than 8.0.26"},
		{"8.0.25", says("older", "/usr/sbin/mysqld  Ver 8.0.25 for Linux on x86_64"), "older than 8.0.26"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(testenv.EnvMySQLD, tt.path)
			_, err := testenv.FindMySQL(ctx, testenv.Provisioning{})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), testenv.EnvMySQLD) {
				t.Errorf("error %v, want one that says %q and names %s", err, tt.want, testenv.EnvMySQLD)
			}
		})
	}
	for _, tt := range []struct {
		text, version string
		at, below     [3]int
	}{
		{"mysqld  Ver 8.0.26 for Linux", "8.0.26", [3]int{8, 0, 26}, [3]int{8, 0, 27}},
		{"/x/mysqld  Ver 8.4.10-0ubuntu0.25.04.1 for Linux on x86_64 ((Ubuntu))", "8.4.10", [3]int{8, 4, 9}, [3]int{9, 0, 0}},
		{"mysqld  Ver 9.7.4-2 for Linux on aarch64 ((Debian))", "9.7.4", [3]int{8, 9, 9}, [3]int{9, 8, 0}},
	} {
		t.Run(tt.version, func(t *testing.T) {
			path := says("good", tt.text)
			t.Setenv(testenv.EnvMySQLD, path)
			m, err := testenv.FindMySQL(ctx, testenv.Provisioning{})
			must(t, err)
			if m.Version != tt.version || !strings.Contains(m.Origin, path) {
				t.Errorf("version %s from %s, want %s from %s", m.Version, m.Origin, tt.version, path)
			}
			if !m.AtLeast(tt.at[0], tt.at[1], tt.at[2]) || m.AtLeast(tt.below[0], tt.below[1], tt.below[2]) {
				t.Errorf("%s: wrong order against %v and %v", m.Version, tt.at, tt.below)
			}
		})
	}
	t.Run("own programs of the others", func(t *testing.T) {
		for name, start := range map[string]func() error{
			testenv.EnvRedis: func() error { _, err := testenv.StartRedis(ctx, testenv.RedisOptions{}); return err },
			testenv.EnvNATS:  func() error { _, err := testenv.StartNATS(ctx, testenv.NATSOptions{}); return err },
		} {
			t.Setenv(name, filepath.Join(dir, "absent"))
			if err := start(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%v, want an error that names %s", err, name)
			}
			t.Setenv(name, script("ends", fmt.Sprintf("echo reason of %s; exit 3", name)))
			if err := start(); err == nil || !strings.Contains(err.Error(), "reason of "+name) {
				t.Errorf("%v, want what the program said", err)
			}
		}
	})
}
