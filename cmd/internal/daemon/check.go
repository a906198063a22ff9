package daemon

import (
	"errors"

	"tidegate/cmd/internal/config"
)

// Check says why these parts can not run with this configuration, as far as
// the configuration and the files that it names tell. Nobody is asked.
func Check(cfg *config.Config, parts Parts) error {
	if !parts.Tail && !parts.Serve {
		return errors.New("nothing to run")
	}
	if cfg.NATS.URL == "" && !(parts.Tail && parts.Serve) {
		return errors.New("nats.url is empty: tail and serve as processes of their own need a NATS server that both reach; set nats.url, or use tidegate run")
	}
	_, err := ServerConfigs(cfg, parts.Only)
	return err
}
