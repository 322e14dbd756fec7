package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/happyd/happyd/config"
	"github.com/happyd/happyd/control"
	"github.com/happyd/happyd/demo"
	"github.com/happyd/happyd/protocol"
)

// How long the demo waits for the last envelopes: until none has come for
// demoQuiet, at most demoPatience.
const (
	demoQuiet    = 3 * time.Second
	demoPatience = 15 * time.Second
)

func newDemoCmd(a *app) *cobra.Command {
	var speed float64
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play a session back and watch it being mirrored",
		Long: fmt.Sprintf(`demo runs the whole daemon, with its embedded relay, on a temporary home
directory, and plays a Claude Code session with three parallel subagents into
it, in about %d seconds. It prints what `+"`happyd tail`"+` would print. Your own
sessions, configuration and account are not touched; nothing is left behind.`, int(demo.Duration.Seconds())),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !(speed > 0 && speed <= 1000) {
				return &usageError{cmd: cmd, err: fmt.Errorf("--speed %v is not between 0 and 1000", speed)}
			}
			return a.demo(cmd.Context(), speed)
		},
	}
	cmd.Flags().Float64Var(&speed, "speed", 1, "how many times as fast as a person")
	return cmd
}

func (a *app) demo(ctx context.Context, speed float64) (err error) {
	dir, err := os.MkdirTemp("", "happyd-demo-")
	if err != nil {
		return fmt.Errorf("creating a temporary home: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg, err := demoConfig(dir)
	if err != nil {
		return err
	}
	log, closeLog, err := a.newLogger(cfg.Log)
	if err != nil {
		return err
	}
	defer closeLog.Close()

	view := &demoView{view: a.newTailView(), changed: time.Now()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready, ended := make(chan struct{}), make(chan error, 1)
	isReady := sync.OnceFunc(func() { close(ready) })
	go func() {
		ended <- a.runDaemon(ctx, cfg, daemonOptions{
			Home: filepath.Join(dir, "home"), Log: log,
			OnEnvelope: view.envelope,
			Ready: func(summary string) {
				view.note(summary)
				isReady()
			},
		})
	}()

	select {
	case <-ready:
		err = demo.Replay(ctx, filepath.Join(dir, "home"), speed, view.note)
		if err == nil {
			err = view.waitQuiet(ctx)
		}
	case err := <-ended:
		if err == nil {
			err = errors.New("the daemon ended before it was ready")
		}
		return fmt.Errorf("running the demo: %w", err)
	case <-ctx.Done():
		err = ctx.Err()
	}
	cancel()
	if daemonErr := <-ended; daemonErr != nil && !errors.Is(daemonErr, context.Canceled) {
		return fmt.Errorf("running the demo: %w", daemonErr)
	}
	if err != nil {
		return err
	}
	view.note(fmt.Sprintf("%s were mapped, sealed and delivered to the embedded relay. For your own sessions: happyd run",
		plural(view.count(), "event")))
	return nil
}

// demoConfig keeps everything below dir.
func demoConfig(dir string) (config.Config, error) {
	env := config.HomeEnv(filepath.Join(dir, "home"))
	cfg := config.Default(env)
	cfg.StateDir = filepath.Join(dir, "state")
	cfg.DataDir = filepath.Join(dir, "data")
	cfg.Sources.Codex.Enabled = false
	cfg.Sessions.History = config.History{All: true}
	cfg.Relay.Listen = "127.0.0.1:0" // the usual port may be in use by the real one
	cfg.Log = config.Log{Level: "warn", Format: "text", File: config.NoLogFile}
	if err := os.MkdirAll(cfg.Sources.Claude.Paths[0], 0o700); err != nil {
		return config.Config{}, fmt.Errorf("creating a temporary home: %w", err)
	}
	return cfg, nil
}

// demoView prints events and remarks that come from several goroutines.
type demoView struct {
	mu      sync.Mutex
	view    *tailView
	events  int
	changed time.Time // when the last event came
}

func (d *demoView) envelope(session, provider string, env protocol.Envelope) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events++
	d.changed = time.Now()
	// If the terminal is gone, the demo has no reader and ends by itself.
	_ = d.view.show(control.TailLine{Session: session, Provider: provider, Env: &env})
}

func (d *demoView) note(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.view.note(text)
}

func (d *demoView) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.events
}

func (d *demoView) quietFor() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.changed)
}

// waitQuiet returns when no event has come for a while.
func (d *demoView) waitQuiet(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	patience := time.NewTimer(demoPatience)
	defer patience.Stop()
	// A new session is held back for some seconds, so that the first event may still be to come.
	for d.count() == 0 || d.quietFor() < demoQuiet {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-patience.C:
			return nil
		case <-tick.C:
		}
	}
	return nil
}
