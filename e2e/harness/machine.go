package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/happyd/happyd/config"
	"github.com/happyd/happyd/control"
	"github.com/happyd/happyd/uplink/fakehappy"
)

// Options are what a Machine is made of.
type Options struct {
	Bin string // the daemon's binary
	// History is sessions.history; "" = all.
	History string
	// Config holds further lines of YAML.
	Config string
	// Env holds further environment variables, "NAME=value".
	Env []string
	// URL and Credentials select another server than the embedded relay; Secret then opens what it holds.
	URL         string
	Credentials *config.Credentials
	Secret      []byte
	Server      Server // nil: the embedded relay
	// Wrap names a program, with its arguments, under which the daemon runs.
	Wrap []string
}

// Machine is a home directory with a daemon. Its methods are for one goroutine.
type Machine struct {
	tb   testing.TB
	o    Options
	Dir  string // everything lies below it
	Home string // the user's home directory

	server Server
	daemon *process
	logs   string // the daemon's standard error, over all its lives
	Starts int    // how often a daemon was started
}

// New makes a machine; its daemon is not started. Everything is removed with the test.
func New(tb testing.TB, o Options) *Machine {
	tb.Helper()
	// Not tb.TempDir: names of tests would make the path of the control socket too long for the system.
	dir, err := os.MkdirTemp("", "hd")
	if err != nil {
		tb.Fatal(err)
	}
	m := &Machine{tb: tb, o: o, Dir: dir, Home: filepath.Join(dir, "home"), logs: filepath.Join(dir, "stderr.log")}
	tb.Cleanup(m.cleanup)
	if err := os.MkdirAll(m.Home, 0o755); err != nil {
		tb.Fatal(err)
	}
	if m.o.History == "" {
		m.o.History = "all"
	}
	m.server = o.Server
	if o.Server == nil {
		m.server = &Relay{machine: m}
	}
	if o.Credentials != nil {
		m.SaveCredentials(*o.Credentials)
	}
	m.WriteConfig(m.configText())
	return m
}

// NewWithFake makes a machine whose daemon delivers to a fake server, as the account "acc" with a data-key login.
func NewWithFake(tb testing.TB, o Options, s *fakehappy.Server) *Machine {
	tb.Helper()
	url, err := s.Start()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	creds, secret := Login(tb, fakehappy.Token("acc"))
	o.URL, o.Credentials, o.Secret, o.Server = url, &creds, secret, Fake{s}
	return New(tb, o)
}

func (m *Machine) configText() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("state_dir: %s", m.StateDir())
	p("data_dir: %s", m.DataDir())
	p("sessions: {history: %s}", m.o.History)
	p("sources:")
	p("  claude: {paths: [%s]}", filepath.Join(m.Home, ".claude"))
	p("  codex: {paths: [%s]}", filepath.Join(m.Home, ".codex"))
	p("relay: {listen: '127.0.0.1:0'}")
	p("log: {level: info, format: text, file: none}")
	if m.o.URL != "" {
		p("account: {credentials: %s}", m.credentialsPath())
		if !strings.Contains(m.o.Config, "server:") {
			p("server: {url: '%s'}", m.o.URL)
		}
	}
	return b.String() + m.o.Config
}

// ConfigPath, StateDir and DataDir are the daemon's places.
func (m *Machine) ConfigPath() string { return filepath.Join(m.Dir, "config.yaml") }

// StateDir holds the daemon's cursors and queue.
func (m *Machine) StateDir() string { return filepath.Join(m.Dir, "state") }

// DataDir holds the embedded relay's data.
func (m *Machine) DataDir() string { return filepath.Join(m.Dir, "data") }

func (m *Machine) credentialsPath() string { return filepath.Join(m.Dir, "login", "access.key") }

// WriteConfig replaces the configuration file.
func (m *Machine) WriteConfig(text string) {
	m.tb.Helper()
	if err := os.WriteFile(m.ConfigPath(), []byte(text), 0o600); err != nil {
		m.tb.Fatal(err)
	}
}

// SaveCredentials replaces the credentials file, as a new login does.
func (m *Machine) SaveCredentials(c config.Credentials) {
	m.tb.Helper()
	if err := config.SaveCredentials(m.credentialsPath(), c); err != nil {
		m.tb.Fatal(err)
	}
}

// Credentials are those that the machine was made with, nil with the embedded relay.
func (m *Machine) Credentials() *config.Credentials { return m.o.Credentials }

// Env is the environment of the daemon and of commands beside it.
func (m *Machine) Env() []string {
	return append([]string{"HOME=" + m.Home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}, m.o.Env...)
}

// Path is a path below the machine's directory; "home/…" lies in the home.
func (m *Machine) Path(rel string) string { return filepath.Join(m.Dir, filepath.FromSlash(rel)) }

// Start runs the daemon and waits until it is ready.
func (m *Machine) Start() {
	m.tb.Helper()
	if err := m.TryStart(); err != nil {
		m.tb.Fatal(err)
	}
}

// TryStart is Start that reports what went wrong.
func (m *Machine) TryStart() error {
	m.tb.Helper()
	if m.daemon != nil {
		return fmt.Errorf("the daemon runs already")
	}
	p, err := launch(m.command(), m.Env(), m.Dir, m.logs)
	if err != nil {
		return err
	}
	m.Starts++
	m.daemon = p
	select {
	case <-p.ready:
		return nil
	case <-p.done:
		m.daemon = nil
		return fmt.Errorf("the daemon ended at its start: %v\n%s", p.err, m.LogTail(20))
	case <-time.After(30 * time.Second):
		return fmt.Errorf("the daemon is not ready after 30 s\n%s", m.LogTail(20))
	}
}

// Spawn runs the daemon and does not wait for it to be ready.
func (m *Machine) Spawn() {
	m.tb.Helper()
	p, err := launch(m.command(), m.Env(), m.Dir, m.logs)
	if err != nil {
		m.tb.Fatal(err)
	}
	m.Starts++
	m.daemon = p
}

func (m *Machine) command() []string {
	return append(append([]string{}, m.o.Wrap...), m.o.Bin, "run", "--config", m.ConfigPath())
}

// Running says whether the daemon runs.
func (m *Machine) Running() bool { return m.daemon != nil }

// PID is the daemon's process id.
func (m *Machine) PID() int { return m.daemon.cmd.Process.Pid }

// Stop ends the daemon with SIGTERM; it must end within 5 seconds, with exit code 0.
func (m *Machine) Stop() {
	m.tb.Helper()
	if m.daemon == nil {
		return
	}
	p := m.daemon
	m.daemon = nil
	if err := p.terminate(); err != nil {
		m.tb.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.kill()
		m.tb.Fatalf("the daemon did not end within 10 s after SIGTERM\n%s", m.LogTail(20))
	}
	if took := time.Since(p.told); took > 5*time.Second {
		m.tb.Errorf("the daemon took %v to end", took)
	}
	if p.err != nil {
		m.tb.Errorf("the daemon ended with %v\n%s", p.err, m.LogTail(20))
	}
}

// Kill ends the daemon with SIGKILL.
func (m *Machine) Kill() {
	m.tb.Helper()
	if m.daemon == nil {
		return
	}
	p := m.daemon
	m.daemon = nil
	select {
	case <-p.done:
		m.tb.Errorf("the daemon had ended by itself: %v\n%s", p.err, m.LogTail(20))
	default:
	}
	p.kill()
}

// Exited waits for the daemon to end by itself and returns its error, nil for exit code 0.
func (m *Machine) Exited(within time.Duration) (err error, ended bool) {
	select {
	case <-m.daemon.done:
		err = m.daemon.err
		m.daemon = nil
		return err, true
	case <-time.After(within):
		return nil, false
	}
}

func (m *Machine) cleanup() {
	if m.daemon != nil {
		p := m.daemon
		m.daemon = nil
		p.kill()
	}
	log, _ := os.ReadFile(m.logs)
	for _, sign := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
		if i := bytes.Index(log, []byte(sign)); i >= 0 {
			m.tb.Errorf("the daemon crashed or has a race:\n%s", log[i:min(len(log), i+3000)])
		}
	}
	if m.tb.Failed() {
		m.tb.Logf("the daemon's log:\n%s", m.LogTail(40))
	}
	if m.tb.Failed() && os.Getenv("HAPPYD_KEEP") != "" {
		m.tb.Logf("kept %s", m.Dir)
		return
	}
	if err := os.RemoveAll(m.Dir); err != nil {
		m.tb.Logf("removing the machine: %v", err)
	}
}

// Log is what the daemon wrote to standard error so far.
func (m *Machine) Log() string {
	b, _ := os.ReadFile(m.logs)
	return string(b)
}

// LogTail is the end of the daemon's log.
func (m *Machine) LogTail(lines int) string {
	all := strings.Split(strings.TrimRight(m.Log(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Status asks the running daemon.
func (m *Machine) Status() (control.StatusDoc, error) {
	c, err := control.Dial(m.StateDir())
	if err != nil {
		return control.StatusDoc{}, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.Status(ctx)
}
