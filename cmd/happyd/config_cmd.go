package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/happyd/happyd/config"
)

func newConfigCmd(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "config",
		Short: "Check, show or create the configuration",
	}, newConfigCheckCmd(a), newConfigShowCmd(a), newConfigInitCmd(a))
}

func newConfigCheckCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Say what is wrong with the configuration",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				a.configPath = args[0]
			}
			c, err := a.loadConfig()
			if err != nil {
				return err
			}
			notes, err := c.Check()
			for _, n := range notes {
				fmt.Fprintf(a.stdout, "note: %s\n", printable(n))
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "%s: ok\n", a.configName())
			return err
		},
	}
}

// configName is the file that loadConfig reads, in words for a user.
func (a *app) configName() string {
	if a.configPath != "" {
		return a.configPath
	}
	path := config.DefaultPath(a.env)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "defaults (" + path + " does not exist)"
	}
	return path
}

func newConfigShowCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Print the configuration in effect, without secrets",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.loadConfig()
			if err != nil {
				return err
			}
			text, err := c.Show()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "# %s\n%s", a.configName(), text)
			return err
		},
	}
}

func newConfigInitCmd(a *app) *cobra.Command {
	var toStdout bool
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a configuration file with every key explained",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if toStdout {
				_, err := a.stdout.Write(config.Example)
				return err
			}
			path := a.configPath
			switch {
			case len(args) == 1:
				path = args[0]
			case path == "":
				path = config.DefaultPath(a.env)
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return fmt.Errorf("creating the configuration: %w", err)
			}
			if err := createFile(path, config.Example); err != nil {
				return fmt.Errorf("creating the configuration: %w", err)
			}
			_, err := fmt.Fprintf(a.stdout, "wrote %s\n", path)
			return err
		},
	}
	cmd.Flags().BoolVar(&toStdout, "print", false, "print it instead of writing a file")
	return cmd
}

// createFile writes a file that is not there yet. A failed write leaves none.
func createFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		os.Remove(path)
		return err
	}
	return nil
}
