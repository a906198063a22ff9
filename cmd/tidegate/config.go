package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/daemon"
)

func configCommand() *cobra.Command {
	var example, reference bool
	var file string
	c := &cobra.Command{
		Use:   "config (--example | --reference | -c FILE)",
		Short: "Print an example configuration or the reference, or check a file",
		Long: `Prints a configuration to start from, or every key with its form, default and
bounds, or says everything that is wrong with a file, by line, and with the files
that it names: all that run would refuse. No server is asked: that is what check
does.`,
		Example: `  tidegate config --example > tidegate.yaml
  tidegate config -c tidegate.yaml`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := exactlyOne(cmd, "example", "reference", "config"); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			switch {
			case example:
				fmt.Fprint(out, config.Example())
			case reference:
				fmt.Fprint(out, config.Reference())
			default:
				cfg, err := loadFor(file, daemon.Parts{Tail: true, Serve: true})
				if err != nil {
					return err
				}
				fmt.Fprintf(out, "%s: ok: cluster %s, %d servers\n", file, cfg.Cluster, len(cfg.Servers))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&example, "example", false, "print a configuration file to start from")
	c.Flags().BoolVar(&reference, "reference", false, "print every key with form, default and bounds (Markdown)")
	c.Flags().StringVarP(&file, "config", "c", "", "check this `FILE` and say everything that is wrong with it")
	return c
}
