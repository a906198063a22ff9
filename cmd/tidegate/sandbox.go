package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"tidegate/cmd/internal/progress"
	"tidegate/testenv"
)

// sandboxServer is one server in the output of sandbox --json.
type sandboxServer struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"`
	Socket string `json:"socket"`
	Role   string `json:"role"` // at the start
}

func sandboxCommand() *cobra.Command {
	var replicas int
	var chain, asJSON bool
	var dir string
	c := &cobra.Command{
		Use:   "sandbox",
		Short: "Start real MySQL servers to play with, and print a configuration for them",
		Long: `Starts a primary and replicas on free loopback ports (MySQL is fetched into the
cache folder the first time; no root is needed), prints a configuration that
fits them, and keeps them running until Ctrl-C. Nothing stays behind but the
cache, and what --dir names. The table app.posts has rows 1 to 100 to ask for;
the head of the configuration says how to write, and how to make a replica lag.`,
		Example: `  tidegate sandbox > tidegate.yaml    # and, once it says that the servers are up, elsewhere:
  tidegate run -c tidegate.yaml`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := inRange(cmd, "replicas", replicas, 0, 25); err != nil {
				return err
			}
			if err := emptyFolder(cmd, dir); err != nil {
				return err
			}
			ctx := cmd.Context()
			bar := progress.New(os.Stderr)
			servers, err := testenv.Start(ctx, testenv.Options{
				Provisioning: testenv.Provisioning{Progress: bar.Step},
				Servers:      replicas + 1, Chain: chain, Dir: dir,
			})
			bar.Done()
			if err == nil {
				err = fillSandbox(ctx, servers)
			}
			if ctx.Err() != nil {
				// Told to end before there was anything: why the start broke off
				// says nothing more.
				return errors.Join(errEarly, closeIfOpen(servers))
			}
			if err != nil {
				return errors.Join(fmt.Errorf("sandbox: %w", err), closeIfOpen(servers))
			}
			if asJSON {
				err = printSandboxJSON(cmd.OutOrStdout(), servers)
			} else {
				printSandboxConfig(cmd.OutOrStdout(), servers)
			}
			if err == nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "the servers are up; Ctrl-C ends them")
				<-ctx.Done()
			}
			if closeErr := servers.Close(); err == nil {
				err = closeErr
			}
			return err
		},
	}
	c.Flags().IntVar(&replicas, "replicas", 2, "`NUMBER` of replicas, 0 to 25")
	c.Flags().BoolVar(&chain, "chain", false, "each replica follows the one before it instead of the primary")
	c.Flags().StringVar(&dir, "dir", "", "keep the servers' folders in `FOLDER`, which must be empty or new (default: a temporary folder, removed at the end)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON instead of a configuration")
	return c
}

// emptyFolder refuses a folder with files in it: servers of an earlier sandbox
// have other tables, other sources and other ports than this one is told to make.
func emptyFolder(c *cobra.Command, dir string) error {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return usagef("%s: --dir: %w", c.CommandPath(), err)
	case len(entries) == 0:
		return nil
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name(), "data", "auto.cnf")); err == nil {
			return usagef("%s: --dir: %s holds the servers of an earlier sandbox: name another folder, or remove it first", c.CommandPath(), dir)
		}
	}
	return usagef("%s: --dir: %s is not empty (it holds %s): name a new folder", c.CommandPath(), dir, entries[0].Name())
}

// errEarly: a signal came before the servers were up.
var errEarly = errors.New("sandbox: ended before the servers were up")

func closeIfOpen(c *testenv.Cluster) error {
	if c == nil {
		return nil
	}
	return c.Close()
}

func printSandboxJSON(w io.Writer, c *testenv.Cluster) error {
	var out struct {
		Version  string          `json:"version"`
		User     string          `json:"user"`
		Password string          `json:"password"`
		Servers  []sandboxServer `json:"servers"`
	}
	out.Version, out.User, out.Password = c.MySQL.Version, testenv.TidegateUser, testenv.TidegatePassword
	for _, s := range c.Servers() {
		role := "replica"
		if s == c.Primary() {
			role = "primary"
		}
		out.Servers = append(out.Servers, sandboxServer{s.Name(), s.Addr(), s.Socket(), role})
	}
	return json.NewEncoder(w).Encode(out)
}

// sandboxRows makes the table that every example asks for.
const sandboxRows = `CREATE TABLE app.posts (id BIGINT PRIMARY KEY, author_id BIGINT, title VARCHAR(200), KEY (author_id));
INSERT INTO app.posts WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT i, i % 10, CONCAT('post ', i) FROM n`

// fillSandbox gives the servers something to ask for.
func fillSandbox(ctx context.Context, c *testenv.Cluster) error {
	if err := c.Primary().Exec(ctx, sandboxRows); err != nil {
		return err
	}
	return c.WaitInSync(ctx)
}

func printSandboxConfig(w io.Writer, c *testenv.Cluster) {
	fmt.Fprintf(w, "# MySQL %s; primary: %s. Save as tidegate.yaml, then: tidegate run -c tidegate.yaml\n", c.MySQL.Version, c.Primary().Name())
	client := c.MySQL.Client()
	if len(client) > 1 {
		fmt.Fprintf(w, "# No mysql client is on PATH; one came with the servers:\n#   alias mysql='%s'\n", strings.Join(client, " "))
	}
	connect := func(s *testenv.Server, account string) string {
		return fmt.Sprintf("mysql --protocol=tcp -h 127.0.0.1 -P %d %s %s", s.Port(), account, testenv.AppDatabase)
	}
	fmt.Fprintf(w, "# Write as an application (the table posts has rows 1 to 100):\n#   %s\n", connect(c.Primary(), "-u "+testenv.AppUser+" -p"+testenv.AppPassword))
	if replicas := c.Replicas(); len(replicas) > 0 {
		s := replicas[0]
		fmt.Fprintf(w, "# Let %s lag (root has no password here; START REPLICA ends it):\n#   %s -e 'STOP REPLICA SQL_THREAD'\n", s.Name(), connect(s, "-u root"))
	}
	fmt.Fprintf(w, "# Ctrl-C where the sandbox runs ends the servers.\ncluster: sandbox\ndata_dir: ./tidegate-data\nkeys: {app.posts: [author_id]}\nservers:\n")
	for _, s := range c.Servers() {
		fmt.Fprintf(w, "  - {name: %s, addr: %q, user: %s, password: %s}\n", s.Name(), s.Addr(), testenv.TidegateUser, testenv.TidegatePassword)
	}
}
