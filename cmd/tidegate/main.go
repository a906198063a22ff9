package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends everything in order; a second one ends this process
	// at once, and the sandbox's guard what it had started.
	context.AfterFunc(ctx, stop)
	err := newRoot().ExecuteContext(ctx)
	stop()
	os.Exit(report(os.Stderr, err))
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "tidegate",
		Short: "Tells, in microseconds, whether a MySQL replica already shows what a reader must see",
		Long: `Tidegate follows the binlog of a MySQL primary and of each replica, proves what
each replica shows, and answers "can replica X serve key K?".

Try it:           tidegate demo
Servers to play:  tidegate sandbox
On your servers:  tidegate config --example > tidegate.yaml
                  tidegate check -c tidegate.yaml
                  tidegate run -c tidegate.yaml

Exit codes: 0 all is well; 1 a problem was found, or the work failed; 2 the
command line, or a file that it names, is wrong, and nothing was begun. Results
go to standard output, all else to standard error.`,
		Version: version(), Args: noArguments, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%w; %s --help lists what there is", flagError(err), c.CommandPath())
	})
	root.SuggestionsMinimumDistance = 2
	root.SetHelpCommand(helpCommand())
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		runCommand(), tailCommand(), serveCommand(), sandboxCommand(), demoCommand(), tortureCommand(),
		checkCommand(), statusCommand(), acceptCommand(), observeCommand(), configCommand(),
		benchCommand(), benchChildCommand(),
	)
	oneLineUsage(root)
	return root
}

// oneLineUsage keeps cobra from adding "[flags]" behind the usage that each
// command writes itself.
func oneLineUsage(c *cobra.Command) {
	c.DisableFlagsInUseLine = true
	for _, sub := range c.Commands() {
		oneLineUsage(sub)
	}
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("no command %q; tidegate --help lists what there is", strings.Join(args, " "))
			}
			c.InitDefaultHelpFlag()
			c.InitDefaultVersionFlag()
			return c.Help()
		},
	}
}
