package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nrednav/cuid2"
	"github.com/spf13/cobra"

	"github.com/happyd/happyd/adapters/codex"
	"github.com/happyd/happyd/control"
)

// How long a client goes on trying when the daemon it streams to is restarted.
const (
	ingestPatience = time.Minute
	ingestRetry    = time.Second
)

func newIngestCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "ingest codex",
		Short: "Mirror a stream that is piped in",
		Long: `ingest mirrors what is piped in while it runs, for sessions that leave no log:

  codex exec --json --ephemeral "…" | happyd ingest codex

The stream is handed to the running daemon; without one, happyd mirrors it
itself until the pipe ends. A session that Codex logs as well is shown once:
from its log.`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{codex.Name},
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			cwd, _ := os.Getwd()
			header := codex.StreamHeader(cwd, cuid2.Generate())
			err = sendStream(cmd.Context(), cfg.StateDir, args[0], header, a.stdin)
			var notRunning *control.NotRunningError
			if !errors.As(err, &notRunning) {
				return err
			}
			log, closeLog, err := a.newLogger(cfg.Log)
			if err != nil {
				return err
			}
			defer closeLog.Close()
			return a.runDaemon(cmd.Context(), cfg, daemonOptions{
				Home: a.env.Home, Env: a.env, ConfigFile: a.configPath, Log: log,
				Pipe: io.MultiReader(strings.NewReader(string(header)), a.stdin), PipeProvider: args[0],
			})
		},
	}
}

// sendStream hands a stream to the running daemon. When the daemon goes away in the middle, the whole stream is sent again once
// it is back: its ids derive from the header's, so nothing is shown twice.
func sendStream(ctx context.Context, stateDir, provider string, header []byte, in io.Reader) (err error) {
	client, err := control.Dial(stateDir)
	if err != nil {
		return err
	}
	client.Close()
	kept, err := keepStream(in)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.close()) }()
	var deadline time.Time
	for {
		began := time.Now()
		err := sendOnce(ctx, stateDir, provider, header, kept)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if err := kept.failed(); err != nil {
			return err
		}
		switch {
		case deadline.IsZero() || time.Since(began) > ingestPatience/4: // it worked for a while
			deadline = time.Now().Add(ingestPatience)
		case time.Now().After(deadline):
			return fmt.Errorf("hand the stream to the daemon: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(ingestRetry):
		}
	}
}

func sendOnce(ctx context.Context, stateDir, provider string, header []byte, kept *keptStream) error {
	client, err := control.Dial(stateDir)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // whoever still reads the body then ends
	return client.Ingest(ctx, provider, io.MultiReader(strings.NewReader(string(header)), kept.reader(ctx)))
}

// rolloutPatience is how long a stream waits for a log of its thread, which then says everything and better.
const rolloutPatience = 5 * time.Second

// spoolDir holds the streams that were piped in until they are in the outbox.
func (d *daemon) spoolDir() string { return filepath.Join(d.cfg.StateDir, "spool", codex.Name) }

// ingest keeps a stream in a file that the bridge follows like a log, unless its thread has a log of its own. The pipe's end ends
// the session; the daemon's end does not, because the client comes again.
func (d *daemon) ingest(ctx context.Context, provider string, body io.Reader) error {
	if provider != codex.Name {
		return control.ErrUnknownProvider
	}
	if err := os.MkdirAll(d.spoolDir(), 0o700); err != nil {
		return fmt.Errorf("keep the stream: %w", err)
	}
	lines := make(chan []byte)
	readErr := make(chan error, 1)
	go func() {
		defer close(lines)
		r := bufio.NewReaderSize(body, 64<<10)
		for {
			piece, err := r.ReadSlice('\n') // of a long line only a part: it need not fit in memory
			if len(piece) > 0 {
				select {
				case lines <- bytes.Clone(piece):
				case <-ctx.Done():
					readErr <- ctx.Err()
					return
				}
			}
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				if errors.Is(err, io.EOF) {
					err = nil
				}
				readErr <- err
				return
			}
		}
	}()
	s := &spool{d: d}
	defer s.close()
	var decide <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-decide:
			decide = nil
			if err := s.decide(); err != nil {
				return err
			}
		case line, ok := <-lines:
			if !ok {
				if err := <-readErr; err != nil && ctx.Err() != nil {
					return err
				}
				return s.finish(ctx, decide)
			}
			if err := s.add(line); err != nil {
				return err
			}
			if s.known && !s.decided && decide == nil {
				decide = time.After(rolloutPatience)
			}
		}
	}
}
