package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tidegate/cmd/internal/config"
	"tidegate/cmd/internal/daemon"
)

// What the program ends with. 2 is also what a crash of the Go runtime ends
// with: a supervisor restarts after it as after any other.
const (
	exitOK    = 0
	exitFound = 1 // a problem was found, or the work failed
	exitUsage = 2 // the command line, or a file that it names, is wrong; nothing was begun
)

// errFound ends the program with exitFound without a message: what was found is
// printed already.
var errFound = errors.New("a problem was found")

// usageError is an error for which exitUsage stands.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// usage marks an error as the command line's; nil stays nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err}
}

// report prints err, if there is anything to say, and returns the exit code.
func report(w io.Writer, err error) int {
	var u *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFound):
		return exitFound
	}
	fmt.Fprintf(w, "tidegate: %v\n", err)
	if errors.As(err, &u) {
		return exitUsage
	}
	return exitFound
}

// noArguments is cobra.NoArgs with an exit code.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.HasAvailableSubCommands() {
		near := ""
		if s := c.SuggestionsFor(args[0]); len(s) > 0 {
			near = ", is it " + strings.Join(s, " or ") + "?"
		}
		return usagef("unknown command %q%s; %s --help lists what there is", args[0], near, c.CommandPath())
	}
	return usagef("%s takes no argument, and %q was given", c.CommandPath(), args[0])
}

// flagError says of a flag's value what is wanted, in place of what the function
// that could not parse it says.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	want := map[string]string{
		"int": "a whole number", "uint64": "a whole number that is not negative", "float64": "a number",
		"duration": "a duration such as 100ms, 5s, 2h", "bool": "true or false",
	}[invalid.GetFlag().Value.Type()]
	switch {
	case want == "":
		return err
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("--%s is %q, which is out of range; it must be %s", invalid.GetFlag().Name, invalid.GetValue(), want)
	}
	return fmt.Errorf("--%s is %q, it must be %s", invalid.GetFlag().Name, invalid.GetValue(), want)
}

// exactlyOne demands one of the flags. cobra's groups would do, but for an
// exit code.
func exactlyOne(c *cobra.Command, names ...string) error {
	given := 0
	for _, name := range names {
		if c.Flags().Changed(name) {
			given++
		}
	}
	if given == 1 {
		return nil
	}
	return usagef("%s needs exactly one of --%s; %d are given", c.CommandPath(), strings.Join(names, ", --"), given)
}

// inRange demands that a number given by a flag is from lo to hi (NaN is not).
func inRange[N int | float64](c *cobra.Command, flag string, x, lo, hi N) error {
	if x >= lo && x <= hi {
		return nil
	}
	return usagef("%s: --%s is %v, it must be %v to %v", c.CommandPath(), flag, x, lo, hi)
}

// addConfig adds -c.
func addConfig(c *cobra.Command, file *string) {
	c.Flags().StringVarP(file, "config", "c", "tidegate.yaml", "configuration `FILE`")
}

// loadConfig reads and checks the file of -c.
func loadConfig(file string) (*config.Config, error) {
	if file == "" {
		return nil, usagef("-c names no file")
	}
	cfg, err := config.Load(file, os.LookupEnv)
	return cfg, usage(err)
}

// loadFor is loadConfig for who runs these parts: the files that the
// configuration names are there and fit, too.
func loadFor(file string, parts daemon.Parts) (*config.Config, error) {
	cfg, err := loadConfig(file)
	if err != nil {
		return nil, err
	}
	if err := daemon.Check(cfg, parts); err != nil {
		return nil, usagef("%s: %s", file, strings.ReplaceAll(err.Error(), "\n", "\n  ")) // a line for each problem
	}
	return cfg, nil
}
