package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/happyd/happyd/control"
)

func newTailCmd(a *app) *cobra.Command {
	var (
		asJSON  bool
		session string
		last    int
	)
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow what is being sent, decrypted, on this machine only",
		Long: `tail shows one line an event: what was typed, what the agents say, which tools
they use, what their subagents do (indented), and how each turn ends.

It asks the running daemon over a socket that only you can open. Nothing is
decrypted on the way: the daemon shows what it sealed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if last < 0 {
				return &usageError{cmd: cmd, err: fmt.Errorf("-n %d is not a number of lines", last)}
			}
			c, err := a.loadConfig()
			if err != nil {
				return err
			}
			client, err := control.Dial(c.StateDir)
			if err != nil {
				return err
			}
			defer client.Close()
			id, err := findSession(cmd.Context(), client, session)
			if err != nil {
				return err
			}
			view := a.newTailView()
			err = client.Tail(cmd.Context(), control.TailOptions{Last: last, Session: id},
				func(l control.TailLine, raw []byte) error {
					if asJSON {
						_, err := a.stdout.Write(raw)
						return err
					}
					return view.show(l)
				})
			if errors.Is(err, io.EOF) {
				return errors.New("the daemon has stopped")
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the envelopes as JSON lines")
	cmd.Flags().StringVarP(&session, "session", "s", "", "only the session whose `ID` is, or begins with, this")
	cmd.Flags().IntVarP(&last, "lines", "n", 20, "how many events of the past to begin with")
	return cmd
}

// findSession completes the beginning of a session's id.
func findSession(ctx context.Context, client *control.Client, prefix string) (string, error) {
	if prefix == "" {
		return "", nil
	}
	doc, err := client.Status(ctx)
	if err != nil {
		return "", err
	}
	var found []string
	for _, s := range doc.Sessions {
		if s.ID == prefix {
			return prefix, nil
		}
		if strings.HasPrefix(s.ID, prefix) {
			found = append(found, s.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("no session's id begins with %q; `happyd status --all` lists them", prefix)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d sessions' ids begin with %q: write more of it", len(found), prefix)
}

// newTailView prints to standard output in the way that it allows.
func (a *app) newTailView() *tailView {
	v := &tailView{out: a.stdout, colour: a.colour(a.stdout)}
	if f, ok := a.stdout.(*os.File); ok {
		v.width = func() int {
			if w, _, err := term.GetSize(int(f.Fd())); err == nil {
				return w
			}
			return 0
		}
	}
	return v
}
