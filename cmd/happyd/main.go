// Command happyd mirrors the sessions of coding agents on this machine into
// Happy, sealed end to end.
//
// Each command has a file of its own that parses, calls a package and prints;
// what happyd does is in those packages. What a user sees follows these rules:
// results go to standard output, everything else to standard error; an error is
// one line (or one line a mistake) and is followed by the next step, where there
// is one; the exit code is 0 for success, 1 for an error, 2 for wrong usage.
// Text that came from a session is printed without its control characters.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/happyd/happyd/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once, should the first not do.
	context.AfterFunc(ctx, stop)
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		env: config.OSEnv(), runDaemon: runDaemon,
	}
	os.Exit(a.run(ctx, os.Args[1:]))
}
