//go:build unix

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/happyd/happyd/e2e/cases"
	"github.com/happyd/happyd/e2e/harness"
)

// notYet are cases for what is not built yet.
var notYet = map[string]string{
	"secret-redaction": "redaction is not built yet",
}

func TestSharedClaude(t *testing.T) { runCases(t, shared(t, "cases/claude")) }
func TestSharedCodex(t *testing.T)  { runCases(t, shared(t, "cases/codex")) }
func TestOwnCases(t *testing.T)     { runCases(t, "testdata/cases") }

func runCases(t *testing.T, dir string) {
	t.Parallel()
	all, err := cases.LoadAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		for _, mode := range cases.Modes {
			t.Run(c.Name+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				runCase(t, c, mode)
			})
		}
	}
}

func runCase(t *testing.T, c *cases.Case, mode cases.Mode) {
	if why := notYet[c.Name]; why != "" {
		t.Skip(why)
	}
	m := machine(t, harness.Options{})
	if c.Needs("codex") {
		m.Start()
		known := m.Provides("codex")
		m.Stop()
		if !known {
			t.Skip("the daemon does not know Codex yet")
		}
	}
	c.Play(t, m, mode)
	if slices.ContainsFunc(c.Steps, func(s cases.Step) bool { return s.Op == "append-fill" }) {
		// A long line is never in memory as a whole.
		if peak, ok := peakMemory(m.PID()); ok && mode == cases.Plain && os.Getenv("HAPPYD_RACE") == "" {
			t.Logf("peak memory %.0f MiB", float64(peak)/1024)
			if peak > 96<<10 {
				t.Error("that is more than reading in pieces needs")
			}
		}
	}
	streams, err := m.Streams()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range c.Check(streams, mode) {
		t.Error(problem)
	}
	m.Stop()
	wantSealed(t, m, streams)
}

// peakMemory is the largest resident size that a process ever had, in KiB, where the system tells.
func peakMemory(pid int) (kib int, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			_, err := fmt.Sscan(rest, &kib)
			return kib, err == nil
		}
	}
	return 0, false
}

// wantSealed checks that nothing of what was said lies readable in the daemon's files or stands in its log.
func wantSealed(t *testing.T, m *harness.Machine, streams []harness.Stream) {
	t.Helper()
	said := map[string]bool{}
	for _, s := range streams {
		for _, e := range s.Envs {
			for _, text := range []string{e.Ev.Text, e.Ev.Title, e.Ev.Description} {
				if len(text) >= 6 {
					said[text] = true
				}
			}
		}
	}
	files := map[string][]byte{"log": []byte(m.Log())}
	for _, dir := range []string{m.StateDir(), m.DataDir()} {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			files[path], err = os.ReadFile(path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range files {
		for text := range said {
			if bytes.Contains(data, []byte(text)) {
				t.Errorf("%s holds %q", filepath.Base(name), text)
			}
		}
	}
}
