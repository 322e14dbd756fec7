package main

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/happyd/happyd/control"
)

func newStatusCmd(a *app) *cobra.Command {
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the running daemon does, session by session",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.loadConfig()
			if err != nil {
				return err
			}
			client, err := control.Dial(c.StateDir)
			if err != nil {
				return err
			}
			defer client.Close()
			doc, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				out := json.NewEncoder(a.stdout)
				out.SetIndent("", "  ")
				return out.Encode(doc)
			}
			return statusView{home: a.env.Home, now: time.Now(), all: all}.write(a.stdout, doc)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the whole status document as JSON")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "list all sessions, also those with nothing to say")
	return cmd
}
