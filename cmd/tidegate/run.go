package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/daemon"
	"tidegate/cmd/internal/metrics"
)

// daemonCommand makes run, tail and serve: one program with other parts.
func daemonCommand(use, short, long, example string, parts daemon.Parts) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadFor(file, parts)
			if err != nil {
				return err
			}
			return runDaemon(cmd.Context(), cfg, parts)
		},
	}
	addConfig(c, &file)
	if parts.Tail && !parts.Serve {
		c.Flags().StringArrayVar(&parts.Only, "server", nil, "watch only the server of this `NAME` (may be given more than once); default: all of the configuration")
	}
	return c
}

func runCommand() *cobra.Command {
	return daemonCommand("run -c FILE", "Follow the servers and answer, in one process",
		`Watches every configured server, writes the stream and answers over HTTP and
RESP. With an empty nats.url the stream lives inside this process. It ends at
Ctrl-C or SIGTERM; what it keeps is in data_dir.`,
		`  tidegate run -c tidegate.yaml`,
		daemon.Parts{Tail: true, Serve: true})
}

func tailCommand() *cobra.Command {
	return daemonCommand("tail -c FILE", "Follow servers and write the stream, without answering",
		`Watches the configured servers (or those named by --server) and writes the
stream of the primary among them into NATS. Run two for each server: one
writes, the other takes over within seconds.`,
		`  tidegate tail -c tidegate.yaml --server a`,
		daemon.Parts{Tail: true})
}

func serveCommand() *cobra.Command {
	return daemonCommand("serve -c FILE", "Answer from the stream, without touching MySQL",
		`Follows the stream that tailers write into NATS and answers over HTTP and RESP.
Run as many as you like, beside the applications.`,
		`  tidegate serve -c tidegate.yaml`,
		daemon.Parts{Serve: true})
}

func runDaemon(ctx context.Context, cfg *config.Config, parts daemon.Parts) (err error) {
	log := newLogger(cfg.Log)
	o := daemon.Options{Parts: parts, Log: log, Version: version()}
	o.Metrics = func(d *daemon.Daemon) http.Handler { return metrics.Handler(d, log) }
	d, err := daemon.Open(ctx, cfg, o)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := d.Close(); err == nil {
			err = closeErr
		}
	}()
	if d.Server != nil {
		if a := d.Server.HTTPAddr(); a != nil {
			log.Info("answering over HTTP", "addr", a.String())
		}
		if a := d.Server.RESPAddr(); a != nil {
			log.Info("answering over RESP", "addr", a.String())
		}
	}
	return d.Run(ctx)
}

// newLogger logs to standard error.
func newLogger(c config.Log) *slog.Logger {
	var level slog.Level
	// The configuration allows only what this reads.
	_ = level.UnmarshalText([]byte(c.Level))
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}

// version is what the build knows of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return fmt.Sprint(info.Main.Version)
}
