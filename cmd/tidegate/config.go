package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"tidegate/cmd/internal/config"
)

func configCommand() *cobra.Command {
	var example, reference bool
	var file string
	c := &cobra.Command{
		Use:   "config (--example | --reference | -c FILE)",
		Short: "Print an example configuration or the reference, or check a file",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			switch {
			case example:
				fmt.Fprint(out, config.Example())
			case reference:
				fmt.Fprint(out, config.Reference())
			case file != "":
				cfg, err := config.Load(file, os.LookupEnv)
				if err != nil {
					return err
				}
				fmt.Fprintf(out, "%s: ok: cluster %s, %d servers\n", file, cfg.Cluster, len(cfg.Servers))
			default:
				return errors.New("config: one of --example, --reference, -c FILE is needed")
			}
			return nil
		},
	}
	c.Flags().BoolVar(&example, "example", false, "print a configuration file to start from")
	c.Flags().BoolVar(&reference, "reference", false, "print every key with form, default and bounds (Markdown)")
	c.Flags().StringVarP(&file, "config", "c", "", "check this file and say everything that is wrong with it")
	c.MarkFlagsMutuallyExclusive("example", "reference", "config")
	return c
}
