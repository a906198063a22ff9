package daemon

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"tidegate/binlog"
	"tidegate/cdc"
	"tidegate/cmd/internal/config"
	"tidegate/router/serve"
)

// plan is what a configuration says, in the words of the parts that it is for,
// with what stands in the files that it names.
type plan struct {
	nats    cdc.Options
	servers []binlog.ServerConfig
	auth    *serve.Auth // nil: nobody is asked who it is
	tls     *tls.Config // of the listeners; nil: none
}

// Check says everything for which these parts can not run with this
// configuration, as far as the configuration and the files that it names tell:
// what Open refuses before it begins anything. Nobody is asked.
func Check(cfg *config.Config, parts Parts) error {
	_, err := newPlan(cfg, parts, nil)
	return err
}

func newPlan(cfg *config.Config, parts Parts, log *slog.Logger) (*plan, error) {
	if !parts.Tail && !parts.Serve {
		return nil, errors.New("nothing to run")
	}
	if cfg.NATS.URL == "" && !(parts.Tail && parts.Serve) {
		return nil, errors.New("nats.url is empty: tail and serve as processes of their own need a NATS server that both reach; set nats.url, or use tidegate run")
	}
	p := &plan{}
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	p.servers, err = ServerConfigs(cfg, parts.Only)
	add(err)
	p.nats, err = natsOptions(cfg, log)
	add(err)
	p.nats.Follow = !parts.Tail
	if parts.Serve && (cfg.Listen.HTTP != "off" || cfg.Listen.RESP != "off") {
		p.auth, err = auth(cfg)
		add(err)
		if t := cfg.Listen.TLS; t.CertFile != "" {
			if p.tls, err = serve.LoadTLS(t.CertFile, t.KeyFile, t.ClientCAFile); err != nil {
				add(fmt.Errorf("listen.tls: %w", err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// natsOptions translates the configuration.
func natsOptions(cfg *config.Config, log *slog.Logger) (cdc.Options, error) {
	n := cfg.NATS
	o := cdc.Options{
		Cluster: cfg.Cluster, URL: n.URL, DataDir: filepath.Join(cfg.DataDir, "nats"), CredentialsFile: n.CredsFile,
		User: n.User, Password: n.Password.Reveal(), Replicas: n.Replicas,
		WritesMaxAge: n.MaxAge, WritesMaxBytes: int64(n.MaxBytes), Log: log,
	}
	var errs []error
	var err error
	if o.TLS, err = clientTLS(n.TLS); err != nil {
		errs = append(errs, fmt.Errorf("nats.tls: %w", err))
	}
	if n.CredsFile != "" {
		// The client reads it at each connection, and waits for it for ever.
		if _, err := os.ReadFile(n.CredsFile); err != nil {
			errs = append(errs, fmt.Errorf("nats.creds_file: %w", err))
		}
	}
	return o, errors.Join(errs...)
}
