package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/config"
	"github.com/happyd/happyd/control"
	"github.com/happyd/happyd/crypto"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/relay"
	"github.com/happyd/happyd/store"
	"github.com/happyd/happyd/uplink"
)

// daemonOptions are what a daemon needs beside its configuration.
type daemonOptions struct {
	Home       string     // of the user
	Env        config.Env // for the places of locks and of the happy CLI
	ConfigFile string     // as given; "" for defaults
	Log        *slog.Logger
	OnEnvelope func(session, provider string, env protocol.Envelope)
	Ready      func(summary string)
	// Pipe is a stream of PipeProvider that this daemon was started for: it ends once the stream has and all is delivered.
	Pipe         io.Reader
	PipeProvider string
}

// daemon is the wiring: it owns the parts and their order of starting and stopping.
type daemon struct {
	cfg     config.Config
	o       daemonOptions
	log     *slog.Logger
	started time.Time
	hub     control.Hub

	store *store.Store
	url   string // of the server
	http  *http.Client

	mu      sync.Mutex
	live    *session       // the parts that belong to one login
	streams map[string]int // clients by the id of the stream that they send now
}

// session is what belongs to one account on one server.
type session struct {
	creds   config.Credentials
	account *crypto.Account
	bridge  *bridge.Bridge
	uplink  *uplink.Uplink
	scope   *store.Scope
}

// errAccountChanged says that the credentials file holds another account by now.
var errAccountChanged = errors.New("the credentials are those of another account by now")

// credentialsPoll is how often the credentials file is looked at.
const credentialsPoll = 2 * time.Second

func newDaemon(cfg config.Config, o daemonOptions) *daemon {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Home == "" {
		o.Home = o.Env.Home
	}
	if o.Env.Home == "" {
		o.Env = config.HomeEnv(o.Home)
	}
	return &daemon{cfg: cfg, o: o, log: o.Log, started: time.Now()}
}

// run works until ctx ends or something fails for good.
func (d *daemon) run(ctx context.Context) (err error) {
	if d.store, err = store.Open(filepath.Join(d.cfg.StateDir, "happyd.db"), store.Options{Log: d.log}); err != nil {
		return fmt.Errorf("opening the state: %w", err)
	}
	defer func() { err = errors.Join(err, d.store.Close()) }()
	if d.http, err = uplink.NewHTTPClient(d.cfg.Server.Proxy, d.cfg.Server.CAFile); err != nil {
		return fmt.Errorf("setting up the connection: %w", err)
	}
	defer d.http.CloseIdleConnections()
	d.url = d.cfg.Server.URL
	if d.cfg.Server.IsEmbedded() {
		stop, err := d.startRelay(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	ctl, err := control.Listen(d.cfg.StateDir, control.Options{Status: d.status, Hub: &d.hub, Ingest: d.ingest, Log: d.log})
	if err != nil {
		return fmt.Errorf("opening the control socket: %w", err)
	}
	ctlCtx, stopControl := context.WithCancel(context.WithoutCancel(ctx))
	ctlDone := make(chan error, 1)
	go func() { ctlDone <- ctl.Serve(ctlCtx) }()
	defer func() {
		stopControl()
		err = errors.Join(err, <-ctlDone)
	}()
	for first := true; ; first = false {
		err := d.serve(ctx, first)
		if !errors.Is(err, errAccountChanged) {
			return err
		}
		d.log.Info("another account has logged in; its sessions start over, the former one's queue stays with it")
	}
}

// serve runs everything that belongs to one login.
func (d *daemon) serve(ctx context.Context, first bool) error {
	stamp := config.CredentialsStamp(d.cfg.CredentialsPath()) // before they are read: what changes from here on is noticed
	creds, account, err := d.login()
	if err != nil {
		return err
	}
	defer account.Close()
	locks, err := d.lockHomes(account)
	if err != nil {
		return err
	}
	defer func() {
		for _, l := range locks {
			_ = l.Close()
		}
	}()
	scope, err := d.store.Scope(d.scopeName(account))
	if err != nil {
		return fmt.Errorf("opening the account's state: %w", err)
	}
	s := &session{creds: creds, account: account, scope: scope}
	changed := make(chan struct{}, 1)
	s.uplink, err = uplink.New(uplink.Options{
		BaseURL: d.url, Scope: scope, Account: account, HTTPClient: d.http,
		Token:              func() (string, error) { return d.token(account) },
		CredentialsChanged: changed,
		BatchBytes:         int(d.cfg.Uplink.BatchBytes),
		MachineID:          d.machineID(),
		MachineMetadata:    d.machineMetadata(),
		Version:            versionString(),
		OnGone:             func(key string) { s.bridge.Gone(key) },
		OnNewGeneration:    func(key string) { s.bridge.NewGeneration(key) },
		Log:                d.log,
	})
	if err != nil {
		return fmt.Errorf("setting up the uplink: %w", err)
	}
	s.bridge = bridge.New(d.bridgeOptions(s))
	d.mu.Lock()
	d.live = s
	d.mu.Unlock()

	inner, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	run := func(what string, ctx context.Context, fn func(context.Context) error) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := fn(ctx); err != nil && ctx.Err() == nil {
				stop(fmt.Errorf("%s: %w", what, err))
			}
		}()
	}
	run("bridge", inner, s.bridge.Run)
	run("uplink", inner, s.uplink.Run)
	run("credentials", inner, func(ctx context.Context) error {
		return d.watchCredentials(ctx, account, stamp, changed, stop)
	})
	run("clock", inner, func(ctx context.Context) error { return watchClock(ctx, s.bridge.Rescan) })
	if first {
		left := d.leftStreams() // before new ones come
		run("streams", inner, func(ctx context.Context) error { return d.adoptSpool(ctx, left) })
	}
	if first && d.o.Pipe != nil {
		run("stream", inner, func(ctx context.Context) error {
			if err := d.ingest(ctx, d.o.PipeProvider, d.o.Pipe); err != nil {
				return err
			}
			waitDelivered(ctx, scope)
			stop(errPipeDone)
			return nil
		})
	}
	if first && d.o.Ready != nil {
		d.o.Ready(d.summary())
	}
	<-inner.Done()
	wg.Wait()
	d.mu.Lock()
	d.live = nil
	d.mu.Unlock()
	if err := context.Cause(inner); ctx.Err() == nil && !errors.Is(err, errPipeDone) {
		return err
	}
	return nil
}

// errPipeDone ends a daemon that was started for one stream.
var errPipeDone = errors.New("the stream has ended")

// deliverPatience is how long such a daemon waits for the server; what is left then waits on disk for the next one.
const deliverPatience = 30 * time.Second

// waitDelivered returns once nothing has been queued for a while.
func waitDelivered(ctx context.Context, scope *store.Scope) {
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	quiet, began := time.Now(), time.Now()
	for time.Since(quiet) < 3*time.Second && time.Since(began) < deliverPatience {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if scope.QueuedBytes() > 0 {
			quiet = time.Now()
		}
	}
}

func (d *daemon) bridgeOptions(s *session) bridge.Options {
	var sources []bridge.Source
	for _, p := range providers() {
		src := d.source(p.Name())
		if src.Enabled {
			sources = append(sources, bridge.Source{Provider: p, Homes: src.Paths})
		}
	}
	if d.cfg.Sources.Codex.Enabled {
		sources = append(sources, bridge.Source{Provider: spoolProvider{}, Homes: []string{d.spoolDir()}, Form: bridge.FormStream})
	}
	happy := d.happyHome()
	limit := int64(d.cfg.Uplink.MaxQueue)
	return bridge.Options{
		Sources: sources, Scope: s.scope, Account: s.account, Uplink: s.uplink,
		Full:    func() bool { return s.scope.QueuedBytes() >= limit },
		History: d.cfg.Sessions.History, Projects: d.cfg.Projects, Memory: int64(d.cfg.Buffer.Memory),
		Tools: d.cfg.Protocol.ToolNames,
		Machine: bridge.Machine{
			ID: s.uplink.MachineID(), Host: hostname(), OS: runtime.GOOS, Home: d.o.Home, HappyHome: happy, Version: versionString(),
		},
		HappyHome: happy,
		Publish: func(session, provider string, e protocol.Envelope) {
			d.hub.Publish(session, provider, e)
			if d.o.OnEnvelope != nil {
				d.o.OnEnvelope(session, provider, e)
			}
		},
		Log: d.log,
	}
}

func (d *daemon) source(provider string) config.Source {
	if provider == claude.Name {
		return d.cfg.Sources.Claude
	}
	return d.cfg.Sources.Codex
}

func hostname() string {
	h, err := os.Hostname()
	if err != nil || h == "" {
		return "localhost"
	}
	return h
}

// summary is what `run` says once: what is watched, where it goes, how to see it.
func (d *daemon) summary() string {
	var b strings.Builder
	found := false
	for _, p := range providers() {
		src := d.source(p.Name())
		if !src.Enabled {
			continue
		}
		for _, home := range src.Paths {
			state := "not there yet; it is noticed when it appears"
			if fi, err := os.Stat(home); err == nil && fi.IsDir() {
				state, found = "found", true
			}
			fmt.Fprintf(&b, "watching   %s (%s)\n", home, state)
		}
	}
	if d.cfg.Server.IsEmbedded() {
		fmt.Fprintf(&b, "sending to the embedded relay at %s (sealed; this machine only)\n", d.url)
	} else {
		fmt.Fprintf(&b, "sending to %s (sealed)\n", d.url)
	}
	fmt.Fprintf(&b, "see it     happyd tail, happyd status\n")
	if !found {
		fmt.Fprintf(&b, "no agent has run here yet: `happyd demo` shows what a session looks like\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

// startRelay runs the embedded relay and sets the server's address.
func (d *daemon) startRelay(ctx context.Context) (stop func(), err error) {
	o := relay.Options{Path: filepath.Join(d.cfg.DataDir, "relay.db"), Addr: d.cfg.Relay.Listen, Log: d.log}
	r, err := relay.Open(o)
	if err != nil {
		return nil, fmt.Errorf("opening the embedded relay: %w", err)
	}
	ln, err := r.Listen(ctx)
	if err != nil && d.cfg.Relay.PortIsOptional() {
		ln, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	d.url = "http://" + ln.Addr().String()
	// The relay ends after those that talk to it.
	relayCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Serve(relayCtx, ln); err != nil {
			d.log.Error("the embedded relay stopped", "error", err)
		}
	}()
	return func() {
		cancel()
		<-done
		if err := r.Close(); err != nil {
			d.log.Error("closing the embedded relay", "error", err)
		}
	}, nil
}

// watchClock calls rescan after the machine slept: the wall clock then runs ahead of the monotonic one.
func watchClock(ctx context.Context, rescan func()) error {
	const step, gap = 10 * time.Second, 30 * time.Second
	t := time.NewTicker(step)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		now := time.Now()
		if wall, mono := now.Round(0).Sub(last.Round(0)), now.Sub(last); wall-mono > gap || wall > gap+step {
			rescan()
		}
		last = now
	}
}
