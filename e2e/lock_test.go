//go:build unix

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/happyd/happyd/e2e/harness"
	"github.com/happyd/happyd/uplink/fakehappy"
)

// lockFiles are the lock files of a machine.
func lockFiles(t *testing.T, m *harness.Machine) (out []string) {
	t.Helper()
	err := filepath.WalkDir(m.Dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(d.Name(), "lock") {
			out = append(out, path)
		}
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("no lock files: %v", err)
	}
	return out
}

func TestLeftOverLocks(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, content string }{
		{"empty", ""},
		{"naming a live process", fmt.Sprintf(`{"pid":%d,"since":"2026-01-01T00:00:00Z"}`, os.Getpid())},
		{"holding garbage", "\x00\x00\x00\x00"},
	}
	m := machine(t, harness.Options{})
	m.Start()
	m.Stop()
	for _, c := range cases {
		for _, f := range lockFiles(t, m) {
			if err := os.WriteFile(f, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.TryStart(); err != nil {
			t.Errorf("a lock file %s: %v", c.name, err)
			continue
		}
		m.Stop()
	}
	m.Start()
	m.Kill()
	began := time.Now()
	m.Start()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the start after a kill took %v", took)
	}
}

// second runs another daemon, which must refuse to start and name the process that is in its way.
func second(t *testing.T, m *harness.Machine, config string) {
	t.Helper()
	cmd := exec.Command(bin, "run", "--config", config)
	cmd.Env = m.Env()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() <= 0 {
		t.Fatalf("the second daemon ended with %v:\n%s", err, out.String())
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the refusal took %v", took)
	}
	if !strings.Contains(out.String(), fmt.Sprint(m.PID())) {
		t.Errorf("the refusal does not name process %d:\n%s", m.PID(), out.String())
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	t.Parallel()
	m := machine(t, harness.Options{})
	m.Start()
	second(t, m, m.ConfigPath())
	if _, err := m.Status(); err != nil {
		t.Errorf("the first daemon suffered: %v", err)
	}
	// A stopped process holds its lock, however long it is silent.
	if err := syscall.Kill(m.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second)
	second(t, m, m.ConfigPath())
	if err := syscall.Kill(m.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Status(); err != nil {
		t.Errorf("the first daemon suffered: %v", err)
	}
	m.Stop()
}

// TestSecondDaemonWithOtherDirectories: two daemons with two state directories would double every session of the account.
func TestSecondDaemonWithOtherDirectories(t *testing.T) {
	t.Parallel()
	s := fakehappy.New()
	m := harness.NewWithFake(t, harness.Options{Bin: bin}, s)
	m.Start()
	text, err := os.ReadFile(m.ConfigPath())
	if err != nil {
		t.Fatal(err)
	}
	other := strings.NewReplacer(m.StateDir(), m.Path("state2"), m.DataDir(), m.Path("data2")).Replace(string(text))
	path := m.Path("other.yaml")
	if err := os.WriteFile(path, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	second(t, m, path)
	m.Stop()
}
