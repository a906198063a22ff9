package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"tidegate/binlog"
	"tidegate/cmd/internal/daemon"
)

// checkTimeout bounds the look at one server.
const checkTimeout = 30 * time.Second

// checkAtOnce bounds how many servers are looked at together, so that those that
// do not answer are waited for once and not one after another.
const checkAtOnce = 16

// checkFinding is one line of check --json.
type checkFinding struct {
	Server   string `json:"server"`
	Severity string `json:"severity"`
	What     string `json:"what"`
	Why      string `json:"why"`
	Mend     string `json:"mend,omitempty"`
}

func checkCommand() *cobra.Command {
	var file string
	var asJSON bool
	c := &cobra.Command{
		Use:   "check -c FILE",
		Short: "Say what breaks a promise on each server, and the SQL that mends it",
		Long: `Reads settings, privileges, replication and tables of every configured server
and prints what breaks or weakens a promise, why, and what mends it. It changes
nothing, and asks no router: it does not know what was accepted. The exit code is 1 when a server can not be used as it is.`,
		Example: `  tidegate check -c tidegate.yaml`,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(file)
			if err != nil {
				return err
			}
			servers, err := daemon.ServerConfigs(cfg, nil)
			if err != nil {
				return usage(fmt.Errorf("%s: %w", file, err))
			}
			findings, err := inspectAll(cmd.Context(), servers, cfg.Keys)
			if err != nil {
				return err
			}
			return printFindings(cmd.OutOrStdout(), findings, len(cfg.Servers), asJSON)
		},
	}
	addConfig(c, &file)
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON array of the findings instead of text")
	return c
}

// inspectAll looks at each server by itself and then at all beside each other.
// One that can't be reached is a finding, so that the others are seen too.
func inspectAll(ctx context.Context, servers []binlog.ServerConfig, keys map[string][]string) ([]checkFinding, error) {
	var out []checkFinding
	add := func(list []binlog.Finding) {
		for _, f := range list {
			out = append(out, checkFinding{f.Server, f.Severity.String(), f.What, f.Why, f.Mend})
		}
	}
	found, errs := make([]*binlog.Inspection, len(servers)), make([]error, len(servers))
	var g errgroup.Group
	g.SetLimit(checkAtOnce)
	for i := range servers {
		g.Go(func() error {
			found[i], errs[i] = inspect(ctx, &servers[i], keys)
			return nil
		})
	}
	_ = g.Wait() // each error is a finding
	if ctx.Err() != nil {
		// What was not looked at is not broken for that.
		return nil, errors.New("check: ended before every server was looked at")
	}
	var seen []*binlog.Inspection
	var unread []string
	for i, in := range found {
		if err := errs[i]; err != nil {
			out = append(out, checkFinding{
				Server: servers[i].Name, Severity: binlog.Broken.String(), What: "can not be reached: " + err.Error(),
				Why: "nothing can be proven of a server that does not answer",
			})
			unread = append(unread, servers[i].Name)
			continue
		}
		add(in.Findings())
		seen = append(seen, in)
	}
	add(binlog.CompareServers(seen, unread...))
	return out, nil
}

func inspect(ctx context.Context, cfg *binlog.ServerConfig, keys map[string][]string) (*binlog.Inspection, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	db, err := cfg.OpenDB()
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }() // what was read stays true
	in, err := binlog.Gather(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	in.ReadTables(ctx, db, keys)
	return in, nil
}

// promises are what findings name, in the words of whoever reads them first.
var promises = []struct{ name, text string }{
	{"P1", "a write counts as shown on a server only where a read that begins now sees it"},
	{"P2", "a yes for a key forgets no acknowledged write of it"},
	{"P3", "what is not known is a no, with a reason, never a guess"},
	{"P4", "a session does not go back in time"},
	{"P5", "no change is missing in the stream without being told"},
}

// printPromises explains the promises that findings name.
func printPromises(w io.Writer, findings []checkFinding) {
	for _, p := range promises {
		if slices.ContainsFunc(findings, func(f checkFinding) bool { return strings.Contains(f.Why, p.name) }) {
			fmt.Fprintf(w, "%s: %s\n", p.name, p.text)
		}
	}
}

// printAccepted tells why a finding that the operator has accepted comes again:
// what was accepted is kept in the stream, and servers alone are asked here.
func printAccepted(w io.Writer, findings []checkFinding) {
	if slices.ContainsFunc(findings, func(f checkFinding) bool { return strings.Contains(f.Mend, "tidegate accept") }) {
		fmt.Fprintln(w, "What tidegate accept was given is not known here, and is found again; tidegate status tells what still excludes a server.")
	}
}

func printFindings(w io.Writer, findings []checkFinding, servers int, asJSON bool) error {
	broken := 0
	for _, f := range findings {
		if f.Severity == binlog.Broken.String() {
			broken++
		}
	}
	if asJSON {
		if findings == nil {
			findings = []checkFinding{}
		}
		if err := json.NewEncoder(w).Encode(findings); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			fmt.Fprintf(w, "%s: %s: %s\n    why:  %s\n", f.Server, f.Severity, f.What, f.Why)
			if f.Mend != "" {
				fmt.Fprintf(w, "    mend: %s\n", f.Mend)
			}
		}
		printPromises(w, findings)
		printAccepted(w, findings)
		fmt.Fprintf(w, "%d server(s), %d finding(s), %d of them broken\n", servers, len(findings), broken)
	}
	if broken > 0 {
		return errFound
	}
	return nil
}
