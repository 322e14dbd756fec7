package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/happyd/happyd/config"
)

func newRunCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Watch the agents and mirror their sessions",
		Long: `run watches the logs of the agents on this machine and mirrors their sessions
until it is stopped. Without any configuration it finds ~/.claude and ~/.codex
and sends to the relay that is built in. What it could not deliver waits on
disk; SIGINT and SIGTERM end it within five seconds and lose nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			log, closeLog, err := a.newLogger(cfg.Log)
			if err != nil {
				return err
			}
			defer closeLog.Close()
			return a.runDaemon(cmd.Context(), cfg, daemonOptions{
				Home: a.env.Home, Env: a.env, ConfigFile: a.configPath, Log: log,
				Ready: func(summary string) { fmt.Fprintln(a.stdout, summary) },
			})
		},
	}
}

func runDaemon(ctx context.Context, cfg config.Config, o daemonOptions) error {
	return newDaemon(cfg, o).run(ctx)
}
