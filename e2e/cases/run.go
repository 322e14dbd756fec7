package cases

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/happyd/happyd/e2e/harness"
)

// Mode says what happens to the daemon between the steps of a case.
type Mode string

// The modes.
const (
	Plain   Mode = "plain"
	Restart Mode = "restarted" // SIGTERM and a new start after every step
	Kill    Mode = "killed"    // SIGKILL and a new start after every step
)

// Modes are all modes.
var Modes = []Mode{Plain, Restart, Kill}

// Play gives a case's input to a machine and waits until nothing more comes.
func (c *Case) Play(tb testing.TB, m *harness.Machine, mode Mode) {
	tb.Helper()
	if c.Kind == "map" {
		c.playHome(tb, m, mode)
		return
	}
	files, err := c.Files()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range files {
		write(tb, m.Path("home/"+f), read(tb, c.In("home/"+f)), false)
	}
	for i, s := range c.Steps {
		if err := c.step(tb, m, s); err != nil {
			tb.Fatalf("step %d %s: %v", i, s.Op, err)
		}
		switch s.Op {
		case "settle", "wait":
		default:
			disturb(m, mode)
		}
	}
}

// disturb ends the daemon in the way of the mode and starts it again.
func disturb(m *harness.Machine, mode Mode) {
	if mode == Plain || !m.Running() {
		return
	}
	if mode == Kill {
		m.Kill()
	} else {
		m.Stop()
	}
	m.Start()
}

// playHome writes the files of a home as if every line had just been written.
func (c *Case) playHome(tb testing.TB, m *harness.Machine, mode Mode) {
	tb.Helper()
	m.Start()
	files, err := c.Files()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range files {
		data := read(tb, c.In("home/"+f))
		path := m.Path("home/" + f)
		if mode == Plain || len(data) == 0 {
			write(tb, path, data, false)
			continue
		}
		// In two parts, cut in the middle of a line.
		half := len(data) / 2
		write(tb, path, data[:half], true)
		disturb(m, mode)
		write(tb, path, data[half:], true)
		disturb(m, mode)
	}
	m.Settle()
}

func (c *Case) step(tb testing.TB, m *harness.Machine, s Step) error {
	path := m.Path(s.Path)
	switch s.Op {
	case "start-daemon":
		return m.TryStart()
	case "stop-daemon":
		m.Stop()
	case "kill9-daemon":
		m.Kill()
	case "restart-daemon":
		if s.How == "kill9" {
			m.Kill()
		} else {
			m.Stop()
		}
		return m.TryStart()
	case "append", "mkdir-and-append":
		write(tb, path, read(tb, c.In(s.From)), true)
	case "append-fill":
		return fill(path, s)
	case "create":
		write(tb, path, nil, false)
		return os.Truncate(path, s.Size)
	case "truncate":
		return os.Truncate(path, s.Size)
	case "replace":
		tmp := path + ".new"
		write(tb, tmp, read(tb, c.In(s.From)), false)
		return os.Rename(tmp, path)
	case "rename":
		to := m.Path(s.To)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.Rename(path, to)
	case "unlink":
		return os.Remove(path)
	case "mkdir":
		return os.MkdirAll(path, 0o755)
	case "utime":
		old := time.Now().AddDate(0, 0, -s.AgeDays)
		return os.Chtimes(path, old, old)
	case "wait":
		time.Sleep(time.Duration(s.MS) * time.Millisecond)
		return expect(m, s.Expect)
	case "settle":
		m.Settle()
	default:
		return fmt.Errorf("unknown op %q", s.Op)
	}
	return nil
}

// expect checks what a wait may assert: that no subagent was shown yet.
func expect(m *harness.Machine, what string) error {
	if !strings.Contains(what, "subagent") {
		return nil
	}
	all, err := m.Streams()
	if err != nil {
		return err
	}
	for _, s := range all {
		for _, e := range s.Envs {
			if e.Subagent != "" {
				return fmt.Errorf("expected %q, but there is %s of a subagent", what, e.Ev.T)
			}
		}
	}
	return nil
}

func read(tb testing.TB, path string) []byte {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func write(tb testing.TB, path string, data []byte, appendIt bool) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	flag := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if appendIt {
		flag = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	}
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		tb.Fatal(err)
	}
}

// fill appends a line that is too long to keep in a case.
func fill(path string, s Step) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.WriteString(f, s.Prefix); err != nil {
		return err
	}
	const chunk = 4096
	units := bytes.Repeat([]byte(s.Unit), chunk)
	for left := s.Times; left > 0; left -= chunk {
		if _, err := f.Write(units[:min(left, chunk)*len(s.Unit)]); err != nil {
			return err
		}
	}
	_, err = io.WriteString(f, s.Suffix)
	return err
}
