package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/happyd/happyd/config"
	"github.com/happyd/happyd/internal/lock"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// usageError is a command line that makes no sense.
type usageError struct {
	cmd *cobra.Command // the command that was reached
	err error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// report tells the user what went wrong and what to do, and returns the exit
// code.
func (a *app) report(err error) int {
	for line := range strings.Lines(strings.TrimSpace(err.Error())) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			fmt.Fprintf(a.stderr, "happyd: %s\n", printable(line))
		}
	}
	if h := hint(err); h != "" {
		fmt.Fprintf(a.stderr, "Try: %s\n", h)
	}
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitError
}

// hint is the next step after an error, "" where none is known or the error
// names it itself.
func hint(err error) string {
	var (
		usage *usageError
		file  *config.FileError
		held  *lock.HeldError
	)
	switch {
	case errors.As(err, &usage):
		return usage.cmd.CommandPath() + " --help"
	case errors.As(err, &file):
		return "happyd config init --print, which shows every key"
	case errors.As(err, &held):
		return "happyd status, or stop the other one first"
	}
	return ""
}
