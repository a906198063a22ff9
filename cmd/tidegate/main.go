// Command tidegate tells applications whether a MySQL replica already shows
// what a reader must see.
//
// This file names the commands; each has a file of its own. The main path is
// run.go -> cmd/internal/tailing (binlog to stream) and router/local (stream to
// answers).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// exitError makes the program end with a code of its own, without a message.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	var code exitError
	switch {
	case err == nil:
	case errors.As(err, &code):
		os.Exit(int(code))
	default:
		fmt.Fprintf(os.Stderr, "tidegate: %v\n", err)
		os.Exit(1)
	}
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
                  tidegate run -c tidegate.yaml`,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		runCommand(), tailCommand(), serveCommand(), sandboxCommand(), demoCommand(), tortureCommand(),
		checkCommand(), statusCommand(), acceptCommand(), observeCommand(), configCommand(),
		benchCommand(), benchChildCommand(),
	)
	return root
}
