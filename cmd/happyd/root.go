package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/happyd/happyd/config"
)

// app is what all commands share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            config.Env

	// runDaemon is the daemon itself; tests of the commands around it put
	// another one in its place.
	runDaemon func(context.Context, config.Config, daemonOptions) error

	configPath string // --config; "" is the default place
	started    bool   // a command's own code has begun: its errors are not about usage
}

// commands lists the constructors of all commands, in the order of the help.
var commands = []func(*app) *cobra.Command{
	newRunCmd,
	newDemoCmd,
	newStatusCmd,
	newTailCmd,
	newMapCmd,
	newIngestCmd,
	newConfigCmd,
	newVersionCmd,
}

// run executes a command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.newRootCmd()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitOK // the user said stop, and it did
	case !a.started:
		err = &usageError{cmd: cmd, err: err}
	}
	return a.report(err)
}

func (a *app) newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:   "happyd",
		Short: "Mirror the coding agents on this machine into Happy",
		Long: `happyd reads what Claude Code and Codex write to disk, turns it into Happy's
session protocol, seals it for your account and delivers it to a Happy server,
or to the relay that is built in. The agents run as they always did.`,
		Example: `  happyd run        watch the agents and mirror their sessions
  happyd tail       see what is being sent, from another terminal
  happyd demo       see it at work on a machine without agents`,
		SilenceErrors: true, // report prints them
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			a.started = true
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().StringVarP(&a.configPath, "config", "c", "",
		"configuration `FILE` (default: "+config.DefaultPath(a.env)+", if it is there)")
	var children []*cobra.Command
	for _, newCmd := range commands {
		children = append(children, newCmd(a))
	}
	return group(root, children...)
}

// loadConfig reads the configuration that the command line selects.
func (a *app) loadConfig() (config.Config, error) { return config.Load(a.configPath, a.env) }

// flagError adds the flag that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	name, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return err
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if best := config.Nearest(name, known); best != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, best)
	}
	return err
}

// group makes a command that only holds others.
func group(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(children...)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
		var known []string
		for _, c := range cmd.Commands() {
			known = append(known, c.Name())
		}
		if best := config.Nearest(args[0], known); best != "" {
			err = fmt.Errorf("%w: did you mean %q?", err, best)
		}
		return err
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}
